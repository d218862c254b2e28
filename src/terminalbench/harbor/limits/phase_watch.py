"""Follows the phases of the running trials of one Harbor process: which is overdue, which does not let itself be ended.

A trial is asked to end by cancelling it, which makes Harbor record it, and once more when that did not help. A
cancelled trial is recorded by Harbor as cancelled; the note in its folder says what it really was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio  # only Harbor's process needs it, not the many who read what it left

INSIST_SEC = 30.0
"""Cancelling a trial makes Harbor collect its files, which may be what hangs: so it is asked again after that time."""

ASKS = 2
"""A trial that was asked so often, and has not ended `INSIST_SEC` after the last time, cannot be ended."""


@dataclass
class _RunningPhase:
    limits: dict[str, float]
    task: "asyncio.Task[object] | None"
    phase: str = ""
    since: float = 0.0
    asked_at: float | None = None
    asks: int = 0


@dataclass(frozen=True)
class OverduePhase:
    """A phase that has just passed its limit."""

    trial: str
    phase: str
    limit_sec: float


@dataclass
class PhaseWatch:
    """`clock` gives seconds that never jump. Its methods may be called in any thread."""

    clock: Callable[[], float]
    insist_sec: float = INSIST_SEC
    _running: dict[str, _RunningPhase] = field(default_factory=dict)

    def started(self, trial: str, limits: dict[str, float], task: "asyncio.Task[object] | None") -> None:
        """A trial has started; `task` is what runs it."""
        self._running[trial] = _RunningPhase(limits, task, since=self.clock())

    def phase(self, trial: str, name: str) -> None:
        """A trial has entered a phase; one that is being ended stays in the phase that hung."""
        running = self._running.get(trial)
        if running is not None and running.asked_at is None:
            running.phase, running.since = name, self.clock()

    def phase_of(self, trial: str) -> str:
        """The phase that a trial is in; empty before its first, and when it is over."""
        running = self._running.get(trial)
        return running.phase if running is not None else ""

    def ended(self, trial: str) -> None:
        """A trial is over."""
        self._running.pop(trial, None)

    def pardon(self, seconds: float, but: str | None) -> None:
        """Time in which no trial could work, nor end as it was asked to: it counts only for the one that kept the event
        loop to itself, if there is one.
        """
        for trial, running in list(self._running.items()):
            if trial != but:
                running.since += seconds
                running.asked_at = None if running.asked_at is None else running.asked_at + seconds

    def overdue(self) -> list[OverduePhase]:
        """The phases that have passed their limit. Their trials are not yet asked to end."""
        now = self.clock()
        found = []
        for trial, running in list(self._running.items()):
            limit = running.limits.get(running.phase)
            if limit is not None and running.asked_at is None and now - running.since > limit:
                found.append(OverduePhase(trial, running.phase, limit))
        return found

    def ask(self, trial: str) -> "asyncio.Task[object] | None":
        """Note that a trial is asked to end; returns the task to be cancelled, None when it is not running here."""
        running = self._running.get(trial)
        if running is None or running.task is None:
            return None
        running.asked_at = self.clock()
        running.asks += 1
        if running.task.done():
            self.ended(trial)
        return running.task

    def to_ask_again(self) -> list[str]:
        """Those that were asked long ago and still run."""
        return [trial for trial, asks in self._ignored() if asks < ASKS]

    def deaf(self) -> list[str]:
        """Those that cannot be ended."""
        return [trial for trial, asks in self._ignored() if asks >= ASKS]

    def _ignored(self) -> list[tuple[str, int]]:
        now = self.clock()
        return [
            (trial, running.asks)
            for trial, running in list(self._running.items())
            if running.asked_at is not None and now - running.asked_at > self.insist_sec
        ]
