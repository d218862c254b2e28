"""Limits that are measured: all of them where there is no control group, process memory and disk always."""

# ruff: noqa: PTH208

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from terminalbench.sandbox.engine import inside, wire
from terminalbench.sandbox.engine.cgroups import Group, Limits

_DISK_INTERVAL_SEC = 0.5
_SHARED_INTERVAL_SEC = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BEYOND = 1 << 62
_FULL = 0.95
_GROWN_BYTES = 4 << 20  # less may be a file system's own doing, after the last writer has gone
_DYING_PATIENCE_SEC = 5.0


class Watch:
    """Measures one sandbox and ends what goes beyond its limits: the largest process, or all of them.

    `proc` is the sandbox's own /proc, given where there is no control group; `disk` the folders it fills.
    """

    interval_sec = 0.1

    def __init__(self, pidfd: int, proc: int | None, group: Group, limits: Limits, disk: list[str]) -> None:
        self._pidfd, self._group, self._limits, self._disk = pidfd, group, limits, disk
        self._proc = proc
        self._next_disk_check = self._next_shared_check = 0.0
        self._disk_at_kill = 0
        self._over_since: float | None = None
        self._kills = {"memory": 0, "processes": 0, "disk": 0}

    def follow(self, pidfd: int, proc: int | None) -> None:
        """Watch the next generation of the sandbox's processes."""
        if self._proc is not None:
            os.close(self._proc)
        self._pidfd, self._proc, self._over_since = pidfd, proc, None

    def allow(self, more_bytes: int) -> None:
        """Let the files take so much more than what they take now, or than their limit."""
        used = self._disk_used() if self._disk else 0
        self._limits = self._limits._replace(scratch_bytes=max(self._limits.scratch_bytes, used) + more_bytes)
        self._disk_at_kill = 0

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
            self._kill_all("processes")
        elif memory is not None and memory > self._limits.memory_bytes:
            self._end_largest(lambda: self._memory_used() > self._limits.memory_bytes)
            return
        elif memory is not None and self._too_much_is_shared(memory, shared):
            self._end_largest(lambda: True)
            return
        elif self._disk and time.monotonic() >= self._next_disk_check:
            self._check_disk()
            self._next_disk_check = time.monotonic() + _DISK_INTERVAL_SEC
        self._over_since = None

    def _kill_all(self, reason: str) -> None:
        self._kills[reason] += 1
        inside.visit(self._pidfd, inside.kill_all)

    def _check_disk(self) -> None:
        """End all when it is full. Who comes then may look and remove, and is ended only if it gets fuller still."""
        used = self._disk_used()
        if used <= self._limits.scratch_bytes:
            self._disk_at_kill = 0
        elif used >= _BEYOND or self._disk_at_kill == 0 or used > self._disk_at_kill + _GROWN_BYTES:
            self._kill_all("disk")
            self._disk_at_kill = self._disk_used()
        else:
            self._disk_at_kill = min(self._disk_at_kill, used)  # what was removed may not be filled again

    def _disk_used(self) -> int:
        return sum(_disk_bytes(folder) for folder in self._disk)

    def _memory_used(self) -> int:
        used = self._group.memory_used()
        return self._scan(self._proc)[0] if used is None and self._proc is not None else used or 0

    def _end_largest(self, still: Callable[[], bool]) -> None:
        """End the process with most memory; in a group not while a killed one is still ending.

        Its memory counts for the group until the last page is given back, and its owner can no longer be seen: the
        next one in size would be ended for it. So `still` measures again after the processes were looked at.
        """
        self._over_since = self._over_since or time.monotonic()
        grouped = self._group.memory_used() is not None
        patient = grouped and time.monotonic() - self._over_since < _DYING_PATIENCE_SEC
        ours, theirs = socket.socketpair()
        with ours, theirs:
            inside.visit(self._pidfd, lambda: _show_largest(theirs, patient=patient))
            theirs.close()
            _, handles = wire.take(ours, 1)
        for handle in handles:
            if still():
                self._kills["memory"] += 1
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                self._over_since = time.monotonic()  # this one gets its time to end, too
            os.close(handle)

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
            if pages := inside.memory(name, folder):
                own += pages[1] - pages[2]
                shared += pages[2]
        return own * _PAGE, shared * _PAGE, count


def _shared_bytes(folder: int, name: str) -> int:
    """A process's part of the shared memory it maps, files on disk excepted."""
    for thread in inside.threads(name, folder):
        for line in inside.read(f"{thread}/smaps_rollup", folder).splitlines():
            if line.startswith(b"Pss_Shmem:"):
                return int(line.split()[1]) * 1024
    return 0


def _show_largest(channel: socket.socket, *, patient: bool) -> None:
    """Send a handle of the process that holds most memory; none if there is none or, if `patient`, while one ends."""
    pid = inside.largest_process(patient=patient)
    if pid is not None:
        socket.send_fds(channel, [b"p"], [os.pidfd_open(pid)])


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
                    return _BEYOND  # a path that no program needs, made so that it cannot be measured
                continue
            total += status.st_blocks * 512
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total
