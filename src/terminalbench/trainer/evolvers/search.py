"""What an evolver works with in a night: the champion, what was tried, how trials on train failed, a way to measure.

    .terminalbench/training/<slug>/nights/003/search.jsonl    answers that are asked for once in a night

Everything that could come out otherwise when a killed night runs again is written there before it is used. Failures are
clustered by their class (docs/analysis.md), or by a guard of a workflow that refused the same trial again and again.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from terminalbench import registry
from terminalbench.analytics.model import Row
from terminalbench.analytics.selection import Filter, pick
from terminalbench.archivist.attempts import LEAST_TRIALS, EvidenceTrial, attempts_of
from terminalbench.archivist.obstacles import GUARD_RULES, RULES
from terminalbench.decode import convert
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Task
from terminalbench.json_files import append_jsonl, read_log
from terminalbench.records.lesson import Lesson
from terminalbench.text.foreign import printable
from terminalbench.trainer.batches import AttemptPlan, NightLimits, TrialCounter
from terminalbench.trainer.journal import ModelSpend, NightEntry, RefusedChange, seed_of
from terminalbench.trainer.lineage import Lineage, LineageStore
from terminalbench.trainer.plan import TrainingPlan
from terminalbench.trainer.variants import Change, ResolvedProfile, changed, refuse_reason, resolved, sections_of

RECENT = 8
"""So many batches back a profile's trials are looked at."""
GUARD = "guard:"


@dataclass(frozen=True)
class Proposal:
    """A change to try. `parent` is the profile that it changes, None for the champion.

    `source` says what it was made from where the evolver's name does not; `evidence` are the trials that it rests on.
    """

    change: Change
    parent: str | None = None
    source: str = ""
    evidence: tuple[str, ...] = ()


class SearchStopped(TbenchError):
    """The search of this night ends early, with the reason; what was proposed before is explored."""


class Evolver(Protocol):
    """Proposes variants, asked once a night; what it needs it gets from the night's `Search`.

    It decides nothing about profiles that are deployed or claimed: what it proposes is ranked on train by the night,
    and confirmed on dev, which it never sees. To measure something itself it asks `Search.measure`, an ordinary batch.
    It must propose the same when it is asked again in the same night: all that could come out otherwise a second time
    (a model's answer, an agent's edit) goes through `Search.once`.
    """

    def propose(self, search: "Search") -> Iterator[Proposal]:
        """The proposals of a night, best first. The night takes the first few that can be made; may raise
        SearchStopped.
        """
        ...


@dataclass(frozen=True)
class Cluster:
    """Trials that failed alike: how, how many tasks they are of, and what our own rules say against it, if anything."""

    what: str
    attempts: tuple[EvidenceTrial, ...]
    advice: str | None = None

    @property
    def trials(self) -> tuple[str, ...]:
        """The trials that show it."""
        return tuple(one.name for one in self.attempts)

    @property
    def tasks(self) -> int:
        """Return of how many tasks they are."""
        return len({one.trial.task for one in self.attempts})


def clusters(attempts: Sequence[EvidenceTrial]) -> list[Cluster]:
    """The clusters of some attempts: those of most tasks first, then those of most trials."""
    found: dict[str, list[EvidenceTrial]] = {}
    for one in attempts:
        if not one.passed:
            found.setdefault(one.failure.name, []).append(one)
        for guard in dict.fromkeys(refusal.guard for refusal in one.refusals if refusal.times >= LEAST_TRIALS):
            found.setdefault(f"{GUARD}{guard}", []).append(one)
    made = [Cluster(what, tuple(held), _advice(what)) for what, held in found.items()]
    return sorted(made, key=lambda one: (-one.tasks, -len(one.attempts), one.what))


def attempts_on(results: Path, rows: Sequence[Row], profile: str) -> list[EvidenceTrial]:
    """The measured trials behind rows of a profile, of the last batches that hold any."""
    names = list(dict.fromkeys(row.batch for row in rows if row.profile == profile and row.measured))[-RECENT:]
    batches = [batch for name in names if (batch := Batch(results / name)).plan_json.is_file()]
    picked = pick(batches, Filter(profiles=(profile,))) if batches else []
    return [one for part in picked for one in attempts_of(part)]


