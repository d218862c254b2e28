"""The selection that a command works on: a results folder, one batch, several of them, or the batch that runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch, batch_numbers, latest
from terminalbench.experiments.config import load
from terminalbench.experiments.envfile import env_stamps
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.project import current_project, project_root
from terminalbench.experiments.tables import DEFAULT_ENV_FILE, AnalysisTable
from terminalbench.formats.row import ReadOptions
from terminalbench.formats.source import ENDINGS
from terminalbench.index.imported import ForeignFile
from terminalbench.index.places import ForeignJobs, find_batches, find_jobs, plan_or_none, root_around
from terminalbench.index.queries import BatchView
from terminalbench.live.processes import announced_batches, live_processes
from terminalbench.live.status import views_now
from terminalbench.strict import is_file, is_folder, is_there
from terminalbench.text.names import from_here, typed

LIST_HINT = "tbench list shows the batches"
_PLANS = ("*/plan.json", "*/*/plan.json")


@dataclass(frozen=True)
class Target:
    """A batch, the experiment it was named by, and a note where another file with the same slug has started it."""

    batch: Batch
    experiment: Experiment | None = None
    note: str | None = None


type Named = Target | Batch | Experiment | Path | str
"""How a program names a batch: as it is, by its folder or `slug/n`, or by an experiment, which means its latest."""


@dataclass(frozen=True)
class SelectedBatches:
    """Batches in the order they were named, each once, and the experiment they were named by, if they were."""

    targets: tuple[Target, ...]
    root: Path | None = None

    @property
    def import_root(self) -> Path:
        """The folder of the project's own modules: the root of the experiment, else of the project around the batch."""
        if self.experiment is not None:
            return self.experiment.root
        return project_root(self.batches[0].folder / "any.toml", self.root)

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches alone."""
        return tuple(_each_once(target.batch for target in self.targets))

    @property
    def experiment(self) -> Experiment | None:
        """The first experiment that was named."""
        return next((target.experiment for target in self.targets if target.experiment is not None), None)

    @property
    def analysis(self) -> AnalysisTable | None:
        """The `[analysis]` table of the experiment file as it is now."""
        return self.experiment.analysis if self.experiment is not None else None

    @property
    def judge_model(self) -> str | None:
        """The judge of the experiment file as it is now, else of the plan."""
        if self.analysis is not None:
            return self.analysis.judge_model
        plan = plan_or_none(self.batches[0])
        return plan.analysis.judge_model if plan is not None else None

    @property
    def env_files(self) -> tuple[Path, ...]:
        """The env files of the experiment as it is now, and of the plans; else that of the project."""
        now = self.experiment.profiles if self.experiment is not None else ()
        planned = (file for batch in self.batches for file, _, _ in env_stamps(plan_or_none(batch)))
        found = (*(one.env_file for one in now if one.env_file is not None), *planned)
        return found or (self.import_root / DEFAULT_ENV_FILE,)

    def views(self) -> list[BatchView]:
        """The batches, brought into the index and opened, with what runs. Two of one name are told apart by folder."""
        return views_now(self.batches)


def _each_once(batches: Iterable[Batch]) -> list[Batch]:
    """Batches in the order they were named; jobs of one folder are one, so that they are told apart together."""
    found: dict[Path, Batch] = {}
    for batch in batches:
        before = found.setdefault(batch.folder, batch)
        if isinstance(before, ForeignJobs) and isinstance(batch, ForeignJobs) and before.only:
            together = tuple(dict.fromkeys([*before.only, *batch.only])) if batch.only else ()
            found[batch.folder] = ForeignJobs(batch.folder, together)
    return list(found.values())


def results_root(results: Path | None) -> Path:
    """The results folder that was named, or that of the project around the current folder."""
    root = results or current_project() / "results"
    if not is_folder(root):
        beside = Path("experiments") / "results"  # where those of a folder land that is no project
        hint = (
            f"--results {typed(beside)}"
            if is_folder(beside)
            else "start a run with tbench run, or name another results folder"
        )
        raise UserError("there are no results here", where=str(root), hint=hint)
    return root_around(root.resolve())


def open_experiment(experiment: Experiment | Path | str, root: Path | str | None = None) -> Experiment:
    """An experiment as it is, or loaded from its file."""
    return experiment if isinstance(experiment, Experiment) else load(experiment, root)


def select(
    *named: Named | None,
    results: Path | None = None,
    root: Path | None = None,
    with_data: bool = False,
    reading: ReadOptions | None = None,
) -> SelectedBatches:
    """The batches that are named; without a name, the newest of the results folder.

    With `reading`, a file or a folder of another tool's results is read as these options say, and kept nowhere.
    """
    found = [
        (_of_other_tool(name, reading) if reading is not None else None)
        or find_target(name, None, results, root, with_data=with_data, foreign=True)
        for name in named or (None,)
    ]
    return SelectedBatches(tuple({target.batch: target for target in reversed(found)}.values())[::-1], root)


def _of_other_tool(name: Named | None, reading: ReadOptions) -> Target | None:
    """The results of another tool that a path names; None where it names a batch, an experiment or Harbor jobs."""
    from terminalbench.lab.imports import read_foreign

    if not isinstance(name, str | Path):
        return None
    if not is_there(Path(name)):
        if Path(name).suffix.lower() in ENDINGS:
            raise UserError("there is no such file", where=str(name))
        return None
    path = Path(name).resolve()
    if path.suffix == ".toml" or (is_folder(path) and _is_ours(path)):
        return None
    return Target(ForeignFile(path, read_foreign(path, reading, shown=str(name))))


def _is_ours(folder: Path) -> bool:
    """Return whether a folder holds what `find_target` knows: a batch, one that lost its plan, Harbor jobs."""
    return (
        (_batch_at(folder) or find_jobs(folder)) is not None
        or _lost_its_plan(folder)
        or any(any(folder.glob(pattern)) for pattern in _PLANS)
    )


def select_numbered(name: Path | None, numbers: str | None, results: Path | None, root: Path | None) -> SelectedBatches:
    """The batches to analyse: those of an experiment file with these numbers, a batch folder, a folder of Harbor jobs.

    `numbers` is as in `3`, `3,4` or `all`; without it the latest with data is meant.
    """
    if name is not None and _is_file(name):
        experiment = load(name, root)
        found = (_of_experiment(experiment, number) for number in _numbers(experiment, numbers))
        return SelectedBatches(tuple(found), root)
    if numbers is not None:
        raise UserError("--batch works only with an experiment file", hint="name the batch folder instead")
    if name is not None and is_there(name):
        return SelectedBatches((Target(_in_folder(name.resolve(), foreign=True)),), root)
    return SelectedBatches((find_target(name, None, results, root, foreign=True),), root)


def find_target(
    name: Named | None,
    number: int | None = None,
    results: Path | None = None,
    root: Path | None = None,
    *,
    own: bool = False,
    with_data: bool = False,
    foreign: bool = False,
) -> Target:
    """The batch that is meant; a clear error when there is none.

    Of an experiment file it is the latest that was started, or the latest `with_data`. Another file with the same slug
    may have started it, which the target notes; with `own` it is an error. With `foreign` it may be jobs of Harbor.
    """
    if isinstance(name, Target):
        return name
    if isinstance(name, Batch):
        return Target(name)
    if not isinstance(name, Experiment):
        if not isinstance(name, str | Path | None):
            hint = "give its folder, slug/n, its experiment, or the value that run returned"
            raise UserError(f"{name!r} is not a batch", hint=hint)
        name = Path(name) if name is not None else None
        if name is None or not _is_file(name):
            if number is not None:
                raise UserError(
                    "--batch works only with an experiment file", hint="name the batch folder, or slug/n, instead"
                )
            if name is not None:
                return Target(_named(name, results, foreign=foreign))
            return Target(_newest(results_root(results), foreign=foreign))
        if name.suffix != ".toml" and name.suffix.lower() in ENDINGS and is_there(name):
            hint = f"tbench compare {typed(name)} reads it; tbench import {typed(name)} turns it into a batch"
            raise UserError("is a file of results, not a batch", where=str(name), hint=hint)
        name = load(name, root)
    return _of_experiment(name, number, own=own, with_data=with_data)


def _of_experiment(experiment: Experiment, number: int | None, *, own: bool = False, with_data: bool = False) -> Target:
    """The batch of an experiment with this number; else the latest, `with_data` the latest that has some."""
    hint = f"tbench run {typed(experiment.file)}"
    if number is not None:
        batch = numbered(experiment, number)
        if not is_file(batch.plan_json):
            raise UserError(f"batch {number} was never set up", where=str(batch.folder), hint=hint)
    else:
        batch = latest(experiment.results_root, experiment.slug, with_data=with_data)
    if batch is None:
        what = f"{experiment.slug} has no batch{' with data' if with_data else ''} yet"
        raise UserError(what, where=str(experiment.file), hint=hint)
    return _of_its_file(batch, experiment, own=own)


def numbered(experiment: Experiment, *numbers: int) -> Batch:
    """The batch of an experiment with the first number; an error that names those of `numbers` that are not there."""
    there = batch_numbers(experiment.results_root, experiment.slug)
    missing = ", ".join(str(number) for number in numbers if number not in there)
    if missing:
        known = ", ".join(map(str, there)) or "none"
        what = f"there is no batch {missing} of {experiment.slug}"
        raise UserError(what, where=str(experiment.results_root), hint=f"batches: {known}")
    return Batch(experiment.results_root / experiment.slug / str(numbers[0]))


def _numbers(experiment: Experiment, numbers: str | None) -> Sequence[int | None]:
    folder, slug = experiment.results_root, experiment.slug
    if numbers is None:
        with_data = latest(folder, slug)
        return [with_data.number if with_data is not None else None]
    if numbers == "all":
        return [n for n in batch_numbers(folder, slug) if _is_batch(folder / slug / str(n))] or [None]
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f'--batch is a number, several with commas, or "all"; not "{numbers}"')
    wanted = list(dict.fromkeys(map(int, parts)))
    numbered(experiment, *wanted)
    return wanted


def _is_file(name: Path) -> bool:
    """Return whether a name is an experiment file's, which may be missing."""
    return not is_folder(name) and (name.suffix == ".toml" or is_there(name))


