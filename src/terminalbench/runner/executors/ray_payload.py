"""The files that a job needs on a node that does not see the runner's disk, and their places there.

    <place>/batch/       the batch as Harbor sees it: plan, JobConfig, lessons; Harbor writes beside them
    <place>/project/     files of the project that the job names; Harbor's current folder, and on Python's path
    <place>/outside/<n>/ what it names outside of the project

Files are known by the digest of their content, so that a node is sent each one once. The values of variables go in the
message that starts the job, and are written to no file.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from terminalbench.errors import TbenchError
from terminalbench.experiments.agent_code import named_by_options, own_code
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.lessons import OPTION, unwrapped
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.attempt_numbers import earlier_trials
from terminalbench.json_files import encode_json, read_json
from terminalbench.llm.local.spec import is_local
from terminalbench.registry import is_import_path
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.ray_messages import FOLDER_BYTES, FOLDER_ENTRIES, PayloadEntry
from terminalbench.workflow.load import imports

BATCH, PROJECT, OUTSIDE, SOCKET = "batch", "project", "outside", "gate"
_digests: dict[tuple[str, int, int, int], str] = {}


@dataclass
class JobPayload:
    """The entries of a job, where the content of each digest is, and which paths there stand for which here."""

    place: str
    entries: dict[str, PayloadEntry] = field(default_factory=dict)
    contents: dict[str, Path | bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    argv: list[str] = field(default_factory=list)

    def add(self, path: str, data: bytes) -> None:
        """A file that is made for the node."""
        digest = hashlib.sha256(data).hexdigest()
        self.contents[digest] = data
        self._put(PayloadEntry(path, 0o600, digest, len(data)))

    def add_file(self, path: str, file: Path) -> int:
        """A file as it is here; its size."""
        status = file.stat()
        digest = _digest(file, status)
        self.contents[digest] = file
        self._put(PayloadEntry(path, stat.S_IMODE(status.st_mode) | 0o600, digest, status.st_size))
        return status.st_size

    def add_folder(self, path: str, folder: Path) -> None:
        """A folder with all that is in it; links stay links."""
        total = 0
        self._put(PayloadEntry(path))
        for count, (kind, name, file) in enumerate(_below(folder)):
            if kind == "link":
                self._put(PayloadEntry(f"{path}/{name}", link=str(file.readlink())))
            elif kind == "folder":
                self._put(PayloadEntry(f"{path}/{name}", stat.S_IMODE(file.stat().st_mode) | 0o700))
            else:
                total += self.add_file(f"{path}/{name}", file)
            if total > FOLDER_BYTES or count > FOLDER_ENTRIES:
                most = f"{FOLDER_BYTES >> 30} GB or {FOLDER_ENTRIES:,} files"
                raise TbenchError(f"{folder} is too large to send to a node: more than {most}")

    def _put(self, entry: PayloadEntry) -> None:
        self.entries[entry.path] = entry


@dataclass(frozen=True)
class _PathMap:
    """The places on a node for the paths of a job."""

    needs: JobPayload
    batch: Batch
    root: Path | None

    def bring(self, path: Path) -> str:
        """Have a file or folder sent; its path on the node."""
        if path.is_relative_to(self.batch.folder):
            where = f"{BATCH}/{path.relative_to(self.batch.folder)}"
        elif self.root is not None and path.is_relative_to(self.root) and path != self.root:
            where = f"{PROJECT}/{path.relative_to(self.root)}"
        else:
            known = list(self.needs.moved.values())
            number = known.index(str(path)) if str(path) in known else len(known)
            where = f"{OUTSIDE}/{number}/{path.name}"
        there = f"{self.needs.place}/{where}"
        if there not in self.needs.moved:
            (self.needs.add_folder if path.is_dir() else self.needs.add_file)(where, path)
            self.needs.moved[there] = str(path)
        return there


def needs_of(job: JobRun, plan: Plan, batch: Batch, place: str) -> JobPayload:
    """Everything a job needs at a place of a node. Raises a `TbenchError` for what cannot be sent, `OSError` too."""
    needs = JobPayload(place)
    root = Path(plan.provenance.root) if plan.provenance.root else None
    places = _PathMap(needs, batch, root)
    config = read_json(batch.job_config(job.name))
    agent = unwrapped(config["agents"][0])
    if is_local(agent.get("model_name")):
        raise TbenchError("a local: model is served on the runner's machine, so the nodes must run there too")
    for path in _code(config, agent):
        for name, file in own_code(path, root).items():
            needs.add_file(f"{PROJECT}/{name}", file)
    moved = _moved(config, agent, places)
    mounts = (config.get("environment") or {}).get("mounts") or ()
    if mounts and not any(argument.startswith("--mounts") for argument in job.argv):  # those are places of the node
        brought = [one | {"source": places.bring(Path(one["source"]))} for one in mounts]
        moved["environment"] = config["environment"] | {"mounts": brought}
    needs.add(f"{BATCH}/runs/{job.name}.job.json", encode_json(moved))
    needs.add(f"{BATCH}/earlier.json", encode_json(earlier_trials(batch, job.folder)))
    needs.add_file(f"{BATCH}/plan.json", batch.plan_json)
    needs.entries.setdefault(PROJECT, PayloadEntry(PROJECT))
    needs.moved |= {f"{place}/{BATCH}": str(batch.folder), **({f"{place}/{PROJECT}": str(root)} if root else {})}
    needs.argv = list(_arguments(job, place))
    return needs


def _code(config: dict[str, Any], agent: dict[str, Any]) -> Iterator[str]:
    """The classes of one's own that a job runs: its agent, its environment, the guards of its workflow."""
    named = [agent.get("import_path"), (config.get("environment") or {}).get("import_path")]
    named += imports(agent.get("kwargs", {}).get("workflow") or {})
    return (path for path in named if path is not None and is_import_path(path))


