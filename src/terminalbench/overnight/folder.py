"""The folder of a night: one class owns its paths, one writes its state and its events.

A disk that is full for a while costs nothing: what could not be written is written as soon as it can be.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from terminalbench.campaign import batches_below
from terminalbench.experiments.batch import Batch
from terminalbench.files import FolderPath, write_bytes
from terminalbench.json_files import append_jsonl, encode_json
from terminalbench.overnight.night import IterationWork, NightEvent, NightEventKind, NightState, Role
from terminalbench.records.values import stamp

SLUGS = {Role.ITERATION: "night", Role.VALIDATION: "validation"}
"""The slugs of the batches of a night, by what they are for; the number of a batch is that of its iteration."""


@dataclass(frozen=True)
class NightFolder:
    """Where everything of one night is. No other module joins these paths.

    <folder>/
      config.json      what was asked for, and what the models and the code were when it was; only limits are extended
      experiment.toml  all tasks and profiles of the night: what iterations are made from
      state.json       the iterations and who works on them; written by the supervisor alone
      events.jsonl     what happened, append-only: workers, iterations, scaling, incidents
      starting         there while a night is begun: what lies beside it then is made again by the same command
      gate.json        budget, deadline and rate limits of all batches; its orders beside it
      .lock            held by the supervisor
      loaded.log       what the process says from which workers are forked
      code/            the code under test, as it was at the start: a worktree of git, or a copy; made again from
      code.json code.tar   its record, and what of it is not in a commit
      batches/night/<n>/   the batch of iteration n; validation/<n>/ beside it that of its validation, and index.db over
                           them: all that a resume reads besides config and state
      workers/<iteration>-<role>.json      heartbeat of the process that works on an iteration
      iterations/001/experiment.toml       what is run; validation.toml beside it; <role>.log of its worker
      iterations/001/reflection.json       what was learned from it, where the night learns
      iterations/001/results.json delta.json     projections, as are
      training.json    what a night of training came to, with --learn
      summary.json  report.md  report.html
    """

    folder: Path

    config_json = FolderPath("config.json")
    starting = FolderPath("starting")
    base_toml = FolderPath("experiment.toml")
    state_json = FolderPath("state.json")
    events_jsonl = FolderPath("events.jsonl")
    gate_json = FolderPath("gate.json")
    lock = FolderPath(".lock")
    code = FolderPath("code")
    results_root = FolderPath("batches")
    training_json = FolderPath("training.json")
    summary_json = FolderPath("summary.json")
    report_md = FolderPath("report.md")
    report_html = FolderPath("report.html")
    loaded_log = FolderPath("loaded.log")

    def iteration(self, number: int) -> Path:
        """The folder of an iteration."""
        return self.folder / "iterations" / f"{number:03d}"

    def experiment_toml(self, number: int, role: str) -> Path:
        """Return what the batch of an iteration in that role is made from."""
        return self.iteration(number) / ("experiment.toml" if role == "iteration" else f"{role}.toml")

    def worker_log(self, number: int, role: str) -> Path:
        """Return what the worker on an iteration printed."""
        return self.iteration(number) / f"{role}.log"

    def heartbeat(self, number: int, role: str) -> Path:
        """Return where the worker on an iteration says that it lives."""
        return self.folder / "workers" / f"{number:03d}-{role}.json"

    def results_json(self, number: int) -> Path:
        """Return what came of an iteration, task by task."""
        return self.iteration(number) / "results.json"

    def reflection_json(self, number: int) -> Path:
        """Return what was learned from an iteration."""
        return self.iteration(number) / "reflection.json"

    def answers(self, number: int) -> Path:
        """Return what a model answered when it was asked for lessons of an iteration."""
        return self.iteration(number) / "answers"

    def delta_json(self, number: int) -> Path:
        """Return what changed since the iteration before."""
        return self.iteration(number) / "delta.json"

    def batches(self) -> list[Batch]:
        """Its batches with a plan, by what they are for and their numbers."""
        return batches_below(self.results_root)


@dataclass
class Journal:
    """Writes what changes, and tells of what happens."""

    folder: NightFolder
    state: NightState
    told: Callable[[NightEvent], None] = lambda _event: None
    _written: bytes = b""
    _waiting: list[NightEvent] = field(default_factory=list)

    def tell(self, kind: NightEventKind, said: str, work: IterationWork | None = None, **about: Any) -> None:
        """Write down that something happened."""
        number, role = (work.number, work.role) if work is not None else (None, None)
        event = NightEvent(stamp(datetime.now(UTC)), kind, said, iteration=number, role=role, **about)
        self._waiting.append(event)
        self.told(event)
        self.save()

    def save(self) -> bool:
        """Bring what is on disk up to date; False when the disk takes nothing."""
        try:
            while self._waiting:
                append_jsonl(self.folder.events_jsonl, self._waiting[0])
                self._waiting.pop(0)
            data = encode_json(self.state)
            if data != self._written:
                write_bytes(self.folder.state_json, data)
                self._written = data
        except OSError:
            return False
        return True
