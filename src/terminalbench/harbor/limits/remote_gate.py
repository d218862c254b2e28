"""The gate of a batch whose files are on another machine: a trial's questions go there through a socket.

Harbor runs `RemoteAdmission`, which asks by a socket of its own machine; the listener there passes the question on
to the machine of the batch, where `answer` has the batch's own `Admission` decide. Nothing is decided here.
"""

import contextlib
import os
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import msgspec

from terminalbench.decode import decode
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import TrialRefusal
from terminalbench.harbor.limits.admission import Admission, AdmissionPort, Wait
from terminalbench.harbor.limits.clock import SharedClock, boot_id
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.harbor.limits.gate import Gate

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


def answer(door: Admission, question: RemoteCall) -> RemoteReply:
    """Ask the gate of the batch, on the machine where it is."""
    said: Wait | TrialRefusal | Control | None = None
    error = None
    trial = question.trial
    try:
        match question.what:
            case "ask":
                said = door.ask(trial, question.lane)
            case "told":
                said = door.told()
            case "settle":
                door.settle(trial, question.cost_usd, measured=question.measured, again=question.again)
            case "press":
                door.press(trial, question.lane, question.asked_sec)
            case "ease":
                door.ease(trial, question.lane)
            case "withdraw":
                door.withdraw(trial)
            case "left":
                door.left(trial)
            case "failed":
                door.failed(trial)
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
