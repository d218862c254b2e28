"""The sources of tasks: a dataset name of the TOML becomes a place where Harbor finds each task.

Folders, registry files, pinned git repositories, the bundled `starter` and `swebench-pro` are resolved here, without
network. A dataset of Harbor's own registry (or of a registry address) is looked up when a run starts.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from terminalbench.errors import did_you_mean
from terminalbench.experiments.tables import DatasetTable
from terminalbench.frozen import frozen
from terminalbench.starter import TASKS_DIR
from terminalbench.strict import Problems, find_path, is_file, is_folder, join
from terminalbench.text.names import typed

SWEBENCH_PRO = "swebench-pro"
_NAME_VERSION = re.compile(r"(?P<name>[^@/\s]+)@(?P<version>[^@/\s]+)")
_PACKAGE = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)@(?P<version>[\w.:-]+)")


@frozen
class TaskSource:
    """The place of one task: exactly what Harbor's `tasks[]` or `datasets[]` entry takes.

    `found` is False for a dataset that has to be looked up when the run starts.
    """

    config: dict[str, Any]
    found: bool
    folder: Path | None = None

    def own_family(self) -> str | None:
        """`[metadata] family` of its task.toml; None for a task on no disk of ours, and where it names none.

        A file that cannot be read is no matter here: the check before a run says so.
        """
        file = f"{self.folder}/task.toml"  # no Path: there may be thousands
        if self.folder is None or not is_file(file):
            return None
        try:
            with open(file, "rb") as stream:  # noqa: PTH123
                text = stream.read().decode()
            metadata = tomllib.loads(text).get("metadata") if "family" in text else None
        except (OSError, ValueError, RecursionError):
            return None
        family = metadata.get("family") if isinstance(metadata, dict) else None
        return family if isinstance(family, str) and family else None


@frozen
class Dataset:
    """A dataset of the TOML: how to find its tasks, and the label its trials carry in Harbor."""

    name: str
    kind: str
    config: dict[str, Any]
    folder: Path | None = None
    tasks: dict[str, dict[str, Any]] | None = None

    def task(self, task_id: str) -> TaskSource:
        """Return where the task called `task_id` is."""
        if self.kind == "folder" and self.folder is not None:
            path = self.folder / task_id
            return TaskSource({"path": str(path)}, True, path)
        if self.kind == "registry-file" and self.tasks is not None:
            entry = self.tasks[task_id]
            local = Path(entry["path"]) if "git_url" not in entry else None
            return TaskSource(entry, True, local)
        if self.kind == "git":
            folder = self.config.get("path")
            path = f"{folder}/{task_id}" if folder else task_id
            config = {"git_url": self.config["repo"], "git_commit_id": self.config["ref"], "path": path}
            return TaskSource(config, True)
        return TaskSource({**self.config, "task_names": [task_id]}, False)

    def may_have(self, task_id: str) -> bool:
        """Return whether it has a task of this name, as far as is known without network. Does not list them all."""
        if self.tasks is not None:
            return task_id in self.tasks
        if self.kind == "folder" and self.folder is not None:
            return task_id not in (".", "..") and is_file(f"{self.folder}/{task_id}/task.toml")
        return True

    def known_tasks(self) -> list[str] | None:
        """The ids of its tasks, or None when they are not known without network."""
        if self.tasks is not None:
            return list(self.tasks)
        if self.kind == "folder" and self.folder is not None:
            return sorted(p.parent.name for p in self.folder.glob("*/task.toml"))
        return None


@frozen
class DatasetPlaces:
    """The means to find datasets: the project root and the TOML's own tables."""

    root: Path
    tables: dict[str, DatasetTable]
    registry_path: Path | None

    def find(self, name: str, at: str, problems: Problems) -> Dataset | None:
        """The dataset called `name`; a problem is noted at `at` when there is none."""
        if name in self.tables:
            return self._declared(name, self.tables[name], problems)
        if name == "starter":
            return Dataset(name, "folder", {}, folder=TASKS_DIR)
        if name == SWEBENCH_PRO:
            return self._swebench_pro(at, problems)
        return self._literal(name, at, problems)

    def _swebench_pro(self, at: str, problems: Problems) -> Dataset | None:
        """The folder of that name in the project, which `tbench swebench-pro tasks` makes."""
        folder = self.root / SWEBENCH_PRO
        if is_folder(folder):
            return Dataset(SWEBENCH_PRO, "folder", {}, folder=folder)
        make = f"tbench swebench-pro tasks FILE|hf:REVISION -o {typed(folder)} --evaluator CHECKOUT"
        problems.add(at, f"no folder of SWE-Bench Pro tasks at {folder}", f"make it: {make}")
        return None

    def _literal(self, name: str, at: str, problems: Problems) -> Dataset | None:
        match = _NAME_VERSION.fullmatch(name)
        try:
            path = self.root / Path(name).expanduser()
            is_folder = path.is_dir()
        except (OSError, ValueError, RuntimeError):
            problems.add(at, "is neither a dataset nor an existing path")
            return None
        if is_folder and match is None:
            return Dataset(name, "folder", {}, folder=path)
        if name.endswith(".json"):
            return self._registry_file(name, path, None, at, problems)
        if match is not None:
            if self.registry_path is not None:
                return self._registry_file(name, self.registry_path, name, "run.registry_path", problems)
            return Dataset(name, "registry", {"name": match["name"], "version": match["version"]})
        package = _PACKAGE.fullmatch(name)
        if package is not None and not name.startswith((".", "~", "/")):
            return Dataset(name, "package", {"name": package["name"], "ref": package["version"]})
        if "/" in name or name.startswith((".", "~")):
            problems.add(at, f"no folder of tasks at {path}")
        else:
            pin = f'pin a version, as in "{name}@1.0", or add [datasets."{name}"]'
            hint = did_you_mean(name, ["starter", SWEBENCH_PRO], limit=0) or pin
            problems.add(at, f'"{name}" is not a dataset', hint)
        return None

    def _declared(self, name: str, table: DatasetTable, problems: Problems) -> Dataset | None:
        at = join("datasets", name)
        sources = [k for k in ("registry_path", "registry_url", "repo") if getattr(table, k) is not None]
        if table.path is not None and table.repo is None:
            sources.append("path")
        if len(sources) != 1:
            said = f"gives {' and '.join(sources)}" if sources else "names no source"
            problems.add(at, f"{said}; give exactly one of path, registry_path, registry_url, or repo with ref")
            return None
        if table.ref is not None and table.repo is None:
            problems.add(f"{at}.ref", "can be set only together with repo")
            return None
        if table.repo is not None:
            if table.ref is None:
                problems.add(
                    f"{at}.ref", "is required with repo", "give a commit or a tag, so that the tasks cannot change"
                )
                return None
            return Dataset(name, "git", {"repo": table.repo, "ref": table.ref, "path": (table.path or "").strip("/")})
        if table.registry_path is not None:
            file = find_path(table.registry_path, self.root, f"{at}.registry_path", problems)
            return self._registry_file(name, file, name, f"{at}.registry_path", problems) if file else None
        if table.registry_url is not None:
            bare, _, version = name.partition("@")
            config = {"name": bare, "registry_url": table.registry_url} | ({"version": version} if version else {})
            return Dataset(name, "registry", config)
        folder = find_path(table.path or "", self.root, f"{at}.path", problems)
        if folder is None:
            return None
        if not is_folder(folder):
            problems.add(f"{at}.path", f"no folder at {folder}")
            return None
        return Dataset(name, "folder", {}, folder=folder)

    def _registry_file(self, name: str, file: Path, wanted: str | None, at: str, problems: Problems) -> Dataset | None:
        try:
            entries = _read_registry(file)
        except FileNotFoundError:
            problems.add(at, f"no registry file at {file}")
            return None
        except (OSError, ValueError) as error:
            problems.add(at, f"{file} is not a registry file: {error}")
            return None
        names = [f"{e['name']}@{e['version']}" if e.get("version") else e["name"] for e in entries]
        if wanted is None and len(entries) == 1:
            wanted = names[0]
        if wanted is None:
            problems.add(at, f"{file} lists {len(entries)} datasets", f"name one of them: {', '.join(names)}")
            return None
        if wanted not in names:
            problems.add(at, f'{file} has no dataset "{wanted}"', did_you_mean(wanted, names))
            return None
        tasks: dict[str, dict[str, Any]] = {}
        for entry in entries[names.index(wanted)]["tasks"]:
            if entry.get("git_url"):
                task = {k: entry[k] for k in ("git_url", "git_commit_id", "path") if entry.get(k)}
            else:
                task = {"path": str((file.parent / entry["path"]).resolve())}
            if tasks.setdefault(entry["name"], task) != task:
                problems.add(at, f'{file} lists two tasks "{entry["name"]}" in {wanted}', "give each a different name")
                return None
        return Dataset(name, "registry-file", {}, tasks=tasks)


