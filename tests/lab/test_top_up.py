"""Attempts that are added task by task: the plan grows, never shrinks, and only what is missing runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.experiments.tables import RunTable, TopUpTable
from terminalbench.json_files import write_json
from terminalbench.lab.resume import top_up_rounds, with_extra
from terminalbench.records.trial import TaskRef
from terminalbench.runner.growth import extended, with_attempts
from terminalbench.runner.run import Listener
from terminalbench.runner.waves import next_wave, remaining

A, B = TaskRef("a", "d"), TaskRef("b", "d")
RULE = TopUpTable(interval_width=0.2, max_attempts=10, trials_per_round=20)


def plan(attempts: int = 1, rule: TopUpTable | None = None) -> Plan:
    tasks = tuple(PlannedTask(ref, "d", {"path": ref.id}) for ref in (A, B))
    jobs = tuple(JobSpec(f"2026-01-01__10-00-00__{p}", p, p, attempts, tasks) for p in ("new", "old"))
    return Plan("s", "s", 0, "results/s/0", "old", jobs, settings=RunTable(attempts=attempts), top_up=rule)


def totals(found: Plan) -> dict[tuple[str, str], int]:
    return {(job.profile, task.ref.id): job.attempts_of(task) for job in found.jobs for task in job.tasks}


def test_attempts_are_added_where_they_were_asked_for() -> None:
    grown = with_extra(plan(2), {("new", A): 3, ("old", B): 1})
    assert totals(grown) == {("new", "a"): 5, ("new", "b"): 2, ("old", "a"): 2, ("old", "b"): 3}
    assert [job.trials for job in grown.jobs] == [7, 5]
    assert len(grown.cells()) == 12
    assert [(c.task.id, c.attempt) for c in grown.cells() if c.profile == "new"][-3:] == [("a", 3), ("a", 4), ("a", 5)]


def test_a_wave_of_a_grown_job_holds_what_is_missing_and_no_more() -> None:
    job = with_extra(plan(1), {("new", A): 2}).jobs[0]
    missing = remaining(job, {("d", "a"): 1, ("d", "b"): 1})
    assert missing == {("d", "a"): 2}
    wave = next_wave(job, missing, "w")
    assert (wave.trials, [task.ref.id for task in wave.tasks]) == (2, ["a", "a"])


@given(extra=st.integers(0, 5), start=st.integers(1, 4), wanted=st.integers(1, 9))
def test_attempts_of_everything_never_take_back_a_top_up(extra: int, start: int, wanted: int) -> None:
    before = with_extra(plan(start), {("new", A): extra})
    if wanted < start:
        with pytest.raises(UserError):
            with_attempts(before, wanted, "here")
        return
    after = totals(with_attempts(before, wanted, "here"))
    assert after == {cell: max(count, wanted) for cell, count in totals(before).items()}


def test_a_rule_that_comes_late_is_a_departure_and_one_that_changes_is_refused() -> None:
    late = extended(plan(), plan(rule=RULE), "exp.toml")
    assert (late.top_up, len(late.departures)) == (RULE, 1)
    assert not extended(plan(rule=RULE), plan(rule=RULE), "exp.toml").departures
    with pytest.raises(UserError, match="the rule may not change"):
        extended(plan(rule=RULE), plan(rule=replace(RULE, interval_width=0.5)), "exp.toml")


def test_without_a_rule_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(tmp_path / "s" / "0")
    write_json(batch.plan_json, plan())
    monkeypatch.setattr(
        "terminalbench.runner.resume.resume", lambda *_: pytest.fail("money was spent before the rule was looked for")
    )
    with pytest.raises(UserError, match="has no .top_up. rule"):
        top_up_rounds(batch, None, Listener())
