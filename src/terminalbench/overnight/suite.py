"""The suite of a night: which tasks it attempts. An experiment TOML, or a JSON suite; both end as an `Experiment`.

A JSON suite names tasks and no profiles: the models of the night become its profiles. An experiment brings profiles of
its own, which run unless models are named.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from terminalbench.errors import InvalidFile, UserError, did_you_mean
from terminalbench.experiments.config import load, load_tables
from terminalbench.experiments.experiment import Experiment, Task
from terminalbench.experiments.plan import PlannedTask
from terminalbench.experiments.project import from_root, marked_root, project_root
from terminalbench.experiments.tables import SCHEMA_VERSION, RunTable
from terminalbench.harbor.limits.hangs import read_task
from terminalbench.overnight.night import SuiteTask
from terminalbench.records.trial import TaskRef
from terminalbench.strict import Problems, find_path, is_file, is_folder, key, read, read_toml, table
from terminalbench.text.names import is_task, unknown

SHIPPED = Path(__file__).parent / "suites"
"""The suites that come with the bench; each is named by its file without `.json`."""
_PARTS = ("task.toml", "instruction.md", "environment", "tests")
_SAME_RUN = ("container_env", "timeout_multiplier", "agent_timeout_sec", "verifier_system", "network")
"""What of `[run]` makes the same tasks another suite."""
_UNUSED = ("max_turns", "verification", "tags", "hints", "files_to_modify")


@table
class SuiteTaskTable:
    """One entry of `tasks` in a JSON suite. Its place is a `dataset`, or a `path`."""

    id: str = key(
        "Id of the task within its dataset; with `path`, the name of its folder.", non_empty=True, required=True
    )
    name: str | None = key("Title for people.")
    description: str | None = key("For people; the agent gets the instruction of the task.")
    dataset: str | None = key("`name@version` of a registry, or `starter`.", non_empty=True)
    path: str | None = key("Folder of a Harbor task, relative to the folder of the suite.", non_empty=True)
    source_path: str | None = key("Same as `path`.", non_empty=True)
    category: str | None = key("Group of the task: its family, by which results are grouped.", non_empty=True)
    difficulty: Literal["easy", "medium", "hard", "expert"] | None = key("Difficulty, for people and reports.")
    timeout_seconds: float | None = key("Time limit of the agent in seconds. Default: the limit of the task.", above=0)
    max_turns: int | None = key("Accepted but not used: an option of the agent limits its turns.", minimum=1)
    verification: dict[str, Any] | None = key("Accepted but not used: the tests of the task decide.")
    tags: list[str] | None = key("Accepted but not used.")
    hints: list[str] | None = key("Accepted but not used: agents do not get them.")
    files_to_modify: list[str] | None = key("Accepted but not used: agents do not get them.")


@table
class SuiteTable:
    """The top of a JSON suite."""

    name: str = key("Name of the suite.", non_empty=True, required=True)
    version: str = key(
        "Version of the suite; results of different versions are never compared.", non_empty=True, required=True
    )
    tasks: list[SuiteTaskTable] = key("The tasks and their order.", non_empty=True, required=True)
    description: str | None = key("For people.")
    source_repo: str | None = key("For people: where the tasks come from.")
    dataset: str | None = key("Dataset of the tasks without a dataset or path.", non_empty=True)
    run: dict[str, Any] = key("Same as `[run]` of an experiment: `container_env`, `attempts`, ...", factory=dict)


@dataclass(frozen=True)
class Suite:
    """A checked suite. `digest` is of all that it attempts, `tasks` are those that were chosen of it.

    `experiment` is there when the suite brings profiles of its own. `notes` say what of it is not used.
    """

    name: str
    version: str
    file: Path
    root: Path
    digest: str
    tasks: tuple[SuiteTask, ...]
    tables: Mapping[str, Any]
    run: RunTable
    experiment: Experiment | None = None
    notes: tuple[str, ...] = ()

    def with_profiles(self, profiles: Mapping[str, Mapping[str, Any]]) -> Experiment:
        """The experiment that attempts the chosen tasks with these profiles, each the table of its TOML."""
        made = load_tables(with_profiles(self.tables, profiles), self.file, self.root)
        return only_tasks(made, self.tasks)


def with_profiles(
    tables: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]], but: Sequence[str] = ()
) -> dict[str, Any]:
    """The tables of an experiment with other profiles; what its analysis says of its own is left out, as is `but`."""
    kept = {name: value for name, value in tables.items() if name not in ("profiles", "defaults")}
    left = ("baseline", "contrasts", *but)  # they name profiles that do not run
    analysis = {name: value for name, value in tables.get("analysis", {}).items() if name not in left}
    return {**kept, "analysis": analysis, "profiles": dict(profiles)}


def load_suite(file: Path, tasks: Sequence[str] = (), root: Path | None = None) -> Suite:
    """The suite in a file, or the shipped one of that name; `tasks` are globs over `id` and `dataset/id`.

    Raises `InvalidFile` with every problem found, and `UserError` for a glob that no task matches. `root` is the folder
    that relative paths start from, as in `experiments.config.load`; of a shipped suite, that of the project around us.
    """
    file = _found(file)
    if root is None and file.parent == SHIPPED:
        root = marked_root(Path.cwd()) or Path.cwd()
    suite = _toml_suite(file, root) if file.suffix == ".toml" else _json_suite(file, root)
    chosen = _matching(suite, tasks)
    experiment = only_tasks(suite.experiment, chosen) if suite.experiment is not None else None
    return replace(suite, tasks=chosen, experiment=experiment)


def shipped_suites() -> list[str]:
    """The names of the suites that come with the bench."""
    return sorted(file.stem for file in SHIPPED.glob("*.json"))


def _found(file: Path) -> Path:
    if is_file(file):
        return file
    name = str(file)
    if name in shipped_suites():
        return SHIPPED / f"{name}.json"
    if is_folder(file):
        raise UserError(
            "is a folder, not the file of a suite",
            where=name,
            hint="name a suite file in it, or a shipped suite: --suite starter",
        )
    known = shipped_suites()
    hint = f"to use the shipped suite: --suite {file.stem}" if file.stem in known else did_you_mean(name, known)
    raise UserError("no such suite", where=name, hint=hint)


def _matching(suite: Suite, globs: Sequence[str]) -> tuple[SuiteTask, ...]:
    for glob in globs:
        if not any(is_task(task.dataset, task.id, glob) for task in suite.tasks):
            raise unknown("task", glob, (task.id for task in suite.tasks), str(suite.file))
    return tuple(t for t in suite.tasks if not globs or any(is_task(t.dataset, t.id, glob) for glob in globs))


def only_tasks(experiment: Experiment, tasks: Iterable[SuiteTask | Task]) -> Experiment:
    """The experiment with these of its tasks."""
    wanted = {(task.dataset, task.id) for task in tasks}
    return replace(experiment, tasks=tuple(t for t in experiment.tasks if (t.dataset, t.id) in wanted))


def _toml_suite(file: Path, root: Path | None) -> Suite:
    experiment = load(file, root)
    tasks = tuple(_task(task, None) for task in experiment.tasks)
    digest = _digest(experiment.name, None, experiment, tasks)
    tables = read_toml(file)
    return Suite(experiment.name, digest[:12], file, experiment.root, digest, tasks, tables, experiment.run, experiment)


def _json_suite(file: Path, root: Path | None) -> Suite:
    base = project_root(file, root)
    problems = Problems()
    suite: SuiteTable = read(SuiteTable, _json(file), "", problems)
    items = _items(suite, file, base, problems)
    if problems.found:
        raise InvalidFile(str(file), list(dict.fromkeys(problems.found)))
    tables = {
        "schema_version": SCHEMA_VERSION,
        "slug": "suite",
        "name": suite.name,
        "run": suite.run,
        "tasks": {"items": items},
    }
    checked = load_tables({**tables, "profiles": {"nop": {"agent": "nop"}}}, file, base)
    own = {(item["dataset"], item["id"]): entry for item, entry in zip(items, suite.tasks, strict=True)}
    tasks = tuple(_task(task, own[task.dataset, task.id]) for task in checked.tasks)
    digest = _digest(suite.name, suite.version, checked, tasks)
    return Suite(suite.name, suite.version, file, base, digest, tasks, tables, checked.run, notes=_notes(suite))


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not valid JSON: {error}", where=str(file)) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(file)) from None


def _items(suite: SuiteTable, file: Path, root: Path, problems: Problems) -> list[dict[str, Any]]:
    """The tasks as `tasks.items` of an experiment."""
    items: list[dict[str, Any]] = []
    seen: dict[tuple[str, str], int] = {}
    for index, task in enumerate(suite.tasks or []):
        at = f"tasks[{index}]"
        dataset = _place(task, suite, file, root, at, problems)
        if dataset is None or not task.id:
            continue
        if (first := seen.setdefault((dataset, task.id), index)) != index:
            problems.add(at, f'task "{task.id}" of {dataset} is already tasks[{first}]', "remove one")
        item = {"id": task.id, "dataset": dataset, "family": task.category, "timeout_sec": task.timeout_seconds}
        items.append({name: value for name, value in item.items() if value is not None})
    return items


def _place(task: SuiteTaskTable, suite: SuiteTable, file: Path, root: Path, at: str, problems: Problems) -> str | None:
    """The dataset that an entry means: its own, the folder around its path, or the suite's."""
    given = [name for name in ("dataset", "path", "source_path") if getattr(task, name) is not None]
    if len(given) > 1:
        problems.add(at, f"gives {' and '.join(given)}", "keep one of them")
        return None
    path = task.path or task.source_path
    if path is None:
        if task.dataset is None and suite.dataset is None:
            problems.add(
                at,
                "has neither a dataset nor a path",
                "give the task a dataset or a path, or give the whole suite a dataset",
            )
        return task.dataset or suite.dataset
    folder = find_path(path, file.resolve().parent, f"{at}.{given[0]}", problems)
    if folder is None:
        return None
    folder = folder.resolve()
    missing = [part for part in _PARTS if not (folder / part).exists()]
    if missing:
        problems.add(f"{at}.{given[0]}", f"{folder} is not a Harbor task: it has no {missing[0]}")
    elif folder.name != task.id:
        problems.add(f"{at}.id", f'must be the name of the folder, "{folder.name}"')
    else:
        return from_root(folder.parent, root)
    return None


