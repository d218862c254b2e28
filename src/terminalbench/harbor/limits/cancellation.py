"""Ends trials of one Harbor process: those whose phase hangs, those that a person has cancelled. And the process, when
a trial of it cannot be ended.

An agent may swallow every cancellation, or keep Harbor's event loop to itself. So a thread beside the loop does it,
and leaves the process after `ASKS` cancellations in vain: the other trials record what they did, the rest
is recorded here, and the runner starts what is left in another process. Time in which this process did not run
(stopped, the machine asleep) counts for no trial, nor for Harbor's own time limits; time in which the loop was blocked,
only for the trial that did it.

Harbor gives out a fixed number of slots, by a semaphore of its queue: one release of it is a slot more.
"""

import asyncio
import contextvars
import os
import signal
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from harbor.models.trial.result import ExceptionInfo
from harbor.trial.hooks import TrialHookEvent

from terminalbench.files import write_bytes
from terminalbench.harbor.limits.admission import AdmissionPort
from terminalbench.harbor.limits.clock import AwakeClock, give_time, take_time_back
from terminalbench.harbor.limits.hangs import ASKS, add_deaf, leave_word, write_hang
from terminalbench.harbor.read import RESULT
from terminalbench.text.numbers import duration

INSIST_SEC = 30.0
"""Cancelling a trial makes Harbor collect its files, which may be what hangs: so it is asked again after that time."""


@dataclass
class _RunningPhase:
    limits: dict[str, float]
    task: asyncio.Task[object] | None
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
    """The phases of the running trials: which is overdue, which trial does not let itself be ended.

    A cancelled trial is recorded by Harbor as cancelled; the note in its folder says what it really was. `clock` gives
    seconds that never jump. The methods may be called in any thread.
    """

    clock: Callable[[], float]
    insist_sec: float = INSIST_SEC
    _running: dict[str, _RunningPhase] = field(default_factory=dict)

    def started(self, trial: str, limits: dict[str, float], task: asyncio.Task[object] | None) -> None:
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

    def ask(self, trial: str) -> asyncio.Task[object] | None:
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


class Slots:
    """The slots of a job. Only for the thread of Harbor's event loop."""

    def __init__(self, job: Any, *, fixed: bool = False) -> None:
        """Count the places; with `fixed`, nobody may add any: a job that looks for the task that breaks it runs one at
        a time."""
        self.count: int = job.config.n_concurrent_trials
        self._planned = len(job)
        self._fixed = fixed
        self._semaphore: asyncio.Semaphore = job._trial_queue._semaphore  # Harbor has no public way to add one
        if not isinstance(self._semaphore, asyncio.Semaphore):
            raise TypeError("Harbor's queue has no semaphore")

    def grow_to(self, wanted: int | None) -> None:
        """Add slots until there are `wanted`, or one for each planned trial. There are never fewer again."""
        if wanted is None or self._fixed:
            return
        for _ in range(self.count, min(wanted, self._planned)):
            self._semaphore.release()
            self.count += 1


TICK_SEC = 1.0
RECORD_SEC = 10.0
"""What the other trials have to record what they did, before the process is left."""

BLOCKED_SEC = 60.0
"""An event loop that was blocked for so long is told of."""

EXIT_CODE = 1
_TRIAL: contextvars.ContextVar[str] = contextvars.ContextVar("trial")


@dataclass(frozen=True)
class CancellationHooks:
    """The plugin's part in ending a trial. `bury` writes how a trial ended whose result is on disk, `leave` that the
    process ends; `beat` takes how long the event loop has not answered, and is called again and again.
    """

    tell: Callable[..., None]
    failed: Callable[[str, BaseException], None]
    bury: Callable[[TrialHookEvent], None]
    leave: Callable[[], None]
    beat: Callable[[float], None]


