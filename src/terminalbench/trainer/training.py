"""A training as it is on disk. Reading it writes nothing: no split, no text, no declaration."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.experiments.project import project_root
from terminalbench.json_files import read_json
from terminalbench.locks import living_owner
from terminalbench.text.paths import typed
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.gym import Gym, outside_line
from terminalbench.trainer.journal import (
    TRAINING,
    HoldoutLook,
    NightEntry,
    PlanDeclaration,
    plan_json,
    read_nights,
    read_sealed,
    training_folder,
    training_lock,
)
from terminalbench.trainer.lineage import Lineage, LineageStore
from terminalbench.trainer.plan import read_plan


@dataclass(frozen=True)
class Training:
    """A training by its name: how many nights are planned, whose champion it improves. `file`: its plan, if known."""

    root: Path
    slug: str
    lineage_name: str
    planned: int
    file: Path | None = None

    @property
    def folder(self) -> Path:
        """Return where it is kept."""
        return training_folder(self.root, self.slug)

    @cached_property
    def declared(self) -> PlanDeclaration | None:
        """Its plan as it was declared; None before its first run."""
        kept = plan_json(self.folder)
        return read_json(kept, PlanDeclaration) if kept.is_file() else None

    @cached_property
    def nights(self) -> list[NightEntry]:
        """The nights that are over."""
        return read_nights(self.folder)

    @cached_property
    def holdout(self) -> list[HoldoutLook]:
        """Return what was measured on the holdout."""
        return read_sealed(self.folder)

    @cached_property
    def outside(self) -> str | None:
        """Return which trials of its held-out tasks no look covers, in a line; None where there are none."""
        if self.declared is None or "environment" not in self.declared.content:
            return None
        content = self.declared.content
        results_root = self.root / content.get("run", {}).get("results_root", "results")
        try:
            environment = open_environment(content["environment"], self.root)
            return outside_line(Gym(self.root).trials_outside(environment, results_root))
        except TbenchError as error:
            return f"trials of held-out tasks outside of recorded looks are unknown: {error.what}"

    @property
    def under_way(self) -> str | None:
        """Return what the night that is not over yet has come to: the part begun last, and who runs it, if told."""
        number = len(self.nights) + 1
        parts = sorted((self.folder / f"nights/{number:03}").glob("*.toml"), key=lambda part: part.stat().st_mtime_ns)
        if not parts:
            return None
        owner = living_owner(training_lock(self.folder))
        return f"night {number} has started; last step: {parts[-1].stem}" + (f"; {owner}" if owner is not None else "")

    @property
    def store(self) -> LineageStore:
        """Return where its profiles are."""
        return LineageStore(self.root)

    @cached_property
    def lineage(self) -> Lineage:
        """Its profiles, as they are now."""
        return self.store.lineage(self.lineage_name)

    @property
    def simulated(self) -> bool | None:
        """Return whether no model is asked; None before it has a champion."""
        champion = self.lineage.champion
        return champion.simulated if champion is not None else None

    @property
    def run_command(self) -> str:
        """Return what begins it, or goes on with it."""
        plan = typed(self.file) if self.file is not None else "PLAN.toml"
        return f"tbench trainer run {plan}{' --resume' if self.declared is not None else ''}"


def open_training(file: Path, root: Path | None = None) -> Training:
    """The training of a plan."""
    table = read_plan(file)
    return Training(project_root(file, root), table.slug, table.lineage or table.slug, table.nights, file)


def trainings(root: Path) -> Iterator[Training]:
    """The trainings of a project that were declared, by their names. One whose plan cannot be read is left out."""
    for kept in sorted((root / TRAINING).glob("*/plan.json")):
        try:
            content = read_json(kept, PlanDeclaration).content
            slug = kept.parent.name
            yield Training(root, slug, content.get("lineage") or slug, int(content["nights"]))
        except (TbenchError, KeyError, TypeError, ValueError):
            continue


def training_stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """Changes when a training of the project, or a lineage, has something new to tell."""
    places = [LineageStore(root).log, *sorted((root / TRAINING).glob("*/*.json*"))]
    for place in places:
        try:
            status = place.stat()
        except OSError:
            continue
        yield place.name, status.st_size, status.st_mtime_ns