def _is_batch(folder: Path) -> bool:
    return is_file(folder / "plan.json")


def _of_its_file(batch: Batch, experiment: Experiment, *, own: bool) -> Target:
    """The batch as a target, with a note when another file with the same slug has started it; with `own` an error.

    With `own`, also when a file of the same name in another project has; else a project that only moved is the same.
    """
    plan = plan_or_none(batch)
    file, root = (plan.provenance.experiment_file, plan.provenance.root) if plan is not None else (None, None)
    other = None
    if own and root is not None and Path(root).resolve() != experiment.root.resolve():
        other = f"was started in {root}, not in {experiment.root}"
    elif file is not None and file != experiment.file.name:
        other = f"was started from {file}, not from {experiment.file.name}"
    if other is None:
        return Target(batch, experiment)
    note = f"batch {batch.number} of {experiment.slug} {other}"
    if own:
        hint = f"to use it anyway, name the batch: {typed(batch.folder)}"
        raise UserError(note, where=str(experiment.file), hint=hint)
    return Target(batch, experiment, note)


def _named(name: Path, results: Path | None, *, foreign: bool) -> Batch:
    """The batch in a folder, jobs of Harbor that lie there, or the one that `tbench list` calls `slug/n`."""
    if is_folder(name):
        return _in_folder(name.resolve(), foreign=foreign)
    inside_results = not (name.is_absolute() or ".." in name.parts)
    if not inside_results or not _is_batch(folder := results_root(results) / name):
        hint = _meant(name, results_root(results)) if inside_results else LIST_HINT
        raise UserError("no such batch or experiment file", where=str(name), hint=hint)
    return Batch(folder)


