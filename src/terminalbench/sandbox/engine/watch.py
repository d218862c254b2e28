"""Limits that are measured: all of them where there is no control group, process memory and disk always.

Without a group, what the kernel holds for a sandbox counts as its memory too: tables of pages, buffers of sockets, open
files. And with or without: when the whole machine has few open files left, who holds most of them goes.
"""

# ruff: noqa: PTH208

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import inside, netlink, proc, wire
from terminalbench.sandbox.engine.cgroups import ControlGroup, GroupLimits

_INTERVAL_SEC = 0.1
_GROUPED_INTERVAL_SEC = 0.25
_DISK_INTERVAL_SEC = 0.5
_SHARED_INTERVAL_SEC = 0.5
_HELD_INTERVAL_SEC = 0.3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_BEYOND = 1 << 62
_FULL = 0.95
_GROWN_BYTES = 4 << 20  # less may be a file system's own doing, after the last writer has gone
_DYING_PATIENCE_SEC = 5.0
_FILE_BYTES = 1024  # what the kernel keeps of an open file, with all that belongs to it
_LEAST_ON_DISK = 4096  # an empty file takes a place too
_FILES_SHARE = 0.5  # of the machine's open files, by whomever: from there on it needs them for itself
_MANY_FILES = 1024
_SOCKET_ROUNDS = 10


class Meters(NamedTuple):
    """What tells of a sandbox from outside: its own /proc, and the sockets of its network."""

    proc: int
    sockets: socket.socket

    def close(self) -> None:
        os.close(self.proc)
        self.sockets.close()


class _SandboxUse(NamedTuple):
    """What a sandbox uses, in bytes: memory of its processes, what they share, what the kernel holds for them."""

    own: int = 0
    shared: int = 0
    held: int = 0
    processes: int = 0
    threads: int = 0


