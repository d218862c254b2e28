"""A training plan: what is tried, on what, for how much, and what has to be shown; fixed before the first trial.

    .terminalbench/training/<slug>/plan.json    the plan as it was declared, with its digest

A plan that has been declared does not change: another file of that slug is refused, with the difference.
"""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.power import fewest_units
from terminalbench.analytics.stats import nominal_level
from terminalbench.campaign import held
from terminalbench.decode import decode
from terminalbench.errors import InvalidFile, Problem, UserError
from terminalbench.experiments.config import is_experiment
from terminalbench.experiments.experiment import Task
from terminalbench.experiments.profile_changes import changed_places
from terminalbench.experiments.project import project_root
from terminalbench.experiments.tables import RunTable
from terminalbench.experiments.toml_lines import invalid_file
from terminalbench.json_files import read_json, write_json
from terminalbench.locks import changing
from terminalbench.overnight.suite import task_digest
from terminalbench.records.values import stamp
from terminalbench.strict import Problems, given, read, read_toml
from terminalbench.text.names import typed
from terminalbench.text.numbers import dollars, plural, some
from terminalbench.trainer.environments import Environment, open_environment
from terminalbench.trainer.gate import alpha_of
from terminalbench.trainer.gym import Gym, Shares, Split, unit_of
from terminalbench.trainer.journal import PlanDeclaration, plan_json, training_folder, training_lock
from terminalbench.trainer.lineage import Lineage, LineageStore
from terminalbench.trainer.tables import PlanTable, check_evolver, night_parts, search_usd
from terminalbench.trainer.variants import Change, ResolvedProfile, changed, refuse_reason, resolved

_DECIDED = {
    "attempts": "the number of attempts follows from the budget and the number of tasks",
    "seed": "every batch gets its own seed",
    "budget_usd": "use budget.usd",
    "deadline": "a night is limited by its trials",
}