@cache
def _read_registry(file: Path) -> list[dict[str, Any]]:
    data = json.loads(file.read_bytes())
    if not isinstance(data, list):
        raise ValueError("it must be a JSON list of datasets")
    for entry in data:
        tasks = entry.get("tasks") if isinstance(entry, dict) else None
        if not isinstance(tasks, list) or not isinstance(entry.get("name"), str):
            raise ValueError('each dataset needs a "name" and a list "tasks"')
        if not all(
            isinstance(t, dict) and isinstance(t.get("name"), str) and isinstance(t.get("path"), str) for t in tasks
        ):
            raise ValueError(f'each task of "{entry["name"]}" needs a "name" and a "path"')
    return data


def dataset_labels(datasets: Mapping[str, Dataset], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """A short unique label for each dataset; `known` ones stay. Harbor joins labels with "__": none may hold it."""
    labels: dict[str, str] = dict(known or {})
    for name, dataset in datasets.items():
        if name in labels:
            continue
        base = Path(name).name if "/" in name or name.endswith(".json") else name
        if dataset.folder is not None and not base.strip("."):
            base = dataset.folder.resolve().name
        for mark in ("__", "::"):  # the second is ours, see `harbor.result_file.task_source`
            while mark in base:
                base = base.replace(mark, mark[0])
        base = base.rstrip(":") or "tasks"
        label, number = base, 2
        while label in labels.values():
            label, number = f"{base}-{number}", number + 1
        labels[name] = label
    return labels
