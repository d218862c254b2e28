"""Which batch a command means: an experiment file, a batch folder, or the newest batch of a results folder."""

from dataclasses import dataclass
from pathlib import Path

import click

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch, batch_numbers, latest_started
from terminalbench.experiments.config import Experiment, load, project_root
from terminalbench.experiments.plan import Plan
from terminalbench.files import read_json


@dataclass(frozen=True)
class Target:
    """A batch, and the experiment it was named by, if it was."""

    batch: Batch
    experiment: Experiment | None = None


def find_target(
    name: Path | None, number: int | None, results: Path | None, root: Path | None, *, own: bool = False
) -> Target:
    """The batch that is meant; a clear error when there is none.

    That of an experiment file may have been started from another one with the same slug, which is said; with `own` it
    is an error.
    """
    of_file = name is not None and not name.is_dir() and (name.suffix == ".toml" or name.exists())
    if number is not None and not of_file:
        raise UserError("--batch goes with an experiment file", hint="name the batch folder, or slug/n, instead")
    if name is None:
        return Target(_newest(results_root(results)))
    if name.is_dir():
        if not (name / "plan.json").is_file():
            inside = sorted((p.parent for p in name.glob("*/plan.json")), key=lambda place: place.name)
            hint = f"name one of its batches, as {inside[-1]}" if inside else None
            raise UserError("is not a batch folder: it holds no plan.json", where=str(name), hint=hint)
        return Target(Batch(name.resolve()))
    if not of_file:
        return Target(_listed(name, results))
    experiment = load(name, root)
    folder, slug = experiment.results_root, experiment.slug
    if number is None:
        batch = latest_started(folder, slug)
        if batch is None:
            raise UserError(f"{slug} has no batch yet", where=str(name), hint=f"tbench run {name}")
        return Target(of_its_file(batch, experiment, own=own), experiment)
    numbers = batch_numbers(folder, slug)
    if number not in numbers:
        known = ", ".join(map(str, numbers)) or "none"
        raise UserError(f"there is no batch {number} of {slug}", where=str(folder), hint=f"batches: {known}")
    batch = Batch(folder / slug / str(number))
    if not batch.plan_json.is_file():
        raise UserError(f"batch {number} was never set up", where=str(batch.folder), hint=f"tbench run {name}")
    return Target(of_its_file(batch, experiment, own=own), experiment)


def of_its_file(batch: Batch, experiment: Experiment, *, own: bool = False) -> Batch:
    """The batch; it is said, or with `own` refused, when another file with the same slug has started it."""
    other = _other_file(batch, experiment, own=own)
    if other is not None and own:
        hint = f"if you mean it, name the batch: {from_here(batch.folder)}"
        raise UserError(other, where=str(experiment.file), hint=hint)
    if other is not None:
        click.echo(f"note: {other}", err=True)
    return batch


def _other_file(batch: Batch, experiment: Experiment, *, own: bool) -> str | None:
    """A sentence when a batch was started from another file than this experiment's, which has the same slug.

    With `own`, also from a file of the same name in another project; a project that only moved is the same otherwise.
    """
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return None  # whoever opens it says what is wrong
    file, root = plan.provenance.experiment_file, plan.provenance.root
    if own and root is not None and Path(root).resolve() != experiment.root.resolve():
        return f"batch {batch.number} of {experiment.slug} was started in {root}, not in {experiment.root}"
    if file is None or file == experiment.file.name:
        return None
    return f"batch {batch.number} of {experiment.slug} was started from {file}, not from {experiment.file.name}"


def live_batches(results: Path | None) -> list[Batch]:
    """The batches that run: of one results folder, else of this user; those of this project first, then the newest."""
    from terminalbench.index.scan import find_batches
    from terminalbench.live.processes import announced_batches, live_processes

    there = find_batches(results.resolve()) if results is not None else announced_batches()
    since = {batch: min(p.since for p in found) for batch in there if (found := live_processes(batch))}
    return sorted(since, key=lambda batch: (of_this_project(batch), since[batch]), reverse=True)


def of_this_project(batch: Batch) -> bool:
    """Whether a batch lies in the project around the current folder, or was started from there."""
    here = project_root(Path.cwd() / "any.toml", None).resolve()
    if batch.folder.is_relative_to(here):
        return True
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return False
    return plan.provenance.root == str(here)


def _listed(name: Path, results: Path | None) -> Batch:
    """The batch that `tbench list` calls by this name: `slug/n`."""
    if name.is_absolute() or ".." in name.parts:
        raise UserError(
            "no such batch folder or experiment file", where=str(name), hint="tbench list shows the batches"
        )
    folder = results_root(results) / name
    if not (folder / "plan.json").is_file():
        raise UserError("no such batch or experiment file", where=str(name), hint="tbench list shows the batches")
    return Batch(folder)


def _newest(folder: Path) -> Batch:
    """The batch that was started last, as `tbench list` has it; going on with an older one does not change that."""
    found = [plan.parent for plan in folder.glob("*/*/plan.json") if plan.parent.name.isdecimal()]
    if not found:
        raise UserError("holds no batch", where=str(folder), hint="tbench run starts one")
    return Batch(max(found, key=lambda place: (_first_job(place), int(place.name))))


def _first_job(batch: Path) -> str:
    """The name of its first job, which begins with the time it was planned."""
    return min((path.name for path in (batch / "runs").glob("*.job.json")), default="")


def results_root(results: Path | None) -> Path:
    """The results folder that was named, or that of the project around the current folder."""
    from terminalbench.experiments.config import project_root
    from terminalbench.index.scan import root_around

    root = results or project_root(Path.cwd() / "any.toml", None) / "results"
    if not root.is_dir():
        beside = Path("experiments") / "results"  # where those of a folder land that is no project
        hint = f"--results {beside}" if beside.is_dir() else "tbench run makes some; or name the results folder"
        raise UserError("there are no results here", where=str(root), hint=hint)
    return root_around(root.resolve())


def from_here(place: str | Path) -> str:
    """A path as a person in the current folder would type it."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
