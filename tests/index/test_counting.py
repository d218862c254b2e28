"""Which trials of a cell count, and what a list says of them."""

import json
import shutil
from pathlib import Path

import msgspec

from index.batches import outcomes, standing
from support.results import STAMP, make_plan, make_trial
from terminalbench.analytics.compare import compare_views
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Exclusion, Plan, ProfileRecord
from terminalbench.harbor.retry_queue import set_aside
from terminalbench.index.queries import trial_rows, view_batch
from terminalbench.index.results import export_index, list_batches
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.trial import FoundTrial
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.text import summary
from terminalbench.report.trial import ShownSteps, trial_text


def test_every_planned_cell_has_a_state(batch: Batch) -> None:
    make_trial(batch, "a__1")
    make_trial(batch, "a__2", reward=0.0, second=1)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    make_trial(batch, "b__2", reward=None, error="CancelledError")
    assert outcomes(batch) == {
        ("p", "a", 1): "passed",
        ("p", "a", 2): "failed",
        ("p", "b", 1): "errored",
        ("p", "b", 2): "cancelled",
        ("q", "a", 1): "not_run",
        ("q", "a", 2): "not_run",
        ("q", "b", 1): "not_run",
        ("q", "b", 2): "not_run",
    }


def test_a_trial_run_again_counts_once_and_costs_twice(batch: Batch) -> None:
    make_trial(batch, "a__0", reward=None, error="CancelledError", cost=1.0)
    make_trial(batch, "a__1", second=1, job=f"{STAMP}-w2__p", cost=1.0)
    make_trial(batch, "a__2", second=2, job=f"{STAMP}-w2__p", cost=1.0)
    assert outcomes(batch)["p", "a", 1] == outcomes(batch)["p", "a", 2] == "passed"
    view = view_batch(batch)
    assert [row.name for row in view.superseded] == ["a__0"]
    assert sum(row.usage.cost_usd or 0 for row in view.rows()) == 3.0


def test_the_index_says_which_trial_counts(batch: Batch) -> None:
    make_trial(batch, "a__1", reward=None, error="RuntimeError", cost=1.0)
    make_trial(batch, "a__2", second=1, cost=1.0)
    assert standing(batch) == {"a__1": (1, 2), "a__2": (1, 1)}
    make_trial(batch, "a__3", reward=0.0, second=2, job=f"{STAMP}-w2__p", cost=1.0)
    assert standing(batch) == {"a__1": (0, None), "a__2": (1, 1), "a__3": (1, 2)}
    plan = read_json(batch.plan_json, Plan)
    write_json(batch.plan_json, msgspec.structs.replace(plan, superseded=(f"{STAMP}__p/a__1",)))
    shutil.rmtree(batch.runs / f"{STAMP}-w2__p" / "a__3")
    assert standing(batch) == {"a__1": (0, None), "a__2": (1, 1)}, "a new plan is enough"
    set_aside(make_trial(batch, "b__1", reward=None, error="RuntimeError"), batch.superseded, 1)
    shutil.rmtree(batch.runs / f"{STAMP}__p" / "b__1")
    make_trial(batch, "b__1", second=3)
    assert {name: found for name, found in standing(batch).items() if name[0] == "b"} == {
        "b__1": (1, 1),
        "b__1-try1": (0, None),
    }
    counts = {row.name: row.run_again for row in trial_rows(batch.folder.parent.parent, "s/0")}
    assert counts == {"a__1": True, "a__2": False, "b__1": False, "b__1-try1": True}


def test_of_an_attempt_that_was_run_again_the_first_verdict_counts(batch: Batch) -> None:
    make_trial(batch, "a__1", reward=0.0, attempt=1)
    make_trial(batch, "a__2", reward=0.0, second=1, attempt=2)
    make_trial(batch, "a__3", second=2, job=f"{STAMP}-w2__p", attempt=1)
    plan = read_json(batch.plan_json, Plan)
    write_json(batch.plan_json, msgspec.structs.replace(plan, superseded=(f"{STAMP}__p/a__1",)))
    assert standing(batch) == {"a__1": (1, 1), "a__2": (1, 2), "a__3": (0, None)}, (
        "though it was scheduled to run again"
    )
    view = view_batch(batch)
    assert view.repeats() == {("p", TaskRef("a", "d"), 1): Outcome.PASSED}
    set_aside(make_trial(batch, "b__1", reward=0.0, attempt=1), batch.superseded, 1)
    shutil.rmtree(batch.runs / f"{STAMP}__p" / "b__1")
    make_trial(batch, "b__1", second=3, attempt=1)
    assert standing(batch)["b__1-try1"] == (1, 1), "nor does it help that an earlier version let Harbor try again"
    assert standing(batch)["b__1"] == (0, None)
    assert {row.name for row in trial_rows(batch.folder.parent.parent, "s/0") if row.run_again} == {"a__3", "b__1"}
    found = [FoundTrial(batch, "s/0", row) for row in trial_rows(batch.folder.parent.parent, "s/0")]
    shown = {one.row.name: trial_text(one.folder, "s/0", one.row, ShownSteps(later=one.later)) for one in found}
    assert "  repeated  1 time after this verdict, which counts; the last try passed\n" in shown["a__1"]
    assert "  superseded yes: an earlier try of its attempt has the verdict that counts;" in shown["a__3"]
    assert "repeated" not in shown["a__2"]
    text = summary(view_batch(batch))
    assert "2 trials were run again after a verdict: the first counts; by the last 2 passed" in text
    told = compare_views([view_batch(batch)]).warnings
    assert (
        "p: 2 trials were run again after a verdict; the first verdict counts (pass rate 0.0 %), by the last it would be 75.0 %"
        in told
    )