def _meant(name: Path, root: Path) -> str:
    """Return which batch may be meant: the newest of a slug, else one of a name alike."""
    slug = name.parts[0]
    if numbers := [number for number in batch_numbers(root, slug) if _is_batch(root / slug / str(number))]:
        return f'did you mean "{slug}/{numbers[-1]}"?'
    known = [f"{plan.parent.parent.name}/{plan.parent.name}" for plan in root.glob("*/*/plan.json")]
    return did_you_mean(str(name), known, limit=0) or LIST_HINT


def _in_folder(folder: Path, *, foreign: bool) -> Batch:
    """Return the batch in a folder, also where its `runs` or a job in them is named; else a batch of Harbor's jobs."""
    if (batch := _batch_at(folder)) is not None:
        return batch
    jobs = find_jobs(folder)
    if jobs is not None and foreign:
        return jobs
    inside = sorted((p.parent for p in folder.glob("*/plan.json")), key=lambda place: place.name)
    hint = f"name one of its batches, such as {typed(inside[-1])}" if inside else None
    _refuse_lost(folder)
    what = "contains Harbor jobs that tbench did not start" if jobs else "is not a batch folder: it holds no plan.json"
    raise UserError(what if not foreign else f"{what} and no Harbor jobs", where=str(folder), hint=hint)


