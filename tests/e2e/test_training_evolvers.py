"""A night of the evolvers `gepa` and `grid` with real batches: what they propose is measured by Harbor, on train alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.experiments import Project
from support.tasks import SMALL_GYM, write_small_gym
from support.warm import Warm
from terminalbench.runner.executors import local
from terminalbench.trainer.plan import TrainingPlan, load_plan
from terminalbench.trainer.run import run_training
from terminalbench.trainer.training import open_training

PLAN = """
schema_version = 1
slug = "{name}"
environment = "tasks"
nights = 3
[profile]
agent = "simulated"
model = "simulated/student"
options = {{ solve_probability = 0.2, skill_text = {{ "Check the result" = 0.8 }}, steps_mean = 2, delay_sec = [0.0, 0.0] }}
[evolver]
name = "{name}"
candidates = 2
{more}
"""


def planned(project: Project, name: str, more: str) -> TrainingPlan:
    gym = SMALL_GYM.replace("trials = 8", "trials = 10")  # gepa tries out each of two prompts on two tasks
    return load_plan(project.write(f"{name}.toml", PLAN.format(name=name, more=more) + gym))


def measured(root: Path, slug: str) -> dict[str, set[str]]:
    """The tasks that each part of a night attempted, by the results of Harbor."""
    found: dict[str, set[str]] = {}
    for plan in root.glob(f"results/{slug}/*/plan.json"):
        part = json.loads(plan.read_text())["labels"]["part"]
        results = [json.loads(one.read_text()) for one in plan.parent.glob("runs/*/*/result.json")]
        found[part] = {one["task_name"].rpartition("/")[2] for one in results}
    return found


@pytest.mark.long
def test_gepa_and_grid_search_with_real_batches(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "spawn", Warm())
    write_small_gym(project.root / "tasks")
    answer: dict[str, Any] = {
        "contains": ["# The other sections"],
        "text": json.dumps({"reason": "nobody looks", "text": "Check the result."}),
    }
    project.write("answers.jsonl", json.dumps({**answer, "usage": {"cost_usd": 0.01}}) + "\n")
    plans = [
        planned(project, "gepa", f'model = "replay:{project.root}/answers.jsonl"'),
        planned(project, "grid", "ranges = { solve_probability = { low = 0.0, high = 1.0, step = 0.5 } }"),
    ]
    for plan in plans:
        run_training(plan, nights=1)
        (night,) = open_training(plan.file).nights
        assert (night.stopped, night.refused) == (None, ())
        assert night.measured == night.trials <= plan.table.budget.trials
        tried = [one for one in night.explored if one.id != night.champion]
        assert tried
        assert night.winner in {one.id for one in tried}
        tasks = measured(project.root, plan.table.slug)
        searched = set[str]().union(*(held for part, held in tasks.items() if part != "control"))
        assert searched <= {task.id for task in plan.split.train}
        assert any(part.startswith("search-") for part in tasks) is (plan.table.slug == "gepa")
        source = open_training(plan.file).lineage.variants[night.winner or ""].source
        assert source.startswith(f"{plan.table.slug} in {plan.table.slug}")
    best = open_training(plans[0].file)
    assert (
        "Check the result"
        in (project.root / best.lineage.variants[best.nights[0].winner or ""].table["prompt"]).read_text()
    )
    assert best.nights[0].asked is not None
    assert best.nights[0].asked.cost_usd == pytest.approx(0.01 * best.nights[0].asked.questions)
