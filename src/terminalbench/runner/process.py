"""One Harbor process: started in a group of its own, dying with us, known by a record on disk."""

import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from terminalbench.files import start_ticks, write_json
from terminalbench.live.processes import Worker
from terminalbench.secrets.values import Secrets

# Between fork and exec: ask for a signal when our process dies, so that a killed runner leaves nothing that goes on
# spending. Checks the parent once more, because it may have died before the request was made. What a shell script
# starts in the background ignores SIGINT, and so would its children: Harbor has to hear it.
_TIE = (
    "import ctypes, os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "ctypes.CDLL(None).prctl(1, int(sys.argv[2])); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[3], sys.argv[3:])"
)


def tied(argv: list[str], number: int = signal.SIGKILL) -> list[str]:
    """The command that runs `argv` as a process that gets a signal when this one dies. Only Linux can do that."""
    if sys.platform != "linux":
        return argv
    return [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), str(int(number)), *argv]


@dataclass(frozen=True)
class JobProcess:
    """A running `harbor run`."""

    job: str
    profile: str
    process: subprocess.Popen[bytes]

    def interrupt(self) -> None:
        """Ask Harbor to cancel its trials and write what it has."""
        self._signal(signal.SIGINT, group=False)

    def kill(self) -> None:
        """End the whole group at once."""
        self._signal(signal.SIGKILL, group=True)

    def _signal(self, number: int, *, group: bool) -> None:
        try:
            if group:
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                self.process.send_signal(number)
        except ProcessLookupError:
            return


def harbor_program() -> str:
    """The `harbor` that is installed beside this Python."""
    return str(Path(sys.executable).parent / "harbor")


def start_job(job: str, profile: str, argv: list[str], env: dict[str, str], log: Path, worker: Path) -> JobProcess:
    """Start Harbor with its output in `log`, and record it in `worker`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            tied(argv, signal.SIGINT),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    record = Worker(
        job=job,
        profile=profile,
        pid=process.pid,
        group=process.pid,
        host=socket.gethostname(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        start_ticks=start_ticks(process.pid),
        command=argv,
    )
    started = JobProcess(job, profile, process)
    try:
        write_json(worker, record)
    except BaseException:  # what nobody could find again must not run
        started.kill()
        process.wait()
        raise
    return started


_FRAME = " │╭╮╰╯─\t"
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Exit|Interrupt): .+")


def log_tail(log: Path, secrets: Secrets, lines: int = 3) -> str:
    """The last words of a job, for a message: what it raised, else its last lines."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - 64 * 1024))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [line.strip(_FRAME) for line in text.splitlines() if line.strip(_FRAME)]
    raised = [line for line in kept if _RAISED.fullmatch(line)]
    return secrets.one_line(raised[-1] if raised else " ".join(kept[-lines:]))
