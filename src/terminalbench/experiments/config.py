"""Loading an experiment: a TOML file in, a checked and resolved `Experiment` out, or all its problems at once."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench import registry
from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments import tables
from terminalbench.experiments.datasets import Dataset, DatasetPlaces
from terminalbench.experiments.environments import check_environment
from terminalbench.experiments.experiment import Experiment, Task
from terminalbench.experiments.network import check_network, two_endpoints
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.project import project_root
from terminalbench.experiments.quarantine import quarantine_file, read_quarantine
from terminalbench.experiments.resolve_profiles import Inheritance
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.experiments.task_folder import broken, declared_names, foreign_file, variables
from terminalbench.secrets.patterns import VARIABLE, has_login, is_template, references, secrets_in
from terminalbench.strict import Problems, find_path, is_file, is_folder, join, read, read_toml
from terminalbench.text.names import ORACLE, fits, is_glob, typed

if TYPE_CHECKING:
    from terminalbench.experiments.champions import Champion

RESERVED_SLUGS = ("index.db", ".check")
RESERVED = f"is reserved: {', '.join(RESERVED_SLUGS)} have another meaning in the results folder"
HINTED_TASKS = 20
HARBOR_OPTIONS = {
    "--debug", "-q", "--quiet", "--silent", "--mounts", "--mounts-json", "--extra-docker-compose", "--ek",
    "--environment-kwarg", "--cpus", "--memory", "--override-cpus", "--override-memory-mb", "--override-storage-mb",
    "--override-gpus", "--stream", "--no-stream", "--delete", "--no-delete", "--artifact", "--allow-agent-host",
    "--allow-environment-host", "--n-concurrent-agents", "--retry-include", "--retry-exclude",
    "--agent-timeout-multiplier", "--verifier-timeout-multiplier", "--agent-setup-timeout-multiplier",
    "--environment-build-timeout-multiplier",
}  # fmt: skip
"""Options of `harbor run` that neither the plan nor a profile sets, and that leave reward and treatment alone."""

_PLAN_KEYS = ("environment", "nights", "budget", "split", "evolver", "variants", "gate")


def load(path: Path | str, root: Path | str | None = None, *, thorough: bool = False) -> Experiment:
    """The experiment in a TOML file. Raises `InvalidFile` with every problem found.

    `root` is the folder that relative paths start from; by default the nearest above the file that marks a project.
    `thorough`: what a run would leave out (a broken task folder, an agent that is not found) is a problem too.
    """
    if not isinstance(path, str | Path):
        raise UserError(f"an experiment is named by the path of its file, not by {path!r}")
    file, root = Path(path), Path(root) if root is not None else None
    raw = read_toml(file)
    shape = old_shape(raw)
    if shape is not None:
        what = f"has an older format ({shape}); only schema_version = {SCHEMA_VERSION} is accepted"
        raise UserError(what, where=str(file), hint=f"convert it: tbench migrate {typed(file)}")
    if is_plan(raw):
        raise UserError("is a training plan", where=str(file), hint=f"run it with: tbench trainer run {typed(file)}")
    return _Loader(file, project_root(file, root), raw, thorough).load()


def load_tables(raw: dict[str, Any], file: Path, root: Path) -> Experiment:
    """The experiment in tables that were read already; `file` is where problems are said to be."""
    return _Loader(file, root, raw).load()


def is_training_plan(file: Path) -> bool:
    """Return whether a TOML file is a training plan."""
    try:
        return is_plan(read_toml(file))
    except UserError:
        return False


def is_plan(raw: Mapping[str, Any]) -> bool:
    """Return whether tables are those of a training plan, by keys that no experiment has."""
    return not is_experiment(raw) and not raw.keys().isdisjoint(_PLAN_KEYS)


def is_experiment(raw: Mapping[str, Any]) -> bool:
    """Return whether tables are those of an experiment, by what no training plan has."""
    return "tasks" in raw or ("profiles" in raw and "environment" not in raw)


def old_shape(raw: Mapping[str, Any]) -> str | None:
    """Return which of the two older shapes a file has, if any."""
    tasks = raw.get("tasks")
    if isinstance(raw.get("profiles"), list):
        return "[[profiles]] with key ="
    if isinstance(tasks, Mapping) and "items" not in tasks:
        if "ids" in tasks or "dataset" in tasks:
            return "[tasks] dataset/ids"
        if any(isinstance(value, Mapping) for value in tasks.values()):
            return "[tasks.<id>] tables"
    return None


def _items(table: tables.TasksTable | None) -> list[tables.TaskTable]:
    """The items of `[tasks]`; `"all"` is one that fits every task."""
    items = (table.items if table else None) or []
    return [tables.TaskTable("*")] if isinstance(items, str) else items


@dataclass
class _Loader:
    file: Path
    root: Path
    raw: dict[str, Any]
    thorough: bool = False
    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)
    missing_tasks: int = 0

    def load(self) -> Experiment:
        table: tables.ExperimentTable = read(tables.ExperimentTable, self.raw, "", self.problems)
        if table.slug is not None and table.slug.startswith(RESERVED_SLUGS):
            self.problems.add("slug", RESERVED)
        run = table.run
        self._check_run(run)
        datasets, tasks = self._tasks(table)
        profiles = self._profiles(table, self._private(run, datasets, tasks))
        quarantine = read_quarantine(self.file)
        self._check_task_folders([task for task in tasks if (task.dataset, task.id) not in quarantine], profiles)
        self._check_analysis(table.analysis, [profile.key for profile in profiles if profile.oracle])
        self._check_top_up(table.top_up, run)
        self._check_notify(table.notify)
        if self.problems.found:
            from terminalbench.experiments.toml_lines import invalid_file

            # Each once: a broken default would otherwise be reported for every profile that inherits it.
            raise invalid_file(self.file, list(dict.fromkeys(self.problems.found)))
        for dataset, task in quarantine.keys() - {(task.dataset, task.id) for task in tasks}:
            name = quarantine_file(self.file).name
            self.notes.append(f'{name} names "{task}" of {dataset}, which is not a task of this experiment')
        return Experiment(
            file=self.file,
            root=self.root,
            slug=table.slug,
            name=table.name or table.slug,
            run=run,
            tasks=tuple(tasks),
            profiles=tuple(profiles),
            artifacts=table.artifacts,
            analysis=table.analysis,
            top_up=table.top_up,
            notify=table.notify,
            labels=table.labels,
            dataset_tables=table.datasets,
            datasets=datasets,
            quarantine=quarantine,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _check_run(self, run: tables.RunTable) -> None:
        check_environment(run, self.problems)
        check_network(run, self.problems)
        known = sorted(registry.BUILTIN["executors"])
        if run.executor not in known:
            hint = f"known: {', '.join(known)}"
            self.problems.add("run.executor", f'no executor is called "{run.executor}"', hint)
        for index, argument in enumerate(run.harbor_args):
            option = argument.split("=", 1)[0]
            number = re.fullmatch(r"-\d+(\.\d+)?", option)
            if option.startswith("-") and option not in HARBOR_OPTIONS and not number:
                hint = did_you_mean(option, sorted(HARBOR_OPTIONS), limit=40)
                what = f"{option} cannot be set here: the plan or a profile decides it"
                self.problems.add(f"run.harbor_args[{index}]", what, hint)
        if any("--mounts" in argument for argument in run.harbor_args):
            from terminalbench.experiments.mounts import check_mounts  # only experiments with mounts pay for it

            check_mounts(run.harbor_args, self.problems)
        for secret in secrets_in(run.harbor_args, "run.harbor_args"):
            self.problems.add(secret, "looks like a secret", "put it in the env file")
        root = find_path(run.results_root, self.root, "run.results_root", self.problems)
        there = (path for path in (root, *root.parents) if os.path.exists(path)) if root else ()  # noqa: PTH110  False where it is denied
        nearest = next(iter(there), None)
        if nearest is not None and not is_folder(nearest):
            self.problems.add("run.results_root", f"{nearest} is not a folder", "name another folder")

    def _registry(self, run: tables.RunTable) -> Path | None:
        at = "run.registry_path"
        file = find_path(run.registry_path, self.root, at, self.problems) if run.registry_path else None
        if file is None or is_file(file):
            return file
        self.problems.add(at, f"no registry file at {file}")
        return None

    def _tasks(self, table: tables.ExperimentTable) -> tuple[dict[str, Dataset], list[Task]]:
        for name, declared in table.datasets.items():
            for source in ("repo", "registry_url"):
                if (value := getattr(declared, source)) and has_login(value):
                    self.problems.add(f"{join('datasets', name)}.{source}", "carries a login", "remove it")
        places = DatasetPlaces(self.root, table.datasets, self._registry(table.run))
        found: dict[str, Dataset | None] = {}
        seen: dict[tuple[str, str], int] = {}
        tasks: dict[tuple[str, str], Task] = {}
        for index, item in enumerate(_items(table.tasks)):
            if not item.id:
                continue
            at = f"tasks.items[{index}]"
            name = item.dataset or table.tasks.default_dataset
            first = seen.setdefault((name, item.id), index)
            if first != index:
                self.problems.add(at, f'task "{item.id}" of {name} is already tasks.items[{first}]', "remove one")
                continue
            if name not in found:
                where = f"{at}.dataset" if item.dataset else "tasks.default_dataset"
                found[name] = places.find(name, where, self.problems)
            dataset = found[name]
            if dataset is None:
                continue
            for task_id in self._ids(dataset, item.id, f"{at}.id"):
                # A task that is named decides over a glob that it is in as well, wherever the two stand.
                if (name, task_id) not in tasks or not is_glob(item.id):
                    source = dataset.task(task_id)
                    family = item.family or source.own_family()
                    tasks[name, task_id] = Task(task_id, name, family, source, item.timeout_sec)
        return {name: dataset for name, dataset in found.items() if dataset is not None}, list(tasks.values())

    def _ids(self, dataset: Dataset, wanted: str, at: str) -> list[str]:
        """The ids of the tasks that an item stands for: one, or those that its glob fits."""
        if not is_glob(wanted):
            return [wanted] if self._task_exists(dataset, wanted, at) else []
        known = dataset.known_tasks()
        if known is None:
            what = f'the tasks of {dataset.name} are known only when a run starts, so "{wanted}" cannot be resolved'
            self.problems.add(at, what, "list the ids of the tasks")
            return []
        ids = [task_id for task_id in known if fits(task_id, wanted)]
        if not ids:
            self.problems.add(at, f'"{wanted}" fits no task of {dataset.name}', did_you_mean(wanted, known))
        return ids

    def _check_task_folders(self, tasks: list[Task], profiles: list[Profile]) -> None:
        """Refuse files that lead out of a task's folder; tell of undeclared variables, as the env file may come yet."""
        named = [declared_names(references([p.env, p.mcp.servers]), p.env_file) for p in profiles]
        known = [names for names in named if names is not None]
        declared = set.intersection(*known) if known and len(known) == len(named) else None
        for task in tasks:
            if task.source.folder is None:
                continue
            at = f'task "{task.id}" of {task.dataset}'
            if self.thorough and (wrong := broken(task.source.folder)) is not None:
                self.problems.add(at, wrong, f"fix {typed(task.source.folder)}, or leave out the task")
            if (found := foreign_file(task.source.folder)) is not None:
                self.problems.add(at, found, "copy it into the folder, or leave out the task")
                continue
            for variable in () if declared is None else variables(task.source.folder):
                if not variable.has_default and variable.name not in (declared or ()):
                    self.notes.append(
                        f"{at} uses ${{{variable.name}}} ({variable.at}), which not every profile declares: the task"
                        f" will be left out (add {variable.name} to env of [defaults] or to the env file)"
                    )

    def _task_exists(self, dataset: Dataset, task_id: str, at: str) -> bool:
        if "/" in task_id and dataset.kind == "folder":
            self.problems.add(at, "must be the name of a folder, not a path")
            return False
        if dataset.kind == "git" and not {"", ".", ".."}.isdisjoint(task_id.split("/")):
            self.problems.add(at, "must be the path of a folder in the repository, without . and ..")
            return False
        if dataset.may_have(task_id):
            return True
        hint = None
        if self.missing_tasks < HINTED_TASKS:  # a likeness costs a look at every task there is
            hint = did_you_mean(task_id, dataset.known_tasks() or [])
        self.missing_tasks += 1
        self.problems.add(at, f'{dataset.name} has no task "{task_id}"', hint)
        return False

    def _private(self, run: tables.RunTable, datasets: dict[str, Dataset], tasks: list[Task]) -> dict[Path, str]:
        """The folders that hold answers: the results, and the tasks with their solutions."""
        found = [(datasets[task.dataset].folder or task.source.folder, task.dataset) for task in tasks]
        folders = {folder: f'the tasks of "{dataset}"' for folder, dataset in found if folder is not None}
        if self.problems.at("run.results_root"):
            return folders
        return {self.root / Path(run.results_root).expanduser(): "the results", **folders}

    def _profiles(self, table: tables.ExperimentTable, private: dict[Path, str]) -> list[Profile]:
        raw = self.raw.get("profiles")
        if not isinstance(raw, Mapping):
            return []
        if not raw:
            self.problems.add("profiles", "must hold at least one profile", "add a [profiles.<key>] table")
        valid = {key: profile for key, profile in table.profiles.items() if isinstance(raw[key], Mapping)}
        own = {key: tables.given_keys(profile) for key, profile in valid.items()}
        champions = self._champions(own)
        shared = Inheritance(
            own=own,
            defaults=tables.given_keys(table.defaults),
            aliases=table.mcp.aliases,
            root=self.root,
            problems=self.problems,
            notes=self.notes,
            private=private,
            environment=registry.import_path("environments", table.run.container_env),
            complete=champions.keys(),
            thorough=self.thorough,
            arguments=table.run.harbor_args,
        )
        profiles = [profile for key in own if (profile := shared.resolve(key)) is not None]
        for profile in profiles:
            if (both := two_endpoints(profile)) is not None:
                at, what = join("profiles", profile.key), f"and options.{both[1]} both name the address of its model"
                self.problems.add(f"{at}.env.{both[0]}", what, "keep one of the two")
            if (champion := champions.get(profile.key)) is not None:
                champion.check(profile, f"{join('profiles', profile.key)}.champion", self.problems)
        self._note_twins(profiles)
        return profiles

    def _champions(self, own: dict[str, dict[str, Any]]) -> dict[str, "Champion"]:
        """The champions that profiles name, by their key; the profile gets the champion's keys."""
        named = [key for key, values in own.items() if "champion" in values]
        if not named:
            return {}
        from terminalbench.experiments.champions import taken_over

        found = {}
        for key in named:
            if (taken := taken_over(own[key], self.root, join("profiles", key), self.problems)) is None:
                del own[key]  # there is no more to say about it
                continue
            found[key], own[key] = taken
        return found

    def _note_twins(self, profiles: list[Profile]) -> None:
        if self.problems.found:
            return
        first: dict[str, str] = {}
        for profile in profiles:
            twin = first.setdefault(profile.id, profile.key)
            if twin != profile.key:
                self.notes.append(f"profiles.{profile.key} and profiles.{twin} have the same content ({profile.id})")

    def _check_analysis(self, analysis: tables.AnalysisTable, oracles: Sequence[str]) -> None:
        raw = self.raw.get("profiles")
        keys = list(raw) if isinstance(raw, Mapping) else []
        if analysis.baseline is not None and analysis.baseline not in keys:
            hint = did_you_mean(analysis.baseline, keys)
            self.problems.add("analysis.baseline", f'no profile is called "{analysis.baseline}"', hint)
        elif analysis.baseline in oracles:
            self.problems.add("analysis.baseline", f'profile "{analysis.baseline}" {ORACLE}', "name another")
        for index, pair in enumerate(analysis.contrasts or []):
            at = f"analysis.contrasts[{index}]"
            if len(pair) != 2 or pair[0] == pair[1]:
                self.problems.add(at, "must be two different profile keys")
            for name in pair:
                if name not in keys:
                    self.problems.add(at, f'no profile is called "{name}"', did_you_mean(name, keys))
                elif name in oracles:
                    self.problems.add(at, f'profile "{name}" {ORACLE}', "remove the pair")
        for index, name in enumerate(analysis.analyzers):
            if registry.import_path("analyzers", name) is None:
                known = registry.names("analyzers")
                hint = did_you_mean(name, known) or "write pkg.mod:Object"
                self.problems.add(f"analysis.analyzers[{index}]", f'no analyzer is called "{name}"', hint)

    def _check_top_up(self, top_up: tables.TopUpTable | None, run: tables.RunTable) -> None:
        if top_up is None or self.problems.at("top_up.max_attempts") or self.problems.at("run.attempts"):
            return
        if top_up.max_attempts < run.attempts:
            self.problems.add("top_up.max_attempts", f"is less than run.attempts ({run.attempts})")

    def _check_notify(self, notify: tables.NotifyTable | None) -> None:
        if notify is None or self.problems.at("notify.urls"):
            return
        for index, url in enumerate(notify.urls):
            if not VARIABLE.fullmatch(url.strip().removeprefix("${").removesuffix("}")) or not is_template(url):
                hint = 'write "${NOTIFY_URL}" and set the variable'
                self.problems.add(
                    f"notify.urls[{index}]", "must be a reference to a variable, with no other text", hint
                )
        from importlib.util import find_spec

        if find_spec("apprise") is None:
            self.problems.add("notify", "needs Apprise, which is not installed", "pip install 'terminalbench[notify]'")
