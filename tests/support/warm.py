"""Harbor's processes in tests: forked from one that has loaded Harbor, because loading it takes longer than a small job.

`Warm` stands in for `runner.executors.local.spawn`. Each process is a real one, in a group of its own, with its own
environment, folder, files and mounts; it does what `harbor run` or `python -m <module>` does, and gets its signal when the process
that asked for it ends. One loaded process serves a whole test session: `session` names its folder to all workers, and
`support.tbench` is a `tbench` process that uses it. Some tests start `tbench` with the real `spawn` (see `Lab.fresh`).
"""

import array
import atexit
import contextlib
import ctypes
import fcntl
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
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOADED = (
    "harbor.cli.main", "harbor.job", "harbor.trial.trial", "harbor.trial.single_step", "harbor.agents.installed.base",
    "harbor.cli.job_sharing", "terminalbench.harbor.plugin", "terminalbench.harbor.verifier",
    "terminalbench.harbor.preflight", "terminalbench.harbor.lookup", "terminalbench.harbor.agents.simulated",
    "terminalbench.sandbox.environment", "dirhash", "rich._emoji_codes", "encodings.ascii",
)  # fmt: skip
LARGE = (
    "litellm", "litellm.litellm_core_utils.default_encoding", "litellm.proxy._types", "httpcore",
    "harbor.agents.terminus_2", "harbor.trial.sync_trajectory", "terminalbench.harbor.agents.claude_code",
)  # fmt: skip
"""What only some Harbor processes load, which takes seconds: loaded with the rest where many tests run, in several processes."""
_HEAD = struct.Struct("!I")
_NAMESPACES = ("user", "mnt")
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
        if self.returncode is not None:
            return self.returncode
        with selectors.DefaultSelector() as ready:
            ready.register(self._status, selectors.EVENT_READ)
            return self.wait() if ready.select(0) else None

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


FOLDER = "TBENCH_TESTS_WARM"
"""The variable that names the folder of the loaded process, and the pid of the process that it ends with."""

_ENV = dict(os.environ)


@contextlib.contextmanager
def session() -> Generator[None]:
    """Name a folder for the loaded process of a test session to all that this process starts."""
    with tempfile.TemporaryDirectory(prefix="tbench-warm-") as folder:
        os.environ[FOLDER] = _ENV[FOLDER] = f"{os.getpid()}:{folder}"
        yield


class Warm:
    """Asks the process of this session that has loaded Harbor, which starts at the first use."""

    def __init__(self, where: str | None = None) -> None:
        self._server: socket.socket | None = None
        self._where = where
        self._turn = threading.Lock()

    def __call__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        number: int = signal.SIGKILL,
        cwd: Path | None = None,
        **files: Any,
    ) -> Forked:
        """Start `argv` as `spawn` does."""
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
        places = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in _NAMESPACES]
        status, reported = os.pipe()
        request = {"argv": argv, "env": dict(env), "cwd": str(cwd or Path.cwd()), "signal": int(number)}
        pid = self._ask(request, [*theirs, *places, reported])
        for descriptor in (*pipes, *places, reported):
            os.close(descriptor)
        return Forked(pid, status, ours)

    def tbench(self) -> list[str]:
        """The command `tbench`, as a process that asks the loaded process too."""
        self.connect()
        return [sys.executable, str(Path(__file__).with_name("tbench.py")), _ENV[FOLDER]]

    def connect(self) -> None:
        """Connect to the loaded process, and start it if this is the first use in the session."""
        if self._server is None:
            self._server = _connect(self._where or _ENV[FOLDER])

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        self.connect()
        assert self._server is not None
        data = json.dumps(request).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        with self._turn:
            self._server.sendmsg([_HEAD.pack(len(data))], [rights])
            self._server.sendall(data)
            return _HEAD.unpack(_exactly(self._server, 4))[0]


