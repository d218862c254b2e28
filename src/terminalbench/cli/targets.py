"""Which batch a command means: an experiment file, a batch folder, or the newest batch of a results folder."""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.cli.places import results_root
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


def find_target(name: Path | None, number: int | None, results: Path | None, root: Path | None) -> Target:
    """The batch that is meant; a clear error when there is none."""
    if name is None:
        return Target(_newest(results_root(results)))
    if name.is_dir():
        if not (name / "plan.json").is_file():
            inside = sorted((p.parent for p in name.glob("*/plan.json")), key=lambda place: place.name)
            hint = f"name one of its batches, as {inside[-1]}" if inside else None
            raise UserError("is not a batch folder: it holds no plan.json", where=str(name), hint=hint)
        return Target(Batch(name.resolve()))
    if name.suffix != ".toml" and not name.exists():
        return Target(_listed(name, results))
    experiment = load(name, root)
    folder, slug = experiment.results_root, experiment.slug
    if number is None:
        batch = latest_started(folder, slug)
        if batch is None:
            raise UserError(f"{slug} has no batch yet", where=str(name), hint=f"tbench run {name}")
        return Target(batch, experiment)
    numbers = batch_numbers(folder, slug)
    if number not in numbers:
        known = ", ".join(map(str, numbers)) or "none"
        raise UserError(f"there is no batch {number} of {slug}", where=str(folder), hint=f"batches: {known}")
    return Target(Batch(folder / slug / str(number)), experiment)


def live_batches(results: Path | None) -> list[Batch]:
    """The batches that run: of one results folder, else of this user; those of this project first, then the newest."""
    from terminalbench.index.scan import find_batches
    from terminalbench.runner.live import announced_batches, live_processes

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
    return plan.provenance.get("root") == str(here)


def _listed(name: Path, results: Path | None) -> Batch:
    """The batch that `tbench list` calls by this name: `slug/n`."""
    if name.is_absolute() or ".." in name.parts:
        raise UserError("no such batch folder or experiment file", where=str(name))
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