@dataclass
class TrialCanceller:
    """`begun` are the trials that run, as the plugin counts them; those of `alive` may still wait to be let in."""

    door: AdmissionPort
    profile: str
    grace_sec: float
    tick_sec: float
    voice: CancellationHooks
    begun: Set[str]
    alive: dict[str, TrialHookEvent] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _orders: dict[str, tuple[str, str]] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _answered: threading.Event = field(default_factory=threading.Event)
    _blocked_sec: float = 0.0
    _starved_sec: float = 0.0

    def __post_init__(self) -> None:
        self.clock = AwakeClock()
        self.phases = PhaseWatch(self.clock, min(INSIST_SEC, self.grace_sec / 4))

    def start(self, loop: asyncio.AbstractEventLoop, job_dir: Path, slots: Slots) -> None:
        """Watch from here on, until `stop`."""
        self._loop, self._job_dir, self._slots = loop, job_dir, slots
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._answered.set()
        give_time(loop, self.clock)
        threading.Thread(target=self._run, name="ender", daemon=True).start()

    def stop(self) -> None:
        """The job is over. Called in the thread of the loop."""
        self._over.set()
        take_time_back(asyncio.get_running_loop())

    def met(self, event: TrialHookEvent, limits: dict[str, float]) -> None:
        """A trial has come, or was let in and has limits. Called in the task that runs it."""
        _TRIAL.set(event.trial_name)
        self.alive[event.trial_name] = event
        self.phases.started(event.trial_name, limits, asyncio.current_task())

    def gone(self, event: TrialHookEvent) -> None:
        """A trial is over, or will never start. What a person wanted of it is done."""
        self.phases.ended(event.trial_name)
        self.alive.pop(event.trial_name, None)
        action, reason = self._orders.pop(event.trial_name, (None, ""))
        if action is not None:
            self.voice.tell("control", event, error=reason, detail={"action": action, "done": True})

    def _run(self) -> None:
        looked_at = self.clock()
        while not self._over.wait(min(TICK_SEC, self.grace_sec, self.tick_sec)):
            before, looked_at = looked_at, self.clock()
            try:
                self._look(looked_at - before)
            except Exception as error:  # noqa: BLE001 - the last one that could end a trial must not end itself
                self.voice.failed("phases", error)

    def _look(self, step: float) -> None:
        if self._loop.is_closed():
            return
        self._listen(step)
        self.voice.beat(self._blocked_sec)
        try:
            self._obey()
        except (OSError, msgspec.DecodeError) as error:  # orders that cannot be read keep nothing from being ended
            self.voice.failed("orders", error)
        for late in self.phases.overdue():
            hang = write_hang(self._job_dir / late.trial, late.phase, late.limit_sec)
            self.voice.tell("note", detail={"trial": late.trial}, error=f"{late.trial}: {hang.reason}; cancelled")
            self._cancel(late.trial)
        for trial in self.phases.to_ask_again():
            self._cancel(trial)
        deaf = self.phases.deaf()
        if deaf and not self._over.is_set():
            self._give_up(deaf)

    def _listen(self, step: float) -> None:
        """Take note whether the event loop answers. While it does not, only the trial that has it uses up its time.

        Time in which the loop waited for a processor is none in which it was blocked: the machine is busy.
        """
        starved = _starved_sec(self._schedule)
        waited, self._starved_sec = min(step, max(0.0, starved - self._starved_sec)), starved
        self.phases.pardon(waited, None)
        if self._answered.is_set():
            self._blocked_sec = 0.0
            self._answered.clear()
            self._loop.call_soon_threadsafe(self._answered.set)
            return
        holder, before = self._holder(), self._blocked_sec
        self._blocked_sec += step - waited
        self.phases.pardon(step - waited, holder)
        if before < BLOCKED_SEC <= self._blocked_sec:
            said = (
                f"{holder or 'Harbor'} has blocked the event loop for {duration(BLOCKED_SEC)}: all other trials are "
                f"stuck"
            )
            self.voice.tell("note", detail={"trial": holder}, error=said)

    def _holder(self) -> str | None:
        task = asyncio.current_task(self._loop)
        return task.get_context().get(_TRIAL) if task is not None else None

    def _obey(self) -> None:
        """End the trials that the run was told to cancel or to run again; add slots that it was told to have."""
        told = self.door.told()
        for action, wanted in (("cancel", told.cancel), ("requeue", told.requeue)):
            for trial, reason in wanted.items():
                if trial not in self.alive or trial in self._told:
                    continue
                self._told.add(trial)
                self._orders[trial] = action, reason
                if action == "cancel":
                    leave_word(self._job_dir / trial, reason, started=trial in self.begun)
                self._cancel(trial)
        self._loop.call_soon_threadsafe(self._slots.grow_to, told.at_once(self.profile))

    def _cancel(self, trial: str) -> None:
        task = self.phases.ask(trial)
        if task is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def _give_up(self, deaf: list[str]) -> None:
        """Leave the process to get rid of trials that cannot be ended."""
        self._over.set()
        try:
            if self._answers():
                os.kill(os.getpid(), signal.SIGINT)  # Harbor cancels the others, which record what they did
                self._await_others(deaf)
            for trial, event in list(self.alive.items()):
                self._leave_behind(event, deaf=trial in deaf)
        except Exception as error:  # noqa: BLE001 - nothing keeps this process from being left
            self.voice.failed("end", error)
        said = f"{', '.join(deaf)} could not be ended, so its Harbor process was ended; the others run again"
        self.voice.tell("note", detail={"trials": deaf}, error=said)
        self.voice.leave()
        os._exit(EXIT_CODE)

    def _leave_behind(self, event: TrialHookEvent, *, deaf: bool) -> None:
        trial = event.trial_name
        try:
            if deaf and self._orders.get(trial, ("", ""))[0] != "requeue":
                add_deaf(self._job_dir / trial, self.phases.phase_of(trial))
            if trial in self.begun:
                _record(self._job_dir / trial / RESULT, event.result, deaf=deaf)
                self.voice.bury(event)
            self.gone(event)
        except Exception as error:  # noqa: BLE001 - nor what one of them leaves
            self.voice.failed(f"end of {trial}", error)

    def _answers(self) -> bool:
        self._answered.clear()
        self._loop.call_soon_threadsafe(self._answered.set)
        return self._answered.wait(TICK_SEC)

    def _await_others(self, deaf: list[str]) -> None:
        until = self.clock() + RECORD_SEC
        while not self.begun <= set(deaf) and self.clock() < until:
            time.sleep(0.05)


def _starved_sec(schedule: Path) -> float:
    """Return how long a thread has waited for a processor; 0 where the kernel does not tell."""
    try:
        return int(schedule.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _record(file: Path, result: Any, *, deaf: bool) -> None:
    """Write a trial's result as Harbor would have, had the trial let itself be cancelled. Harbor's own is kept."""
    if file.exists():
        return
    now = datetime.now(UTC)
    if result.exception_info is None or deaf:
        what = "its Harbor process ended before it did"
        result.exception_info = ExceptionInfo(
            exception_type="CancelledError", exception_message=what, exception_traceback="", occurred_at=now
        )
    result.finished_at = now
    write_bytes(file, result.model_dump_json(indent=4).encode())
