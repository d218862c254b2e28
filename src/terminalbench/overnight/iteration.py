"""An iteration as an experiment file: all that its batch is made from."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment, Task
from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine
from terminalbench.experiments.write import experiment_toml
from terminalbench.files import write_project_file
from terminalbench.overnight.folder import SLUGS, NightFolder
from terminalbench.overnight.iteration_files import labels_for
from terminalbench.overnight.night import (
    IterationWork,
    NightConfig,
    NightState,
    Role,
    WithdrawnTask,
)
from terminalbench.overnight.validation import Candidate, TaskKind, sample
from terminalbench.records.trial import TaskRef


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
    chosen = base.tasks if tasks is None else [t for t in base.tasks if f"{t.dataset}/{t.id}" in tasks]
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
    return list(dict.fromkeys(f"{pair.task.dataset}/{pair.task.id}" for pair in pairs))


def validation_left_usd(config: NightConfig, state: NightState) -> float | None:
    """Return what the validation may still spend, by what its batches have cost; None: it has no budget of its own."""
    if config.validation_budget_usd is None:
        return None
    ends = [work.end for work in state.work if work.role is Role.VALIDATION and work.end is not None]
    return config.validation_budget_usd - sum(end.cost_usd or 0.0 for end in ends)
