"""Whether nights show a lesson that truly helps and hide one that harms: recounted from the prompts that a server got.

.venv/bin/python tests/simulate/learning.py [--seeds 5]

The memory, the snapshot of each iteration, the draws and the prompts are those of `tbench overnight --lessons`; only
the sandbox is left out: each prompt goes straight to a scripted model server, which passes half of the trials, 95 %
of those that were told the lesson that helps, and 10 % of those that were told the one that harms.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, override
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here

from servers.base import Turn
from servers.ollama import OllamaServer
from terminalbench.archivist.effects import count_trials
from terminalbench.archivist.memory import add
from terminalbench.archivist.retrieval import take_snapshot
from terminalbench.archivist.store import open_store
from terminalbench.experiments.lessons import LessonReader, draw, with_lessons
from terminalbench.experiments.plan import PlannedTask
from terminalbench.experiments.tables import LessonsTable
from terminalbench.index.exposures import LessonTrial
from terminalbench.records.lesson import Lesson
from terminalbench.records.trial import Outcome, TaskRef

HELPS = "Write the answer first, and look at the file once more."
HARMS = "Describe the answer in words before anything else."
BASE, HELPED, HARMED = 0.5, 0.95, 0.1
LEARNED = 3
"""Iterations before the one that is looked at."""
MODEL = "small:1b"


class MovedServer(OllamaServer):
    """Passes or fails by what stands in the prompt, and by chance."""

    def __init__(self, seed: int) -> None:
        super().__init__(model=MODEL)
        self._chance = random.Random(seed)

    @override
    def turn(self, messages: Sequence[Any]) -> Turn:
        prompt = messages[-1]["content"]
        rate = HARMED if HARMS in prompt else HELPED if HELPS in prompt else BASE
        return Turn("passed" if self._chance.random() < rate else "failed")

    @property
    def prompts(self) -> list[str]:
        """What it was asked, in order."""
        return [request.body["messages"][-1]["content"] for request in self.native_chats]


@dataclass(frozen=True)
class ShownShares:
    """The shares of the trials of an iteration whose prompt held the lesson that helps, and the one that harms."""

    helps: float
    harms: float


def learn_for_nights(folder: Path, seed: int, tasks: int = 12, attempts: int = 3) -> ShownShares:
    """Run three iterations that learn and one more, and return what was shown in the last."""
    ids = itertools.count()  # chance is drawn by them
    with (
        open_store(folder / ".terminalbench", write=True) as store,
        patch("terminalbench.archivist.memory._new_id", lambda store: f"l-{next(ids)}"),
    ):
        for text in (HARMS, HELPS):
            add(store, Lesson(id="", do=text), by="ann")
    planned = [PlannedTask(TaskRef(f"t{n}", "d", f"f{n // 2}"), "d", {}) for n in range(tasks)]
    with MovedServer(seed) as server:
        for number in range(1, LEARNED + 2):
            began = len(server.prompts)
            found = _iteration(folder, server, planned, f"{seed} night/{number}", attempts)
            with open_store(folder / ".terminalbench", write=True) as store:
                count_trials(store, found)
        last = server.prompts[began:]
    return ShownShares(*(sum(text in prompt for prompt in last) / len(last) for text in (HELPS, HARMS)))


def _iteration(
    folder: Path, server: OllamaServer, planned: Sequence[PlannedTask], seed: str, attempts: int
) -> list[LessonTrial]:
    """The trials of a profile with lessons at each task."""
    snapshot = take_snapshot(folder, LessonsTable(), planned, LessonReader(MODEL), (), seed)
    found = []
    for task in planned:
        for attempt in range(1, attempts + 1):
            drawn = draw(snapshot, snapshot.digest, f"d/{task.ref.id}", attempt, seed)
            shown = {one.lesson for one in drawn.exposures if one.shown}
            texts = [one.text for one in snapshot.tasks[f"d/{task.ref.id}"] if one.id in shown]
            said = _ask(server, with_lessons(f"Task {task.ref.id}: write the answer.", texts, snapshot.digest))
            known = {"profile": "p-lessons", "profile_id": "p", "policy_id": "q", "dataset": "d", "model": MODEL}
            found.append(
                LessonTrial(
                    batch=seed, job="j", trial=f"{task.ref.id}__{attempt}", task=task.ref.id, family=task.ref.family,
                    attempt=attempt, outcome=Outcome(said), started_at=None, simulated=False, mode="masked",
                    snapshot=snapshot.digest, exposures=tuple(drawn.exposures), id=f"{seed} {task.ref.id} {attempt}",
                    **known,
                )
            )  # fmt: skip
    return found


def _ask(server: OllamaServer, prompt: str) -> str:
    body = {"model": MODEL, "stream": False, "messages": [{"role": "user", "content": prompt}]}
    asked = urllib.request.Request(f"{server.url}/api/chat", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(asked) as answer:
        lines = [json.loads(line) for line in answer.read().splitlines() if line.strip()]
    return "".join(line.get("message", {}).get("content", "") for line in lines)


def measure(seeds: int) -> None:
    """Print what was shown after three iterations, by seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = learn_for_nights(Path(folder), seed)
        print(f"  seed {seed}: helpful shown in {found.helps:.0%}, harmful in {found.harms:.0%}", flush=True)


def main() -> None:
    """Print what was shown by as many seeds as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    measure(parser.parse_args().seeds)


if __name__ == "__main__":
    main()