def _advice(what: str) -> str | None:
    rule: Lesson | None = GUARD_RULES.get(what.removeprefix(GUARD)) if what.startswith(GUARD) else RULES.get(what)
    return rule.text if rule is not None else None


type Run = Callable[[str, Mapping[str, Mapping[str, Any]], AttemptPlan[Task]], Sequence[Row]]
"""Runs the batch of a part of the night, by its name: profiles by id, each attempting what the measure says."""


NAMED = 12
"""Trials that a variant names as its evidence."""


class _StoredValue(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    value: Any = None
    begun: bool = False


@dataclass
class Search:
    """The search of one night. `trials` are all that it may take, `spent` those that it has taken.

    `earlier` reads the trials of earlier searches. `results` is the folder of the batches that rows name.
    `taken` are the candidates of tonight with their reasons.
    """

    plan: TrainingPlan
    store: LineageStore
    before: Sequence[NightEntry]
    night: int
    champion: str
    known: frozenset[str]
    trials: int
    run: Run
    results: Path = Path()
    earlier: Callable[[], list[Row]] = list
    limits: NightLimits | None = None
    steps: TrialCounter | None = None
    tonight: list[Row] = field(default_factory=list)
    spent: int = 0
    taken: dict[str, str] = field(default_factory=dict)
    refused: list[RefusedChange] = field(default_factory=list)
    stopped: str | None = None
    asked: ModelSpend | None = None
    _batches: int = 0
    _made: dict[str, ResolvedProfile] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return where the files of this night are."""
        return self.plan.folder / "nights" / f"{self.night:03}"

    def seed(self, name: str) -> int:
        """Return what a draw of this night starts from, by the name of who draws: the same whenever it is asked."""
        return seed_of(self.plan.table.slug, self.night, name)

    @property
    def lineage(self) -> Lineage:
        """The profiles so far, with their parents and reasons."""
        return self.store.lineage(self.plan.lineage)

    @property
    def train(self) -> tuple[Task, ...]:
        """The tasks that it may measure and learn from."""
        return self.plan.split.train

    @property
    def left(self) -> int:
        """Trials that it has left."""
        return max(0, self.trials - self.spent)

    @cached_property
    def _earlier(self) -> list[Row]:
        return self.earlier()

    @property
    def rows(self) -> list[Row]:
        """Every trial of a search on train so far, of earlier nights and of this one, oldest first."""
        return [*self._earlier, *self.tonight]

    @property
    def tried(self) -> frozenset[str]:
        """Profiles that a search has explored before; the champion is not among them."""
        return self.known | {one.id for night in self.before for one in night.explored if one.id != self.champion}

    def made(self, profile: str | None = None) -> ResolvedProfile:
        """A profile of the lineage; the champion."""
        name = profile or self.champion
        if name not in self._made:
            variant = self.lineage.variants[name]
            self._made[name] = resolved(self.plan.environment, variant.table, profile or "champion")
        return self._made[name]

    def sections(self) -> dict[str, str]:
        """The champion's prompt, by sections."""
        prompt = self.made().profile.prompt
        return sections_of(prompt.text) if prompt is not None else {}

    def attempts(self) -> list[EvidenceTrial]:
        """The champion's measured trials on train, as files: how they ended, and why."""
        return attempts_on(self.results, self.rows, self.champion)

    def once[T](self, key: str, kind: type[T], make: Callable[[], T]) -> T:
        """Return what `make` returns, as JSON has it; asked for the same key again in this night, what it returned
        before."""
        log = self.folder / "search.jsonl"
        for kept in read_log(log, _StoredValue):
            if kept.key == key and not kept.begun:
                return convert(kept.value, kind)
        append_jsonl(log, _StoredValue(key, begun=True), durable=True)
        value = make()
        append_jsonl(log, _StoredValue(key, value), durable=True)
        return value

    def lost(self, key: str) -> int:
        """Return how often `once` was begun for a key and killed before there was a value; what that cost is not
        known."""
        return max(
            0, sum(kept.key == key and kept.begun for kept in read_log(self.folder / "search.jsonl", _StoredValue)) - 1
        )

    def check(self, proposal: Proposal, at: str) -> ResolvedProfile:
        """The profile that a proposal makes. Raises UserError where it makes none, none that is allowed, or no new
        one.
        """
        refuse_reason(self.plan.environment, self.train, proposal.change, at)
        made = changed(self.plan.environment, self.made(proposal.parent), proposal.change, at)
        if made.profile.id == self.champion or made.profile.id in self.tried:
            raise UserError("it is the champion, or has been tried before", where=at)
        return made

    def take(self, proposal: Proposal) -> str | None:
        """Keep a proposal in the lineage as a candidate of tonight; its id, or None where it is refused."""
        name = self.plan.table.evolver.name
        try:
            made = self.check(proposal, name)
        except UserError as error:
            why = "; ".join(error.lines())
            self.refused.append(RefusedChange(reason=proposal.change.reason, why=why))
            return None
        source = f"{name} in {self.plan.table.slug}" + (f": {proposal.source}" if proposal.source else "")
        self.store.add(
            self.plan.lineage,
            made,
            reason=proposal.change.reason,
            source=source,
            parent=proposal.parent or self.champion,
            evidence=proposal.evidence[:NAMED],
        )
        return made.profile.id

    def measure(self, profiles: Sequence[str], tasks: Sequence[Task], attempts: int = 1) -> list[Row]:
        """Trials of some profiles of the lineage on train tasks, as one ordinary batch of the night.

        Raises SearchStopped when the search has not so many left.
        """
        names = dict.fromkeys(profiles)
        measure = AttemptPlan(tuple(tasks), attempts)
        if outside := {task.id for task in tasks} - {task.id for task in self.train}:
            raise UserError(f"{len(outside)} of the tasks are not train tasks", where=self.plan.table.slug)
        needed = len(names) * measure.trials
        if needed > self.left:
            raise SearchStopped(f"{needed} trials are needed, {self.left} are left")
        self._batches += 1
        part = f"search-{self._batches}"
        variants = self.lineage.variants
        rows = [*self.run(part, {name: variants[name].table for name in names}, measure)]
        if {row.profile for row in rows} != {*names}:
            what = f"its batch {part} has other profiles than the search now asks for"
            raise TbenchError(
                what, where=f"night {self.night}", hint="the evolver did not repeat its earlier proposals"
            )
        self.spent += needed
        self.tonight += rows
        return rows

    def collect(self, evolver: Evolver) -> dict[str, str]:
        """The candidates of the night, by id, with their reasons: the first proposals that can be made.

        A search that is stopped keeps what it has.
        """
        try:
            for proposal in evolver.propose(self):
                profile = self.take(proposal)
                if profile is not None:
                    self.taken.setdefault(profile, proposal.change.reason)
                if len(self.taken) == self.plan.table.evolver.candidates:
                    break
        except SearchStopped as error:
            self.stopped = error.what
        except TbenchError:
            raise
        except Exception as error:
            name = self.plan.table.evolver.name
            if name in registry.BUILTIN["evolvers"]:  # a bug of ours
                raise
            self.stopped = printable(f"the evolver {name} failed: {type(error).__name__}: {error}")
            logging.getLogger(__name__).warning("%s", self.stopped, exc_info=error)
        return self.taken


def evolver_of(plan: TrainingPlan) -> Evolver:
    """The evolver that a plan names. Raises UserError where it cannot be loaded, or lacks a package."""
    name = plan.table.evolver.name
    found = registry.resolve("evolvers", name)
    try:
        made = found()
    except UserError:
        raise
    except Exception as error:
        what = printable(f'the evolver "{name}" cannot be made: {type(error).__name__}: {error}')
        raise UserError(what, where=str(plan.file), hint="an evolver is a class without arguments") from error
    if not callable(getattr(made, "propose", None)):
        raise UserError(f'"{name}" is not an evolver: it has no propose(search)', where=str(plan.file))
    return made
