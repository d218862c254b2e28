"""The batches of a training without Harbor: plans and results on disk as a run leaves them, written trial by trial.

A test may kill it at a moment by its name: `Moments` counts each time that the moment comes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.results import make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.planner import make_plan
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.run import FinishedRun
from terminalbench.trainer.batches import AGAIN
from terminalbench.trainer.lineage import LineageStore

type Chance = Callable[[str], float]
"""How often a profile with this prompt passes."""


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the trainer may take it for an error."""


class Moments:
    """Counts the moments that a training comes through; ends it at one of them."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.kill: tuple[str, int] | None = None

    def at(self, name: str) -> None:
        """A moment has come."""
        self.seen[name] += 1
        if self.kill == (name, self.seen[name]):
            self.kill = None
            raise Killed(name)

    def around(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        """A function that writes, with the moments before and after it."""

        def called(*args: Any, **more: Any) -> Any:
            self.at(f"before {name}")
            found = write(*args, **more)
            self.at(f"after {name}")
            return found

        return called


class ScriptedTrials:
    """Stands in for `run` and `resume`. `paid` has every trial that was run, by batch, profile, task and attempt.

    So has the file `book`, for those who start several processes.
    """

    def __init__(self, root: Path, lineage: str, chance: Chance, moments: Moments) -> None:
        self.root, self.lineage, self.chance, self.moments = root, lineage, chance, moments
        self.paid: Counter[tuple[str, str, str, int]] = Counter()
        self.book: Path | None = None

    def run(self, file: Path, **_: Any) -> FinishedRun:
        """A new batch of an experiment."""
        self.moments.at("before a batch")
        experiment = load(file, self.root)
        batch = allocate(experiment.results_root, experiment.slug)
        plan = make_plan(experiment, batch, datetime(2026, 1, 23, tzinfo=UTC))
        write_json(batch.plan_json, plan)
        return self.resume(batch.folder)

    def resume(self, folder: Path, **_: Any) -> FinishedRun:
        """What is missing of a batch."""
        batch = Batch(folder)
        plan: Plan = read_json(batch.plan_json, Plan)
        seed, variants = str(plan.settings.seed), LineageStore(self.root).lineage(self.lineage).variants
        for job in plan.jobs:
            table = variants[job.profile.removesuffix(AGAIN)].table
            prompt = (self.root / table["prompt"]).read_text() if "prompt" in table else ""
            for task in job.tasks:
                for attempt in range(1, job.attempts + 1):
                    name = f"{task.ref.id}__{attempt}"
                    if (batch.runs / job.name / name / "result.json").exists():
                        continue
                    self.moments.at("in a batch")
                    drawn = hashlib.sha256(f"{seed}{job.profile}{task.ref.id}{attempt}".encode()).digest()[0] / 256
                    passed = drawn < self.chance(prompt)
                    made = make_trial(batch, name, reward=float(passed), job=job.name, attempt=attempt)
                    as_planned(made / "result.json", task.config, task.ref.dataset)
                    self._pay(f"{plan.slug}/{batch.number}", job.profile, task.ref.id, attempt)
        scan_batch(batch)
        return FinishedRun(batch, view_batch(batch))

    def _pay(self, batch: str, profile: str, task: str, attempt: int) -> None:
        self.paid[batch, profile, task, attempt] += 1
        if self.book is not None:
            with self.book.open("a") as book:
                book.write(f"{batch} {profile} {task} {attempt}\n")


def as_planned(file: Path, config: dict[str, Any], dataset: str) -> None:
    """Make a result of a trial that of a planned task."""
    result = json.loads(file.read_text())
    result["task_id"] = config
    result["source"] = dataset
    result["config"]["task"] = {**config, "source": dataset}
    file.write_text(json.dumps(result))


def script_trials(
    monkeypatch: pytest.MonkeyPatch, root: Path, lineage: str, chance: Chance, moments: Moments | None = None
) -> ScriptedTrials:
    """Have trainings in this test run scripted trials, and come through moments at everything that they write."""
    made = ScriptedTrials(root, lineage, chance, moments or Moments())
    monkeypatch.setattr("terminalbench.trainer.batches.run", made.run)
    monkeypatch.setattr("terminalbench.trainer.batches.resume", made.resume)
    from terminalbench.trainer import gym, journal, plan
    from terminalbench.trainer import lineage as lineages

    for module, name, what in (
        (gym, "append_jsonl", "the split"),
        (plan, "write_json", "the declaration"),
        (journal, "append_jsonl", "the journal"),
        (lineages, "append_jsonl", "the lineage"),
        (lineages, "write_bytes", "the champion's file"),
    ):
        monkeypatch.setattr(module, name, made.moments.around(what, getattr(module, name)))
    return made
