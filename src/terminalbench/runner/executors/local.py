"""Harbor as a process of this machine: in a group of its own, dying with us, known by pid and start time.

It is forked from one that has loaded Harbor (`loaded`): what an ordinary process would be, without its start-up.
`LoadedHarbor` starts that process, and tells its address to all that is started after it by a variable of the
environment. A process with that variable asks there; where a fork would not be the same it starts an ordinary process;
also where nothing answers, and then says so.
"""

import array
import contextlib
import logging
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.live.processes import Worker
from terminalbench.locks import start_ticks
from terminalbench.modes import child_umask, make_file, make_folder
from terminalbench.runner.environment import FIXED, process_environment
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.loaded import (
    FAILED,
    HEAD,
    REFUSED,
    ForkRequest,
    exactly,
    make_socket_folder,
    remove,
    socket_in,
)
from terminalbench.sandbox import CHECKED
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import duration

ADDRESS = "TBENCH_LOADED_HARBOR"
"""The variable with the path of the socket. Harbor's own environment does not have it."""
OWN_PROCESSES = "TERMINALBENCH_OWN_PROCESSES"
"""The variable that has every Harbor process load Harbor itself."""
_STANDARD = ("stdin", "stdout", "stderr")
_ANSWER_SEC = 300.0  # a busy machine loads Harbor in minutes, and would have to load it once more
_MOST_STARTS = 3


class ForkedProcess:
    """The part of `subprocess.Popen` that the callers of `spawn` use, for a process that is not our child."""

    def __init__(self, pid: int, told: int, files: Mapping[str, int], connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told, self._files = told, files
        self._connection = connection  # when it is closed, the process gets its signal

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Without the loaded process, which tells it, the process has been killed."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._told, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0)
            said = os.read(self._told, HEAD.size)
            os.close(self._told)
            self._connection.close()
            self.returncode = os.waitstatus_to_exitcode(HEAD.unpack(said)[0]) if said else -signal.SIGKILL
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def communicate(self, question: bytes = b"", timeout: float = 300) -> tuple[bytes, bytes]:
        """Write the question, read both answers to their ends, as far as they are pipes."""
        if "stdin" in self._files:
            with contextlib.suppress(BrokenPipeError), os.fdopen(self._files["stdin"], "wb") as stdin:
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
        self.wait(max(0.0, end - time.monotonic()))
        return bytes(found["stdout"]), bytes(found["stderr"])


def fork(argv: list[str], env: Mapping[str, str], number: int, **files: Any) -> ForkedProcess | None:
    """Start `argv` by the loaded process; None where an ordinary process has to be started instead.

    `files` are its standard files, and perhaps its folder (`cwd`), as `subprocess` has them.
    """
    for loaded in _ours:
        loaded.start()
    address = os.environ.get(ADDRESS)
    if address is None:
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWER_SEC)
    with contextlib.ExitStack() as opened:
        theirs, ours = _standard_files(files, opened)
        told, tell = os.pipe()
        opened.callback(os.close, tell)
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        data = msgspec.json.encode(
            ForkRequest(argv, dict(env), str(files.get("cwd") or Path.cwd()), int(number), open_files)
        )
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*theirs, tell]))
        try:
            connection.connect(address)
            connection.sendmsg([HEAD.pack(len(data))], [rights])
            connection.sendall(data)
            pid = HEAD.unpack(exactly(connection, HEAD.size))[0]
            failed = "it cannot start another process" if pid == FAILED else None
        except (OSError, EOFError) as error:
            pid, failed = FAILED, f"it does not answer ({error})"
    if pid not in (REFUSED, FAILED):
        return ForkedProcess(pid, told, ours, connection)
    connection.close()
    for handle in (told, *ours.values()):
        os.close(handle)
    if failed is not None:
        _say_once(failed)
    return None


@cache
def _say_once(why: str) -> None:
    logging.getLogger(__name__).warning("nothing is forked from the process that has loaded Harbor: %s", why)


def _standard_files(files: Mapping[str, Any], opened: contextlib.ExitStack) -> tuple[list[int], dict[str, int]]:
    """The standard files of a process as it gets them, and our ends of those that are pipes."""
    theirs: list[int] = []
    ours: dict[str, int] = {}
    for name in _STANDARD:
        given = files[name]
        if given == subprocess.PIPE:
            read, write = os.pipe()
            ours[name], other = (write, read) if name == "stdin" else (read, write)
            opened.callback(os.close, other)
            theirs.append(other)
        elif given == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
            opened.callback(os.close, theirs[-1])
        else:
            theirs.append(theirs[1] if given == subprocess.STDOUT else given.fileno())
    return theirs, ours


