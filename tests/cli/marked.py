"""Batches of marks, made without running anything."""

from pathlib import Path

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate

ANALYSIS = {"alpha": 0.05, "infra_errors": "exclude"}


def batch(root: Path, words: dict[str, str], *, cost: float | None = None, **analysis: object) -> Batch:
    """A batch whose profiles have these marks, a word a task: "+x" passed and failed, "E" errored, "." not run."""
    made = allocate(root, "s")
    tasks = "abcdefghijklmnop"[: len(next(iter(words.values())).split())]
    attempts = len(next(iter(words.values())).split()[0])
    make_plan(made, tuple(words), tasks, attempts, analysis={**ANALYSIS, **analysis})
    for profile, text in words.items():
        for task, marks in zip(tasks, text.split(), strict=True):
            for number, mark in enumerate(marks):
                if mark != ".":
                    reward = None if mark == "E" else float(mark == "+")
                    error = "RuntimeError" if mark == "E" else None
                    make_trial(
                        made, f"{task}__{profile}{number}", profile=profile, reward=reward, error=error, cost=cost
                    )
    return made
