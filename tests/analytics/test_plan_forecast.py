"""What `plan` foretells, from batches on disk."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from support.experiments import Project
from support.results import make_plan, make_trial
from terminalbench.analytics.plan_forecast import forecast
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.experiments.tables import FREE, AnalysisTable, RunTable
from terminalbench.index.history import likely_costs, past_trials
from terminalbench.index.scan import scan_all
from terminalbench.index.store import FILE_NAME
from terminalbench.json_files import write_json
from terminalbench.records.trial import Outcome

CONTENT = {"agent": "claude-code", "model": "m"}


def planned(batch: Batch, **content: dict) -> Plan:
    """A plan over tasks a to h of the given profiles, twice each."""
    plan = make_plan(batch, tuple(content), "abcdefgh", 2, settings={"parallel": 2})
    records = tuple(ProfileRecord(key, f"id-{key}", value) for key, value in content.items())
    plan = msgspec.structs.replace(plan, profiles=records, analysis=AnalysisTable(effect=0.1))
    write_json(batch.plan_json, plan)
    return plan


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Sixteen trials of a minute and half a dollar, half of them passed, and one that was run again."""
    batch = allocate(tmp_path, "s")
    planned(batch, p=CONTENT)
    for task in "abcdefgh":
        make_trial(batch, f"{task}__1", cost=0.5)
        make_trial(batch, f"{task}__2", cost=0.5, reward=0.0)
    folder = make_trial(batch, "a__0", cost=0.5, reward=None, error="CancelledError")
    aside = batch.superseded / folder.parent.name
    aside.mkdir(parents=True)
    folder.rename(aside / folder.name)
    scan_all(tmp_path)
    return tmp_path


def test_time_and_money_come_from_the_same_profile(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT, q={**CONTENT, "model": "other"})
    found = forecast(plan, past_trials(history, plan.profiles))
    ours, theirs = found.profiles
    assert (ours.trials, ours.past_trials, ours.of) == (16, 17, "the same profile")
    assert ours.cost_usd == pytest.approx(16 * (7 * 0.5 + 0.75) / 8), "a repeated try is paid too"
    assert ours.trial_sec == 60
    assert (theirs.of, theirs.cost_usd, theirs.trial_sec) == (None, None, None)
    assert (found.hours, found.cost_usd) == (None, None), "unknown is not zero"
    past = past_trials(history, plan.profiles)
    broken = msgspec.structs.replace(past[0], outcome=Outcome.ERRORED, seconds=1.0, cost_usd=0.0)
    again = forecast(plan, [*past, *[broken] * 9]).profiles[0]
    assert (again.trial_sec, again.cost_usd) == (ours.trial_sec, ours.cost_usd), "what broke at once says nothing"


def test_a_profile_of_price_zero_will_cost_nothing(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT)
    plan = msgspec.structs.replace(plan, profiles=(msgspec.structs.replace(plan.profiles[0], price=FREE),))
    assert forecast(plan, past_trials(history, plan.profiles)).cost_usd == 0.0


def test_else_from_the_same_agent_and_model(history: Path) -> None:
    batch = allocate(history, "next")
    plan = planned(batch, renamed=CONTENT, oracle={"agent": "oracle"})
    found = forecast(plan, past_trials(history, plan.profiles))
    assert found.profiles[0].of == "the same agent and model"
    assert found.profiles[1].cost_usd == 0.0, "an agent without a model costs nothing"
    assert found.cost_usd == found.profiles[0].cost_usd
    alone = msgspec.structs.replace(plan, jobs=plan.jobs[:1], settings=RunTable(parallel=2))
    assert forecast(alone, past_trials(history, plan.profiles)).hours == pytest.approx(8 * 60 / 3600)
    assert forecast(alone, past_trials(history, plan.profiles), {"renamed": 12}).trials == 4


