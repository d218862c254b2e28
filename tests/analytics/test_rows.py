"""From batches on disk to rows and settings."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.results import STAMP, make_plan, make_trial, typed
from terminalbench.analytics.model import Row
from terminalbench.analytics.rows import rows_of
from terminalbench.analytics.settings import ComparisonRequest, settings_of
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.experiments.profiles import content_id
from terminalbench.experiments.tables import AnalysisTable
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import write_json
from terminalbench.records.trial import Outcome

SETTINGS = {"container_env": "docker", "timeout_multiplier": 2.0}


def view(batch: Batch, **changes: Any) -> BatchView:
    scan_batch(batch)
    found = view_batch(batch)
    return msgspec.structs.replace(
        found, plan=msgspec.structs.replace(found.plan, **{k: typed(k, v) for k, v in changes.items()})
    )


def one(rows: list[Row], profile: str, task: str, attempt: int) -> Row:
    return next(r for r in rows if (r.profile, r.task.id, r.attempt) == (profile, task, attempt))


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = allocate(tmp_path, "s")
    make_plan(found, ("p", "q"), "ab", 2, settings=SETTINGS)
    return found


def test_every_planned_trial_is_a_row(batch: Batch) -> None:
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    rows = rows_of([view(batch)])
    assert len(rows) == 8
    passed = one(rows, "p", "a", 1)
    assert passed.trial == f"s/0/{STAMP}__p/a__1"
    assert (passed.outcome, passed.cost_usd, passed.spent.cost_unknown) == (Outcome.PASSED, 0.5, 0)
    assert (passed.environment, passed.profile_id) == ("docker timeouts x2", "id-p")
    assert (passed.agent_version, passed.task_digest) == ("1.0.0", "c" * 64)
    broken = one(rows, "p", "b", 1)
    assert (broken.outcome, broken.cost_usd, broken.spent.cost_unknown) == (Outcome.ERRORED, None, 1)
    missing = one(rows, "q", "a", 1)
    assert (missing.outcome, missing.trial, missing.cost_usd, missing.spent.cost_unknown) == (
        Outcome.NOT_RUN,
        None,
        None,
        0,
    )


def test_what_failed_without_a_reward_earned_none(batch: Batch) -> None:
    make_trial(batch, "a__1", reward=0.4)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    found = view(batch)
    assert [one(rows_of([found]), "p", task, 1).reward for task in "ab"] == [0.4, None]
    cell = found.cells[0]
    assert cell.row is not None
    assert cell.row.trial is not None
    object.__setattr__(cell.row, "trial", msgspec.structs.replace(cell.row.trial, reward=None))
    assert one(rows_of([found]), "p", "a", 1).reward == 0.0


def test_superseded_tries_are_paid_by_the_trial_that_counts(batch: Batch) -> None:
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "a__2", cost=0.25, second=1)
    folder = make_trial(batch, "a__2-try1", cost=1.0, reward=None, error="RuntimeError")
    aside = batch.superseded / f"{STAMP}__p"
    aside.mkdir(parents=True)
    folder.rename(aside / "a__2-try1")
    make_trial(batch, "b__0", cost=2.0, reward=None, error="CancelledError")
    make_trial(batch, "b__1", second=1, cost=0.125)
    make_trial(batch, "b__2", second=2, cost=0.125)
    rows = rows_of([view(batch)])
    assert [(one(rows, "p", "a", n).cost_usd, one(rows, "p", "a", n).superseded) for n in (1, 2)] == [
        (0.5, 0),
        (1.25, 1),
    ]
    assert sum(row.spent.cost_usd or 0 for row in rows) == 4.0
    assert sum(row.superseded for row in rows) == 2


def test_tries_that_broke_before_the_one_that_counts_are_told(batch: Batch) -> None:
    """Of those, the ones whose agent had begun were drawn again; an interruption, and a try after the verdict, was not."""
    begun = {"agent_execution": {"started_at": "2026-01-23T16:29:50Z", "finished_at": "2026-01-23T16:30:00Z"}}
    tries = {
        "a__1": (1, 0, "ConnectionError", begun), "a__2": (2, 1, "ConnectionError", begun),
        "a__3": (2, 2, "ConnectionError", {}), "a__4": (1, 3, "CancelledError", begun), "a__5": (1, 4, None, begun),
        "a__6": (2, 5, None, begun), "a__7": (2, 6, "ConnectionError", begun), "b__1": (1, 7, "RuntimeError", begun),
        "b__2": (1, 8, None, begun), "b__3": (2, 9, None, begun),
    }  # fmt: skip
    for name, (attempt, second, error, more) in tries.items():
        reward = 1.0 if error is None else None
        folder = make_trial(batch, name, reward=reward, error=error, attempt=attempt, second=second)
        document = json.loads((folder / "result.json").read_text()) | more
        (folder / "result.json").write_text(json.dumps(document))
    rows = rows_of([view(batch)])
    found = [one(rows, "p", "a", attempt) for attempt in (1, 2)]
    assert [(row.outcome, row.broken, row.redrawn) for row in found] == [("passed", 1, 1), ("passed", 2, 1)]
    assert [row.crashed for row in found] == [0, 0]
    unseen = one(rows, "p", "b", 1)
    assert (unseen.outcome, unseen.redrawn, unseen.crashed) == ("passed", 1, 1), "the agent crashed without a sign"
    (unset,) = batch.runs.glob("*/a__3")
    document = json.loads((unset / "result.json").read_text())
    (unset / "result.json").write_text(json.dumps(document | {"agent_setup": {"started_at": "2026-01-23T16:29:40Z"}}))
    record = ProfileRecord("p", "id-p", {"agent": "mine:Agent"})
    own = one(rows_of([view(batch, profiles=(record,))]), "p", "a", 2)
    assert (own.redrawn, own.crashed) == (2, 0), "a user's own agent may act in its set-up"
    rows = rows_of([view(batch, died=(f"{STAMP}__p",))])
    assert [one(rows, "p", "a", 1).redrawn, one(rows, "p", "a", 2).redrawn] == [2, 1], "cut off by the death of Harbor"
    assert [one(rows, "p", "a", 1).crashed, one(rows, "p", "a", 2).crashed] == [1, 0]


def test_one_unknown_try_makes_the_cost_unknown(batch: Batch) -> None:
    make_trial(batch, "b__0", reward=None, error="CancelledError")
    make_trial(batch, "b__1", second=1, cost=0.125)
    make_trial(batch, "b__2", second=2, cost=0.125)
    row = one(rows_of([view(batch)]), "p", "b", 1)
    assert (row.cost_usd, row.spent.cost_usd, row.spent.cost_unknown) == (None, 0.125, 1)


def test_an_agent_without_a_model_costs_nothing(batch: Batch) -> None:
    make_trial(batch, "a__1")
    records = (ProfileRecord("p", "id-p", {"agent": "oracle"}), ProfileRecord("q", "id-q", {"agent": "claude-code"}))
    make_trial(batch, "a__1", profile="q")
    rows = rows_of([view(batch, profiles=records)])
    assert (one(rows, "p", "a", 1).cost_usd, one(rows, "p", "a", 1).tokens) == (0.0, 0)
    assert one(rows, "q", "a", 1).cost_usd is None


def second(tmp_path: Path, **ids: str) -> Batch:
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, tuple(ids), "ab", 2, settings=SETTINGS)
    jobs = tuple(msgspec.structs.replace(job, profile_id=ids[job.profile]) for job in plan.jobs)
    write_json(batch.plan_json, msgspec.structs.replace(plan, jobs=jobs))
    return batch


def test_only_the_same_treatment_is_pooled(tmp_path: Path, batch: Batch) -> None:
    later = second(tmp_path, p="id-p", q="edited")
    views = [view(batch), view(later)]
    assert {row.profile for row in rows_of(views)} == {"p", "q@0", "q@1"}
    assert sum(row.profile == "p" for row in rows_of(views)) == 8
    settings = settings_of(views)
    assert settings.baseline == "p"
    assert settings.contrasts == (("q@0", "p"), ("q@1", "p"), ("q@1", "q@0"))


def test_batches_of_one_number_in_two_results_folders_are_not_pooled(tmp_path: Path, batch: Batch) -> None:
    """As a pull request and its base, each run in a checkout of its own."""
    elsewhere = second(tmp_path / "base", p="id-p", q="edited")
    first, other = view(batch), view(elsewhere)
    other = msgspec.structs.replace(other, batch=str(elsewhere.folder))
    assert {row.profile for row in rows_of([first, other])} == {"p", f"q@{first.batch}", f"q@{other.batch}"}


def test_a_policy_with_lessons_is_one_profile_whatever_its_memory_held_unless_told_apart(tmp_path: Path) -> None:
    views = []
    for snapshot in ("monday", "monday", "friday"):
        batch = allocate(tmp_path, "s")
        plan = make_plan(batch, ("p", "q"), "ab", 2, settings=SETTINGS)
        content = {"agent": "oracle", "lessons": {"mode": "masked", "k": 1, "snapshot": snapshot}}
        record = ProfileRecord("q", content_id(content), content)
        jobs = tuple(msgspec.structs.replace(j, profile_id=record.id) if j.profile == "q" else j for j in plan.jobs)
        write_json(batch.plan_json, msgspec.structs.replace(plan, jobs=jobs, profiles=(record,)))
        views.append(view(batch))
    assert {row.profile for row in rows_of(views)} == {"p", "q"}
    found = settings_of(views)
    assert found.contrasts == (("q", "p"),)
    said = (
        "q had 2 different sets of lessons in memory (s/0, s/2) and counts as one profile; --by-snapshot separates them"
    )
    assert said in found.warnings
    apart = settings_of(views, ComparisonRequest(by_snapshot=True))
    assert apart.contrasts == (("q@0", "p"), ("q@2", "p"), ("q@2", "q@0"))
    assert not any("one policy" in line for line in apart.warnings)
    assert {row.profile for row in rows_of(views, by_snapshot=True)} == {"p", "q@0", "q@2"}
    assert "one policy" not in "".join(settings_of(views[:2]).warnings)


def test_what_the_plan_declares_is_used(batch: Batch) -> None:
    analysis = {"alpha": 0.1, "infra_errors": "fail", "coverage": 0.5, "looks": "any", "equivalence_margin": 0.05,
                "effect": 0.2, "hypothesis": "h", "contrasts": [["p", "q"]]}  # fmt: skip
    found = settings_of([view(batch, analysis=analysis, settings={"seed": 7})])
    assert (found.alpha, found.rule, found.coverage, found.looks, found.margin) == (0.1, "fail", 0.5, "any", 0.05)
    assert (found.effect, found.hypothesis, found.contrasts, found.seed) == (0.2, "h", (("p", "q"),), 7)
    assert found.departures == ()


def test_departures_are_shown(batch: Batch) -> None:
    analysis = {"alpha": 0.05, "contrasts": None, "baseline": None}
    declared = {"attempts": 1, "tasks": ["d/a"], "profiles": ["p"]}
    asked = ComparisonRequest(baseline="q", analysis=AnalysisTable(alpha=0.2))
    found = settings_of([view(batch, analysis=analysis, declared=declared)], asked)
    assert (found.alpha, found.baseline, found.contrasts) == (0.05, "q", (("p", "q"),))
    assert tuple(map(str, found.departures)) == (
        "baseline: p was declared, but q is used",
        "attempts: 1 were declared, but 2 are planned now",
        "tasks: d/b were added to the declared 1",
        "profiles: q were added to the declared 1",
        "analysis: alpha = 0.05 was declared and is used, although the file now has 0.2",
    )
    found = settings_of([view(batch)], ComparisonRequest(contrasts=(("p", "q"),)))
    assert list(map(str, found.departures)) == ["contrasts: p vs q was not declared"], (
        "the declared pair, turned round: none is left out"
    )


def test_batches_that_declare_different_things_say_so(tmp_path: Path, batch: Batch) -> None:
    views = [view(batch, analysis={"alpha": 0.05}), view(second(tmp_path, p="id-p"), analysis={"alpha": 0.1})]
    assert settings_of(views).warnings == (
        "s/1 declares analysis.alpha = 0.1, but s/0 declares 0.05; the latter is used",
    )


def test_looks_over_several_batches_are_declared_before_the_first(tmp_path: Path, batch: Batch) -> None:
    later = second(tmp_path, p="id-p", q="id-q")
    found = settings_of([view(one, analysis={"looks": 2}) for one in (batch, later)])
    assert "none declares analysis.planned_trials: a look at fewer of them was one more" in found.warnings[0]
    planned = settings_of([view(one, analysis={"looks": 2, "planned_trials": 8}) for one in (batch, later)])
    assert (planned.planned_trials, planned.warnings, planned.departures) == (8, (), ())
    assert settings_of([view(one, analysis={"looks": "any"}) for one in (batch, later)]).warnings == ()
    fewer = settings_of([view(one, analysis={"looks": 2, "planned_trials": 6}) for one in (batch, later)])
    assert tuple(map(str, fewer.departures)) == (
        "planned-trials: 6 were declared, but p has 8",
        "planned-trials: 6 were declared, but q has 8",
    )


def test_an_unknown_profile_names_the_closest(batch: Batch) -> None:
    with pytest.raises(UserError, match="known: p, q"):
        settings_of([view(batch)], ComparisonRequest(baseline="zzz"))


def test_a_plan_declares_its_size(project, tbench) -> None:
    from datetime import UTC, datetime

    from support.experiments import BASE, ORACLE, good
    from terminalbench.experiments.plan import BatchDeclaration
    from terminalbench.experiments.planner import make_plan as plan_of

    experiment = good(project, BASE + ORACLE + "[run]\nattempts = 3\n[analysis]\nlooks = 2\nhypothesis = 'better'\n")
    plan = plan_of(experiment, Batch(experiment.results_root / "s" / "0"), datetime(2026, 1, 1, tzinfo=UTC))
    assert plan.declared == BatchDeclaration(("terminal-bench@2.0/a",), ("oracle",), 3)
    assert (plan.analysis.looks, plan.analysis.hypothesis) == (2, "better")
