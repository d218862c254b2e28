"""Follows the phases of the running trials of one Harbor process, and ends a trial whose phase does not end.

A cancelled trial is recorded by Harbor as cancelled; the note in its folder says what it really was.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

INSIST_SEC = 30.0
"""Cancelling a trial makes Harbor collect its files, which may be what hangs: so it is asked again."""


@dataclass
class _Running:
    limits: dict[str, float]
    task: asyncio.Task[object] | None
    phase: str = ""
    since: float = 0.0
    asked_at: float | None = None


@dataclass(frozen=True)
class Overdue:
    """A phase that has just passed its limit."""

    trial: str
    phase: str
    limit_sec: float


@dataclass
class PhaseWatch:
    """`clock` gives seconds that never jump."""

    clock: Callable[[], float]
    insist_sec: float = INSIST_SEC
    _running: dict[str, _Running] = field(default_factory=dict)

    def started(self, trial: str, limits: dict[str, float], task: asyncio.Task[object] | None) -> None:
        """A trial has started; `task` is what runs it."""
        self._running[trial] = _Running(limits, task, since=self.clock())

    def phase(self, trial: str, name: str) -> None:
        """A trial has entered a phase; one that is being ended stays in the phase that hung."""
        running = self._running.get(trial)
        if running is not None and running.asked_at is None:
            running.phase, running.since = name, self.clock()

    def ended(self, trial: str) -> None:
        """A trial is over."""
        self._running.pop(trial, None)

    def overdue(self) -> list[Overdue]:
        """The phases that have passed their limit since the last look. Their trials are not yet cancelled."""
        now = self.clock()
        found = []
        for trial, running in self._running.items():
            limit = running.limits.get(running.phase)
            if limit is not None and running.asked_at is None and now - running.since > limit:
                found.append(Overdue(trial, running.phase, limit))
        return found

    def cancel(self, trial: str) -> bool:
        """Ask a trial to end; False when it is not running here."""
        running = self._running.get(trial)
        if running is None or running.task is None:
            return False
        running.asked_at = self.clock()
        if running.task.done():
            self.ended(trial)
        return running.task.cancel()

    def insist(self) -> None:
        """Ask those again that were asked long ago and still run."""
        now = self.clock()
        for trial, running in list(self._running.items()):
            if running.asked_at is not None and now - running.asked_at > self.insist_sec:
                self.cancel(trial)
