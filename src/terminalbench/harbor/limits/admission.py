"""Admission of trials, by the gate and the orders to the run: one starts now, or there is something it waits for.

Where the files of the batch are on another machine, a trial's questions go there through a socket: Harbor runs
`RemoteAdmission`, which asks by a socket of its own machine; the listener there passes the question on to the machine
of the batch, where `answer` has the batch's own `Admission` decide.
"""

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from terminalbench.decode import decode
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.clock import SharedClock, boot_id
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.harbor.limits.gate import Gate, GateState, TrialRefusal
from terminalbench.harbor.limits.pacing import draw, retry_at
from terminalbench.records.event import WaitKind
from terminalbench.records.values import stamp

POLL_SEC = 1.0
_SETTLE_SEC = (0.1, 0.5, 2.0, None)


@dataclass(frozen=True)
class Wait:
    """The reason why a trial does not start yet, and until when by the gate's clock; None: until a person says so."""

    cause: WaitKind
    reason: str
    until: float | None = None

    def detail(self, now: float) -> dict[str, Any]:
        """Return what the event `trial_waiting` says besides the reason."""
        if self.until is None:
            return {"cause": self.cause}
        return {"cause": self.cause, "until": stamp(datetime.now(UTC) + timedelta(seconds=self.until - now))}

    def left_sec(self, now: float) -> float:
        """Return how long to sleep before looking again."""
        return POLL_SEC if self.until is None else max(0.01, min(POLL_SEC, self.until - now))


class AdmissionPort(Protocol):
    """The port that lets in the trials of a Harbor process: `Admission`, or a client of one on another machine."""

    def now(self) -> float: ...
    def ask(self, trial: str, lane: str) -> Wait | TrialRefusal | None: ...
    def withdraw(self, trial: str) -> None: ...
    def settle(self, trial: str, cost_usd: float | None, *, measured: bool = False, again: bool = False) -> None: ...
    def left(self, trial: str) -> None: ...
    def told(self) -> Control: ...
    def failed(self, trial: str) -> None: ...
    def press(self, trial: str, lane: str, asked_sec: float | None) -> None: ...
    def ease(self, trial: str, lane: str) -> None: ...


