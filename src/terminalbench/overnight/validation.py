"""Is a local model as good as it looks? A sample of its attempts, run again by Claude and by itself.

The draw is pure: the same seed draws the same pairs. It is stratified by category and difficulty, so that no kind of
task is left to chance, and takes a task a second time only when every task of its stratum was drawn.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import msgspec

from terminalbench.analytics.labels import Agreement, agreement
from terminalbench.errors import UserError
from terminalbench.index.queries import BatchView, CellState
from terminalbench.index.totals import spend
from terminalbench.overnight.night import NightConfig
from terminalbench.records.counts import Spend
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.numbers import cost, dollars, percent, plural


class TaskKind(NamedTuple):
    """What kind of task it is; None where the suite does not say."""

    category: str | None = None
    difficulty: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A task that may be drawn."""

    task: TaskRef
    kind: TaskKind


class TaskAttempt(NamedTuple):
    """One attempt at one task, drawn."""

    task: TaskRef
    attempt: int


def sample(tasks: Sequence[Candidate], attempts: int, rate: float, seed: int) -> list[TaskAttempt]:
    """Draw the share `rate` of all (task, attempt) pairs, at least one, in the order of the tasks.

    Each stratum gives its share, rounded so that the whole is exact: the largest remainders are rounded up.
    """
    if not 0 <= rate <= 1:
        raise UserError(f"--claude-validation-rate must be between 0 and 1, not {rate:g}")
    if attempts < 1:
        raise UserError(f"--attempts must be at least 1, not {attempts}")
    total = len(tasks) * attempts
    wanted = min(total, max(1, round(rate * total))) if rate and total else 0
    luck = Random(f"validation {seed}")  # noqa: S311  a draw that can be repeated
    strata: dict[TaskKind, list[TaskRef]] = defaultdict(list)
    for one in tasks:
        strata[one.kind].append(one.task)
    shares = _shares({key: len(refs) * attempts for key, refs in strata.items()}, wanted, luck)
    drawn = {pair for key, refs in strata.items() for pair in _draw(refs, attempts, shares[key], luck)}
    return [
        pair for one in tasks for attempt in range(1, attempts + 1) if (pair := TaskAttempt(one.task, attempt)) in drawn
    ]


