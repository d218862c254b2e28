"""Files that a trial reads when it starts, and that are not as a batch was planned with: of agents, skills, MCP servers
and tasks. A batch goes on with them only on request, and then its plan keeps the change as a departure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.agent_code import (
    agent_code,
    changed_names,
    digests,
    files_below,
    is_released,
    option_files,
)
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.lessons import unwrapped
from terminalbench.experiments.mounts import Mount, find_program
from terminalbench.experiments.plan import Plan, PlannedTask, ProfileRecord
from terminalbench.experiments.profile_changes import ON_DISK, differences, summaries, tells
from terminalbench.experiments.profiles import CommandFile, ContentFolder, content_id
from terminalbench.experiments.task_folder import PARTS
from terminalbench.harbor.attempt_numbers import first_wave
from terminalbench.harbor.read.notes import SEEN, read_seen
from terminalbench.json_files import read_json
from terminalbench.runner.images import to_run
from terminalbench.runner.waves import Cell
from terminalbench.secrets.patterns import VARIABLE_NAME, is_secret, references
from terminalbench.text.numbers import some

_PASSING = ("__pycache__", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
_MOST_TASK_FILES = 16


@dataclass(frozen=True)
class PlanDrift:
    """Differences from the plan: the profiles and the files of tasks as they are now, and a word on each."""

    profiles: dict[str, ProfileRecord] = field(default_factory=dict)
    tasks: dict[str, dict[str, str]] = field(default_factory=dict)
    departures: tuple[Departure, ...] = ()


def find_changes(
    batch: Batch, plan: Plan, environments: Mapping[str, Mapping[str, str]], cells: Collection[Cell]
) -> PlanDrift:
    """Return what changed of the profiles with these environments and of the tasks of these cells.

    What the plan does not tell is unknown.
    """
    root = Path(plan.provenance.root or "")
    profiles: dict[str, ProfileRecord] = {}
    departures: list[Departure] = []
    for record in plan.profiles:
        if record.key in environments:
            now, changes = _profile_now(record, environments[record.key], _config(batch, plan, record.key), root)
            profiles |= {record.key: now} if changes else {}
            texts = (f'profile "{record.key}" has changed: {change}' for change in changes)
            departures += [Departure(DepartureKind.CHANGED_PROFILES, text) for text in texts]
    wanted = {task.ref: task for job in plan.jobs for task in job.tasks if (task.label, task.ref.id) in cells}
    tasks: dict[str, dict[str, str]] = {}
    for name, files in task_files(wanted.values()).items():
        if (was := plan.task_files.get(name)) is not None and was != files:
            tasks[name] = files
            text = f'task "{name}" has changed: {some(changed_names(was, files))}'
            departures.append(Departure(DepartureKind.CHANGED_TASKS, text))
    return PlanDrift(profiles, tasks, tuple(departures))


def _profile_now(
    record: ProfileRecord, environment: Mapping[str, str], config: Mapping[str, Any], root: Path
) -> tuple[ProfileRecord, list[str]]:
    """Return a planned profile with its variables and files as they are now, and what of them has changed.

    A profile of two treatments has an id of its own, so that its trials are pooled with those of neither.
    """
    changes: list[str] = []
    values, uploads = record.values, _uploads_now(record, root)
    held = values_now(record, environment)
    others = [name for name, value in held.items() if values.get(name, value) != value]
    marks = ""
    if others:
        values = {**values, **held}
        marks += str(sorted(values.items()))
        changes.append(f"another value of {some(others)}")
    if uploads != record.uploads:
        marks += str(sorted(uploads.items()))
        changes.append(some(changed_names(record.uploads, uploads)))
    files = _files_now(record, config, root)
    if found := differences({aspect: record.content.get(aspect) or {} for aspect in files}, files):
        changes.append("; ".join(summaries(found)))
    if not changes:
        return record, changes
    content = {**record.content, **{aspect: files[aspect] for aspect in ON_DISK if files.get(aspect)}}
    both = sha256(f"{record.id}+{content_id(content)}{marks}".encode()).hexdigest()[:12]
    now = msgspec.structs.replace(record, id=f"p{both}", content=content, values=values, uploads=uploads)
    return now, changes


def refuse(changes: PlanDrift, plan: Plan, where: str) -> None:
    """Go on with nothing that changed."""
    if changes.departures:
        listed = "\n  ".join(change.text for change in changes.departures)
        raise UserError(
            f"changed since batch {plan.batch} was planned:\n  {listed}",
            where=where,
            hint="undo the change, start a new batch (tbench run), or accept both versions in this batch: tbench "
            "resume --accept-changed",
        )


def accepted(plan: Plan, changes: PlanDrift) -> Plan:
    """The plan with what changed as it is now, each as a departure."""
    if not changes.departures:
        return plan
    profiles = tuple(changes.profiles.get(record.key, record) for record in plan.profiles)
    ids = {record.key: record.id for record in profiles}
    return msgspec.structs.replace(
        plan,
        profiles=profiles,
        jobs=tuple(msgspec.structs.replace(job, profile_id=ids.get(job.profile, job.profile_id)) for job in plan.jobs),
        task_files={**plan.task_files, **changes.tasks},
        departures=(*plan.departures, *changes.departures),
    )


def with_values(plan: Plan, environments: Mapping[str, Mapping[str, str]]) -> Plan:
    """The plan with digests of the variables of its profiles, where it does not tell yet and they start now."""
    profiles = [
        msgspec.structs.replace(record, values=values_now(record, environments[record.key]))
        if record.key in environments and not record.values
        else record
        for record in plan.profiles
    ]
    return msgspec.structs.replace(plan, profiles=tuple(profiles))


def values_now(record: ProfileRecord, environment: Mapping[str, str]) -> dict[str, str]:
    """A short digest of each variable that a profile refers to; without secrets, of which nothing is kept."""
    names = references([record.content.get("env"), record.content.get("mcp_servers")])
    return {
        name: sha256(f"{name}={environment[name]}".encode()).hexdigest()[:8]
        for name in names
        if name in environment and not _is_secret(name, environment[name])
    }


def _is_secret(name: str, value: str) -> bool:
    """Return whether a digest, too, would tell too much: anything under a secret's name that is no number."""
    return is_secret(name, value) or (VARIABLE_NAME.search(name) is not None and not value.isdigit())


