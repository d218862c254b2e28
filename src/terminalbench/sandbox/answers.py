"""What a running sandbox answers, and what a command in it writes: kept within bounds, handed on as it comes."""

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from terminalbench.sandbox import helper
from terminalbench.sandbox.plan import SandboxLimits

OnOutput = Callable[[str, str], Awaitable[None]]
_HALF_OUTPUT_BYTES = 16 << 20


@dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str
    left: int | None = None
    """How many processes tests have left running that could write the reward (all were ended); None where it was no
    test, -1: not known."""
    ended_ns: int = 0
    """When tests ended: nothing that was written before has a later stamp."""


@dataclass(frozen=True)
class VerifierFolders:
    """Where tests and their reward are, and the `system` folders: what they run from elsewhere is then confined."""

    tests: str
    logs: str
    system: list[str] | None = None


@dataclass(frozen=True)
class OverseerCounts:
    """How many programs of the work the tests have run confined, and how many could not be.

    `readers` of them could read the tests: shells, builds, and what was handed something of theirs.
    `rewritten` are files of the tests, and programs of the image (absolute), that changed while they ran, `late`
    rewards that changed after that.
    """

    confined: int
    free: int
    readers: int = 0
    rewritten: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


@dataclass(frozen=True)
class LimitCounts:
    """How often each limit of a sandbox was reached."""

    memory: int = 0
    processes: int = 0
    disk: int = 0
    files: int = 0

    def reached_since(self, before: "LimitCounts", limits: SandboxLimits) -> list[str]:
        """Return what was reached meanwhile, in words."""
        texts = {
            "memory": f"memory limit of {limits.memory_mb} MB reached: processes were killed",
            "processes": f"process limit of {limits.processes} reached",
            "disk": f"storage limit of {limits.storage_mb} MB reached: processes were killed",
            "files": "the machine had few open files left: processes were killed",
        }
        return [text for name, text in texts.items() if getattr(self, name) > getattr(before, name)]


@dataclass(frozen=True)
class OmittedEntries:
    """What did not come out of a folder: nested too deep, too many, or larger than there is room for."""

    count: int = 0
    example: str | None = None


@dataclass(frozen=True)
class PreparedFolders:
    """What was in the verifier's folders, and links into them: some by name, and how many."""

    found: tuple[str, ...]
    links: tuple[str, ...]
    links_count: int


class OutputStream:
    """One output of a command: kept up to a limit (its start and its end), handed on as it comes."""

    def __init__(self, handle: int, name: str, on_output: OnOutput | None) -> None:
        os.set_blocking(handle, False)
        self.handle, self.ended = handle, False
        self._name, self._on_output = name, on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0
        self._finished, self._wake = False, asyncio.Event()

    def finish(self) -> None:
        """The command is over: read what it has written, wait for nothing more."""
        self._finished = True
        self._wake.set()

    async def pump(self) -> None:
        """Read until the end, or until there is nothing more after `finish`."""
        while True:
            try:
                chunk = os.read(self.handle, 1 << 16)
            except BlockingIOError:
                if self._finished:
                    return
                self._wake.clear()
                await helper.readable(self.handle, self._wake)
                continue
            if not chunk:
                self.ended = True
                return
            self._keep(chunk)
            if self._on_output is not None:
                await self._on_output(self._decoder.decode(chunk), self._name)
            else:
                await asyncio.sleep(0)

    def _keep(self, chunk: bytes) -> None:
        room = _HALF_OUTPUT_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * _HALF_OUTPUT_BYTES:
            extra = len(self._tail) - _HALF_OUTPUT_BYTES
            self._dropped += extra
            del self._tail[:extra]

    def text(self) -> str:
        """Return what was written; of very much output, the first and the last 16 MB."""
        tail = self._tail[-_HALF_OUTPUT_BYTES:]
        dropped = self._dropped + len(self._tail) - len(tail)
        note = f"\n[sandbox: {dropped} bytes of output left out]\n".encode() if dropped else b""
        return (bytes(self._head) + note + bytes(tail)).decode("utf-8", "replace")
