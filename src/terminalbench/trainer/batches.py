"""The batches of a training night: ordinary ones, written as experiments, found again by their labels.

A night of which the training is a part bounds them: by its budget, its deadline, and what a person told it. All of that
is in the gate of the night, which the batches of the training share with the iterations.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.model import Row
from terminalbench.analytics.rows import rows_of
from terminalbench.campaign import find_labelled, follow, refusals, standing
from terminalbench.errors import Incomplete, Interrupted, UserError
from terminalbench.experiments.batch import Batch, batch_numbers
from terminalbench.experiments.experiment import Task
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.write import write_experiment
from terminalbench.harbor.limits.accounts import Account, KnownCost, Turn
from terminalbench.harbor.limits.gate import GateError, change_account, read_shared
from terminalbench.index.queries import BatchView, Rerun, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.resume import resume
from terminalbench.lab.run import FinishedRun, run
from terminalbench.overnight.summary_model import TrainingStep
from terminalbench.records.counts import Spend
from terminalbench.records.event import Event, EventKind
from terminalbench.records.values import known_total
from terminalbench.text.numbers import some
from terminalbench.trainer.journal import NIGHT_LABEL, PART_LABEL, TRAINING_LABEL, ModelSpend, NightEntry, seed_of
from terminalbench.trainer.lineage import LineageStore, Variant
from terminalbench.trainer.plan import TrainingPlan, check_tasks


class TrainingStopped(Incomplete):
    """The night allows no more: the night of the training is not over, and a resume goes on with it."""


@dataclass(frozen=True)
class NightLimits:
    """The limits of a night, by its gate; `until` is their moment by the wall clock."""

    gate: Path
    until: float | None = None

    def check(self) -> None:
        """Raise TrainingStopped where nothing may start any more."""
        follow(self.gate, self.until)
        if (shut := standing(self.gate).shut) is not None:
            raise TrainingStopped(shut)

    def check_ended(self, batch: Batch, view: BatchView) -> None:
        """Raise TrainingStopped where the gate is why trials of a batch did not start."""
        if any(cell.rerun is Rerun.RESUME for cell in view.cells):
            why = next((said for said in refusals(batch, view) if said is not None), None)
            if why is not None:
                raise TrainingStopped(why)

    @property
    def left_usd(self) -> float | None:
        """Return what may still be spent; None without a budget."""
        budget = read_shared(self.gate).budget_usd
        return None if budget is None else max(0.0, budget - standing(self.gate).spent_usd)

    def pay(self, asked: ModelSpend) -> None:
        """Have the gate count what a chat model has charged in this night so far."""
        known = KnownCost(asked.questions - asked.cost_unknown, asked.cost_usd or 0.0)
        account = Account(Turn.OVER, known=known, unknown=asked.cost_unknown)
        change_account(self.gate, self._model, lambda _: account)

    @property
    def _model(self) -> str:
        """Return what the model is called in the gate."""
        return str(self.gate.parent / "training-model")

    def spent(self, batches: Path) -> Spend:
        """Return what the training has cost in this night by its gate: its batches, in this folder, and its model."""
        held = read_shared(self.gate).batches
        own = [share for name, share in held.items() if name == self._model or Path(name).parent == batches]
        accounts = [account for share in own for account in share.accounts.values()]
        costs = [one.known.usd for one in accounts if one.known.trials or one.known.usd]
        return Spend(known_total(costs), sum(one.unknown for one in accounts))


SEC = 1.0
"""So often it is told at most, within a part."""


@dataclass
class TrialCounter:
    """Counts the trials of a night. `nights` are planned, of so many `trials` each at most."""

    nights: int
    trials: int
    tell: Callable[[TrainingStep], None]
    part: str = ""
    share: float = 0.0
    over: int = 0
    running: int = 0
    ran: int = 0
    _began: float = field(default_factory=time.time)
    _told: float = 0.0

    def begin(self, part: str, trials: int) -> None:
        """A part begins, of so many trials."""
        self.part, self.share, self.running = part, trials / self.trials, 0
        self._tell()

    def event(self, event: Event) -> None:
        """A trial of the part may have ended."""
        if event.kind is EventKind.TRIAL_ENDED:
            self.running += 1
            self.ran += 1
            if time.monotonic() - self._told >= SEC:
                self._tell()

    def end(self, trials: int) -> None:
        """The part is over; it had so many trials, of which some may have run before a kill."""
        self.over, self.running = self.over + trials, 0

    def _tell(self) -> None:
        self._told = time.monotonic()
        self.tell(
            TrainingStep(
                nights=self.nights,
                part=self.part,
                share=self.share,
                trials=self.trials,
                done=min(self.trials, self.over + self.running),
                ran=self.ran,
                began=self._began,
            )
        )


@dataclass(frozen=True)
class AttemptPlan[T]:
    """Which tasks a profile attempts, and how often."""

    tasks: tuple[T, ...]
    attempts: int

    @property
    def trials(self) -> int:
        """Trials of one profile."""
        return len(self.tasks) * self.attempts


def spread[T](tasks: Sequence[T], trials: int, start: int = 0) -> AttemptPlan[T]:
    """Spread at most `trials` over tasks: all of them equally often; or, where that is too many, the next ones in
    turn."""
    if trials >= len(tasks):
        return AttemptPlan(tuple(tasks), trials // len(tasks)) if tasks else AttemptPlan((), 0)
    return AttemptPlan(tuple(tasks[(start + n) % len(tasks)] for n in range(trials)), 1)


AGAIN = "-again"
"""Stands behind the key of a champion that is measured against itself."""
EDITOR = "editor"
"""The key of an agent that edits profiles: in its batch it is the only one, and no profile of the lineage."""


@dataclass(frozen=True)
class BatchPart:
    """A batch of a night: which profiles of the lineage attempt what, and for how much at most.

    The key of a profile is its id; `AGAIN` may stand behind it. One that is no profile of the lineage is `EDITOR`.
    """

    night: int
    name: str
    profiles: Mapping[str, Mapping[str, Any]]
    measure: AttemptPlan[Task]
    usd: float | None = None


@dataclass(frozen=True)
class TrainingBatches:
    """Where the batches of a training are, and how they are run; within the limits of a night, if they are given."""

    plan: TrainingPlan
    listener: Callable[[Event], None] | None = None
    limits: NightLimits | None = None
    steps: TrialCounter | None = None

    @property
    def folder(self):
        """The folder of its batches."""
        run_table = self.plan.table.run
        return self.plan.root / run_table.get("results_root", "results") / self.plan.table.slug

    def measured(self, part: BatchPart) -> BatchView:
        """The batch of a part of a night when it is over: gone on with where it was begun, else run."""
        trials = len(part.profiles) * part.measure.trials
        if self.steps is not None:
            self.steps.begin(part.name, trials)
        view = self._measured(part)
        if self.steps is not None:
            self.steps.end(trials)
        return view

    def _measured(self, part: BatchPart) -> BatchView:
        known = self.find(part)
        if known is not None:
            view = self.view(known)
            if all(cell.measured for cell in view.cells):
                return view
        ended = self._ended(part, known)
        if ended.interrupted:
            hint = f"tbench trainer run {self.plan.file} --resume continues it"
            raise Interrupted(f"night {part.night} was interrupted; finished work is kept", hint=hint)
        if self.limits is not None:
            self.limits.check_ended(ended.batch, ended.view)
        return ended.view

    def _ended(self, part: BatchPart, known: Batch | None) -> FinishedRun:
        gate = self.limits.gate if self.limits is not None else None
        if self.limits is not None:
            self.limits.check()
        try:
            if known is None:
                return run(self._file(part), root=self.plan.root, listener=self.listener, gate=gate)
            _share(known, gate)
            return resume(known.folder, root=self.plan.root, listener=self.listener)
        except GateError as error:
            if self.limits is None:
                raise
            raise TrainingStopped(error.what) from None  # none of its trials fits into what is left

    def find(self, part: BatchPart) -> Batch | None:
        """The batch that a part of a night has already."""
        numbers = batch_numbers(self.folder.parent, self.folder.name)
        return find_labelled((Batch(self.folder / str(number)) for number in numbers), self._labels(part))

    def check(self, nights: Sequence[NightEntry]) -> None:
        """Raise UserError where a batch that a night rests on is gone, or its number is that of another one now."""
        lost = [
            f"{name} ({part or 'search'} of night {night.night})"
            for night in nights
            for name, part in night.batches.items()
            if not self._held(name, night.night, part)
        ]
        if lost:
            what = f"batches that its nights used are missing, or other batches have their numbers: {some(lost, 6)}"
            hint = "restore them, or give the plan another slug and start again"
            raise UserError(what, where=str(self.folder), hint=hint)

    def _held(self, name: str, night: int, part: str | None) -> bool:
        wanted = {TRAINING_LABEL: self.plan.table.slug, NIGHT_LABEL: str(night)}
        if part is not None:
            wanted[PART_LABEL] = part
        return find_labelled([Batch(self.folder.parent / name)], wanted) is not None

    def view(self, batch: Batch) -> BatchView:
        """A batch as it is on disk."""
        scan_batch(batch)
        return view_batch(batch)

    def rows(self, names: Sequence[str], *tonight: BatchView) -> list[Row]:
        """The rows of earlier batches (`<slug>/<n>`) and of some of tonight."""
        held = {view.batch for view in tonight}
        return rows_of([*(self.view(Batch(self.folder.parent / name)) for name in names if name not in held), *tonight])

    def _labels(self, part: BatchPart) -> dict[str, str]:
        return {TRAINING_LABEL: self.plan.table.slug, NIGHT_LABEL: str(part.night), PART_LABEL: part.name}

    def _file(self, part: BatchPart):
        plan = self.plan
        check_tasks(plan, part.measure.tasks)
        run_table = {
            **plan.table.run,
            "attempts": part.measure.attempts,
            "seed": seed_of(plan.table.slug, part.night, part.name),
        }
        if part.usd is not None:
            run_table["budget_usd"] = part.usd
        changes = {
            "slug": plan.table.slug,
            "name": f"{plan.table.slug}: night {part.night}, {part.name}",
            "labels": self._labels(part),
            "run": run_table,
        }
        lineage = LineageStore(plan.root).lineage(plan.lineage)
        profiles = {key: _described(table, lineage.variants.get(_id(key))) for key, table in part.profiles.items()}
        made = plan.environment.experiment(profiles, part.measure.tasks, changes)
        for profile in made.profiles:
            if (key := _id(profile.key)) != EDITOR:
                lineage.check(key, profile)
        file = plan.folder / "nights" / f"{part.night:03}" / f"{part.name}.toml"
        write_experiment(made, file)
        return file


def _id(key: str) -> str:
    """The id of the profile that a key stands for."""
    return key.removesuffix(AGAIN)


def _described(table: Mapping[str, Any], variant: Variant | None) -> Mapping[str, Any]:
    """A profile with the reason of its variant: pages call it by that."""
    return table if variant is None else {**table, "description": variant.reason}


def _share(batch: Batch, gate: Path | None) -> None:
    """Have a batch that was begun in another night, or in none, keep to the limits of this one."""
    plan: Plan = read_json(batch.plan_json, Plan)
    wanted = str(gate) if gate is not None else None
    if plan.gate != wanted:
        write_json(batch.plan_json, msgspec.structs.replace(plan, gate=wanted))
