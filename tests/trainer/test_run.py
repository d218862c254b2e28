"""Whether another night is run: what a search that stopped, or found nothing, means for the next one."""

import os
from typing import Any

import pytest

from support.experiments import Project
from support.trainings import plan_text
from terminalbench.errors import UserError
from terminalbench.json_files import write_json
from terminalbench.locks import lock
from terminalbench.overnight.summary_model import TrainingStep
from terminalbench.trainer import run
from terminalbench.trainer.gate import GateAction, GateVerdict
from terminalbench.trainer.journal import (
    CandidateResult,
    HoldoutLook,
    ModelSpend,
    NightEntry,
    PairMeasurement,
    RefusedChange,
    TrainingState,
    training_lock,
)
from terminalbench.trainer.lineage import ChampionReason, LineageStore
from terminalbench.trainer.plan import TrainingPlan, load_plan
from terminalbench.trainer.training import ledger, report, spent
from terminalbench.trainer.variants import Change, changed

PLAN = plan_text('[evolver]\nname = "reflect"\n', nights=4)
ASKED = ModelSpend(model="m", questions=2, cost_usd=0.5)


@pytest.fixture
def plan(project: Project) -> TrainingPlan:
    return load_plan(project.write("plan.toml", PLAN))


def nights(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let every night be one whose search came to this."""

    class Night:
        def __init__(
            self, plan: TrainingPlan, store: object, batches: object, done: object, state: TrainingState
        ) -> None:
            self.state, self.root = state.next_night(), plan.root

        def run(self) -> NightEntry:
            night = self.state.night
            labels = {"training": "mine", "night": str(night), "part": "control"}
            write_json(self.root / f"results/mine/{night}/plan.json", {"labels": labels})
            control = PairMeasurement(batch=f"mine/{night}", new=self.state.champion, old="x")
            return NightEntry(night=night, time="2026-01-01T00:00:00Z", after=self.state, control=control, **fields)

    monkeypatch.setattr(run, "TrainingNight", Night)


def test_a_search_that_stopped_ends_the_training_and_a_resume_tries_again(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(monkeypatch, stopped="m: 401", asked=ASKED)
    first = run.run_training(plan)
    assert (len(first.nights), first.why, first.complete) == (1, "the search was stopped: m: 401", False)
    again = run.run_training(plan, resume=True)
    assert (len(again.nights), again.complete) == (2, False)
    told = next(iter(ledger(again.nights)))
    assert (told.part, told.what) == ("search", "stopped early: m: 401")
    assert spent(first.nights).endswith("; 2 questions to a model, cost $0.50")


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 1),  # nothing was proposed, and nobody asked: nothing will be
        ({"asked": ASKED}, 4),  # a model that had no good idea may have one tomorrow
        ({"refused": (RefusedChange(reason="r", why="w"),)}, 4),
        ({"explored": (CandidateResult(id="p", rounds=1, passed=0, measured=4),)}, 4),
        ({"explored": (CandidateResult(id="p", rounds=1, passed=0, measured=4),), "stopped": "m: 429"}, 4),
    ],
)
def test_nights_go_on_while_something_is_proposed(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], count: int
) -> None:
    nights(monkeypatch, **fields)
    assert len(run.run_training(plan).nights) == count


def test_nights_whose_batches_are_gone_or_replaced_are_not_gone_on_with(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(monkeypatch, asked=ASKED)
    run.run_training(plan, nights=3)
    (plan.root / "results/mine/1/plan.json").unlink()
    third = (plan.root / "results/mine/3/plan.json").read_bytes()
    (plan.root / "results/mine/2/plan.json").write_bytes(third)
    said = r"missing, or other batches have their numbers: mine/1 \(control of night 1\), mine/2 \(control of night 2\) \(restore"
    with pytest.raises(UserError, match=said):
        run.run_training(plan, resume=True)
    assert len(run.read_nights(plan.folder)) == 3


def test_a_training_whose_searches_all_stopped_is_not_complete(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(monkeypatch, stopped="m: no answer")
    for _ in range(4):
        last = run.run_training(plan, resume=True)
    assert (len(last.nights), last.complete) == (4, False)
    assert last.why == "all nights have ended, and nothing was tried: m: no answer"


def test_what_a_person_decides_while_a_night_runs_stays(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    nights(monkeypatch)
    run.run_training(plan, nights=1)
    store = LineageStore(plan.root)
    made = [changed(plan.environment, plan.start, Change("r", options={"steps_mean": n}), "") for n in (3, 4)]
    found, wanted = (store.add("mine", one, reason="r", source="person") for one in made)
    store.crown("mine", wanted.id, ChampionReason.BY_HAND, reason="mine")
    control = PairMeasurement(batch="mine/2", new=plan.start.profile.id, old="x")
    after = TrainingState(champion=found.id, allowed=1)
    run._crown(plan, store, NightEntry(night=2, time="2999-01-01T00:00:00Z", after=after, control=control))
    assert store.lineage("mine").crowned[-1].id == wanted.id


def test_promote_needs_a_reason_and_says_from_when_it_counts(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch, tbench
) -> None:
    nights(monkeypatch)
    run.run_training(plan, nights=1)
    start = plan.start.profile.id
    ran = tbench("trainer", "promote", plan.file, start, "--reason", " ")
    assert (ran.code, "--reason: making a champion by hand needs a reason" in ran.err) == (2, True)
    other = changed(plan.environment, plan.start, Change("r", options={"steps_mean": 3}), "")
    made = LineageStore(plan.root).add("mine", other, reason="r", source="person")
    with lock(training_lock(plan.folder), "training mine"):
        ran = tbench("trainer", "promote", plan.file, made.id, "--reason", "mine")
        assert (
            f"it takes effect with the next night: the current night (pid {os.getpid()}) continues with {start}"
            in ran.out
        )
        ran = tbench("trainer", "run", plan.file, "--resume")
        assert (ran.code, "tbench trainer status plan.toml shows its progress" in ran.err) == (2, True), ran.err
    ran = tbench("trainer", "rollback", plan.file, "--reason", "")
    assert ran.code == 2


def test_an_interrupted_run_names_what_goes_on(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch, tbench) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_training", interrupted)
    ran = tbench("trainer", "run", plan.file)
    assert (ran.code, "tbench trainer run plan.toml --resume continues it" in ran.err) == (130, True), ran.err


def test_what_was_spent_includes_the_holdout(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    nights(monkeypatch, trials=4, measured=4, cost_usd=1.0)
    done = run.run_training(plan, nights=1).nights
    look = HoldoutLook(look=1, reason="r", new="a", old="b", trials=2, measured=1, cost_usd=0.5, cost_unknown=1)
    assert spent(done, [look]) == "6 trials, 5 measured, cost $1.50 + 1 unknown"
    assert "6 trials, 5 measured" in report(LineageStore(plan.root).lineage("mine"), "mine", 4, done, [look])


def test_a_report_fits_the_terminal_and_says_what_compare_counts(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch, tbench
) -> None:
    verdict = GateVerdict(action=GateAction.GO_ON, reason="not decided yet: " + "many words " * 20)
    judged = PairMeasurement(batch="mine/9", new="p1", old="p2", phase="confirm", verdict=verdict)
    nights(monkeypatch, confirm=judged)
    run.run_training(plan, nights=1)
    monkeypatch.setenv("COLUMNS", "80")
    ran = tbench("trainer", "report", plan.file)
    assert "- night 1, confirm of p1: go on: not decided yet: many" in ran.out
    assert "`tbench compare results/mine/9`. `compare` counts" in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_begin_of_a_night_is_told(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch, tbench) -> None:
    now = TrainingStep(nights=4, part="control", share=0.2, trials=60, done=0, ran=0, began=0.0)

    def night(*_: object, step: Any, **__: object) -> None:
        step(1, now)
        step(1, now)
        raise UserError("enough")

    monkeypatch.setattr(run, "run_training", night)
    ran = tbench("trainer", "run", plan.file)
    assert ran.out.count("night 1 of 4 begins\n") == 1
