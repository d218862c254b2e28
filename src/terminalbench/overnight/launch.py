"""Starting a worker: the one place that knows how its process comes to be."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from terminalbench.modes import make_file, make_folder
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import Role
from terminalbench.runner.environment import FIXED
from terminalbench.runner.executors import local
from terminalbench.runner.executors.forked import ADDRESS, OWN_PROCESSES, ForkedProcess, LoadedHarbor

MODULE = "terminalbench.overnight.worker"
PROGRAM = [sys.executable, "-m", MODULE]
"""The command of a worker, before its arguments."""


@dataclass(frozen=True)
class WorkerAssignment:
    """What a worker is to do: `again` when an earlier one may have begun, `alone` for one trial at a time.

    `retry`: errors of the bench are tried again.
    """

    folder: NightFolder
    number: int
    role: Role
    again: bool = False
    alone: bool = False
    retry: bool = False

    def arguments(self) -> list[str]:
        """The same as the arguments of a worker's command line."""
        flags = [f"--{name}" for name in ("again", "alone", "retry") if getattr(self, name)]
        return [str(self.folder.folder), str(self.number), str(self.role), *flags]

    @classmethod
    def of(cls, arguments: list[str]) -> "WorkerAssignment":
        """Return the assignment in the arguments of a worker's command line."""
        folder, number, role, *flags = arguments
        given = {flag.removeprefix("--"): True for flag in flags}
        return cls(NightFolder(Path(folder)), int(number), Role(role), **given)


class ProcessHandle(Protocol):
    """What the supervisor uses of a worker's process."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""


class WorkerForkServer:
    """The process from which workers and their Harbor processes are forked, while a block lasts.

    Without it (not on Linux, or by TERMINALBENCH_OWN_PROCESSES) each loads all that it needs by itself.
    """

    def __init__(self, folder: NightFolder) -> None:
        own = sys.platform != "linux" or os.environ.get(OWN_PROCESSES) or ADDRESS in os.environ
        self._log, self._given_up = folder.loaded_log, False
        self._loaded = None if own else LoadedHarbor(folder.loaded_log, modules=(MODULE,))

    def __enter__(self) -> Self:
        self.keep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loaded is not None:
            self._loaded.end()

    def keep(self) -> str | None:
        """Start it again, should it have died: its workers died with it, and others take their place. In words, if so.

        After several deaths it is not started any more.
        """
        loaded, given_up = self._loaded, self._given_up
        if loaded is None or loaded.alive or given_up:
            return None
        first = not loaded.starts
        loaded.start()
        self._given_up = not loaded.alive
        if first:
            return None
        then = "from now on each worker loads Harbor itself" if self._given_up else "it is restarted"
        return f"the process that workers are forked from has died (details in {self._log.name}); {then}"

    def passed_over(self, process: ProcessHandle) -> bool:
        """Return whether a worker was started by itself though it could have been forked."""
        return self._loaded is not None and self._loaded.alive and not isinstance(process, ForkedProcess)


def start_worker(assigned: WorkerAssignment, log: Path) -> ProcessHandle:
    """Start a worker with its output in a log. It drains, by SIGTERM, should this process die, and is then ended."""
    make_folder(log.parent)
    make_file(log)
    with log.open("ab") as output:
        return local.spawn(
            [*PROGRAM, *assigned.arguments()],
            {**os.environ, **FIXED},
            signal.SIGTERM,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
