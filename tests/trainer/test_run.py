"""Whether another night is run: what a search that stopped, or found nothing, means for the next one."""

from typing import Any

import pytest

from support.experiments import Project
from terminalbench.errors import UserError
from terminalbench.json_files import write_json
from terminalbench.trainer import run
from terminalbench.trainer.campaign import Campaign
from terminalbench.trainer.journal import Asked, Explored, Measured, NightEntry, Refused
from terminalbench.trainer.plan import TrainingPlan, load_plan
from terminalbench.trainer.story import ledger, spent

PLAN = """
schema_version = 1
slug = "mine"
environment = "starter"
nights = 4
[profile]
agent = "simulated"
model = "m"
[run]
container_env = "local"
[split]
train = 0.2
dev = 0.6
[budget]
trials = 60
[evolver]
name = "reflect"
"""
ASKED = Asked(model="m", questions=2, cost_usd=0.5)


@pytest.fixture
def plan(project: Project) -> TrainingPlan:
    return load_plan(project.write("plan.toml", PLAN))


def nights(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let every night be one whose search came to this."""

    class Night:
        def __init__(self, plan: TrainingPlan, store: object, batches: object, done: object, state: Campaign) -> None:
            self.state, self.root = state.next_night(), plan.root

        def run(self) -> NightEntry:
            night = self.state.night
            labels = {"training": "mine", "night": str(night), "part": "control"}
            write_json(self.root / f"results/mine/{night}/plan.json", {"labels": labels})
            control = Measured(batch=f"mine/{night}", new=self.state.champion, old="x")
            return NightEntry(night=night, time="2026-01-01T00:00:00Z", after=self.state, control=control, **fields)

    monkeypatch.setattr(run, "Night", Night)


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
        ({"refused": (Refused(reason="r", why="w"),)}, 4),
        ({"explored": (Explored(id="p", rounds=1, passed=0, measured=4),)}, 4),
        ({"explored": (Explored(id="p", rounds=1, passed=0, measured=4),), "stopped": "m: 429"}, 4),
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
    said = r"gone, or others have their numbers: mine/1 \(control of night 1\), mine/2 \(control of night 2\) \(put"
    with pytest.raises(UserError, match=said):
        run.run_training(plan, resume=True)
    assert len(run.read_nights(plan.folder)) == 3
