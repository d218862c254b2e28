"""What /proc tells of processes: who they are, their memory, their threads, their open files."""

# ruff: noqa: PTH115, PTH208

import contextlib
import os
import resource
from collections.abc import Iterator
from typing import NamedTuple

_WIDE_SPACE_BYTES = 2 << 30  # its tables take a five-hundredth of it at most


class ProcessStat(NamedTuple):
    """A live process: its parent, its session, and when it started, which tells it from another with its number."""

    parent: int
    session: int
    started: int


def processes() -> dict[int, ProcessStat]:
    """Every live process of the sandbox by its pid. Asks the sandbox's own /proc.

    One whose first thread has ended is alive for as long as another of its threads is.
    """
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        data = read(f"/proc/{name}/stat")
        fields = data.rpartition(b")")[2].split()
        if len(fields) > 19 and (fields[0] not in (b"Z", b"X") or int(fields[17]) > 1):
            found[int(name)] = ProcessStat(int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def memory(process: str, proc: int | None = None) -> list[int]:
    """Return what `statm` tells of a process, in pages; nothing once it is ending.

    `process` is its folder, below the open folder `proc` if that is given.
    """
    for folder in threads(process, proc):
        fields = [int(field) for field in read(f"{folder}/statm", proc).split()]
        if len(fields) > 2 and fields[0]:
            return fields
    return []


def threads(process: str, proc: int | None) -> Iterator[str]:
    """The folders that tell of a process: its own and, should its first thread have ended, those of its threads."""
    yield process
    with contextlib.suppress(OSError):
        handle = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        try:
            yield from [f"{process}/task/{name}" for name in os.listdir(handle)]
        finally:
            os.close(handle)


def thread_count(process: str, proc: int | None = None) -> int:
    """Return how many threads a process has; none once it is gone."""
    with contextlib.suppress(OSError):
        return os.stat(f"{process}/task", dir_fd=proc).st_nlink - 2
    return 0


def open_files(process: str, proc: int | None = None) -> int:
    """Return how many files a process has open, as far as the kernel tells (since Linux 6.2)."""
    with contextlib.suppress(OSError):
        return os.stat(f"{process}/fd", dir_fd=proc).st_size
    return 0


def table_bytes(process: str, space_bytes: int, proc: int | None = None) -> int:
    """Return what the tables of a process's memory take: much only where it looks here and there into very much of
    it."""
    if space_bytes < _WIDE_SPACE_BYTES:
        return 0
    for folder in threads(process, proc):
        found = read(f"{folder}/status", proc).partition(b"VmPTE:")[2].split()
        if found:
            return int(found[0]) * 1024
    return 0


def most_open_files(least: int) -> int | None:
    """The pid with most open files, the first process excepted; None if none has more than `least`."""
    found = {pid: _listed_files(pid) for pid in processes() if pid not in (1, os.getpid())}
    pid = max(found, key=lambda pid: found[pid], default=None)
    return pid if pid is not None and found[pid] > least else None


def _listed_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def largest_process(*, patient: bool) -> int | None:
    """The pid that holds most memory, the first process excepted; None, if `patient`, while one is giving its back."""
    found = {pid: memory(f"/proc/{pid}") for pid in processes() if pid not in (1, os.getpid())}
    if patient and not all(found.values()):
        return None
    page = resource.getpagesize()
    sizes = {pid: m[1] * page + table_bytes(f"/proc/{pid}", m[0] * page) for pid, m in found.items() if m}
    return max(sizes, key=lambda pid: sizes[pid], default=None)


def program(pid: int) -> str:
    """The program that a process runs; empty once it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def filters(pid: str | int) -> int:
    """Return how many filters of system calls a process has; 0 where the kernel does not tell."""
    said = read(f"/proc/{pid}/status").partition(b"Seccomp_filters:")[2].split()
    return int(said[0]) if said else 0


def marked(usual: int) -> int:
    """Return how many processes have more filters of system calls than is `usual`: programs of `run_program`."""
    return sum(filters(pid) > usual for pid in processes().keys() - {1, os.getpid()})


def pid_of(pidfd: int) -> int:
    """The process that a handle of one holds; -1 once it is gone."""
    return int(read(f"/proc/self/fdinfo/{pidfd}").partition(b"Pid:")[2].split()[0])


def innermost_pid(pidfd: int, proc: int) -> int:
    """The number that a process has in its own namespace; `proc` is the open /proc of this process's."""
    return int(read(f"self/fdinfo/{pidfd}", proc).partition(b"NSpid:")[2].split(b"\n")[0].split()[-1])


def namespace(pid: str | int, kind: str) -> str | None:
    """The namespace of a process, of kind "pid", "net" or "ipc"; None once it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


def read(path: str, folder: int | None = None) -> bytes:
    """The start of a file of /proc (below the open `folder`); nothing if it is gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(handle, 4096)
    except OSError:
        return b""
    finally:
        os.close(handle)