class SandboxWatch:
    """Measures one sandbox and ends what goes beyond its limits: the largest process, or all of them.

    `meters` are given where there is no control group; `disk` are the folders it fills.
    """

    def __init__(
        self,
        pidfd: int,
        meters: Meters | None,
        group: ControlGroup,
        limits: GroupLimits,
        disk: list[str],
        with_all: Callable[[], None] = lambda: None,
    ) -> None:
        """`with_all` ends what is to end with all processes and is not among them."""
        self._pidfd, self._group, self._limits, self._disk, self._with_all = pidfd, group, limits, disk, with_all
        # The kernel holds a group to memory and files together: what is watched then may come a little later.
        self.interval_sec = _INTERVAL_SEC if "memory" not in group.folders else _GROUPED_INTERVAL_SEC
        self._meters, self._count_threads = meters, False
        self._held = self._held_rounds = 0
        self._next_disk_check = self._next_shared_check = self._next_held_check = 0.0
        self._disk_at_kill = 0
        self._over_since: float | None = None
        self._kills = {"memory": 0, "processes": 0, "disk": 0, "files": 0}

    def follow(self, pidfd: int, meters: Meters | None, *, count_threads: bool = False) -> None:
        """Watch the next generation of the sandbox's processes; their threads too where the kernel counts none."""
        if self._meters is not None:
            self._meters.close()
        self._pidfd, self._meters, self._over_since = pidfd, meters, None
        self._count_threads = count_threads

    def allow(self, more_bytes: int) -> None:
        """Let the files take so much more than what they take now, or than their limit."""
        used = self._disk_used() if self._disk else 0
        self._limits = self._limits._replace(scratch_bytes=max(self._limits.scratch_bytes, used) + more_bytes)
        self._disk_at_kill = 0

    def counts(self) -> dict[str, Any]:
        """Return how often each limit was reached so far."""
        return {
            "memory": self._kills["memory"] + self._group.out_of_memory_kills(),
            "processes": self._kills["processes"] + self._group.process_refusals(),
            "disk": self._kills["disk"],
            "files": self._kills["files"],
        }

    def check(self) -> None:
        """Measure once and act."""
        memory, found = self._group.memory_used(), _SandboxUse()
        if self._meters is not None:
            found = self._scan(self._meters)
            if memory is None:
                memory = found.own + found.held
            else:
                found = found._replace(shared=0, held=0)
            if found.processes > self._limits.processes * _FULL:  # the kernel may hold it: it is reached all the same
                self._kills["processes"] = max(1, self._kills["processes"])
        self._check_files()
        if max(found.processes, found.threads) > self._limits.processes:
            self._kill_all("processes")
        elif memory is not None and memory > self._limits.memory_bytes:
            self._end_too_large(by_files=found.held > found.own)
            return
        elif memory is not None and self._too_much_is_shared(memory, found.shared):
            self._end_largest(lambda: True)
            return
        elif self._disk and time.monotonic() >= self._next_disk_check:
            self._check_disk()
            self._next_disk_check = time.monotonic() + _DISK_INTERVAL_SEC
        self._over_since, self._held_rounds = None, 0

    def _end_too_large(self, *, by_files: bool) -> None:
        """End the process with most memory, or with most open files if those hold it; what none holds ends with all."""
        self._held_rounds += by_files
        if self._held_rounds > _SOCKET_ROUNDS:
            self._held_rounds = 0
            self._kill_all("memory")
        else:
            self._end_largest(lambda: self._memory_used() > self._limits.memory_bytes, by_files=by_files)

    def _check_files(self) -> None:
        """Leave the machine its open files: it has one number for all."""
        numbers = [int(field) for field in proc.read("/proc/sys/fs/file-nr").split()]
        if len(numbers) == 3 and numbers[0] > numbers[2] * _FILES_SHARE:
            self._end_largest(lambda: True, by_files=True, reason="files")

    def _kill_all(self, reason: str) -> None:
        self._kills[reason] += 1
        self._with_all()
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
        if used is not None or self._meters is None:
            return used or 0
        self._next_held_check = 0.0
        found = self._scan(self._meters)
        return found.own + found.held

    def _end_largest(self, still: Callable[[], bool], *, by_files: bool = False, reason: str = "memory") -> None:
        """End the process with most memory, or with most open files; in a group not while a killed one is still ending.

        Its memory counts for the group until the last page is given back, and its owner can no longer be seen: the
        next one in size would be ended for it. So `still` measures again after the processes were looked at.
        """
        self._over_since = self._over_since or time.monotonic()
        grouped = self._group.memory_used() is not None
        patient = grouped and time.monotonic() - self._over_since < _DYING_PATIENCE_SEC
        ours, theirs = socket.socketpair()
        with ours, theirs:
            inside.visit(self._pidfd, lambda: _show_largest(theirs, patient=patient, by_files=by_files))
            theirs.close()
            _, handles = wire.take(ours, 1)
        for handle in handles:
            if still():
                self._kills[reason] += 1
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                self._over_since = time.monotonic()  # this one gets its time to end, too
            os.close(handle)

    def _too_much_is_shared(self, memory: int, shared: int) -> bool:
        """Return whether memory that processes share goes beyond the limits of memory and files together.

        Mapped files of the scratch are shared memory too, and what many processes map is counted for each of them:
        only if that sum is too much, the kernel is asked how it is to be divided.
        """
        room = self._limits.memory_bytes + self._limits.scratch_bytes - memory
        if shared <= room or self._meters is None or time.monotonic() < self._next_shared_check:
            return False
        self._next_shared_check = time.monotonic() + _SHARED_INTERVAL_SEC
        folder = self._meters.proc
        return sum(_shared_bytes(folder, name) for name in os.listdir(folder) if name.isdigit()) > room

    def _scan(self, meters: Meters) -> _SandboxUse:
        own = shared = count = threads = 0
        if time.monotonic() >= self._next_held_check:
            self._next_held_check = time.monotonic() + _HELD_INTERVAL_SEC
            files = sum(proc.open_files(name, meters.proc) for name in os.listdir(meters.proc) if name.isdigit())
            self._held = files * _FILE_BYTES + (netlink.buffer_bytes(meters.sockets) or 0)
        for name in os.listdir(meters.proc):
            if not name.isdigit():
                continue
            count += 1
            threads += proc.thread_count(name, meters.proc) if self._count_threads else 0
            if pages := proc.memory(name, meters.proc):
                own += (pages[1] - pages[2]) * _PAGE + proc.table_bytes(name, pages[0] * _PAGE, meters.proc)
                shared += pages[2] * _PAGE
        return _SandboxUse(own, shared, self._held, count, threads)


def _shared_bytes(folder: int, name: str) -> int:
    """A process's part of the shared memory it maps, files on disk excepted."""
    for thread in proc.threads(name, folder):
        for line in proc.read(f"{thread}/smaps_rollup", folder).splitlines():
            if line.startswith(b"Pss_Shmem:"):
                return int(line.split()[1]) * 1024
    return 0


def _show_largest(channel: socket.socket, *, patient: bool, by_files: bool) -> None:
    """Send a handle of the process that holds most memory, or the most open files if they are many.

    None if there is none or, if `patient`, while one ends.
    """
    pid = proc.most_open_files(_MANY_FILES) if by_files else proc.largest_process(patient=patient)
    if pid is not None:
        socket.send_fds(channel, [b"p"], [os.pidfd_open(pid)])


def _disk_bytes(folder: str) -> int:
    """Return what the files below `folder` take on disk; beyond every limit if some are nested too deep to look at."""
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
            total += max(status.st_blocks * 512, _LEAST_ON_DISK)
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
    return total
