"""Control groups: where this process may make one, making it, reading it, removing it.

Version 2 where a writable group hands the controllers down, version 1 where its hierarchies are writable,
else nothing: the guardian then watches the processes instead.
"""

# ruff: noqa: PTH102, PTH106, PTH123

import os
import time
from functools import cache
from typing import NamedTuple

from terminalbench.sandbox.engine import kernel

PREFIX = "tbench-"
_WANTED = ("memory", "pids", "cpu")
_PERIOD_USEC = 100_000
_Mount = tuple[set[str] | None, str, str]


class GroupLimits(NamedTuple):
    """What a sandbox may use. `memory_bytes` counts processes; files in a memory scratch come on top."""

    memory_bytes: int
    scratch_bytes: int
    processes: int
    cpus: float | None


class ControlGroup:
    """One control group of a sandbox: a folder per hierarchy."""

    def __init__(self, version: int = 0, folders: dict[str, str] | None = None) -> None:
        self.version = version
        self.folders = folders or {}

    def procs(self) -> list[str]:
        """The files a process joins the group by."""
        return sorted({f"{folder}/cgroup.procs" for folder in self.folders.values()})

    def memory_used(self) -> int | None:
        """Bytes of memory the processes use, without files; None where memory is not controlled."""
        return self._number("memory", "memory.stat", b"total_rss" if self.version == 1 else b"anon")

    def out_of_memory_kills(self) -> int:
        """Return how many processes the kernel has ended for want of memory."""
        file = "memory.oom_control" if self.version == 1 else "memory.events"
        return self._number("memory", file, b"oom_kill") or 0

    def process_refusals(self) -> int:
        """Return how many times a fork was refused."""
        return self._number("pids", "pids.events", b"max") or 0

    def members(self) -> set[int] | None:
        """Return the processes in the group; None where they are not counted."""
        if "pids" not in self.folders:
            return None
        try:
            with open(f"{self.folders['pids']}/cgroup.procs", "rb") as stream:
                return {int(line) for line in stream}
        except (OSError, ValueError):
            return None

    def _number(self, controller: str, file: str, name: bytes) -> int | None:
        """Return what a file of the group says of `name`; None where the group does not have this controller."""
        if controller not in self.folders:
            return None
        try:
            handle = os.open(f"{self.folders[controller]}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = b"\n" + os.read(handle, 1 << 16)
        finally:
            os.close(handle)
        found = data.partition(b"\n%b " % name)[2]  # not line by line: the watch asks again and again
        return int(found.partition(b"\n")[0] or 0)

    def remove(self, patience_sec: float = 5.0) -> bool:
        """Remove the folders, waiting for the last processes to go."""
        deadline = time.monotonic() + patience_sec
        left = set(self.folders.values())
        while left:
            for folder in sorted(left):
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    pass
                except OSError:
                    continue
                left.discard(folder)
            if left and time.monotonic() > deadline:
                return False
            if left:
                time.sleep(0.005)
        return True


def create(name: str, limits: GroupLimits) -> ControlGroup:
    """A group called `name` with these limits; one without folders when this machine lets us make none."""
    known, own = mounts(), _own_groups()
    for make in (_create_v2, _create_v1):
        group = make(name, limits, known, own)
        if group.folders:
            return group
    return ControlGroup()


def _create_v2(name: str, limits: GroupLimits, mounts: list[_Mount], own: dict[str, str]) -> ControlGroup:
    base = _v2_parent(mounts, own)
    if not base:
        return ControlGroup()
    folder = f"{base}/{name}"
    try:
        os.mkdir(folder)
    except OSError:
        return ControlGroup()
    group = ControlGroup(2, dict.fromkeys(_handed_down(base), folder))
    settings = {
        "memory.max": str(limits.memory_bytes + limits.scratch_bytes),
        "memory.swap.max": "0",
        "pids.max": str(limits.processes),
    }
    if limits.cpus:
        settings["cpu.max"] = f"{int(limits.cpus * _PERIOD_USEC)} {_PERIOD_USEC}"
    for key, value in settings.items():
        if key.split(".")[0] in group.folders and not _write(f"{folder}/{key}", value) and key != "memory.swap.max":
            group.remove(0)
            return ControlGroup()
    return group


def _create_v1(name: str, limits: GroupLimits, mounts: list[_Mount], own: dict[str, str]) -> ControlGroup:
    group = ControlGroup(1)
    settings = {
        "memory": {"memory.limit_in_bytes": str(limits.memory_bytes + limits.scratch_bytes)},
        "pids": {"pids.max": str(limits.processes)},
        "cpu": {"cpu.cfs_period_us": str(_PERIOD_USEC), "cpu.cfs_quota_us": str(int(limits.cpus * _PERIOD_USEC))}
        if limits.cpus
        else {},
    }
    for controller, base in _v1_parents(mounts, own).items():
        if not settings[controller]:
            continue
        folder = f"{base}/{name}"
        try:
            os.mkdir(folder)
        except FileExistsError:
            pass  # cpu and cpuacct may be one hierarchy
        except OSError:
            continue
        if all(_write(f"{folder}/{key}", value) for key, value in settings[controller].items()):
            group.folders[controller] = folder
            if controller == "memory":  # buffers of connections are counted apart, and only if they have a limit
                _write(f"{folder}/memory.kmem.tcp.limit_in_bytes", str(limits.memory_bytes))
        else:
            os.rmdir(folder)
    return group


def _v1_parents(mounts: list[_Mount], own: dict[str, str]) -> dict[str, str]:
    """Controller to the folder of its version 1 hierarchy under which we may make groups."""
    found = {}
    for options, point, root in mounts:
        for controller in set(_WANTED) & (options or set()):
            path = _below(point, root, own.get(controller, "/"))
            if os.access(path, os.W_OK):
                found[controller] = path
    return found


def _v2_parent(mounts: list[_Mount], own: dict[str, str]) -> str | None:
    """A folder of the version 2 hierarchy that hands memory and pids down and lets us make groups."""
    for options, point, root in mounts:
        if options is not None:
            continue
        candidates = []
        path = _below(point, root, own.get("", "/"))
        while len(path) >= len(point):
            candidates.append(path)
            path = path.rpartition("/")[0]
        if os.geteuid() == 0:
            candidates.reverse()
        for folder in candidates:
            if not os.access(folder, os.W_OK) or not os.access(f"{folder}/cgroup.procs", os.W_OK):
                continue
            if not {"memory", "pids"} <= set(_handed_down(folder)):
                _write(f"{folder}/cgroup.subtree_control", "+memory +pids +cpu")
            if {"memory", "pids"} <= set(_handed_down(folder)):
                return folder
    return None


def _handed_down(folder: str) -> list[str]:
    try:
        with open(f"{folder}/cgroup.subtree_control", encoding="utf-8") as stream:
            return [name for name in stream.read().split() if name in _WANTED]
    except OSError:
        return []


@cache
def mounts() -> list[_Mount]:
    """(controllers or None for version 2, mount point, root) of each control group mount, as they are at first."""
    found: list[_Mount] = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            fields, _, rest = line.partition(" - ")
            kind, _, options = rest.split()[:3]
            _, _, _, root, point = fields.split()[:5]
            if kind == "cgroup2":
                found.append((None, point, root))
            elif kind == "cgroup":
                found.append((set(options.split(",")), point, root))
    return found


def _own_groups() -> dict[str, str]:
    """Controller (or "" for version 2) to the group this process is in."""
    groups = {}
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in controllers.split(","):
                groups[controller] = path
    return groups


def _below(point: str, root: str, path: str) -> str:
    inside = path.removeprefix(root) if root != "/" else path
    return f"{point}/{inside.strip('/')}".rstrip("/")


def _write(path: str, text: str) -> bool:
    try:
        kernel.write(path, text)
    except OSError:
        return False
    return True