def _batch_at(folder: Path) -> Batch | None:
    """The batch that a folder is, or whose `runs`, or a job in them, it is."""
    for place in (folder, *folder.parents[:2]):
        if place.name == "runs" and _is_batch(place.parent):
            return Batch(place.parent)
    return Batch(folder) if _is_batch(folder) else None


def _lost_its_plan(folder: Path) -> bool:
    """Return whether a folder without a plan has what else only a batch has."""
    return not (folder / "plan.json").exists() and (folder / "experiment.toml").is_file() and (folder / "runs").is_dir()


def _refuse_lost(folder: Path) -> None:
    if not _lost_its_plan(folder):
        return
    hint = "run it anew"
    if any((folder / "runs").glob("*/*/result.json")):
        read = f"tbench compare {typed(folder / 'runs')} reads its trials as Harbor jobs"
        hint = f"restore plan.json from a copy; {read}"
    what = "is a batch without its plan.json, so its planned trials are unknown"
    raise UserError(what, where=str(folder), hint=hint)


def _newest(folder: Path, *, foreign: bool) -> Batch:
    """The batch that was started last, as `tbench list` has it; resuming an older one does not change that."""
    found = [plan.parent for plan in folder.glob("*/*/plan.json") if plan.parent.name.isdecimal()]
    if not found and foreign and (jobs := find_jobs(folder)) is not None:
        return jobs
    if not found:
        raise UserError("holds no batch", where=str(folder), hint=no_batch_hint(folder) or "tbench run starts one")
    return Batch(max(found, key=lambda place: (_first_job(place), int(place.name))))


def no_batch_hint(root: Path) -> str | None:
    """Return how to name the batches of the nights below a results folder, the newest night first; None without any."""
    nights = {plan.parents[2] for plan in root.glob("*/batches/*/*/plan.json")}
    newest = sorted(nights, key=lambda place: place.stat().st_mtime, reverse=True)
    return f"for the batches of a night: --results {typed(newest[0])}" if newest else None


def _first_job(batch: Path) -> str:
    """The name of its first job, which begins with the time it was planned."""
    return min((path.name for path in (batch / "runs").glob("*.job.json")), default="")


def live_batches(results: Path | None) -> list[Batch]:
    """The batches that run: of one results folder, else of this user; those of this project first, then the newest."""
    there = find_batches(results.resolve()) if results is not None else announced_batches()
    since = {batch: min(p.worker.started_at for p in found) for batch in there if (found := live_processes(batch))}
    return sorted(since, key=lambda batch: (of_this_project(batch), since[batch]), reverse=True)


def refuse_several(batches: Sequence[Batch], how: str) -> None:
    """An order is for one batch: when several run, the error says how to name it."""
    if len(batches) > 1:
        names = "\n  ".join(from_here(batch.folder) for batch in batches)
        raise UserError(f"several batches are running; {how}:\n  {names}")


def of_this_project(batch: Batch) -> bool:
    """Return whether a batch lies in the project around the current folder, or was started from there."""
    here = current_project().resolve()
    if batch.folder.is_relative_to(here):
        return True
    plan = plan_or_none(batch)
    return plan is not None and plan.provenance.root == str(here)


def watched_batch(folder: Path) -> Batch:
    """The batch that a folder without a plan stands for: one it lies in, the only one in it, or jobs of Harbor."""
    whole = folder.resolve()
    if (batch := _batch_at(whole)) is not None:
        return batch
    found = list(find_batches(whole))
    if is_file(folder / "config.json"):  # a job of Harbor: it is shown with those beside it
        found = [batch for batch in found if isinstance(batch, ForeignJobs)]
    if len(found) == 1:
        return found[0]
    inside = [plan.parent for pattern in _PLANS for plan in folder.glob(pattern)]
    _refuse_lost(folder)
    if not inside:
        raise UserError("is neither a batch nor a folder of Harbor jobs", where=str(folder))
    one = max(inside, key=lambda place: (place / "plan.json").stat().st_mtime)
    raise UserError("contains several batches", where=str(folder), hint=f"name one of them, such as {typed(one)}")
