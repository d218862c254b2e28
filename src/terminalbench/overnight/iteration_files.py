"""An iteration of a night as files: the experiment that its batch is made from, with the profiles of a night that
learns, and what is made of its batch.

`results.json` and `delta.json` can be made again from the batches at any time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from terminalbench.archivist.utility import PRIOR_SD, is_proven
from terminalbench.campaign import find_labelled, labels_of
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment, Task
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine
from terminalbench.experiments.tables import LessonsTable
from terminalbench.experiments.write import experiment_toml
from terminalbench.files import write_changed, write_project_file
from terminalbench.index.queries import BatchView
from terminalbench.index.results import open_view
from terminalbench.json_files import encode_json, read_json
from terminalbench.overnight.delta import Delta, delta
from terminalbench.overnight.episodes import episodes_of
from terminalbench.overnight.folder import SLUGS, NightFolder
from terminalbench.overnight.iteration_results import IterationResults, measure
from terminalbench.overnight.night import (
    ITERATION_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    IterationWork,
    LessonsMode,
    NightConfig,
    NightLessons,
    NightModel,
    NightState,
    Role,
    WithdrawnTask,
)
from terminalbench.overnight.validation import Candidate, TaskKind, sample
from terminalbench.records.episode import Episode
from terminalbench.records.lesson import Lesson, LessonState
from terminalbench.records.trial import TaskRef

_SUFFIX = "-lessons"
_KNOWN_SD = 0.75 * PRIOR_SD
_MOST_EVERY = 4
"""At least every fourth iteration has its control: whatever else changes over weeks is seen beside it."""


def night_lessons(mode: LessonsMode | None, model: str | None, budget_usd: float | None) -> NightLessons | None:
    """Return how a night is to learn; None: not at all. Finds out now what would make every question to its model
    fail."""
    if mode is None:
        for option, given in (("--reflect-model", model), ("--reflect-budget-usd", budget_usd)):
            if given is not None:
                raise UserError(f"{option} needs --lessons", hint="add --lessons, or leave out this option")
        return None
    if model is None:
        if budget_usd is not None:
            hint = "name a model with --reflect-model, or leave out the budget"
            raise UserError(
                "--reflect-budget-usd needs --reflect-model: without a model, reflection costs nothing", hint=hint
            )
        return NightLessons(mode)
    from terminalbench.llm.model import chat_model

    try:
        chat_model(model).ready()
    except TbenchError as error:
        raise UserError(f"--reflect-model {model}: {error.what}", hint=error.hint) from error
    return NightLessons(mode, model, budget_usd)


def with_lessons(experiment: Experiment, mode: LessonsMode | None, but: Collection[str] = ()) -> Experiment:
    """Each profile as it is and then with lessons, `but` for some, and for those whose agent calls no model.

    Raises UserError where one has lessons already, and where none is left.
    """
    if mode is None:
        return experiment
    profiles: list[Profile] = []
    for one in experiment.profiles:
        profiles.append(one)
        if one.key in but or not one.agent.model:
            continue
        if one.lessons is not None:
            hint = f"remove lessons from profiles.{one.key}, or leave out --lessons"
            raise UserError(
                f"profile {one.key} sets lessons itself, but --lessons sets them for every profile",
                where=str(experiment.file),
                hint=hint,
            )
        profiles.append(replace(one, key=one.key + _SUFFIX, lessons=LessonsTable(mode=mode)))
    if len(profiles) == len(experiment.profiles):
        hint = "name a --model, or leave out --lessons"
        raise UserError("--lessons: no profile of the suite calls a model", hint=hint)
    return replace(experiment, profiles=tuple(profiles))


def of_one_model(models: Iterable[NightModel]) -> list[NightModel]:
    """The models of a night; a profile with lessons is of the same one as its control, and is not checked again."""
    found = {one.profile: one for one in models}
    for key, one in found.items():
        control = found.get(key.removesuffix(_SUFFIX))
        if control is not None and control is not one:
            found[key] = msgspec.structs.replace(one, spec=control.spec, facts={})
    return list(found.values())


def profiles_by_lessons(profiles: Iterable[str], number: int, lessons: Iterable[Lesson]) -> list[str]:
    """Return the profiles of an iteration by what is known of the lessons.

    While none is in use there is nothing to show: a twin with lessons would only be its control once more.
    """
    active = [one for one in lessons if one.state is LessonState.ACTIVE]
    if not active:
        return [one for one in profiles if not is_with_lessons(one)]
    return list(profiles) if (number - 1) % control_every(active) == 0 else without_controls(profiles)


def control_every(active: Collection[Lesson]) -> int:
    """Return in how many iterations the frozen control runs once, by what is known of the active lessons.

    In each while more than half of them are not known, in every second one then, in every fourth when all are. A lesson
    is known when it is proven, or was shown so often that one more night moves little. Withheld lessons are measured
    in the trials with lessons themselves: the control is for the gain of all of them together.
    """
    known = sum(one.utility is not None and (is_proven(one.utility) or one.utility.sd < _KNOWN_SD) for one in active)
    if not active or 2 * known < len(active):
        return 1
    return _MOST_EVERY if known == len(active) else 2


def is_with_lessons(profile: str) -> bool:
    """Return whether a profile of a night is one that was made from another by giving it lessons."""
    return profile.endswith(_SUFFIX)


def without_controls(profiles: Iterable[str]) -> list[str]:
    """Return the profiles of an iteration that is run without its controls: those that have one are left."""
    found = list(profiles)
    return [one for one in found if one + _SUFFIX not in found]


def load_base(folder: NightFolder, config: NightConfig) -> Experiment:
    """All tasks and profiles of a night; what they name is read from the pinned code."""
    return load(folder.base_toml, config.code.root)


def make_base(experiment: Experiment, folder: NightFolder, attempts: int | None) -> Experiment:
    """The experiment of a night as it is kept in its folder: its batches land there too."""
    run = replace(experiment.run, results_root=str(folder.results_root.resolve()))
    if attempts is not None:
        run = replace(run, attempts=attempts)
    return replace(experiment, slug=SLUGS[Role.ITERATION], run=run)


def write_iteration(
    folder: NightFolder,
    config: NightConfig,
    base: Experiment,
    work: IterationWork,
    quarantine: Iterable[WithdrawnTask] = (),
    *,
    tasks: Sequence[str] | None = None,
    budget_usd: float | None = None,
) -> Path:
    """Write what the batch of an iteration is made from, unless it is there; tasks in quarantine are written again.

    Of a validation `tasks` (`dataset/id`) are those drawn, and `budget_usd` is what it may spend.
    """
    file = folder.experiment_toml(work.number, work.role)
    if not file.exists():
        made = _experiment(config, base, work, tasks=tasks, budget_usd=budget_usd)
        write_project_file(file, experiment_toml(made))
    held = [QuarantinedTask(one.task, one.dataset, one.reason) for one in quarantine]
    if held:
        write_quarantine(file, held)
    return file


def _experiment(
    config: NightConfig, base: Experiment, work: IterationWork, *, tasks: Sequence[str] | None, budget_usd: float | None
) -> Experiment:
    wanted = [model.profile for model in config.models]
    if work.role is Role.VALIDATION and config.validation is not None:
        wanted.append(config.validation.profile)
    run = replace(base.run, seed=work.seed)
    if work.role is Role.VALIDATION:
        run = replace(run, attempts=1)  # one trial of each task that was drawn, by each profile
    if budget_usd is not None:
        run = replace(run, budget_usd=budget_usd)
    chosen = base.tasks if tasks is None else [t for t in base.tasks if t.name in tasks]
    return replace(
        base,
        slug=SLUGS[work.role],
        name=f"{config.suite_name}: {work.role} {work.number}",
        run=run,
        tasks=tuple(chosen),
        profiles=tuple(profile for profile in base.profiles if profile.key in wanted),
        labels={**base.labels, **labels_for(config.run_id, work.number, work.role)},
        notify=None,
    )


def drawn_tasks(config: NightConfig, base: Experiment, work: IterationWork) -> list[str]:
    """The tasks (`dataset/id`) of an iteration that are validated: drawn by its seed, the same whenever it is asked."""
    said = {(task.dataset, task.id): task for task in config.suite_tasks}

    def kind(task: Task) -> TaskKind:
        known = said.get((task.dataset, task.id))
        return TaskKind(task.family, known.difficulty if known is not None else None)

    found = [Candidate(TaskRef(t.id, t.dataset, t.family), kind(t)) for t in base.tasks]
    pairs = sample(found, config.attempts, config.validation_rate, work.seed)
    return list(dict.fromkeys(pair.task.name for pair in pairs))


def validation_left_usd(config: NightConfig, state: NightState) -> float | None:
    """Return what the validation may still spend, by what its batches have cost; None: it has no budget of its own."""
    if config.validation_budget_usd is None:
        return None
    ends = [work.end for work in state.work if work.role is Role.VALIDATION and work.end is not None]
    return config.validation_budget_usd - sum(end.cost_usd or 0.0 for end in ends)


@dataclass(frozen=True)
class ProjectedIteration:
    """An iteration as its files say it, and the episodes to record once it is over."""

    results: IterationResults
    delta: Delta
    episodes: tuple[Episode, ...]


def labels_for(run_id: str, number: int, role: Role) -> dict[str, str]:
    """The labels of the batch of an iteration in a role."""
    return {RUN_LABEL: run_id, ITERATION_LABEL: str(number), ROLE_LABEL: str(role)}


def find_batch(folder: NightFolder, run_id: str, number: int, role: Role) -> Batch | None:
    """The batch of an iteration in a role, whoever started it; None while it has no plan.

    It usually has the number of its iteration: the plans of all others are read only where it has not.
    """
    wanted = labels_for(run_id, number, role)
    own = Batch(folder.results_root / SLUGS[role] / str(number))
    return find_labelled([own] if own.runs.is_dir() else [], wanted) or find_labelled(folder.batches(), wanted)


def labelled(folder: NightFolder, run_id: str) -> dict[tuple[Role, int], Batch]:
    """The batches of a night by what their labels say; of two alike the first counts."""
    found: dict[tuple[Role, int], Batch] = {}
    for batch in folder.batches():
        labels = labels_of(batch)
        role, number = labels.get(ROLE_LABEL, ""), labels.get(ITERATION_LABEL, "")
        if labels.get(RUN_LABEL) == run_id and role in list(Role) and number.isdecimal():
            found.setdefault((Role(role), int(number)), batch)
    return found


def view_of(folder: NightFolder, batch: Batch) -> BatchView:
    """A batch of a night as it is on disk now."""
    return open_view(batch, folder.results_root)


def project_results(folder: NightFolder, config: NightConfig, number: int) -> IterationResults:
    """Write `results.json` of an iteration from its batch. Raises UserError when it has none."""
    own = find_batch(folder, config.run_id, number, Role.ITERATION)
    if own is None:
        raise UserError(f"iteration {number} has no batch yet", where=str(folder.folder))
    return _projected(folder, config, number, own)


def project_delta(folder: NightFolder, config: NightConfig, results: IterationResults) -> ProjectedIteration:
    """Write `delta.json` of an iteration. Of those before it their `results.json` is read, or made if it is missing."""
    earlier = range(1, results.iteration)
    before = [_read(folder.results_json(one)) or _made(folder, config, one) for one in earlier]
    return _with_delta(folder, config, results, [one for one in before if one is not None])


def project_iteration(folder: NightFolder, config: NightConfig, number: int) -> ProjectedIteration:
    """Write `results.json` and `delta.json` of an iteration from its batch. Raises UserError when it has none."""
    return project_delta(folder, config, project_results(folder, config, number))


def _made(folder: NightFolder, config: NightConfig, number: int) -> IterationResults | None:
    """The results of an iteration whose file is missing, from its batch; None where it has none."""
    batch = find_batch(folder, config.run_id, number, Role.ITERATION)
    return _projected(folder, config, number, batch) if batch is not None else None


def project_iterations(
    folder: NightFolder,
    config: NightConfig,
    known: Mapping[int, ProjectedIteration] = MappingProxyType({}),
    ended: Mapping[int, IterationWork] = MappingProxyType({}),
) -> list[ProjectedIteration]:
    """All iterations that have a batch, in order, anew from their batches; those that are `known` stay as they are.

    Of those that have `ended` the results that their workers wrote are taken. A delta is made again where an iteration
    before it was.
    """
    numbered = {
        number: one for (role, number), one in labelled(folder, config.run_id).items() if role is Role.ITERATION
    }
    found: list[ProjectedIteration] = []
    same = True
    for number in sorted(numbered):
        held = known.get(number)
        if held is not None and same:
            found.append(held)
            continue
        same = False
        results = held.results if held is not None else _by_worker(folder, number, ended.get(number))
        results = results or _projected(folder, config, number, numbered[number])
        found.append(_with_delta(folder, config, results, [one.results for one in found]))
    return found


def _by_worker(folder: NightFolder, number: int, work: IterationWork | None) -> IterationResults | None:
    """The results that a worker wrote as it ended; None where they are not of what it said at its end."""
    found = _read(folder.results_json(number)) if work is not None and work.end is not None else None
    if found is None or work is None or work.end is None:
        return None
    counted = [sum(getattr(one, name) for one in found.profiles) for name in ("total", "measured", "passed")]
    return found if counted == [work.end.trials, work.end.measured, work.end.passed] else None


def keep(path: Path, value: Any) -> None:
    """Write a projection, unless the file says the same already."""
    write_changed(path, value if isinstance(value, bytes) else encode_json(value))


def _projected(folder: NightFolder, config: NightConfig, number: int, batch: Batch) -> IterationResults:
    results = measure(view_of(folder, batch), config, number)
    keep(folder.results_json(number), results)
    return results


def _with_delta(
    folder: NightFolder, config: NightConfig, results: IterationResults, before: Iterable[IterationResults]
) -> ProjectedIteration:
    changes = delta(results, before, config.iterations)
    keep(folder.delta_json(results.iteration), changes)
    return ProjectedIteration(results, changes, episodes_of(folder, config, results))


def _read(file: Path) -> IterationResults | None:
    try:
        return read_json(file, IterationResults)
    except (OSError, TbenchError):
        return None