class Admission:
    """Asks for the trials of one Harbor process, and remembers what they did before."""

    def __init__(self, gate: Gate | None, control: ControlFile | None, profile: str) -> None:
        self.gate = gate
        self.control = control
        self._profile = profile
        self._inside: set[str] = set()
        self._gone: set[str] = set()
        self._settled: set[str] = set()
        self._owed: dict[str, Callable[[], None]] = {}
        self._entered: dict[str, float] = {}
        self._failed: dict[str, float] = {}
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._clock = SharedClock.here()

    def now(self) -> float:
        """The time by the gate's clock, as it was last read."""
        return self._clock.now()

    def ask(self, trial: str, lane: str) -> Wait | TrialRefusal | None:
        """Let a trial in (None), or say what it waits for, or why it may never start.

        Where gate or orders cannot be read, it is let in, and the error is raised to be told.
        """
        self._pay_owed()
        try:
            state = self.gate.read() if self.gate is not None else GateState(clock=self._clock)
            self._clock = state.clock
            now = self.now()
            control = self.told()
            stopped = control.refusal(self._profile)
            closed = self.gate is not None and self.gate.why_closed(self._profile) is not None
            with self._lock:
                if stopped is None and not closed:
                    wait = told_to_wait(control, self._profile, len(self._inside))
                    wait = wait or waiting(state, trial, lane, self._retry_at(state, trial), now)
                    if wait is not None:
                        return wait
                self._inside.add(trial)
            refusal = self.gate.enter(trial, self._profile) if self.gate is not None and stopped is None else None
        except (OSError, msgspec.DecodeError):
            self._let_in(trial)
            raise
        if stopped is None and refusal is None and self._let_in(trial):
            return None
        if trial in self._gone:
            self._give_back(trial)
        self.left(trial)
        if stopped is not None:
            return stopped
        if refusal is None or refusal.waits_for is None:
            return refusal
        return Wait(refusal.waits_for, refusal.reason)

    def withdraw(self, trial: str) -> None:
        """A trial was ended before it began, maybe while it is being let in: its place and its money are free."""
        with self._lock:
            self._inside.discard(trial)
            self._gone.add(trial)
        self._give_back(trial)

    def _give_back(self, trial: str) -> None:
        if self.gate is None:
            return
        try:
            self.gate.give_back(trial, self._profile)
        except (OSError, msgspec.DecodeError):
            self._owed[trial] = partial(self.gate.give_back, trial, self._profile)

    def _let_in(self, trial: str) -> bool:
        """Note that a trial is in; False when it was withdrawn meanwhile."""
        with self._lock:
            if trial in self._gone:
                self._inside.discard(trial)
                return False
            self._inside.add(trial)
            self._settled.discard(trial)
            self._entered[trial] = self.now()
            self._tries[trial] += 1
            return True

    def settle(self, trial: str, cost_usd: float | None, *, measured: bool = False, again: bool = False) -> None:
        """Tell the gate, once, what a trial has cost. Tried again for a while: others wait for what it holds.

        What cannot be told then is told when the next trial asks: it would wait for ever for what nobody gives back.
        """
        if self.gate is None or trial in self._settled:
            return
        self._settled.add(trial)
        leave = partial(self.gate.leave, trial, self._profile, cost_usd, measured=measured, again=again)
        for pause in _SETTLE_SEC:
            try:
                leave()
            except (OSError, msgspec.DecodeError):
                if pause is None:
                    self._owed[trial] = leave
                    raise
                time.sleep(pause)
            else:
                return

    def _pay_owed(self) -> None:
        for trial in list(self._owed):
            pay = self._owed.pop(trial, None)
            if pay is None:
                continue  # another thread does it
            try:
                pay()
            except (OSError, msgspec.DecodeError):
                self._owed[trial] = pay
                return

    def left(self, trial: str) -> None:
        """A trial is over, or will never start: its place is free."""
        with self._lock:
            self._inside.discard(trial)

    def told(self) -> Control:
        """Return what the run was told."""
        return self.control.read() if self.control is not None else Control()

    def failed(self, trial: str) -> None:
        """A trial will be tried again."""
        self._failed[trial] = self.now()

    def press(self, trial: str, lane: str, asked_sec: float | None) -> None:
        """A trial was rate limited."""
        if self.gate is not None:
            self.gate.press(lane, started_at=self._entered.get(trial, 0.0), asked_sec=asked_sec)

    def ease(self, trial: str, lane: str) -> None:
        """A trial was let through by its provider."""
        if self.gate is not None:
            self.gate.ease(lane, started_at=self._entered.get(trial, 0.0))

    def _retry_at(self, state: GateState, trial: str) -> float:
        if trial not in self._failed:
            return 0.0
        return retry_at(self._failed[trial], self._tries[trial], draw(state.seed, "retry", trial, self._tries[trial]))


def told_to_wait(control: Control, profile: str, running: int) -> Wait | None:
    """Return what a trial waits for because somebody said so, while `running` others of its profile run. Pure."""
    reason = control.why_paused(profile)
    if reason is not None:
        return Wait(WaitKind.PAUSED, f"paused: {reason}")
    limit = control.at_once(profile)
    if limit is not None and running >= limit:
        return Wait(WaitKind.PARALLEL, f"at most {limit} trial{'s' if limit > 1 else ''} of {profile} at once")
    return None


def waiting(state: GateState, trial: str, lane: str, retry_at: float, now: float) -> Wait | None:
    """Return the wait at an open gate: for the rate limit of the lane, or the pause before a further try. Pure."""
    let_in_at = state.let_in_at(trial, lane)
    if let_in_at > now and let_in_at >= retry_at:
        return Wait(WaitKind.RATE_LIMIT, f"rate limit of {lane}", let_in_at)
    return Wait(WaitKind.RETRY, "pause before the next try", retry_at) if retry_at > now else None


_PIECE = 1 << 16


@contextlib.contextmanager
def short_address(path: Path | str) -> Generator[str]:
    """The address of a socket, however long its path is: the kernel takes at most 107 bytes."""
    place = Path(path)
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{place.name}"
    finally:
        os.close(folder)


class RemoteCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A method of `Admission`, with what it takes."""

    what: Literal["ask", "withdraw", "settle", "left", "told", "failed", "press", "ease"]
    trial: str = ""
    lane: str = ""
    cost_usd: float | None = None
    measured: bool = False
    again: bool = False
    asked_sec: float | None = None

    @property
    def awaited(self) -> bool:
        """True when the process that asks waits for the answer."""
        return self.what not in ("withdraw", "left", "failed")


class RemoteReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a request, the time by the gate's clock, and what went wrong there."""

    now: float
    wait: Wait | None = None
    refusal: TrialRefusal | None = None
    control: Control | None = None
    error: str | None = None

    @property
    def lets_in(self) -> bool:
        """True when the trial that asked may start."""
        return self.wait is None and self.refusal is None


