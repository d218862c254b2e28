"""Harbor's processes in tests: forked from one that has loaded Harbor, because loading it takes longer than a small job.

`Warm` stands in for `runner.executors.local.spawn`. Each process is a real one, in a group of its own, with its own
environment, folder, files and mounts; it does what `harbor run` or `python -m <module>` does, and gets its signal when the process
that asked for it ends. One loaded process serves a whole test session: `session` names its folder to all workers.
`start_tbench` starts `tbench` in the same way, from one that has loaded our commands; so does the `tbench` that
`write_tbench` gives to a shell, and `support.tbench` is a Python of its own. Some tests start `tbench` with the real `spawn` (see `Lab.fresh`).

The attendants of such a Harbor process (the helper and the relay of its sandboxes) are forked too, from a second, small
process that has loaded them: `Attendants` stands in for `sandbox.helper.spawn`. The tests of the sandbox itself start real
ones.
"""

import array
import contextlib
import fcntl
import json
import os
import re
import selectors
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HARBOR = "harbor"
"""The door of the process that has loaded Harbor; those of attendants are in `support.forks`."""
LARGE = "harbor-large"
"""The door of the one that has loaded LiteLLM too, with which a fork takes three times as long."""
TBENCH = "tbench"
"""The door of the process that has loaded our commands."""
_LARGE_AGENTS = re.compile(r"terminus|claude|guarded|ollama|litellm")
OWN_ATTENDANTS = "TBENCH_TESTS_OWN_ATTENDANTS"
"""The variable of a process whose Harbor processes start their attendants themselves: to look at all that is below them."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HEAD = struct.Struct("!I")
_NAMESPACES = ("user", "mnt")


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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._status, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            said = os.read(self._status, 4)
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(_HEAD.unpack(said)[0])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

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


class Asked(Forked):
    """One that is forked when it gets its question, which tells what it will load."""

    def __init__(self, start: Callable[[bytes], Forked]) -> None:
        self._start = start
        self.returncode = 0

    def communicate(self, question: bytes = b"", timeout: float = 300) -> tuple[bytes, bytes]:
        """Start it, write the question, read both answers."""
        forked = self._start(question)
        super().__init__(forked.pid, forked._status, forked._files)
        return super().communicate(question, timeout)


class Command(Forked):
    """What tests use of `subprocess.Popen` of a `tbench` whose answers are pipes of text."""

    def __init__(self, args: list[str], forked: Forked) -> None:
        super().__init__(forked.pid, forked._status, {})
        self.args = args
        self.stdout, self.stderr = (os.fdopen(forked._files[name], encoding="utf-8") for name in ("stdout", "stderr"))
        self._found: dict[str, str] = {}
        self._readers: list[threading.Thread] = []

    def communicate(self, question: Any = None, timeout: float | None = None) -> Any:
        """Read both answers to their ends; after a timeout it can be asked again."""
        assert question is None
        end = None if timeout is None else time.monotonic() + timeout
        if not self._readers:
            self._readers = [
                threading.Thread(target=self._read, args=(name,), daemon=True) for name in ("stdout", "stderr")
            ]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return self._found["stdout"], self._found["stderr"]

    def _read(self, name: str) -> None:
        with getattr(self, name) as stream:
            self._found[name] = stream.read()


NUMBER = "TBENCH_TESTS_WORKER"
"""The variable of a worker of tests and of all it starts: its number."""
FOLDER = "TBENCH_TESTS_WARM"
"""The variable that names the folder of the loaded process, and the pid of the process that it ends with."""

MANY = "TBENCH_TESTS_MANY"
"""The variable of a session that runs many tests: what only some jobs load is loaded too, in a process for those."""
ANSWER_SEC = 180.0 * float(os.environ.get("TBENCH_TESTS_SLOWNESS", "1"))  # support.pace, which a script lacks
"""A process that is asked for is there long before: the first one waits until Harbor is loaded."""
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of numpy would only wait: all processors are busy
_ENV = dict(os.environ)


@contextlib.contextmanager
def session(many: bool = False) -> Generator[None]:
    """Name a folder for the loaded process of a test session to all that this process starts; `many` run side by side."""
    with tempfile.TemporaryDirectory(prefix="tbench-warm-") as folder:
        os.environ[FOLDER] = _ENV[FOLDER] = f"{os.getpid()}:{folder}"
        if many:
            os.environ[MANY] = _ENV[MANY] = "1"
        yield


class Warm:
    """Asks the process of this session that has loaded Harbor, which starts at the first use."""

    def __init__(self, where: str | None = None, door: str = HARBOR) -> None:
        self._server: socket.socket | None = None
        self._where, self._door = where, door
        self._turn = threading.Lock()

    def __call__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        number: int = signal.SIGKILL,
        cwd: Path | None = None,
        **files: Any,
    ) -> Forked:
        """Start `argv` as `spawn` does; `channel` is a descriptor that it keeps."""
        if self._door == HARBOR and MANY in _ENV:
            if files["stdin"] == subprocess.PIPE:
                return Asked(lambda question: self._fitting(question.decode())._fork(argv, env, number, cwd, **files))
            return self._fitting(_told(argv))._fork(argv, env, number, cwd, **files)
        return self._fork(argv, env, number, cwd, **files)

    def _fork(
        self, argv: list[str], env: Mapping[str, str], number: int = signal.SIGKILL, cwd: Path | None = None, **files: Any
    ) -> Forked:  # fmt: skip
        theirs, ours, pipes = [], {}, []
        channel: list[int] = [files["channel"]] if "channel" in files else []
        null = os.open(os.devnull, os.O_RDWR)
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
                theirs.append(null if given == subprocess.DEVNULL else given.fileno())
        places = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in _NAMESPACES]
        status, reported = os.pipe()
        request = {
            "argv": argv, "env": dict(env), "cwd": str(cwd or Path.cwd()), "signal": int(number), "channel": channel,
            "own_attendants": OWN_ATTENDANTS in os.environ, "worker": os.environ.get(NUMBER, ""),
            "ignored": [number for number in ENDING if signal.getsignal(number) is signal.SIG_IGN],
        }  # fmt: skip
        pid = self._ask(request, [*theirs, *places, *channel, reported])
        for descriptor in (*pipes, *places, reported, null):
            os.close(descriptor)
        return Forked(pid, status, ours)

    def tbench(self) -> list[str]:
        """The command `tbench`, as a process that asks the loaded process too."""
        self.connect()
        return [sys.executable, str(Path(__file__).with_name("tbench.py")), _ENV[FOLDER]]

    def asking(self) -> list[str]:
        """The command `tbench` as a small process that asks for a forked one, in its namespaces, and ends with it."""
        for one in (self, _COMMANDS):
            one.connect()
        return [sys.executable, "-I", "-S", __file__, _ENV[FOLDER]]

    def write_tbench(self, folder: Path) -> None:
        """Write that command to a folder, for a shell that has it in its PATH."""
        (folder / "tbench").write_text(f'#!/bin/sh\nexec {shlex.join(self.asking())} "$@"\n')
        (folder / "tbench").chmod(0o755)

    def connect(self) -> None:
        """Connect to the loaded process, and start it if this is the first use in the session."""
        if self._server is None:
            self._server = _connect(self._where or _ENV[FOLDER], self._door)
            if self._door == HARBOR and MANY in _ENV:  # else a process that a test watches would start it
                self._large().connect()

    def _fitting(self, work: str) -> "Warm":
        """The loaded process for some work: one with LiteLLM where that may need it, which has three times the pages."""
        return self._large() if _LARGE_AGENTS.search(work) else self

    def _large(self) -> "Warm":
        return _LARGE_ONES.setdefault(self._where, Warm(self._where, LARGE))

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        self.connect()
        assert self._server is not None
        data = json.dumps(request).encode()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        with self._turn:
            self._server.settimeout(ANSWER_SEC)
            try:
                self._server.sendmsg([_HEAD.pack(len(data))], [rights])
                self._server.sendall(data)
                return _HEAD.unpack(_exactly(self._server, 4))[0]
            except TimeoutError as error:
                log = Path((self._where or _ENV[FOLDER]).partition(":")[2]) / f"log-{self._door}"
                said = log.read_text(errors="replace")[-2000:] if log.exists() else "it has left no log"
                raise TimeoutError(
                    f"the loaded process {self._door} forked nothing in {ANSWER_SEC:.0f} s: {said}"
                ) from error


def _told(argv: list[str]) -> str:
    """What a process is told to work on: the file of its job."""
    return Path(argv[argv.index("-c") + 1]).read_text() if "-c" in argv else ""


_LARGE_ONES: dict[str | None, Warm] = {}
_COMMANDS = Warm(door=TBENCH)
"""Its connection stays open: what is started by it ends with it."""


def start_tbench(arguments: list[str], env: Mapping[str, str], cwd: Path) -> Command:
    """Start `tbench` in a session of its own, as `subprocess.Popen` would."""
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Command(arguments, fork_tbench(arguments, env, cwd, **files))


def fork_tbench(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, **files: Any) -> Forked:
    """The same with other standard files."""
    return _COMMANDS([TBENCH, *arguments], env, cwd=cwd, **files)


def load() -> None:
    """Start the loaded processes, for those who look at all that is started later."""
    _COMMANDS.connect()
    Warm().connect()


def compile_templates() -> None:
    """Compile the templates of all pages, once for all processes that are forked from this one."""
    from terminalbench.dashboard import render
    from terminalbench.overnight import morning_page
    from terminalbench.report import documents

    pages = render.environment()
    for name in pages.list_templates(["html"]):
        pages.get_template(name)
    documents._environment("pass").get_template("report.html")
    morning_page._environment().get_template("night.html")


@dataclass(frozen=True)
class Attendants:
    """Asks, for each attendant of a sandbox, the process of this session that has loaded it.

    Not for the helper of an ordinary user: what a user may do with a process in a namespace of its own hangs on where that was
    executed.
    """

    where: str
    real: Callable[..., Any]

    def __call__(self, argv: list[str], channel: int, complaint: Any) -> Any:
        """Start `argv` as `sandbox.helper.spawn` does."""
        nothing = subprocess.DEVNULL
        files = {"stdin": nothing, "stdout": nothing, "stderr": complaint, "channel": channel}
        door = "relay" if "sandbox.network.relay" in argv[argv.index("-c") + 1] else "helper"
        if door == "helper" and os.geteuid() != 0:
            return self.real(argv, channel, complaint)
        return Warm(self.where, door)(argv, {}, 0, Path("/"), **files)


def _connect(where: str, door: str) -> socket.socket:
    """A connection to a loaded process, which the first that asks starts."""
    folder = where.partition(":")[2]
    path = Path(folder) / door
    with (Path(folder) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            home = Path(folder) / f"home-{door}"
            home.mkdir()
            with socket.socket(socket.AF_UNIX) as listener, (Path(folder) / f"log-{door}").open("wb") as log:
                listener.bind(str(path))
                listener.listen(64)
                flags = (
                    ["-u"] if door in (HARBOR, LARGE, TBENCH) else ["-I", "-S", "-B", "-X", "utf8"]
                )  # as attendants are started
                server = [str(Path(__file__).with_name("forks.py")), str(listener.fileno()), where, door]
                subprocess.Popen(
                    [sys.executable, *flags, *server], env={**_ENV, "HOME": str(home)},
                    pass_fds=(listener.fileno(),), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
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


def _typed(where: str, arguments: list[str]) -> int:
    """`tbench` as a shell starts it, with its files; one that asks a model comes from the process with LiteLLM, if there is one."""
    large = "--model" in arguments and (Path(where.partition(":")[2]) / LARGE).exists()
    program = [sys.executable, "-m", "terminalbench.cli.main"] if large else [TBENCH]
    asked = Warm(where, LARGE if large else TBENCH)  # what it starts ends with it
    files: dict[str, Any] = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    return asked([*program, *arguments], os.environ, **files).wait()


if __name__ == "__main__":
    sys.exit(_typed(sys.argv[1], sys.argv[2:]))