def _notes(suite: SuiteTable) -> tuple[str, ...]:
    unused = [name for name in _UNUSED if any(getattr(task, name) is not None for task in suite.tasks)]
    return (f"keys of its tasks that are not used: {', '.join(unused)}",) if unused else ()


def _task(task: Task, own: SuiteTaskTable | None) -> SuiteTask:
    """A task with what the suite says of it, else what its own task.toml does."""
    metadata = read_task(task.source.folder).get("metadata") if task.source.folder is not None else None
    said = metadata.get("difficulty") if isinstance(metadata, dict) else None
    return SuiteTask(
        task.id,
        task.dataset,
        task_digest(task),
        own.name if own is not None else None,
        task.family,
        own.difficulty if own is not None and own.difficulty is not None else said if isinstance(said, str) else None,
        task.timeout_sec,
    )


def task_digest(task: Task) -> str:
    """Return the digest of the task's files where they lie in a folder; else of the place where they are fetched
    from."""
    from terminalbench.runner.changes import task_files

    planned = PlannedTask(TaskRef(task.id, task.dataset), task.dataset, task.source.config, task.source.found)
    files = next(iter(task_files([planned]).values()), None)
    return _hash(files if files is not None else [task.dataset, task.id, task.source.config])


def _digest(name: str, version: str | None, experiment: Experiment, tasks: Sequence[SuiteTask]) -> str:
    run = {key: getattr(experiment.run, key) for key in _SAME_RUN}
    counted = [[task.dataset, task.id, task.category, task.timeout_sec, task.digest] for task in tasks]
    return _hash([name, version, {key: str(value) for key, value in run.items()}, counted])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
