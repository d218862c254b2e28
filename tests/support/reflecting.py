"""Batches to reflect on, and a model that answers what a test says."""

import json
from pathlib import Path
from typing import Any

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.llm.model import ChatModel, chat_model

GOOD: dict[str, Any] = {
    "do": "Run the checks again after the last change.",
    "kind": "checking",
    "tags": ["Own checks"],
    "importance": 0.7,
    "evidence": [{"attempt": "A1", "step": 6, "quote": "The task is done, I am confident."}],
}


def model(folder: Path, *lessons: dict[str, Any]) -> ChatModel:
    """A model that answers this, whatever it is asked."""
    file = folder / "replay.jsonl"
    file.write_text(json.dumps({"contains": ["Attempt A1"], "text": json.dumps({"lessons": lessons})}) + "\n")
    return chat_model(f"replay:{file}")


def batch_of(folder: Path, trials: dict[str, list[dict[str, Any]]], profile: str = "p") -> Batch:
    """A batch of failed trials with these steps."""
    batch = allocate(folder / "results", "s")
    make_plan(batch, (profile,), sorted({name.split("__")[0] for name in trials}), 2)
    for name, steps in trials.items():
        agent = make_trial(batch, name, profile=profile, reward=0.0) / "agent"
        agent.mkdir()
        document = {"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "1"}, "steps": steps}
        (agent / "trajectory.json").write_text(json.dumps(document))
    return batch


def task_folder(folder: Path, batch: Batch) -> None:
    """Let the plan of a batch know where its task is."""
    task = folder / "tasks" / "a"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("")
    (task / "instruction.md").write_text("Make the durations work.")
    batch.plan_json.write_text(batch.plan_json.read_text().replace("/x/a", str(task)))
