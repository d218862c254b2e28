"""Ending what runs: only processes and containers we recorded, gracefully first, and verified afterwards."""

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import read_json, read_jsonl
from terminalbench.records import Event
from terminalbench.runner.live import LiveProcess, forget_dead_workers, live_processes

GRACE_SEC = 40.0
_HARD_SEC = 10.0
_DOCKER_TIMEOUT_SEC = 60


@dataclass(frozen=True)
class Container:
    """A running container: its id, and the compose project (a trial) it belongs to."""

    id: str
    project: str


@dataclass(frozen=True)
class Found:
    """What of ours runs in some batches."""

    processes: tuple[LiveProcess, ...]
    containers: tuple[Container, ...]

    def __bool__(self) -> bool:
        return bool(self.processes or self.containers)


def find(batches: list[Batch], *, all_containers: bool = False) -> Found:
    """The live processes and containers of batches; never this process or one it descends from."""
    ours = _ancestors()
    processes = [p for batch in batches for p in live_processes(batch) if p.pid not in ours]
    containers = _containers(batches, all_containers=all_containers)
    return Found(tuple(processes), tuple(containers))


def end(batches: list[Batch], found: Found, *, all_containers: bool = False, grace_sec: float = GRACE_SEC) -> Found:
    """End what was found: runners are interrupted and get time to record; then everything left is killed.

    Returns what is still there, which should be nothing.
    """
    runners = [p for p in found.processes if p.kind == "runner"]
    cared_for = {p.batch for p in runners}
    for process in [*runners, *(p for p in found.processes if p.batch not in cared_for)]:
        _send(process, signal.SIGINT, group=False)
    _wait(found.processes, grace_sec)
    for process in [p for p in found.processes if p.alive]:
        _send(process, signal.SIGKILL, group=process.kind == "harbor")
    _wait(found.processes, _HARD_SEC)
    for batch in batches:
        forget_dead_workers(batch)
    left = find(batches, all_containers=all_containers)
    if left.containers:
        _docker("kill", *(container.id for container in left.containers))
        left = find(batches, all_containers=all_containers)
    return left


def _send(process: LiveProcess, number: int, *, group: bool) -> None:
    if not process.alive:
        return
    try:
        os.killpg(process.pid, number) if group else os.kill(process.pid, number)
    except ProcessLookupError:
        return


def _wait(processes: tuple[LiveProcess, ...], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)


def _ancestors() -> set[int]:
    """This process and every process it descends from: shells, `uv run`, make."""
    found, pid = set(), os.getpid()
    while pid > 1 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return found


def _containers(batches: list[Batch], *, all_containers: bool) -> list[Container]:
    wanted = {project for batch in batches if _uses_docker(batch) for project in _projects(batch)}
    if not wanted and not all_containers:
        return []
    listing = _docker("ps", "--format", '{{.ID}}\t{{.Label "com.docker.compose.project"}}')
    rows = [line.split("\t") for line in listing.splitlines() if "\t" in line]
    running = [Container(identifier, project) for identifier, project in rows]
    if all_containers:
        return running
    return [c for c in running if any(c.project.startswith(f"{project}__") for project in wanted)]


def _uses_docker(batch: Batch) -> bool:
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return False
    return plan.settings.get("container_env") in ("docker", "podman")


def _projects(batch: Batch) -> set[str]:
    """The compose projects Harbor made for the trials of a batch: their names, as compose spells them."""
    names = {event.trial for event in read_jsonl(batch.events_jsonl, Event).records if event.trial}
    return {re.sub(r"[^a-z0-9_-]", "-", name.lower()) for name in names}


def _docker(*arguments: str) -> str:
    program = shutil.which("docker")
    if program is None:
        return ""
    try:
        ran = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_DOCKER_TIMEOUT_SEC, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout if ran.returncode == 0 else ""