@dataclass(frozen=True)
class TrainingPlan:
    """A checked plan with what it means in its project: the environment, its parts, the champion to begin with."""

    file: Path
    root: Path
    table: PlanTable
    environment: Environment
    split: Split
    start: ResolvedProfile
    simulated: bool

    @property
    def lineage(self) -> str:
        """The lineage that it works on."""
        return self.table.lineage or self.table.slug

    @property
    def challengers(self) -> int:
        """Return how many challengers may be measured: the error is divided among them."""
        return self.table.gate.challengers or max(1, self.table.nights // self.table.gate.looks)

    @property
    def single(self) -> Change | None:
        """The only variant that the plan has; None where there is a choice."""
        listed = self.table.variants
        return listed[0] if self.table.evolver.name == "listed" and len(listed) == 1 else None

    @property
    def folder(self) -> Path:
        """Return where it is kept."""
        return training_folder(self.root, self.table.slug)

    def content(self) -> dict[str, Any]:
        """Everything that must not change any more."""
        kept = msgspec.to_builtins(asdict(self.table))
        for name in ("profile", "slug", "schema_version"):
            kept.pop(name)
        kept["start"] = self.start.profile.content
        kept["parts"] = {
            part: ", ".join(sorted(task.name for task in tasks))
            for part, tasks in (("train", self.split.train), ("dev", self.split.dev))
        }
        kept["parts"]["held out"] = self.split.held_out
        return kept


def read_plan(file: Path) -> PlanTable:
    """The tables of a plan, without a look at what they name. Raises InvalidFile with every problem found."""
    raw, problems = read_toml(file, "tbench trainer init"), Problems()
    if is_experiment(raw):
        raise UserError(
            "is an experiment, not a training plan", where=str(file), hint=f"run it with: tbench run {typed(file)}"
        )
    for name in _former_keys(raw):
        what = (
            "is no longer a key: what budget.control leaves goes to the challenger or, without a challenger, to "
            "the search"
        )
        problems.add(f"budget.{name}", what, "remove it")
    raw = _without_former_keys(raw)
    table: PlanTable = read(PlanTable, raw, "", problems)
    _check(table, raw, problems)
    if problems.found:
        raise invalid_file(file, problems.found)
    return table


def load_plan(file: Path, root: Path | None = None, scratch: Path | None = None) -> TrainingPlan:
    """The plan in a TOML file. Raises InvalidFile with every problem found.

    Its split is made where families have no part yet, and texts of prompts are kept; nothing else is written. With a
    folder `scratch` it is only checked: the texts go there, and the project stays as it is.
    """
    table, base = read_plan(file), project_root(file, root)
    environment = replace(_environment(table, base, file), scratch=scratch)
    start = _start(table, environment, base, file)
    made: dict[str, str] = {}

    def make(change: Change, at: str) -> None:
        one = changed(environment, start, change, at)
        if (other := made.setdefault(one.profile.id, at)) != at:
            raise UserError(f"is the same profile as {other}", where=at, hint="remove one of them")

    _each_variant(table, file, make)
    if (editor := table.evolver.profile) is not None:
        _at_file(file, lambda: resolved(environment, editor, "evolver.profile"))
    split = table.split
    shares = Shares(split.train, split.dev, split.holdout)
    split_of = Gym(base).make_split if scratch is None else Gym(base).would_split
    parts = _at_file(file, lambda: split_of(environment, shares, split.seed))
    _each_variant(table, file, lambda change, at: refuse_reason(environment, parts.train, change, at))
    plan = TrainingPlan(file, base, table, environment, parts, start, start.profile.agent.simulated)
    _check_size(plan)
    return plan


def hold(plan: TrainingPlan, what: str) -> AbstractContextManager[None]:
    """Hold the folder of a training: one process runs it at a time."""
    wait = f"wait for it, or stop it; tbench trainer status {typed(plan.file)} shows its progress"
    return held(training_lock(plan.folder), what, plan.folder, wait)


def declare(plan: TrainingPlan) -> PlanDeclaration:
    """Fix the plan; one that was declared before with anything else in it is a UserError with the difference."""
    kept = plan_json(plan.folder)
    with changing(kept):
        if (known := check_declared(plan)) is not None:
            return known
        data, digest = _encoded(plan)
        now = stamp(datetime.now(UTC))
        made = PlanDeclaration(plan.table.slug, digest, now, decode(data), _tasks_now(plan.environment.tasks))
        write_json(kept, made)
        return made


def check_declared(plan: TrainingPlan) -> PlanDeclaration | None:
    """The plan as it was declared, if it was. Raises UserError where this one has anything else in it."""
    kept = plan_json(plan.folder)
    if not kept.is_file():
        return None
    known: PlanDeclaration = read_json(kept, PlanDeclaration)
    data, digest = _encoded(plan)
    if known.digest != digest and (found := changed_places(_without_former_keys(known.content), decode(data))):
        raise UserError(
            f"is not the plan that was declared on {known.declared_at[:10]}: {some(found, 6)}",
            where=str(plan.file),
            hint="undo the change, or give the new plan another slug",
        )
    check_tasks(plan, plan.environment.tasks)
    return known


def _former_keys(content: dict[str, Any]) -> list[str]:
    """Return the shares of a budget that plans had, and that never counted each for itself."""
    budget = content.get("budget")
    return [name for name in ("explore", "confirm") if isinstance(budget, dict) and name in budget]


def _without_former_keys(content: dict[str, Any]) -> dict[str, Any]:
    """Return what an earlier version declared as this one would: it is the same plan."""
    for name in _former_keys(content):
        content = {**content, "budget": {key: value for key, value in content["budget"].items() if key != name}}
    return content


def _encoded(plan: TrainingPlan) -> tuple[bytes, str]:
    """The content of a plan as it is kept, and its digest."""
    data = msgspec.json.encode(plan.content(), order="deterministic")
    return data, hashlib.sha256(data).hexdigest()[:16]


def check_tasks(plan: TrainingPlan, tasks: Iterable[Task]) -> None:
    """Raise UserError where a task is another one than when the plan was declared: results of both are not one."""
    kept = plan_json(plan.folder)
    known = read_json(kept, PlanDeclaration).tasks if kept.is_file() else {}
    if changed := [name for name, digest in _tasks_now(tasks).items() if known.get(name, digest) != digest]:
        raise UserError(
            f"{plural(len(changed), 'task')} changed since the plan was declared: {some(changed, 6)}",
            where=str(plan.file),
            hint="restore the tasks, or give the plan another slug: earlier measurements do not count for changed "
            "tasks",
        )


def _tasks_now(tasks: Iterable[Task]) -> dict[str, str]:
    return {task.name: task_digest(task) for task in tasks}


def _check(table: PlanTable, raw: dict[str, Any], problems: Problems) -> None:
    budget = table.budget
    split = table.split
    if not problems.at("split") and (shares := split.train + split.dev + split.holdout) > 1 + 1e-6:
        what = f"train, dev and holdout ({split.holdout:g}) add up to {shares:g}, more than 1"
        problems.add("split", what, "set all three")
    check_evolver(table.evolver, len(table.variants), problems)
    if not problems.found and (left := search_usd(budget, table.evolver, watching=True)) is not None and left <= 0:
        what = f"leaves nothing for trials of the {dollars((budget.usd or 0) * (1 - budget.control))} for the search"
        problems.add("evolver.usd", what, "lower it, raise budget.usd, or lower budget.control")
    run = raw.get("run")
    if isinstance(run, dict):
        given(RunTable, run, "run", problems)
        for name in _DECIDED.keys() & run.keys():
            problems.add(f"run.{name}", f"cannot be set in a plan: {_DECIDED[name]}")


def _check_size(plan: TrainingPlan) -> None:
    budget, dev = plan.table.budget, len(plan.split.dev)
    left = night_parts(budget, challenger=True, exploring=False, watching=True).confirm
    if left < 2 * dev:
        needed = -int(-2 * dev // (1 - budget.control))
        what = f"{budget.trials} trials a night leave {left} to confirm; {dev} dev tasks"
        hint = f"set at least {needed} trials, or use a smaller budget.control or fewer dev tasks"
        problem = Problem("budget.trials", f"{what} under two profiles need {2 * dev}", hint)
        raise invalid_file(plan.file, [problem])
    gate = plan.table.gate
    units, names = dev_units(plan)
    fewest = fewest_units(nominal_level(gate.looks, gate.looks, alpha_of(1, plan.challengers, gate.alpha)))
    if units < fewest:
        shared = plural(plan.challengers, "challenger")
        what = f"{units} dev {names} can never show a gain at alpha {gate.alpha:g} over {shared}"
        hint = f"it needs {fewest}: use more dev {names} (split.dev), fewer gate.challengers, or a larger gate.alpha"
        raise invalid_file(plan.file, [Problem("gate", what, hint)])


def dev_units(plan: TrainingPlan) -> tuple[int, str]:
    """Return how many independent observations dev has, and what they are called."""
    if plan.table.gate.unit == "task":
        return len(plan.split.dev), "tasks"
    return len({unit_of(task) for task in plan.split.dev}), "families"


def _environment(table: PlanTable, root: Path, file: Path) -> Environment:
    try:
        return open_environment(table.environment, root)
    except InvalidFile:
        raise
    except UserError as error:
        raise invalid_file(file, [Problem("environment", f"{error.where}: {error.what}", error.hint)]) from None


def _start(table: PlanTable, environment: Environment, root: Path, file: Path) -> ResolvedProfile:
    lineage = LineageStore(root).lineage(table.lineage or table.slug)
    first = lineage.crowned[0] if lineage.crowned else None
    if table.profile is None:
        if first is None:
            hint = "add [profile], or choose a lineage that has a champion"
            what = f'lineage "{lineage.name}" has no champion to start from'
            raise invalid_file(file, [Problem("profile", what, hint)])
        champion = _began_with(lineage, training_folder(root, table.slug))
        return _at_file(file, lambda: resolved(environment, lineage.variants[champion].table, "profile"))
    made = _at_file(file, lambda: resolved(environment, table.profile or {}, "profile"))
    if first is not None and made.profile.id != first.id:
        what = f'lineage "{lineage.name}" started with {first.id}, but [profile] is {made.profile.id}'
        hint = "remove [profile] to continue from its champion, or choose another lineage"
        raise invalid_file(file, [Problem("profile", what, hint)])
    return made


def _began_with(lineage: Lineage, folder: Path) -> str:
    """The champion that a plan began with: as it was declared, else the one of now."""
    kept = plan_json(folder)
    if kept.is_file():
        start = read_json(kept, PlanDeclaration).content["start"]
        for variant in lineage.variants.values():
            if variant.content == start:
                return variant.id
    return lineage.crowned[-1].id


def _each_variant(table: PlanTable, file: Path, check: Callable[[Change, str], Any]) -> None:
    """Check every variant that is listed. Raises InvalidFile with what is wrong with any of them."""
    problems: list[Problem] = []
    for index, change in enumerate(table.variants):
        try:
            _at_file(file, lambda change=change, at=f"variants[{index}]": check(change, at))
        except InvalidFile as error:
            problems += error.problems
    if problems:
        raise invalid_file(file, problems)


def _at_file[T](file: Path, make: Callable[[], T]) -> T:
    """Return what `make` returns; a mistake that it finds is said to be in the file."""
    try:
        return make()
    except InvalidFile as error:
        raise invalid_file(file, error.problems) from None
    except UserError as error:
        if error.where is None:
            raise UserError(error.what, where=str(file), hint=error.hint) from None
        raise invalid_file(file, [Problem(error.where, error.what, error.hint)]) from None
