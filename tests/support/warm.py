"""Harbor's processes in tests: forked from one that has loaded Harbor, because loading it takes longer than a small job.

`Warm` stands in for `runner.executors.local.spawn`. Each process is a real one, in a group of its own, with its own
environment, folder and files; it does what `harbor run` or `python -m <module>` does. Tests that start `tbench` as a
process use the real `spawn`.
"""

import array
import atexit
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from terminalbench.runner.executors.local import spawn

LOADED = (
    "harbor.cli.main", "harbor.job", "harbor.trial.trial", "terminalbench.harbor.plugin", "terminalbench.harbor.verifier",
    "terminalbench.harbor.preflight", "terminalbench.harbor.lookup", "terminalbench.harbor.agents.simulated",
    "terminalbench.sandbox.environment",
)  # fmt: skip
_HEAD = struct.Struct("!I")
_NULL = os.open(os.devnull, os.O_RDWR)


class Forked:
    """What the callers of `spawn` use of `subprocess.Popen`."""

    def __init__(self, pid: int, status: int, files: Mapping[str, int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._files = files

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._status, selectors.EVENT_READ)
            return self.wait() if self.returncode is None and ready.select(0) else self.returncode

    def wait(self) -> int:
        """Wait for the end."""
        if self.returncode is None:
            said = os.read(self._status, 4)
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(_HEAD.unpack(said)[0])
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, question: bytes = b"", timeout: float = 300) -> tuple[bytes, bytes]:
        """Write the question, read both answers to their ends, as far as they are pipes."""
        if "stdin" in self._files:
            with os.fdopen(self._files["stdin"], "wb") as stdin:
                stdin.write(question)
        found = {"stdout": bytearray(), "stderr": bytearray()}
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as ready:
            for name in found.keys() & self._files.keys():
                ready.register(self._files[name], selectors.EVENT_READ, name)
            while ready.get_map():
                events = ready.select(end - time.monotonic())
                if not events:
                    raise subprocess.TimeoutExpired("a forked process", timeout)
                for key, _ in events:
                    data = os.read(key.fd, 65536)
                    found[key.data] += data
                    if not data:
                        ready.unregister(key.fd)
                        os.close(key.fd)
        self.wait()
        return bytes(found["stdout"]), bytes(found["stderr"])


class Warm:
    """The process that has loaded Harbor, started at the first use; it ends with us, and what it has forked with it.

    Harbor notes the home folder when it is loaded: a process with another one is a fresh one.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._server: socket.socket | None = None
        self._home = os.environ.get("HOME") if home is None else str(home)

    def __call__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        number: int = signal.SIGKILL,
        cwd: Path | None = None,
        **files: Any,
    ) -> "Forked | subprocess.Popen[bytes]":
        """Start `argv` as `spawn` does."""
        if env.get("HOME") != self._home:
            return spawn(argv, env, number, cwd=cwd, **files)
        theirs, ours, pipes = [], {}, []
        for name in ("stdin", "stdout", "stderr"):
            given = files[name]
            if given == subprocess.PIPE:
                read, write = os.pipe()
                mine, other = (write, read) if name == "stdin" else (read, write)
                ours[name] = mine
                pipes.append(other)
                theirs.append(other)
            elif given == subprocess.STDOUT:
                theirs.append(theirs[1])
            else:
                theirs.append(_NULL if given == subprocess.DEVNULL else given.fileno())
        status, reported = os.pipe()
        pid = self._ask({"argv": argv, "env": dict(env), "cwd": str(cwd or Path.cwd())}, [*theirs, reported])
        for descriptor in (*pipes, reported):
            os.close(descriptor)
        return Forked(pid, status, ours)

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        if self._server is None:
            self._server, other = socket.socketpair()
            argv = [sys.executable, "-u", __file__, str(other.fileno())]
            env = {**os.environ, "HOME": self._home} if self._home else None
            subprocess.Popen(
                argv, env=env, pass_fds=(other.fileno(),), stdin=_NULL, stdout=_NULL, start_new_session=True
            )
            other.close()
        data = json.dumps(request).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._server.sendmsg([_HEAD.pack(len(data))], [rights])
        self._server.sendall(data)
        return _HEAD.unpack(_exactly(self._server, 4))[0]


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError("the other side has ended")
        data += more
    return data


def serve(requests: socket.socket) -> Callable[[], int | None]:
    """Fork a process for each request; returns in each forked process, with what it has to do."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        with selectors.DefaultSelector() as ready:
            ready.register(requests, selectors.EVENT_READ)
            ready.register(woken, selectors.EVENT_READ)
            events = [key.fileobj for key, _ in ready.select()]
        if woken in events:
            os.read(woken, 4096)
            _report(running)
        if requests not in events:
            continue
        head, rights, _, _ = requests.recvmsg(4, socket.CMSG_LEN(64))
        if not head:
            sys.exit(0)
        descriptors = array.array("i", rights[0][2]).tolist()
        request = json.loads(_exactly(requests, _HEAD.unpack(head)[0]))
        pid = os.fork()
        if pid == 0:
            requests.detach()  # closed below; the object must not close the number again
            return _become(request, descriptors)
        running[pid] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)
        requests.sendall(_HEAD.pack(pid))


def _report(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = running.pop(pid)
        os.write(descriptor, _HEAD.pack(status))
        os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int]) -> Callable[[], int | None]:
    """Make the forked process what a fresh one would be; returns its program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    path = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    _, *arguments = request["argv"]  # of Python or of `harbor`
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        return importlib.import_module(arguments[1]).main
    sys.argv = [Path(request["argv"][0]).name, *arguments]
    return COMMAND


if __name__ == "__main__":
    os.environ |= {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    sys.path.pop(0)  # the folder of this file, which Python puts there
    for name in LOADED:
        importlib.import_module(name)
    COMMAND = typer.main.get_command(importlib.import_module("harbor.cli.main").app)  # made anew by every `app()`
    gc.collect()
    gc.freeze()  # a forked process would copy each page that a collection looks at
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        code = program()
    except SystemExit as error:
        code = error.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
