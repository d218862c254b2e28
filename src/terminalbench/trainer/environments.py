"""The environments of the gym: sets of tasks that a profile can be trained and measured on.

An environment is named by a shipped suite (`starter`, `tb-2.0`), `swebench-pro`, the file of an experiment or of a JSON
suite, a folder of Harbor tasks, or a dataset whose tasks are known without network.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from terminalbench.errors import InvalidFile, TbenchError, UserError, did_you_mean
from terminalbench.experiments.config import is_training_plan, load_tables
from terminalbench.experiments.datasets import SWEBENCH_PRO, DatasetPlaces
from terminalbench.experiments.experiment import Experiment, Task
from terminalbench.experiments.project import from_root
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.overnight.suite import load_suite, only_tasks, shipped_suites, with_profiles
from terminalbench.strict import Problems, is_file, is_folder

_NO_PROFILE = {"nop": {"agent": "nop"}}


@dataclass(frozen=True)
class Environment:
    """A set of tasks. `tasks` are without those in quarantine; `tables` the experiment around them, as TOML has it.

    `scratch` takes the texts of prompts that are only checked; without it they are kept with the project.
    """

    name: str
    what: str
    file: Path
    root: Path
    tasks: tuple[Task, ...]
    tables: Mapping[str, Any] = field(repr=False)
    scratch: Path | None = None

    def experiment(
        self, profiles: Mapping[str, Mapping[str, Any]], tasks: tuple[Task, ...], changes: Mapping[str, Any]
    ) -> Experiment:
        """The experiment that attempts some of its tasks with these profiles, each the table of its TOML.

        `changes` are keys of the top of the experiment; tables among them are merged with those that are there.
        """
        merged = with_profiles(self.tables, profiles, but=("looks", "planned_trials"))
        for name, value in changes.items():
            merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
        return only_tasks(load_tables(merged, self.file, self.root), tasks)


@dataclass(frozen=True)
class EnvironmentEntry:
    """A line of the registry: an environment, or why it is none."""

    name: str
    environment: Environment | None = None
    problem: str | None = None


def list_environments(root: Path) -> Iterator[EnvironmentEntry]:
    """Yield what can be named in a project: shipped suites, `swebench-pro` where it was made, and each experiment
    file."""
    names = shipped_suites()
    if is_folder(root / SWEBENCH_PRO):
        names.append(SWEBENCH_PRO)
    names += [
        from_root(file, root) for file in sorted((root / "experiments").glob("*.toml")) if not is_training_plan(file)
    ]
    for name in names:
        try:
            yield EnvironmentEntry(name, open_environment(name, root))
        except InvalidFile as error:
            yield EnvironmentEntry(name, problem=f"{error.what}: tbench validate {name}")
        except TbenchError as error:
            yield EnvironmentEntry(name, problem=error.what)


def open_environment(name: str, root: Path) -> Environment:
    """The environment called `name` in the project at `root`. Raises UserError."""
    file = root / Path(name).expanduser()
    if name in shipped_suites():
        return _of_suite(name, Path(name), root)
    if is_file(file) and file.suffix in (".toml", ".json"):
        return _of_suite(name, file, root)
    problems = Problems()
    dataset = DatasetPlaces(root, {}, None).find(name, name, problems)
    if dataset is None:
        known = [*shipped_suites(), SWEBENCH_PRO]
        hint = (
            did_you_mean(name, known, limit=0)
            or problems.found[0].hint
            or "tbench trainer gym list shows the environments"
        )
        raise UserError(f"is not an environment: {problems.found[0].what}", where=name, hint=hint)
    ids = dataset.known_tasks()
    if ids is None:
        hint = "name the tasks in an experiment file, and that file as the environment"
        raise UserError("its tasks are known only when a run asks the registry", where=name, hint=hint)
    if not ids:
        raise UserError("contains no Harbor tasks", where=str(dataset.folder or name))
    tables = {
        "schema_version": SCHEMA_VERSION,
        "slug": "gym",
        "tasks": {"default_dataset": name, "items": [{"id": task} for task in ids]},
    }
    what = "SWE-Bench Pro" if name == SWEBENCH_PRO else "folder of tasks" if dataset.folder else "dataset"
    return _checked(name, what, file, root, tables)


def _of_suite(name: str, file: Path, root: Path) -> Environment:
    suite = load_suite(file, root=root)
    what = "shipped suite" if name in shipped_suites() else "experiment" if file.suffix == ".toml" else "JSON suite"
    return _checked(name, what, suite.file, suite.root, suite.tables)


def _checked(name: str, what: str, file: Path, root: Path, tables: Mapping[str, Any]) -> Environment:
    bare = Environment(name, what, file, root, (), tables)
    every = load_tables({**{k: v for k, v in tables.items() if k != "analysis"}, "profiles": _NO_PROFILE}, file, root)
    return replace(bare, tasks=tuple(t for t in every.tasks if (t.dataset, t.id) not in every.quarantine))
