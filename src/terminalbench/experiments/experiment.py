"""An experiment as it is run: tasks x profiles x settings, all checked and resolved."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path

from terminalbench.experiments import tables
from terminalbench.experiments.datasets import Dataset, TaskSource
from terminalbench.experiments.profiles import Profile
from terminalbench.frozen import frozen
from terminalbench.text.names import fits, fits_one, is_task, unknown

FORCE_REBUILD = "TERMINALBENCH_FORCE_REBUILD"


@frozen
class Task:
    """One task of the experiment, in the order of the file."""

    id: str
    dataset: str
    family: str | None
    source: TaskSource
    timeout_sec: float | None = None

    @property
    def name(self) -> str:
        """The task as a person names it among those of several datasets."""
        return f"{self.dataset}/{self.id}"


@frozen
class Experiment:
    """A parsed, checked TOML: tasks x profiles x settings, every file it names read and found."""

    file: Path
    root: Path
    slug: str
    name: str
    run: tables.RunTable
    tasks: tuple[Task, ...]
    profiles: tuple[Profile, ...]
    artifacts: tables.ArtifactsTable
    analysis: tables.AnalysisTable
    datasets: dict[str, Dataset]
    top_up: tables.TopUpTable | None = None
    notify: tables.NotifyTable | None = None
    labels: dict[str, str] = field(default_factory=dict)
    dataset_tables: dict[str, tables.DatasetTable] = field(default_factory=dict)
    quarantine: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory: Path | None = None
    """The project whose memory profiles with lessons read, where it is not `root`: a night runs from a copy of it."""

    @property
    def baseline(self) -> Profile:
        """The profile the others are compared with."""
        wanted = self.analysis.baseline
        usual = next((p for p in self.profiles if not p.oracle), self.profiles[0])
        return next((p for p in self.profiles if p.key == wanted), usual)

    @cached_property
    def by_key(self) -> dict[str, Profile]:
        """The profiles by their keys."""
        return {profile.key: profile for profile in self.profiles}

    @cached_property
    def twins(self) -> dict[str, int]:
        """Return how many profiles before each are the same treatment."""
        met: Counter[str] = Counter()
        found = {}
        for profile in self.profiles:
            found[profile.key] = met[profile.id]
            met[profile.id] += 1
        return found

    @property
    def results_root(self) -> Path:
        """Return where batches of every experiment land."""
        return self.root / Path(self.run.results_root).expanduser()

    @property
    def force_rebuild(self) -> bool:
        """Return whether task images are built anew."""
        return is_rebuilt(self.run, os.environ)


def select_tasks(experiment: Experiment, wanted: Sequence[str]) -> list[Task]:
    """The tasks that `wanted` names (`id`, `dataset/id` or a glob of either), in the order of the file."""
    for name in wanted:
        if not any(is_task(task.dataset, task.id, name) for task in experiment.tasks):
            raise unknown("task", name, (task.id for task in experiment.tasks), str(experiment.file))
    return [t for t in experiment.tasks if not wanted or any(is_task(t.dataset, t.id, name) for name in wanted)]


def select_profiles(experiment: Experiment, wanted: Sequence[str]) -> list[Profile]:
    """The profiles that `wanted` names (keys or globs of them), in the order of the file."""
    known = [profile.key for profile in experiment.profiles]
    for name in wanted:
        if not any(fits(key, name) for key in known):
            raise unknown("profile", name, known, str(experiment.file))
    return [profile for profile in experiment.profiles if not wanted or fits_one(profile.key, wanted)]


def is_rebuilt(run: tables.RunTable, env: Mapping[str, str]) -> bool:
    """Return whether images of tasks are built anew, as the file or a variable says."""
    return run.force_rebuild or env.get(FORCE_REBUILD, "").lower() in ("1", "true", "yes", "on")