class LoadedHarbor:
    """The loaded process, as long as a block lasts: `with LoadedHarbor(): ...`. There is one on Linux only."""

    def __init__(self, log: Path | None = None, modules: Sequence[str] = ()) -> None:
        """`log` takes what it complains of; `modules` are loaded besides Harbor."""
        self.log, self.modules = log, modules
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def alive(self) -> bool:
        """Return whether it can be asked; if not, ordinary processes are started."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, unless it runs; again if it has died, a few times. What is asked for before it is ready waits."""
        if sys.platform != "linux" or self.alive or self.starts == _MOST_STARTS:
            return
        self.end()
        self.starts += 1
        self._folder = make_socket_folder()
        address = str(socket_in(self._folder))
        with socket.socket(socket.AF_UNIX) as listener, (self.log or Path(os.devnull)).open("ab") as log:
            listener.bind(address)
            listener.listen(64)
            command = [sys.executable, "-P", "-u", "-m", "terminalbench.runner.executors.loaded"]
            self._process = subprocess.Popen(
                [*command, str(listener.fileno()), str(os.getpid()), *self.modules],
                env=process_environment((), None, None, os.environ),
                pass_fds=(listener.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        os.environ[ADDRESS] = address

    def end(self) -> None:
        """End it, if it runs."""
        if self._folder is None:
            return
        os.environ.pop(ADDRESS, None)
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        remove(self._folder)
        self._folder = self._process = None


_ours: list[LoadedHarbor] = []


@contextlib.contextmanager
def harbor_loaded_once() -> Generator[None]:
    """One process loads Harbor for all that a block starts, when the first is started; unless there is one already.

    Blocks may be nested: the outermost one holds the process.
    """
    if _ours or ADDRESS in os.environ or os.environ.get(OWN_PROCESSES):
        yield
        return
    loaded = LoadedHarbor()
    _ours.append(loaded)
    try:
        yield
    finally:
        _ours.clear()
        loaded.end()


def tied(argv: list[str], number: int = signal.SIGKILL) -> list[str]:
    """The command that runs `argv` as a process that gets a signal when this one dies. Only Linux can do that."""
    if sys.platform != "linux":
        return argv
    return [sys.executable, "-I", "-S", death_signal.__file__, str(os.getpid()), str(int(number)), *argv]


def spawn(
    argv: list[str], env: Mapping[str, str], number: int = signal.SIGKILL, **files: Any
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start `argv` as a tied process in a group of its own; `files` are its standard files, and perhaps its folder.

    Where a process has loaded Harbor for us, it is forked from that one.
    """
    if (forked := fork(argv, env, number, **files)) is not None:
        return forked
    return subprocess.Popen[bytes](tied(argv, number), env=env, start_new_session=True, umask=child_umask(), **files)


def ask(function: str, question: Any, answer: Any, env: Mapping[str, str], timeout_sec: float, what: str) -> Any:
    """The answer of a function of ours (`module:function`) that needs Harbor, which this process has not loaded.

    `what` names it in an error.
    """
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = spawn([sys.executable, "-m", "terminalbench.harbor.answer", function], {**env, **FIXED}, **files)
    try:
        out, err = process.communicate(msgspec.json.encode(question), timeout_sec)
    except BaseException as error:
        process.kill()
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TbenchError(f"{what} took longer than {duration(timeout_sec)}") from None
        raise
    if process.returncode != 0:
        tail = err.decode(errors="replace").strip().splitlines()[-1:]
        raise TbenchError(f"{what} failed: {Secrets.of_environment(env).one_line(' '.join(tail))}")
    return decode(out, answer)


class LocalExecutor:
    """Runs jobs on this machine. A recorded pid counts only with the start time that was recorded with it."""

    def __init__(self, *, checked: bool = False) -> None:
        """`checked`: the run has tried on this very machine whether a sandbox starts."""
        self._more = {CHECKED: "1"} if checked else {}
        self._children: dict[int, subprocess.Popen[bytes] | ForkedProcess] = {}

    def start(self, job: JobRun) -> Worker:
        """Start Harbor with its output in the job's log."""
        make_folder(job.log.parent)
        make_file(job.log)
        with job.log.open("ab") as output:
            files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            if not _folder_is_there():
                files["cwd"] = job.log.parent  # that of the run was removed while it ran
            process = spawn(job.argv, {**job.env, **self._more}, signal.SIGINT, **files)
        self._children[process.pid] = process
        return Worker(
            job=job.name,
            profile=job.profile,
            pid=process.pid,
            group=process.pid,
            host=socket.gethostname(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            start_ticks=start_ticks(process.pid),
            command=job.argv,
        )

    def poll(self, worker: Worker) -> int | None:
        """The exit code of a child that has ended, None while it runs."""
        return self._children[worker.pid or 0].poll()

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        """Interrupt Harbor; or kill its group, in which a child that has ended may have left something."""
        left_by_a_child = now and worker.pid in self._children
        if worker.pid is None or not (left_by_a_child or self.alive(worker)):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or another user's by now
            if now and worker.group is not None:
                os.killpg(worker.group, signal.SIGKILL)
            else:
                os.kill(worker.pid, signal.SIGKILL if now else signal.SIGINT)

    def alive(self, worker: Worker) -> bool:
        """Return whether this very process still runs, on this machine."""
        if worker.pid in self._children:
            return self.poll(worker) is None
        here = worker.host == socket.gethostname() and worker.start_ticks is not None
        return here and worker.pid is not None and start_ticks(worker.pid) == worker.start_ticks

    def user(self, worker: Worker) -> int | None:
        """Whose process it is."""
        try:
            status = Path(f"/proc/{worker.pid}/status").read_text()
        except OSError:
            return None
        return int(status.split("\nUid:", 1)[1].split()[0])


def here() -> LocalExecutor:
    """The executor of a run on this machine, which checks before its first job that a sandbox starts."""
    return LocalExecutor(checked=True)


def _folder_is_there() -> bool:
    try:
        return Path.cwd().is_dir()
    except OSError:
        return False


def ancestors() -> set[int]:
    """This process and every process it descends from: shells, `uv run`, make."""
    found, pid = {0, 1}, os.getpid()
    while pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found