def _shares(sizes: dict[TaskKind, int], wanted: int, luck: Random) -> dict[TaskKind, int]:
    """Return how many pairs each stratum gives: its exact share rounded down, the rest by the largest remainders."""
    total = sum(sizes.values())
    found = {key: wanted * size // total for key, size in sizes.items()} if total else {}
    order = list(sizes)
    luck.shuffle(order)  # of equal remainders
    order.sort(key=lambda key: -(wanted * sizes[key] % total if total else 0))
    for key in order[: wanted - sum(found.values())]:
        found[key] += 1
    return found


def _draw(refs: Sequence[TaskRef], attempts: int, wanted: int, luck: Random) -> list[TaskAttempt]:
    """Draw so many pairs of one stratum: every task once before any twice."""
    found: list[TaskAttempt] = []
    numbers = {ref: luck.sample(range(1, attempts + 1), attempts) for ref in refs}
    for turn in range(attempts):
        for ref in luck.sample(list(refs), len(refs)):
            if len(found) == wanted:
                return found
            found.append(TaskAttempt(ref, numbers[ref][turn]))
    return found


class ExclusiveTask(msgspec.Struct, frozen=True):
    """A task that only one of the two solved, and in how many of the pairs."""

    task_id: str
    dataset: str
    pairs: int


class ClaudeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One model against Claude on the pairs that both measured."""

    profile: str
    validator: str
    agreement: Agreement
    only_profile: list[ExclusiveTask]
    only_validator: list[ExclusiveTask]
    unmeasured: int
    sentence: str


class Validation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the validation of a night came to; `off` says why there was none."""

    rate: float
    off: str | None = None
    batches: int = 0
    pairs: int = 0
    cost_usd: float | None = None
    cost_unknown: int = 0
    budget_usd: float | None = None
    against: list[ClaudeComparison] = []
    sentence: str = ""


def validate(config: NightConfig, views: Sequence[BatchView]) -> Validation | None:
    """The validation of a night from its batches; None when none was asked for."""
    if not config.validation_rate and config.validation_off is None:
        return None
    if config.validation is None or config.validation_off is not None:
        why = config.validation_off or "no model to validate with was available"
        return Validation(rate=config.validation_rate, off=why, sentence=f"off: {why}")
    validator = config.validation.profile
    spent = Spend.total(spend(view.rows(), view.plan.without_model()) for view in views)
    found = Validation(
        rate=config.validation_rate,
        batches=len(views),
        pairs=sum(cell.profile == validator for view in views for cell in view.cells),
        cost_usd=spent.cost_usd,
        cost_unknown=spent.cost_unknown,
        budget_usd=config.validation_budget_usd,
        against=[_against(model.profile, validator, views) for model in config.models if model.profile != validator],
    )
    return msgspec.structs.replace(found, sentence=_sentence(found, config.validation.spec))


def _against(profile: str, validator: str, views: Sequence[BatchView]) -> ClaudeComparison:
    both: list[tuple[TaskRef, bool, bool]] = []
    unmeasured = 0
    for view in views:
        own, other = (_cells(view, name) for name in (profile, validator))
        for key in own.keys() & other.keys():
            if own[key].measured and other[key].measured:
                passed = tuple(cell.outcome is Outcome.PASSED for cell in (own[key], other[key]))
                both.append((own[key].task, passed[0], passed[1]))
            else:
                unmeasured += 1
    agreed = agreement(f"{profile} and {validator}", [(mine, theirs) for _, mine, theirs in both], unmeasured)
    found = ClaudeComparison(
        profile=profile,
        validator=validator,
        agreement=agreed,
        only_profile=_only(task for task, mine, theirs in both if mine and not theirs),
        only_validator=_only(task for task, mine, theirs in both if theirs and not mine),
        unmeasured=unmeasured,
        sentence="",
    )
    return msgspec.structs.replace(found, sentence=_agreement_sentence(found))


def _cells(view: BatchView, profile: str) -> dict[tuple[TaskRef, int], CellState]:
    return {(cell.task, cell.attempt): cell for cell in view.cells if cell.profile == profile}


def _only(tasks: Iterable[TaskRef]) -> list[ExclusiveTask]:
    counts = Counter(tasks)
    return [
        ExclusiveTask(ref.id, ref.dataset, n)
        for ref, n in sorted(counts.items(), key=lambda one: (one[0].dataset, one[0].id))
    ]


def _agreement_sentence(found: ClaudeComparison) -> str:
    agreed = found.agreement
    if not agreed.pairs or agreed.agreed is None:
        return f"{found.profile} and {found.validator}: no pair of trials was measured with both"
    kappa = "undefined, because one of them always had the same result"
    if agreed.kappa is not None:
        inside = agreed.kappa_low is not None and agreed.kappa_high is not None
        kappa = f"{agreed.kappa:.2f}" + (f" ({agreed.kappa_low:.2f} to {agreed.kappa_high:.2f})" if inside else "")
    mine, theirs = (sum(one.pairs for one in side) for side in (found.only_profile, found.only_validator))
    return (
        f"{found.profile} and {found.validator} agree on {agreed.agreed} of {plural(agreed.pairs, 'pair')} "
        f"({percent(agreed.agreed / agreed.pairs)}), kappa {kappa}; only {found.profile} solved {mine}, "
        f"only {found.validator} {theirs}; {found.unmeasured} not measured by both"
    )


def _sentence(found: Validation, spec: str) -> str:
    cap = f" of a cap of {dollars(found.budget_usd)}" if found.budget_usd is not None else ", without a separate cap"
    if not found.batches:
        return f"{percent(found.rate)} of the trials are to be validated with {spec}: none has run yet"
    return (
        f"{plural(found.pairs, 'pair')} by {spec} in {plural(found.batches, 'batch', 'batches')}, "
        f"{cost(found.cost_usd, found.cost_unknown)} spent{cap}"
    )