def test_a_new_profile_is_not_priced_by_a_dear_one_of_the_same_agent_and_model(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT, new={**CONTENT, "options": {"cheap": True}})
    past = past_trials(history, plan.profiles)
    assert forecast(plan, past).profiles[0].cost_usd is not None
    costs = likely_costs(plan, past)
    assert (list(costs), costs["p"].of) == (["p"], "the same profile"), (
        "the gate lets `new` start one trial, and learns"
    )


def test_what_a_size_can_show_uses_the_luck_seen_so_far(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT, q=CONTENT)
    seen, blind = forecast(plan, past_trials(history, plan.profiles)), forecast(plan, [])
    assert seen.assumption is not None
    assert blind.assumption is not None
    assert "tasks as hard as 8 of them were so far, all gaining alike" in seen.assumption
    assert "tasks of the usual difficulty, all gaining alike" in blind.assumption
    assert blind.smallest_detectable is not None
    assert seen.smallest_detectable is not None
    assert blind.smallest_detectable < seen.smallest_detectable
    assert blind.tasks_for_effect is not None
    assert 90 < blind.tasks_for_effect < 150


@pytest.mark.parametrize(("reward", "word"), [(1.0, "ceiling"), (0.0, "floor")])
def test_ceiling_and_floor_are_warned_of(tmp_path: Path, reward: float, word: str) -> None:
    batch = allocate(tmp_path, "s")
    plan = planned(batch, p=CONTENT, q=CONTENT)
    for task in "abcdefgh":
        make_trial(batch, f"{task}__1", reward=reward)
    scan_all(tmp_path)
    assert forecast(plan, past_trials(tmp_path, plan.profiles)).warnings[0].startswith(word)


def files(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()}


def test_planning_reads_the_index_and_writes_nothing(project: Project, tbench) -> None:
    text = (
        'schema_version = 2\nslug = "next"\n[tasks]\nitems = [{ id = "a", dataset = "d@1" }]\n'
        '[profiles.p]\nagent = "claude-code"\nmodel = "m"\nno_mcp = true\n[profiles.q]\nagent = "oracle"\n'
    )
    file = project.experiment(text)
    before = files(project.root)
    assert "time unknown; cost unknown" in tbench("plan", file).out
    assert files(project.root) == before
    batch = allocate(project.root / "results", "s")
    planned(batch, p=CONTENT)
    make_trial(batch, "a__1", cost=0.5)
    scan_all(project.root / "results")
    before = files(project.root)
    ran = tbench("plan", file)
    assert "cost unknown" not in ran.out
    assert "p: from 1 earlier trial of the same agent and model" in ran.out
    assert "no earlier trials similar to those of q" in ran.out
    assert json.loads(tbench("plan", file, "--json").out)["forecast"]["cost_usd"] == 0.5
    assert files(project.root) == before


def test_an_index_that_cannot_be_read_is_no_history(tmp_path: Path) -> None:
    plan = planned(allocate(tmp_path, "s"), p=CONTENT)
    assert past_trials(tmp_path, plan.profiles) == []
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 100)
    assert past_trials(tmp_path, plan.profiles) == []


def test_the_index_knows_the_profiles_without_the_plans(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT)
    before = past_trials(history, plan.profiles)
    Batch(history / "s" / "0").plan_json.unlink()
    assert past_trials(history, plan.profiles) == before
    assert len(before) == 17


def test_an_index_of_an_earlier_version_is_no_history_until_it_is_filled(history: Path) -> None:
    plan = planned(allocate(history, "next"), p=CONTENT)
    before = past_trials(history, plan.profiles)
    with closing(sqlite3.connect(history / FILE_NAME)) as connection:
        connection.execute("DROP TABLE profiles")
        connection.execute("UPDATE migrations SET name = '018_reader'")
        connection.commit()
    stored = {path: path.read_bytes() for path in history.glob("index.db*")}
    assert past_trials(history, plan.profiles) == []
    assert {path: path.read_bytes() for path in history.glob("index.db*")} == stored, "a plan writes nothing"
    scan_all(history)
    assert past_trials(history, plan.profiles) == before