def door_of(gate: str | None, shared: str | None, profile: str) -> AdmissionPort:
    """Return the admission of a profile's trials by the gate at a path; a socket there: its files are elsewhere."""
    if gate is None:
        return Admission(None, None, profile)
    place, together = Path(str(gate)), None if shared is None else Path(str(shared))
    if place.is_socket():
        return RemoteAdmission(place)
    return Admission(Gate(place, together), ControlFile(place.with_name("control.json"), together), profile)


_TAKES = {
    "ask": ("trial", "lane"),
    "told": (),
    "settle": ("trial", "cost_usd", "measured", "again"),
    "press": ("trial", "lane", "asked_sec"),
    "ease": ("trial", "lane"),
    "withdraw": ("trial",),
    "left": ("trial",),
    "failed": ("trial",),
}
"""The arguments of each method of `Admission` that can be called from another machine."""


def answer(door: Admission, question: RemoteCall) -> RemoteReply:
    """Ask the gate of the batch, on the machine where it is."""
    said: Wait | TrialRefusal | Control | None = None
    error = None
    try:
        said = getattr(door, question.what)(**{name: getattr(question, name) for name in _TAKES[question.what]})
    except (OSError, msgspec.DecodeError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    return RemoteReply(
        door.now(),
        said if isinstance(said, Wait) else None,
        said if isinstance(said, TrialRefusal) else None,
        said if isinstance(said, Control) else None,
        error,
    )


class RemoteAdmission:
    """The counterpart of `Admission` for a Harbor process on a machine without the gate's files."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)
        self._clock = SharedClock.here()
        self._settled: set[str] = set()

    def now(self) -> float:
        """The time by the gate's clock: its machine told it, this one counts on."""
        return self._clock.now()

    def ask(self, trial: str, lane: str) -> Wait | TrialRefusal | None:
        """Let a trial in (None), or say what it waits for, or why it may never start: also where nobody answers."""
        try:
            reply = self._say(RemoteCall("ask", trial, lane))
        except OSError:
            return TrialRefusal("the machine that runs the batch does not answer", ExclusionKind.INTERRUPTED)
        self._settled.discard(trial)
        if reply.error is not None:
            raise OSError(reply.error)
        return reply.wait or reply.refusal

    def settle(self, trial: str, cost_usd: float | None, *, measured: bool = False, again: bool = False) -> None:
        """Tell the gate, once, what a trial has cost."""
        if trial not in self._settled:
            self._settled.add(trial)
            self._told(RemoteCall("settle", trial, cost_usd=cost_usd, measured=measured, again=again))

    def told(self) -> Control:
        """Return what the run was told."""
        return self._told(RemoteCall("told")).control or Control()

    def withdraw(self, trial: str) -> None:
        """A trial was ended before it began."""
        self._tell(RemoteCall("withdraw", trial))

    def left(self, trial: str) -> None:
        """A trial is over, or will never start."""
        self._tell(RemoteCall("left", trial))

    def failed(self, trial: str) -> None:
        """A trial will be tried again."""
        self._tell(RemoteCall("failed", trial))

    def press(self, trial: str, lane: str, asked_sec: float | None) -> None:
        """A trial was rate limited."""
        self._told(RemoteCall("press", trial, lane, asked_sec=asked_sec))

    def ease(self, trial: str, lane: str) -> None:
        """A trial was let through by its provider."""
        self._told(RemoteCall("ease", trial, lane))

    def _told(self, question: RemoteCall) -> RemoteReply:
        reply = self._say(question)
        if reply.error is not None:
            raise OSError(reply.error)
        return reply

    def _tell(self, question: RemoteCall) -> None:
        """Say something on Harbor's event loop, which must neither wait nor be told that nobody listens."""
        try:
            self._say(question)
        except OSError:
            return

    def _say(self, question: RemoteCall) -> RemoteReply:
        with socket.socket(socket.AF_UNIX) as line:
            with short_address(self._address) as address:
                line.connect(address)
            line.sendall(msgspec.json.encode(question) + b"\n")
            if not question.awaited:
                return RemoteReply(self.now())
            data = b""
            while not data.endswith(b"\n"):
                more = line.recv(_PIECE)
                if not more:
                    raise ConnectionError("the machine that runs the batch does not answer")
                data += more
        reply: RemoteReply = decode(data, RemoteReply)
        self._clock = SharedClock(boot_id(), time.monotonic(), reply.now)
        return reply