def _connect(where: str) -> socket.socket:
    """A connection to the loaded process, which the first that asks starts."""
    owner, folder = where.split(":", 1)
    path = Path(folder) / "socket"
    with (Path(folder) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            home = Path(folder) / "home"
            home.mkdir()
            with socket.socket(socket.AF_UNIX) as listener, (Path(folder) / "log").open("wb") as log:
                listener.bind(str(path))
                listener.listen(64)
                subprocess.Popen(
                    [sys.executable, "-u", __file__, str(listener.fileno()), owner], env={**_ENV, "HOME": str(home)},
                    pass_fds=(listener.fileno(),), stdin=_NULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    return made


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError("the other side has ended")
        data += more
    return data


@dataclass(frozen=True)
class _Child:
    """A forked process: where its end is told, who asked for it, and the signal it gets when that one ends."""

    status: int
    asked: socket.socket
    signal: int


def serve(listener: socket.socket, owner: int) -> Callable[[], int | None]:
    """Fork a process for each request; returns in each forked process, with what it has to do. Ends with `owner`."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, _Child] = {}
    ready = selectors.DefaultSelector()
    for file, name in ((listener, "listener"), (woken, "woken"), (os.pidfd_open(owner), "owner")):
        ready.register(file, selectors.EVENT_READ, name)
    while True:
        for key, _ in ready.select():
            if key.data == "owner":
                sys.exit(0)
            elif key.data == "woken":
                os.read(woken, 4096)
                _report(running)
            elif key.data == "listener":
                ready.register(listener.accept()[0], selectors.EVENT_READ, "client")
            elif program := _answer(key.fileobj, running, ready):
                return program


def _answer(client: Any, running: dict[int, _Child], ready: selectors.BaseSelector) -> Callable[[], int | None] | None:
    """Start what the client asks for, or end it when the client has ended; a program in the forked process."""
    descriptors: list[int] = []
    try:
        head, rights, _, _ = client.recvmsg(4, socket.CMSG_LEN(64))
        descriptors = [number for right in rights for number in array.array("i", right[2])]
        request = json.loads(_exactly(client, _HEAD.unpack(head)[0])) if head else None
    except (OSError, EOFError):  # killed while it asked, or before it had read its answer
        request = None
    if request is None:
        for descriptor in descriptors:
            os.close(descriptor)
        ready.unregister(client)
        client.close()
        for pid in [pid for pid, child in running.items() if child.asked is client]:
            os.kill(pid, running[pid].signal)
        return None
    asked_by = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    pid = os.fork()
    if pid == 0:
        for key in ready.get_map().values():
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.detach()  # closed below; the object must not close the number again
        ready.close()
        return _become(request, descriptors, asked_by)
    running[pid] = _Child(descriptors.pop(), client, request["signal"])
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # its end is seen at the next turn
        client.sendall(_HEAD.pack(pid))
    return None


def _report(running: dict[int, _Child]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        child = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # the one that asked has ended
            os.write(child.status, _HEAD.pack(status))
        os.close(child.status)


def _become(request: dict[str, Any], descriptors: list[int], asked_by: int) -> Callable[[], int | None]:
    """Make the forked process what a fresh one would be; returns its program."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for kind, descriptor in zip(_NAMESPACES, descriptors[3:5], strict=True):
        if os.fstat(descriptor).st_ino != Path(f"/proc/self/ns/{kind}").stat().st_ino:
            os.setns(descriptor)
    os.closerange(3, 1024)
    os.chdir(request["cwd"])
    if request["signal"] != signal.SIGKILL:
        importlib.import_module("terminalbench.runner.executors.tie").guard(asked_by)
    loaded_in = os.environ["HOME"]
    os.environ.clear()
    os.environ.update(request["env"])
    from terminalbench.modes import child_umask

    if (mask := child_umask()) >= 0:
        os.umask(mask)
    _move_home(Path(loaded_in), Path.home())
    path = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    _, *arguments = request["argv"]  # of Python or of `harbor`
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        return importlib.import_module(arguments[1]).main
    sys.argv = [Path(request["argv"][0]).name, *arguments]
    return COMMAND


def _move_home(old: Path, new: Path) -> None:
    """Harbor notes places in the home folder when it is loaded."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "harbor":
            for key, value in list(vars(module).items()):
                if isinstance(value, Path) and value.is_relative_to(old):
                    setattr(module, key, new / value.relative_to(old))


if __name__ == "__main__":
    os.environ |= {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    sys.path.pop(0)  # the folder of this file, which Python puts there
    for name in (*LOADED, *(LARGE if "PYTEST_XDIST_WORKER" in os.environ else ())):
        importlib.import_module(name)
    typer = importlib.import_module("typer")
    COMMAND = typer.main.get_command(importlib.import_module("harbor.cli.main").app)  # made anew by every `app()`
    gc.collect()
    gc.freeze()  # a forked process would copy each page that a collection looks at
    program = serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    try:
        code = program()
    except SystemExit as error:
        code = error.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
