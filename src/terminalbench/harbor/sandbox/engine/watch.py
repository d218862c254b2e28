"""Limits that are measured: all of them where there is no control group, process memory and disk always."""

import os
import time
from typing import Any

from terminalbench.harbor.sandbox.engine import inside
from terminalbench.harbor.sandbox.engine.cgroups import Group, Limits

_DISK_INTERVAL_SEC = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Measures one sandbox and ends what goes beyond its limits: the largest process, or all of them.

    `proc` is the sandbox's own /proc, given where there is no control group; `disk` the folders it fills.
    """

    interval_sec = 0.1

    def __init__(self, pidfd: int, proc: int | None, group: Group, limits: Limits, disk: list[str]) -> None:
        self._pidfd, self._group, self._limits, self._disk = pidfd, group, limits, disk
        self._proc = proc
        self._next_disk_check = 0.0
        self._kills = {"memory": 0, "processes": 0, "disk": 0}

    def counts(self) -> dict[str, Any]:
        """How often each limit was reached so far."""
        return {
            "memory": self._kills["memory"] + self._group.out_of_memory_kills(),
            "processes": self._kills["processes"] + self._group.process_refusals(),
            "disk": self._kills["disk"],
        }

    def check(self) -> None:
        """Measure once and act."""
        memory, processes = self._group.memory_used(), 0
        if self._proc is not None:
            scanned, processes = self._scan(self._proc)
            memory = scanned if memory is None else memory
        if processes > self._limits.processes:
            self._end("processes", inside.kill_all)
        elif memory is not None and memory > self._limits.memory_bytes:
            self._end("memory", _kill_largest)
        elif self._disk and time.monotonic() >= self._next_disk_check:
            if sum(_disk_bytes(folder) for folder in self._disk) > self._limits.scratch_bytes:
                self._end("disk", inside.kill_all)
            self._next_disk_check = time.monotonic() + _DISK_INTERVAL_SEC

    def _end(self, reason: str, work: Any) -> None:
        self._kills[reason] += 1
        inside.visit(self._pidfd, work)

    def _scan(self, folder: int) -> tuple[int, int]:
        """(bytes of resident memory, number of processes) of the sandbox."""
        pages, count = 0, 0
        for name in os.listdir(folder):
            if not name.isdigit():
                continue
            count += 1
            try:
                handle = os.open(f"{name}/statm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            except OSError:
                continue
            try:
                fields = os.read(handle, 256).split()
                pages += int(fields[1]) - int(fields[2])
            except (OSError, IndexError):
                pass
            finally:
                os.close(handle)
        return pages * _PAGE, count


def _kill_largest() -> int:
    pid = inside.largest_process()
    if pid is not None:
        os.kill(pid, 9)
    return 0


def _disk_bytes(folder: str) -> int:
    """What the files below `folder` take on disk."""
    total, stack = 0, [folder]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            total += status.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total
