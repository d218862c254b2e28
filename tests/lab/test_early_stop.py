"""A run whose plan allows a verdict at any time ends when its pairs are settled, and says what that saved."""

from pathlib import Path

import msgspec
import pytest

from support.results import STAMP, make_plan, make_trial
from support.rows import contrast, settings, table
from terminalbench.analytics.compare import compare_views
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.run import EarlyStop, FinishedRun, ended_early, settled
from terminalbench.live.status import view_now
from terminalbench.records.event import Event
from terminalbench.report.run_end import next_steps
from terminalbench.runner.run import Listener

TASKS = [f"t{number}" for number in range(20)]


def batch_of(root: Path, chances: dict[str, str], *, attempts: int = 4, looks: object = "any") -> Batch:
    """Each profile's first attempt at every task has ended, with the marks of `chances`."""
    batch = allocate(root / "results", "s")
    make_plan(batch, tuple(chances), TASKS, attempts, analysis={"looks": looks})
    for profile, marks in chances.items():
        for second, (task, mark) in enumerate(zip(TASKS, marks, strict=True)):
            passed = float(mark == "+")
            make_trial(batch, f"{task}__1", profile=profile, reward=passed, cost=0.5, attempt=1, second=second)
    return batch


def follow(batch: Batch) -> tuple[dict[str, str], list[str]]:
    """What is ordered, and what is told, as the trials end."""
    told: list[str] = []
    listener = EarlyStop(Listener(note=told.append)).listener()
    plan = read_json(batch.plan_json, Plan)
    listener.prepared(plan, batch, sum(job.trials for job in plan.jobs))
    for job in plan.jobs:
        for task in TASKS:
            listener.event(Event.now("trial_ended", job.name, profile=job.profile, task=task))
    listener.tick()
    return ControlFile(batch.control_json).read().decided, told


def spare(batch: Batch, decided: dict[str, str]) -> None:
    """What the supervisor writes of profiles that were stopped."""
    plan = read_json(batch.plan_json, Plan)
    left = [
        Exclusion(why, profile=name, task=task.ref, kind=ExclusionKind.DECIDED)
        for name, why in decided.items()
        for task in plan.jobs[0].tasks
    ]
    write_json(batch.plan_json, msgspec.structs.replace(plan, excluded=tuple(left)))


def test_a_pair_that_is_decided_starts_no_more_trials_and_the_batch_is_whole(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"old": "x" * 20, "new": "+" * 17 + "x" * 3})
    decided, told = follow(batch)
    assert set(decided) == {"old", "new"}
    assert decided["new"].startswith("new is better than old (look ")
    assert any("new starts no more trials" in line for line in told)
    refusal = ControlFile(batch.control_json).read().refusal("new")
    assert refusal is not None
    assert refusal.kind is ExclusionKind.DECIDED
    spare(batch, decided)
    view = view_now(batch)
    assert FinishedRun(batch, view).complete
    lines = next_steps(view, "s/0", interrupted=False)
    assert lines[0].startswith(
        "ended early, which saved 120 of 160 trials (75.0 %), about $60.00; to run the rest anyway"
    )
    assert ended_early(batch)
    comparison = compare_views([view])
    found = comparison.contrasts[0]
    assert (found.verdict, found.sequential and found.sequential.spared) == ("better", 120)
    assert "the run ended early, so its difference is slightly overestimated" in found.notes
    assert not comparison.repeat, "nothing of it has to be run again"
    assert comparison.profiles[0].coverage == 1.0
    assert comparison.profiles[1].rate_all == pytest.approx(0.85)
    assert not [line for line in comparison.warnings if "have not run" in line]


def test_a_pair_past_hope_is_given_up_and_stays_inconclusive(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"old": "+x" * 10, "new": "x+" * 10}, attempts=2)
    decided, _ = follow(batch)
    assert set(decided) == {"old", "new"}
    assert "would probably not separate new from old" in decided["old"]
    spare(batch, decided)
    found = compare_views([view_now(batch)]).contrasts[0]
    assert found.verdict == "inconclusive"
    assert "because the run ended early, at look 10 of 20" in found.sentence


def test_a_profile_runs_on_while_one_of_its_pairs_is_open(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"old": "x" * 20, "new": "+" * 17 + "x" * 3, "other": "x" * 15 + "+" * 5})
    decided, _ = follow(batch)
    assert set(decided) == {"new"}, "old is still compared with other"


def test_nothing_is_stopped_where_no_early_verdict_was_declared(tmp_path: Path) -> None:
    assert follow(batch_of(tmp_path, {"old": "x" * 20, "new": "+" * 20}, looks=1)) == ({}, [])


@pytest.mark.parametrize(("margin", "given_up"), [(None, True), (0.3, False), (0.01, True)])
def test_a_pair_that_may_yet_be_equivalent_is_not_given_up(margin: float | None, given_up: bool) -> None:
    half = "++.. xx.. " * 10
    found = contrast(table(a=half, b=half), settings(looks="any", margin=margin))
    assert (settled(found) is not None) is given_up


def test_results_that_break_do_not_settle_a_pair(tmp_path: Path) -> None:
    batch = batch_of(tmp_path, {"old": "x" * 20, "new": "+" * 17 + "x" * 3})
    for task in TASKS[:8]:
        folder = batch.runs / f"{STAMP}__new" / f"{task}__1"
        make_trial(batch, folder.name, profile="new", reward=None, error="EnvironmentStartTimeoutError", attempt=1)
    assert follow(batch)[0] == {}
