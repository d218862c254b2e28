"""Nights of the evolvers `reflect`, `gepa` and `grid` on scripted trials. A night on real Harbor: tests/e2e/test_training.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.experiments import Project
from support.scripted_trials import ScriptedTrials, script_trials
from support.tasks import SMALL_GYM, write_small_gym
from terminalbench.trainer.plan import TrainingPlan, load_plan
from terminalbench.trainer.run import run_training
from terminalbench.trainer.training import open_training, report

PLAN = """
schema_version = 1
slug = "{name}"
environment = "tasks"
nights = {nights}
[profile]
agent = "simulated"
model = "simulated/student"
[evolver]
name = "{name}"
{more}
"""
QUITS = {"reason": "a quick end", "sections": [{"title": "Pace", "text": "Give up at once."}]}
CHECKS = {"reason": "nobody looks again", "sections": [{"title": "End", "text": "Check the result twice."}]}


def chance(prompt: str) -> float:
    """How often a profile with this prompt passes."""
    return 0.0 if "Give up" in prompt else 1.0 if "Check the result" in prompt else 0.3


@pytest.fixture
def trials(project: Project, monkeypatch: pytest.MonkeyPatch) -> ScriptedTrials:
    write_small_gym(project.root / "tasks")
    return script_trials(monkeypatch, project.root, "", chance)


def planned(trials: ScriptedTrials, name: str, more: str, *, nights: int = 1) -> TrainingPlan:
    trials.lineage = name
    gym = SMALL_GYM.replace("trials = 8", "trials = 10")  # gepa tries out each of two prompts on two tasks
    file = trials.root / f"{name}.toml"
    file.write_text(PLAN.format(name=name, more=more, nights=nights) + gym)
    return load_plan(file, trials.root)


def answers(trials: ScriptedTrials, *said: dict[str, Any]) -> str:
    """The key of a plan for a model that gives these answers."""
    (trials.root / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))
    return f'model = "replay:{trials.root}/answers.jsonl"'


def measured(root: Path, slug: str) -> dict[str, set[str]]:
    """The tasks that each part of a night attempted, by the results."""
    found: dict[str, set[str]] = {}
    for plan in root.glob(f"results/{slug}/*/plan.json"):
        part = json.loads(plan.read_text())["labels"]["part"]
        results = [json.loads(one.read_text()) for one in plan.parent.glob("runs/*/*/result.json")]
        found[part] = {one["task_name"].rpartition("/")[2] for one in results}
    return found


def test_a_reflector_improves_what_depends_on_the_prompt(trials: ScriptedTrials) -> None:
    model = answers(
        trials,
        {"contains": ["night 1: a quick end"], "text": json.dumps(CHECKS), "usage": {"cost_usd": 0.02}},
        {"contains": ["How attempts failed"], "text": json.dumps(QUITS), "usage": {"cost_usd": 0.01}},
    )
    plan = planned(trials, "reflect", model, nights=4)
    better = run_training(plan)
    training = open_training(plan.file)
    first, second, *_ = better.nights
    (quits, champion) = first.explored
    assert (quits.reason, quits.passed, first.winner) == ("a quick end", 0, None)  # giving up early is no way to win
    assert champion.passed > 0
    assert second.winner is not None
    assert second.asked is not None
    assert second.asked.cost_usd == 0.02
    best = training.lineage.crowned[-1]
    assert (best.why, training.lineage.variants[best.id].reason) == ("promoted", "nobody looks again")
    assert best.evidence["interval"]["low"] <= 0.7 <= best.evidence["interval"]["high"]
    assert training.lineage.variants[best.id].evidence  # the trials that failed
    assert "promoted" in report(training.lineage, "reflect", 4, better.nights)


@pytest.mark.parametrize("name", ["gepa", "grid"])
def test_what_is_proposed_is_measured_on_train_alone(trials: ScriptedTrials, name: str) -> None:
    said = {"contains": ["# The other sections"], "usage": {"cost_usd": 0.01}}
    more = {
        "gepa": answers(trials, {**said, "text": json.dumps({"reason": "nobody looks", "text": "Check the result."})}),
        "grid": "ranges = { solve_probability = { low = 0.0, high = 1.0, step = 0.5 } }",
    }[name]
    plan = planned(trials, name, f"candidates = 2\n{more}")
    run_training(plan)
    found = open_training(plan.file)
    (night,) = found.nights
    assert (night.stopped, night.refused) == (None, ())
    assert night.measured == night.trials == trials.paid.total() <= plan.table.budget.trials
    tried = [one for one in night.explored if one.id != night.champion]
    assert tried
    assert all(found.lineage.variants[one.id].source.startswith(f"{name} in {name}") for one in tried)
    tasks = measured(trials.root, name)
    searched = set[str]().union(*(held for part, held in tasks.items() if part != "control"))
    assert searched <= {task.id for task in plan.split.train}
    assert any(part.startswith("search-") for part in tasks) is (name == "gepa")
    if name == "gepa":
        assert night.winner in {one.id for one in tried}
        assert "Check the result" in (trials.root / found.lineage.variants[night.winner].table["prompt"]).read_text()
        assert night.asked is not None
        assert night.asked.cost_usd == pytest.approx(0.01 * night.asked.questions)
