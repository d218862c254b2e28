"""Nights on disk, made without running anything: batches from marks, as in `support.results`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord, Provenance
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.overnight.folder import SLUGS, NightFolder
from terminalbench.overnight.night import (
    CodePin,
    IterationStatus,
    IterationWork,
    NightConfig,
    NightEvent,
    NightModel,
    NightState,
    Role,
)

type Marks = Mapping[str, Mapping[str, str]]
"""By profile and task the attempts: `+` passed, `x` failed, `E` broken, `.` not run."""
REWARDS = {"+": 1.0, "x": 0.0, "E": None}


@dataclass(frozen=True)
class Night:
    """A night and what was asked for."""

    folder: NightFolder
    config: NightConfig

    def batch(
        self,
        number: int,
        marks: Marks,
        *,
        role: Role = Role.ITERATION,
        cost: float | None = None,
        equal: bool = False,
    ) -> Batch:
        """Add the batch of an iteration; with `equal` its profiles have one id."""
        tasks = list(dict.fromkeys(task for by_task in marks.values() for task in by_task))
        attempts = max(len(line) for by_task in marks.values() for line in by_task.values())
        batch = allocate(self.folder.results_root, SLUGS[role], number)
        labels = {"run": self.config.run_id, "iteration": str(number), "role": role.value}
        plan = make_plan(batch, tuple(marks), tasks, attempts, labels=labels)
        records = tuple(
            ProfileRecord(name, "id-p" if equal else f"id-{name}", {"agent": "claude-code"}) for name in marks
        )
        made = Provenance(created_at=f"2026-01-23T16:{number % 60:02}:00Z")
        write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=records, provenance=made))
        for profile, by_task in marks.items():
            for task, line in by_task.items():
                for attempt, mark in enumerate(line, start=1):
                    if mark != ".":
                        error = "EnvironmentStartTimeoutError" if mark == "E" else None
                        make_trial(
                            batch, f"{task}__{profile}{attempt}", profile=profile, reward=REWARDS[mark], error=error, attempt=attempt, cost=cost
                        )  # fmt: skip
        return batch

    def say(self, *events: NightEvent) -> None:
        """Append events."""
        for event in events:
            append_jsonl(self.folder.events_jsonl, event)

    def state(self, work: Sequence[IterationWork] = (), **fields: Any) -> NightState:
        """Write the state."""
        state = NightState(run_id=self.config.run_id, clock=SharedClock("boot", 0.0, 0.0), work=list(work), **fields)
        write_json(self.folder.state_json, state)
        return state


def make_night(
    place: Path, rounds: Sequence[Marks] = (), *, run_id: str = "tbrun-1", project: Path | None = None, **config: Any
) -> Night:  # fmt: skip
    """A night with these iterations, all of them over."""
    names = list(dict.fromkeys(name for marks in rounds for name in marks)) or ["p"]
    values: dict[str, Any] = {
        "created_at": "2026-01-23T16:00:00Z",
        "suite": "suite.toml",
        "suite_name": "small",
        "suite_version": "1",
        "suite_digest": "5" * 64,
        "models": [NightModel(f"spec-{name}", name, f"id-{name}") for name in names],
        "tasks": [],
        "iterations": len(rounds),
        "attempts": 1,
        "seed": 7,
        "workers": 1,
        "code": CodePin("in-place", str(place), str(place), commit="c0ffee"),
        "project_root": str(project or place.parent),
    }
    made = NightConfig(run_id=run_id, **(values | config))
    night = Night(NightFolder(place), made)
    write_json(night.folder.config_json, made)
    for number, marks in enumerate(rounds, start=1):
        night.batch(number, marks)
    work = [IterationWork(number, Role.ITERATION, number, IterationStatus.DONE) for number in range(1, len(rounds) + 1)]
    night.state(work, status="finished" if rounds else "running")
    return night


def harbor_rewards(batch: Batch, profile: str) -> dict[str, list[float | None]]:
    """What Harbor's own result files of a profile say, by task: read here with nothing of ours."""
    found: dict[str, list[float | None]] = {}
    for file in sorted(batch.runs.glob(f"{STAMP}__{profile}/*/result.json")):
        result = json.loads(file.read_text())
        verdict = result.get("verifier_result")
        found.setdefault(file.parent.name.split("__")[0], []).append(verdict["rewards"]["reward"] if verdict else None)
    return found
