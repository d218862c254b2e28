"""Whether another night is run: what a search that stopped, or found nothing, means for the next one."""

from typing import Any

import pytest

from support.experiments import Project
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
            self.state = state.next_night()

        def run(self) -> NightEntry:
            control = Measured(batch="mine/1", new=self.state.champion, old="x")
            return NightEntry(
                night=self.state.night, time="2026-01-01T00:00:00Z", after=self.state, control=control, **fields
            )

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