def with_task_files(plan: Plan) -> Plan:
    """The plan with the files of the tasks that it runs, where it does not tell yet."""
    missing = [task for task in to_run(plan) if task.ref.name not in plan.task_files]
    found = task_files(missing)
    return msgspec.structs.replace(plan, task_files={**plan.task_files, **found}) if found else plan


def task_files(tasks: Iterable[PlannedTask]) -> dict[str, dict[str, str]]:
    """Digests of the files of tasks in folders, by `dataset/id`; those that cannot be looked at are left out."""
    found = {}
    for task in tasks:
        place = task.own_folder
        if place is not None and Path(place).is_dir():
            try:
                found[task.ref.name] = digests(_files(Path(place)), _MOST_TASK_FILES)
            except OSError:  # the check before the run says what is wrong with it
                continue
    return found


def unrecorded_code(batch: Batch, plan: Plan, profiles: Collection[str]) -> list[str]:
    """The profiles whose agent is a class of one's own, and whose plan is too old to tell its code."""
    old = [r.key for r in plan.profiles if not tells(r.recipe, "agent_code") and r.key in profiles]
    paths = {key: _config(batch, plan, key)["agents"][0].get("import_path") for key in old}
    return [key for key, path in paths.items() if path is not None and not is_released(path)]


def _config(batch: Batch, plan: Plan, profile: str) -> dict[str, Any]:
    """The recorded JobConfig of a profile."""
    first = next(job.name for job in plan.jobs if job.profile == profile)
    return read_json(batch.job_config(first))


