"""Harbor as a process of this machine: in a group of its own, dying with us, known by pid and start time."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.live.processes import Worker
from terminalbench.locks import start_ticks
from terminalbench.modes import child_umask, make_file, make_folder
from terminalbench.runner.environment import FIXED
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.forked import ForkedProcess, fork
from terminalbench.sandbox import CHECKED
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import duration


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
