"""A real training on the local sandbox with a scripted reflector. One without a gain is in tests/trainer/test_kills.py."""

import json

import pytest

from support.experiments import Project
from support.tasks import SMALL_GYM, write_small_gym
from support.warm import Warm
from terminalbench.runner.executors import local
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import TrainingResult, run_training
from terminalbench.trainer.story import report
from terminalbench.trainer.training import open_training

PLAN = """
schema_version = 1
slug = "{slug}"
environment = "tasks"
nights = {nights}
[profile]
agent = "simulated"
model = "simulated/student"
options = {{ {skill}, steps_mean = 2, delay_sec = [0.0, 0.0] }}
[evolver]
name = "reflect"
model = "replay:{root}/answers.jsonl"
"""
QUITS = {"reason": "a quick end", "sections": [{"title": "Pace", "text": "Give up at once."}]}
CHECKS = {"reason": "nobody looks again", "sections": [{"title": "End", "text": "Check the result twice."}]}


def trained(project: Project, slug: str, nights: int, skill: str) -> TrainingResult:
    text = PLAN.format(slug=slug, nights=nights, skill=skill, root=project.root) + SMALL_GYM
    return run_training(load_plan(project.write(f"{slug}.toml", text)))


@pytest.mark.long
def test_a_reflector_improves_what_depends_on_the_prompt(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "spawn", Warm())
    write_small_gym(project.root / "tasks")
    answers = [
        {"contains": ["night 1: a quick end"], "text": json.dumps(CHECKS), "usage": {"cost_usd": 0.02}},
        {"contains": ["How attempts failed"], "text": json.dumps(QUITS), "usage": {"cost_usd": 0.01}},
    ]
    project.write("answers.jsonl", "".join(json.dumps(one) + "\n" for one in answers))

    better = trained(
        project, "taught", 4, 'solve_probability = 0.3, skill_text = { "Check the result" = 0.7, "Give up" = -0.3 }'
    )
    training = open_training(project.root / "taught.toml")
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
    assert "promoted" in report(training.lineage, "taught", 4, better.nights)
