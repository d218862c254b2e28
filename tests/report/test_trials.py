"""`tbench list BATCH`, `tbench show BATCH PROFILE TASK#N`: the trials of a batch, and one of them."""

import json
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Exclusion
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.live.status import with_running
from terminalbench.report.text import trials_text

LONG = "a-task-whose-name-is-so-long-that-no-terminal-of-eighty-columns-holds-it-and-more"


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    made = allocate(tmp_path / "results", "s")
    make_plan(made, ("p", "q", "r"), ["a", LONG], 2, excluded=tuple(Exclusion("no key", profile=p) for p in "qr"))
    folder = make_trial(made, "a__1", cost=0.5, attempt=1)
    (folder / "agent").mkdir()
    steps = [{"step_id": n, "source": "agent" if n > 1 else "user", "message": "m"} for n in range(1, 5)]
    document = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "x", "version": "1"}}
    (folder / "agent" / "trajectory.json").write_text(json.dumps({**document, "steps": steps}))
    broken = make_trial(made, "a__2", reward=None, error="RuntimeError", second=1, attempt=2)
    (broken / "exception.txt").write_text("Traceback\n  line\nRuntimeError: why \x1b[31m\n")
    (made.runs / "2026-01-23__16-26-48__p" / f"{LONG}__3").mkdir()
    config = {"task": {"path": f"/x/{LONG}", "source": "d"}, "trial_name": f"{LONG}__3"}
    (made.runs / "2026-01-23__16-26-48__p" / f"{LONG}__3" / "config.json").write_text(json.dumps(config))
    return made


def test_a_batch_lists_its_trials_with_outcome_steps_and_cost(tbench, batch: Batch) -> None:
    out = tbench("list", "s/0", "--results", batch.folder.parent.parent).out
    head, first, second, *_ = out.splitlines()
    assert head.split() == ["profile", "trial", "outcome", "steps", "cost", "time"]
    assert first.split() == ["p", "a#1", "passed", "3", "$0.50", "60", "s"]
    assert second.split() == ["p", "a#2", "errored", "-", "unknown", "60", "s"]
    assert "     8  not run: no key [q 4, r 4]" in out  # one cause, said once
    assert out.count("no key") == 1


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_list_of_trials_fits_the_terminal(batch: Batch, width: int) -> None:
    scan_batch(batch)
    text = trials_text(view_batch(batch), width)
    assert max(map(len, text.splitlines())) <= width
    assert ("…" in text) == (width < 140)


def test_a_trial_that_runs_is_not_called_cancelled(batch: Batch) -> None:
    scan_batch(batch)
    view = with_running(view_batch(batch), {f"2026-01-23__16-26-48__p/{LONG}__3": ("p", LONG)})
    lines = trials_text(view, 140).splitlines()
    assert [line.split()[2] for line in lines[3:5]] == ["running", "waiting"]
    assert not any("Not measured" in line for line in lines)


def test_the_list_for_programs_holds_state_and_steps(tbench, batch: Batch) -> None:
    rows = json.loads(tbench("list", "s/0", "--json", "--results", batch.folder.parent.parent).out)
    assert [row["state"] for row in rows[:4]] == ["passed", "errored", "cancelled", "not_run"]
    assert [row["agent_steps"] for row in rows[:2]] == [3, None]


def test_a_trial_is_shown_by_what_it_was_to_do(tbench, batch: Batch) -> None:
    root = batch.folder.parent.parent
    assert tbench("show", "s/0", "p", "a", "--results", root).out.startswith("a__1\n")
    out = tbench("show", "s/0", "p", "d/a#2", "--results", root).out
    assert out.startswith("a__2\n")
    assert "exception.txt says\n    Traceback\n      line\n    RuntimeError: why" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (("p", "a#3"), "a has 2 attempts by p, but no #3"),
        (("p", "aa"), 'no task is called "aa" (did you mean "a"?)'),
        (("P", "a"), 'no profile is called "P" (did you mean "p"?)'),
        (("q", "a"), "a#1 by q has not run: no key"),
        (("p",), "name one trial, or BATCH PROFILE TASK[#N]"),
    ],
)
def test_what_names_no_trial_says_what_does(tbench, batch: Batch, named: tuple[str, ...], said: str) -> None:
    ran = tbench("show", "s/0", *named, "--results", batch.folder.parent.parent)
    assert (ran.code, said in ran.err) == (2, True), ran.err