def _files(folder: Path) -> dict[str, Path]:
    def counts(name: str) -> bool:
        return not any(fnmatch(name, pattern) for pattern in _PASSING)

    parts = [folder / part for part in PARTS]
    files = [part for part in parts if part.is_file()]
    files += [file for part in parts if part.is_dir() for file in files_below(part, counts)]
    return {file.relative_to(folder).as_posix(): file for file in files}


def _files_now(record: ProfileRecord, config: Mapping[str, Any], root: Path) -> dict[str, dict[str, str]]:
    """The aspects of a planned profile that are files, as they are now; without those that its plan does not tell."""
    content, agent = record.content, unwrapped(config["agents"][0])
    skills = {Path(path).name: ContentFolder(Path(path), every=True) for path in agent.get("skills", [])}
    paths = agent.get("kwargs", {}).get("mcp_source", {}).get("paths", {})
    servers = {name: ContentFolder(Path(path)) for name, path in paths.items()}
    told = agent.get("kwargs", {}).get("command", {}).get("files", {})
    handed = {file["target"]: CommandFile("", Path(path), file["target"]) for path, file in told.items()}
    mounted = {one["target"]: Mount(root / one["source"], one["target"]) for one in _mounts(config)}
    now: dict[str, dict[str, str]] = {}
    try:
        if (files := content.get("command_files")) is not None:
            now["command_files"] = {name: handed[name.rpartition(" at ")[2]].digest for name in files}
        if (mounts := content.get("mounts")) is not None:
            now["mounts"] = {target: mounted[target].digest for target in mounts}
        if (programs := content.get("programs")) is not None:
            found = {name: find_program(name) for name in programs}
            now["programs"] = {name: one.digest if one is not None else "gone" for name, one in found.items()}
        for aspect, folders in (("skills", skills), ("mcp_code", servers)):
            if content.get(aspect) is not None:
                now[aspect] = {name: folder.digest for name, folder in folders.items()}
        if content.get("agent_code") is not None:
            now["agent_code"] = agent_code(agent["import_path"], root) or {}
        if content.get("environment_code") is not None:
            now["environment_code"] = agent_code(config["environment"]["import_path"], root) or {}
        if tells(record.recipe, "option_files"):
            info = agent_info(str(content.get("agent")), root)
            options = (info.defaults if info is not None else {}) | (content.get("options") or {})
            now["option_files"] = option_files(options, root, agent.get("model_name"))
    except OSError as error:
        what = f'cannot be read, but profile "{record.key}" was planned with it: {error.strerror}'
        raise UserError(what, where=str(error.filename)) from error
    return now


def _mounts(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    return config["environment"].get("mounts") or []


def _uploads_now(record: ProfileRecord, root: Path) -> dict[str, str]:
    """Return what an agent has brought into its trials, as it is now; without what is gone."""
    paths = {name: root / name for name in record.uploads}
    return {name: Mount(path, "").digest for name, path in paths.items() if path.exists()}


def with_uploads(batch: Batch, plan: Plan) -> Plan:
    """The plan with what agents brought into their trials; where that was not always the same, with a departure."""
    first: dict[str, dict[str, str]] = {record.key: dict(record.uploads) for record in plan.profiles}
    others: dict[str, set[str]] = {}
    own = [record.key for record in plan.profiles if record.content.get("agent_code")]
    profiles = {job.name: job.profile for job in plan.jobs if job.profile in own}
    if not profiles:
        return plan
    for note in sorted(batch.runs.glob(f"*/*/{SEEN}")):
        if (profile := profiles.get(first_wave(note.parents[1].name))) is None:
            continue
        for name, digest in read_seen(note.parent).uploads.items():
            if first[profile].setdefault(name, digest) != digest:
                others.setdefault(profile, set()).add(name)
    texts = (f'trials of profile "{key}" had a different {some(sorted(names))}' for key, names in others.items())
    found = [Departure(DepartureKind.CHANGED_PROFILES, text) for text in texts]
    return msgspec.structs.replace(
        plan,
        profiles=tuple(msgspec.structs.replace(record, uploads=first[record.key]) for record in plan.profiles),
        departures=(*plan.departures, *(one for one in found if one not in plan.departures)),
    )