def test_a_list_says_what_is_unknown_and_what_is_free(batch: Batch) -> None:
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "a__2")
    make_trial(batch, "a__1", profile="q")
    plan = read_json(batch.plan_json, Plan)
    record = ProfileRecord("q", "id-q", {"agent": "oracle"})
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(record,)))
    scan_batch(batch)
    found = list_batches(batch.folder.parent.parent)[0]
    assert (found["cost_usd"], found["cost_unknown"]) == (0.5, 1)


def test_a_try_that_is_there_twice_costs_once(batch: Batch) -> None:
    """Harbor was killed between the moment a failed try was set aside and its removal."""
    folder = make_trial(batch, "a__1", reward=None, error="RuntimeError", cost=1.0)
    kept = set_aside(folder, batch.superseded, 1)
    assert kept.is_dir()
    scan_batch(batch)
    assert sum(row.usage.cost_usd or 0 for row in view_batch(batch).rows()) == 1.0
    shutil.rmtree(folder)
    make_trial(batch, "a__1", cost=2.0)
    scan_batch(batch)
    view = view_batch(batch)
    assert [row.name for row in view.superseded] == ["a__1-try1"]
    assert sum(row.usage.cost_usd or 0 for row in view.rows()) == 3.0


def test_a_clock_that_was_set_back_makes_durations_unknown_and_loses_nothing(batch: Batch) -> None:
    """A trial ended before it began, and a wave of later trials has earlier times than the first one."""
    folder = make_trial(batch, "a__1", second=5)
    result = json.loads((folder / "result.json").read_text())
    timing = {"started_at": "2026-01-23T16:30:05Z", "finished_at": "2026-01-23T15:30:05Z"}
    result |= {**timing, "agent_execution": timing}
    (folder / "result.json").write_text(json.dumps(result))
    make_trial(batch, "a__2", second=1, job=f"{STAMP}-w2__p", reward=0.0)
    found = outcomes(batch)
    assert (found["p", "a", 1], found["p", "a", 2]) == ("failed", "passed")
    view = view_batch(batch)
    row = next(row for row in view.rows() if row.name == "a__1")
    assert row.trial is not None
    assert row.trial.phases.agent_sec is None
    export_index(batch, view)
    entries = json.loads(batch.index_json.read_text())["runs"]
    assert [e["elapsed_sec"] for e in entries if e["trial_dir"] and e["trial_dir"].endswith("a__1")] == [None]


def test_what_was_left_out_says_why(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    excluded = (
        Exclusion("needs a GPU", task=TaskRef("a", "d")),
        Exclusion("gave up", profile="p", task=TaskRef("b", "d"), errored=True),
    )
    make_plan(batch, ("p",), "ab", 1, excluded=excluded)
    scan_batch(batch)
    cells = {c.task.id: (c.outcome, c.reason) for c in view_batch(batch).cells}
    assert cells == {"a": ("not_run", "needs a GPU"), "b": ("errored", "gave up")}


def test_an_unfinished_trial_is_not_dropped(batch: Batch) -> None:
    folder = batch.runs / f"{STAMP}__p" / "a__1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"task": {"path": "/x/a", "source": "d"}, "trial_name": "a__1"}))
    assert outcomes(batch)["p", "a", 1] == "cancelled"


def test_the_list_agrees_with_the_summary(batch: Batch) -> None:
    make_trial(batch, "a__0", reward=None, error="CancelledError")
    make_trial(batch, "a__1", second=1, job=f"{STAMP}-w2__p")
    make_trial(batch, "a__2", second=2, job=f"{STAMP}-w2__p")
    root = batch.folder.parent.parent
    scan_all(root)
    listed = list_batches(root)[0]
    assert (listed["trials"], listed["passed"], listed["not_measured"]) == (2, 2, 6)


def test_an_error_run_again_never_fills_a_cell(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p",), "a", 2, superseded=(f"{STAMP}__p/a__1",))
    make_trial(batch, "a__1", reward=None, error="RuntimeError")
    make_trial(batch, "a__2", second=2)
    scan_batch(batch)
    view = view_batch(batch)
    assert [c.outcome for c in view.cells] == ["passed", "not_run"]
    assert [row.name for row in view.superseded] == ["a__1"]


def test_of_two_errors_the_newer_counts(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p",), "a", 1)
    make_trial(batch, "a__1", reward=None, error="RuntimeError")
    make_trial(batch, "a__2", reward=None, error="RuntimeError", second=5)
    scan_batch(batch)
    assert [cell.row.name for cell in view_batch(batch).cells if cell.row] == ["a__2"]