def _moved(config: dict[str, Any], agent: dict[str, Any], places: _PathMap) -> dict[str, Any]:
    """The JobConfig as it is on the node: what it names by a path is sent there."""
    given = dict(config["agents"][0])
    kwargs = dict(given.get("kwargs") or {})
    if (source := kwargs.get("mcp_source", {}).get("paths")) is not None:
        brought = {name: places.bring(Path(path)) for name, path in source.items()}
        kwargs["mcp_source"] = kwargs["mcp_source"] | {"paths": brought}
    if (lessons := kwargs.get(OPTION)) is not None:
        kwargs[OPTION] = lessons | {"snapshot": places.bring(Path(lessons["snapshot"]))}
    if places.root is not None:
        for option, path in named_by_options(agent.get("kwargs") or {}, places.root):
            there = places.bring(path)  # a relative one is found there from Harbor's current folder
            value = kwargs[option]
            as_there = [
                there if text == str(path) else text for text in (value if isinstance(value, list) else [value])
            ]
            kwargs[option] = as_there if isinstance(value, list) else as_there[0]
    if (command := kwargs.get("command")) is not None and command.get("files"):
        brought = {places.bring(Path(path)): file for path, file in command["files"].items()}
        kwargs["command"] = command | {"files": brought}
    if given.get("skills"):
        given["skills"] = [places.bring(Path(folder)) for folder in given["skills"]]
    if kwargs:
        given["kwargs"] = kwargs
    info = agent_info(agent["import_path"], places.root) if agent.get("import_path") else None
    if info is not None and places.root is not None:
        for _, path in named_by_options(info.defaults, places.root):
            places.bring(path)
    tasks = [
        task | {"path": places.bring(Path(task["path"]))} if _is_local(task) else task
        for task in config.get("tasks") or ()
    ]
    return {**config, "jobs_dir": f"{places.needs.place}/{BATCH}/runs", "agents": [given], "tasks": tasks}


def local_tasks(config: dict[str, Any]) -> list[str]:
    """The folders of the tasks of a job that are on the runner's disk."""
    return [task["path"] for task in config.get("tasks") or () if _is_local(task)]


def _is_local(task: dict[str, Any]) -> bool:
    return bool(task.get("path")) and not task.get("git_url")


def _arguments(job: JobRun, place: str) -> Iterator[str]:
    """Harbor's arguments on the node, behind the program. The gate is a socket there."""
    own = {
        "events=": f"events={place}/{BATCH}/events.jsonl",
        "gate=": f"gate={place}/{SOCKET}",
    }
    before = ""
    for argument in job.argv[1:]:
        if before == "-c":
            yield f"{place}/{BATCH}/runs/{job.name}.job.json"
        elif before == "--pk":
            if not argument.startswith("shared="):  # the runner's side knows it
                yield "--pk"
                yield next((mine for begin, mine in own.items() if argument.startswith(begin)), argument)
        elif argument != "--pk":
            yield argument
        before = argument


def _below(folder: Path) -> Iterator[tuple[str, str, Path]]:
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            file = Path(place) / name
            mode = file.lstat().st_mode
            relative = str(file.relative_to(folder))
            if stat.S_ISLNK(mode):
                yield "link", relative, file
            elif stat.S_ISDIR(mode):
                yield "folder", relative, file
            elif stat.S_ISREG(mode):
                yield "file", relative, file


def _digest(file: Path, status: os.stat_result) -> str:
    """The digest of a file's bytes; one that has not changed since is not read again."""
    known = (str(file), status.st_ino, status.st_size, status.st_mtime_ns)
    if known not in _digests:
        with file.open("rb") as stream:
            _digests[known] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _digests[known]
