"""Containers of our trials: found by the compose project Harbor gave them, in the engine their batch uses."""

import re
import shutil
import subprocess
from dataclasses import dataclass

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import read_json, read_jsonl
from terminalbench.records import Event
from terminalbench.text.numbers import duration

_ENGINES = ("docker", "podman")
_TIMEOUT_SEC = 60
_STOP_SEC = 10


class NoAnswer(Exception):
    """A container engine could not be asked."""


@dataclass(frozen=True)
class Container:
    """A running container: its id, the compose project (a trial) it belongs to, and the engine that runs it."""

    id: str
    project: str
    engine: str = "docker"


def running_containers(batches: list[Batch], *, all_containers: bool) -> tuple[Container, ...]:
    """The running containers of the batches' trials; with `all_containers`, all there are on this host."""
    wanted: dict[str, set[str]] = {}
    for batch in batches:
        engine = _engine(batch)
        if engine is not None:
            wanted.setdefault(engine, set()).update(_projects(batch))
    found: list[Container] = []
    for engine, projects in wanted.items():
        if projects and not all_containers:
            prefixes = tuple(f"{project}__" for project in projects)
            found += [c for c in _running(engine) if c.project.startswith(prefixes)]
    if all_containers:
        engines = [e for e in _ENGINES if e in wanted or shutil.which(e)] or list(_ENGINES[:1])
        found += [container for engine in engines for container in _running(engine)]
    return tuple(found)


def _running(engine: str) -> list[Container]:
    listing = _ask(engine, "ps", "--no-trunc", "--format", '{{.ID}}\t{{.Label "com.docker.compose.project"}}')
    rows = [line.split("\t") for line in listing.splitlines() if "\t" in line]
    return [Container(identifier, project, engine) for identifier, project in rows]


def stop_containers(containers: tuple[Container, ...]) -> None:
    """Stop containers: gracefully, then hard. Look again afterwards."""
    for engine in {container.engine for container in containers}:
        try:
            _ask(engine, "stop", "--time", str(_STOP_SEC), *(c.id for c in containers if c.engine == engine))
        except NoAnswer:
            continue  # what is left is found by the look that follows


def _engine(batch: Batch) -> str | None:
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return None
    engine = plan.settings.container_env
    return engine if engine in _ENGINES else None


def _projects(batch: Batch) -> set[str]:
    """The compose projects Harbor made for the trials of a batch: their names, as compose spells them."""
    names = {event.trial for event in read_jsonl(batch.events_jsonl, Event).records if event.trial}
    names |= {folder.name for folder in batch.runs.glob("*/*/")}
    return {re.sub(r"[^a-z0-9_-]", "-", re.sub(r"^(?![a-z0-9])", "0", name.lower())) for name in names}


def _ask(engine: str, *arguments: str) -> str:
    program = shutil.which(engine)
    if program is None:
        raise NoAnswer(f"{engine} is not installed")
    try:
        ran = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SEC,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswer(f"{engine} {arguments[0]}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{engine} {arguments[0]} did not answer in {duration(_TIMEOUT_SEC)}") from None
    if ran.returncode != 0:
        said = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise NoAnswer(f"{engine} {arguments[0]}: {said[0]}")
    return ran.stdout
