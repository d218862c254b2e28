"""Limits that are measured: all of them where there is no control group, process memory and disk always."""

# ruff: noqa: PTH208

import errno
import os
import time
from typing import Any

from terminalbench.harbor.sandbox.engine import inside
from terminalbench.harbor.sandbox.engine.cgroups import Group, Limits

_DISK_INTERVAL_SEC = 0.5
_SHARED_INTERVAL_SEC = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BEYOND = 1 << 62
_FULL = 0.95


class Watch:
    """Measures one sandbox and ends what goes beyond its limits: the largest process, or all of them.

    `proc` is the sandbox's own /proc, given where there is no control group; `disk` the folders it fills.
    """

    interval_sec = 0.1

    def __init__(self, pidfd: int, proc: int | None, group: Group, limits: Limits, disk: list[str]) -> None:
        self._pidfd, self._group, self._limits, self._disk = pidfd, group, limits, disk
        self._proc = proc
        self._next_disk_check = self._next_shared_check = 0.0
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
        memory, processes, shared = self._group.memory_used(), 0, 0
        if self._proc is not None:
            scanned, shared, processes = self._scan(self._proc)
            memory, shared = (scanned, shared) if memory is None else (memory, 0)
            if processes > self._limits.processes * _FULL:  # the kernel may hold it there: it is reached all the same
                self._kills["processes"] = max(1, self._kills["processes"])
        if processes > self._limits.processes:
            self._end("processes", inside.kill_all)
        elif memory is not None and (memory > self._limits.memory_bytes or self._too_much_is_shared(memory, shared)):
            self._end("memory", _kill_largest)
        elif self._disk and time.monotonic() >= self._next_disk_check:
            if sum(_disk_bytes(folder) for folder in self._disk) > self._limits.scratch_bytes:
                self._end("disk", inside.kill_all)
            self._next_disk_check = time.monotonic() + _DISK_INTERVAL_SEC

    def _end(self, reason: str, work: Any) -> None:
        self._kills[reason] += 1
        inside.visit(self._pidfd, work)

    def _too_much_is_shared(self, memory: int, shared: int) -> bool:
        """Whether memory that processes share goes beyond the limits of memory and files together.

        Mapped files of the scratch are shared memory too, and what many processes map is counted for each of them:
        only if that sum is too much, the kernel is asked how it is to be divided.
        """
        room = self._limits.memory_bytes + self._limits.scratch_bytes - memory
        if shared <= room or self._proc is None or time.monotonic() < self._next_shared_check:
            return False
        self._next_shared_check = time.monotonic() + _SHARED_INTERVAL_SEC
        return sum(_shared_bytes(self._proc, name) for name in os.listdir(self._proc) if name.isdigit()) > room

    def _scan(self, folder: int) -> tuple[int, int, int]:
        """(bytes of memory of their own, bytes they share, number of processes) of the sandbox."""
        own, shared, count = 0, 0, 0
        for name in os.listdir(folder):
            if not name.isdigit():
                continue
            count += 1
            fields = _read(folder, f"{name}/statm", 256).split()
            if len(fields) > 2:
                own += int(fields[1]) - int(fields[2])
                shared += int(fields[2])
        return own * _PAGE, shared * _PAGE, count


def _shared_bytes(folder: int, name: str) -> int:
    """A process's part of the shared memory it maps, files on disk excepted."""
    for line in _read(folder, f"{name}/smaps_rollup", 4096).splitlines():
        if line.startswith(b"Pss_Shmem:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(folder: int, name: str, size: int) -> bytes:
    """The start of a file below `folder`; nothing if it is gone."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(handle, size)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _kill_largest() -> int:
    pid = inside.largest_process()
    if pid is not None:
        os.kill(pid, 9)
    return 0


def _disk_bytes(folder: str) -> int:
    """What the files below `folder` take on disk; beyond every limit if some are nested too deep to look at."""
    total, stack = 0, [folder]
    while stack:
        try:
            entries = list(os.scandir(stack.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return _BEYOND  # a path nobody needs, made so that it cannot be measured
                continue
            total += status.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total
