from pathlib import Path

import msgspec
import pytest

from support.live import plan as live_plan
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.plan import Exclusion
from terminalbench.index.queries import BatchView, CellState, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef
from terminalbench.report.text import COUNTED, matrix, money, profile_table, summary
from terminalbench.text.foreign import printable
from terminalbench.text.outcomes import LOST, MARKS, legend
from terminalbench.text.reasons import DOUBTFUL_COUNT, doubt
from terminalbench.text.table import columns


def test_the_summary_of_a_batch(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p", "q"), "ab", 2, excluded=(Exclusion("no key", profile="q"),))
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "a__2", reward=0.0, second=1)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    make_trial(batch, "b__2", reward=None, error="CancelledError")
    scan_batch(batch)
    text = summary(view_batch(batch))
    assert (
        text
        == """\
profile  passed  failed  measured  pass rate  of planned  cost
p             1       1       2/4     50.0 %      25.0 %  $0.50 + 3 unknown
q             0       0       0/4          -       0.0 %  $0.00

profile  wall time
p             60 s
q                -
pass rate, of planned: means over tasks; wall time: mean of a trial

task  p   q
a     +x  ..
b     EC  ..
+ passed   x failed   T timed out   E errored   C cancelled   . not run

Not measured
     4  not run: no key [q]
     1  errored (setup): why [p]
     1  cancelled: why [p]
"""
    )


def test_what_an_agent_tampered_with_is_named_first_and_no_reason_is_dropped_without_a_word(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    profiles = tuple(f"p{number}" for number in range(9))
    make_plan(batch, profiles, "a", 1)
    for profile in profiles:
        make_trial(batch, "a__1", profile=profile)
    scan_batch(batch)
    view = view_batch(batch)
    for place, cell in enumerate(view.cells):
        assert cell.row is not None
        assert cell.row.trial is not None
        reasons = ["implausibly_short", f"odd {place}", *(["tampering:environment"] if place == 8 else [])]
        trial = msgspec.structs.replace(cell.row.trial, suspect=reasons)
        view.cells[place] = msgspec.structs.replace(cell, row=msgspec.structs.replace(cell.row, trial=trial))
    said = summary(view).partition("Doubtful results\n")[2].splitlines()
    assert all(len(line) <= 80 for line in said)
    by_profile = ", ".join(f"{profile} 1" for profile in profiles)
    tampered, short = doubt("tampering:environment"), doubt("implausibly_short")
    assert " ".join(" ".join(said).split()).startswith(
        f"1 passed, but {tampered} [p8] 9 passed, but {short} [{by_profile}] 1 passed, but odd 0 [p0]"
    )
    assert said[-2:] == ["        and 3 further reasons", f"  {DOUBTFUL_COUNT}"]


def test_a_task_with_more_attempts_does_not_weigh_more(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("p",), "ab", 1)
    a, b = plan.jobs[0].tasks
    grown = msgspec.structs.replace(plan.jobs[0], tasks=(msgspec.structs.replace(a, extra=3), b))
    write_json(batch.plan_json, msgspec.structs.replace(plan, jobs=(grown,)))
    for number in range(4):
        make_trial(batch, f"a__{number}", reward=0.0, second=number)
    make_trial(batch, "b__1")
    scan_batch(batch)
    row = profile_table(view_batch(batch)).splitlines()[1]
    assert row.split()[1:7] == ["1", "4", "5/5", "50.0", "%", "50.0"]


@pytest.mark.parametrize("name", ["p", "a-profile-with-a-name-of-forty-letters--"])
def test_the_table_of_profiles_fits_80_columns(tmp_path: Path, name: str) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, (name,), "ab", 1)
    for task in "ab":
        make_trial(batch, f"{task}__1", profile=name, cost=1234.5)
    scan_batch(batch)
    table = profile_table(view_batch(batch))
    assert max(map(len, table.splitlines())) <= 80
    assert all(
        head in table for head in ("passed", "failed", "measured", "pass rate", "of planned", "cost", "wall time")
    )


def test_what_was_run_again_is_said(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p",), "a", 1)
    for number in range(3):
        make_trial(batch, f"a__{number}", reward=None, error="RuntimeError", second=number)
        scan_batch(batch)
        said = [line for line in summary(view_batch(batch)).splitlines() if "superseded" in line]
        assert [line.split(" run again")[0] for line in said] == [
            [],
            ["1 superseded trial was"],
            ["2 superseded trials were"],
        ][number]


def view_of(profiles: int, tasks: tuple[str, ...], outcomes: str) -> BatchView:
    """A batch in which every profile did the same on every task."""
    names = tuple(f"profile-{n}" for n in range(profiles))
    marks = {mark: outcome for outcome, mark in MARKS.items()}
    cells = [
        CellState(name, TaskRef(task, "d"), attempt, marks[mark])
        for name in names
        for task in tasks
        for attempt, mark in enumerate(outcomes, start=1)
    ]
    return BatchView("s/0", live_plan(names, tasks, len(outcomes)), cells, [])


@pytest.mark.parametrize("profiles", [1, 3, 12])
@pytest.mark.parametrize("attempts", ["+", "+xE", "+" * 37 + "x" * 11 + "EC", "+" * 400])
def test_the_matrix_stays_within_80_columns(profiles: int, attempts: str) -> None:
    text = matrix(view_of(profiles, ("csv-clean", "git-merge-conflict"), attempts))
    assert max(map(len, text.splitlines())) <= 80
    for number in range(profiles):
        assert f"profile-{number}" in text, "no profile is lost"


def test_long_names_of_tasks_give_way_so_that_profiles_stand_side_by_side() -> None:
    ids = tuple(f"instance_tiny__ring-{digit * 40}-v{'0' * 40}" for digit in "ab")
    text = matrix(view_of(3, ids, "+"))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("task ") == 1, "one block"
    assert "instance_tiny__ring-aaaaaaa" in text


def test_attempts_that_do_not_fit_as_marks_are_counted() -> None:
    many = "+" * 37 + "x" * 11 + "EC"
    text = matrix(view_of(1, ("csv-clean",), many))
    assert f"csv-clean  {many}\n{legend()}" in text
    text = matrix(view_of(4, ("csv-clean",), many))
    assert "csv-clean  37/48 1E 1C  37/48 1E 1C  37/48 1E 1C  37/48 1E 1C\n" in text
    assert text.endswith(f"{COUNTED}\n{legend(LOST)}")
    few = matrix(view_of(12, ("csv-clean",), "+x"))
    assert few.count("task       profile-") == 2, "marks that are as short stay, in two blocks"
    assert few.endswith(legend())


def test_unknown_cost_is_not_zero() -> None:
    assert money([]) == "$0.00", "nothing ran"


def test_columns_are_aligned() -> None:
    assert columns([["a", "1"], ["bbb", "10"]]) == "a     1\nbbb  10"


def test_foreign_output_cannot_drive_the_terminal() -> None:
    assert printable("ok\x1b[31mred\x07\ttab") == "okred␇\ttab"
