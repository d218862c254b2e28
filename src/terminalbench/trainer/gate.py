"""What a challenger has to show before it is champion, and a champion to stay so. Pure: rows in, a verdict out.

All statistics are those of `analytics`: tasks are the units, looks are declared (O'Brien-Fleming), trials that were not
measured may have been the worst. Success comes first: only a higher pass rate promotes, and cost can only forbid. So
giving up early, which saves money and passes nothing, can never win.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import msgspec

from terminalbench.analytics.compare import compare
from terminalbench.analytics.contrast import LookPlan, estimate, looks_now
from terminalbench.analytics.model import Estimate, Interval, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.stats import Stratum, holm, nominal_level, stratified
from terminalbench.analytics.summary import by_profile, sample
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.numbers import between, p_equation, p_value, percent, plural, points, times

FAMILY_ALPHA = 0.05
MORE_CANARIES = 1
"""A gain that is proven and does not show again at first is measured in so many more nights."""
HOPELESS = 0.05
"""A challenger whose gain, going on as it did, is shown with no more than this chance is measured no further."""
FUTILE_FROM = 0.4
"""The share of the looks before which no challenger is given up for that."""
CLAIM_ALPHA = 0.05
"""The interval of what is claimed holds the truth in 95 of 100 cases."""


class GateAction(StrEnum):
    """What follows from a verdict."""

    GO_ON = "go_on"
    """It is measured again."""
    DROP = "drop"
    """It is a challenger no more."""
    CANARY = "canary"
    """It is proven better, and is measured anew."""
    PROMOTE = "promote"
    """It becomes champion."""
    KEEP = "keep"
    """The champion stays."""
    ROLL_BACK = "roll_back"
    """The champion before it comes back."""


class GateVerdict(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was decided, and the numbers behind it. `level` is the p that decides at this look (0: before the first).

    `claimed` is the gain that is claimed: that of the canary nights, less what having had to show again adds to it.
    `looks_so_far`: p is adjusted for so many looks at the holdout.
    """

    action: GateAction
    reason: str
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None
    level: float | None = None
    look: int | None = None
    looks: int | None = None
    tasks: int = 0
    trials: int = 0
    claimed: float | None = None
    looks_so_far: int | None = None
    cost_ratio: float | None = None
    lost_families: tuple[str, ...] = ()


@dataclass(frozen=True)
class GateRule:
    """What was declared. `alpha` is that of one challenger, `planned_trials` are of each profile over all looks."""

    alpha: float
    looks: int
    planned_trials: int
    canary_nights: int = 1
    cost_margin: float | None = None
    by_family: bool = False


def alpha_of(number: int, challengers: int, alpha: float) -> float:
    """The part of `alpha` that the challenger of this number has, from 1: the first most, all together `alpha`."""
    return alpha * (challengers + 1) / challengers / (number * (number + 1))


@dataclass(frozen=True)
class _GateInput:
    estimate: Estimate
    looks: LookPlan | None


def confirm(rows: Sequence[Row], new: str, old: str, rule: GateRule, nights: int) -> GateVerdict:
    """A challenger against the champion over all `nights` that both were measured side by side."""
    settings = ComparisonSettings(
        baseline=old,
        contrasts=((new, old),),
        alpha=rule.alpha,
        looks=rule.looks,
        planned_trials=rule.planned_trials,
    )
    units = _units(rows, rule)
    found = _measured(units, new, old, settings)
    look = found.looks.look or 0 if found.looks is not None else 0
    measured = found.estimate.difference is not None
    verdict = _decided(units, found, settings)
    if verdict == "better":
        return _allowed(rows, new, old, rule, _said(GateAction.CANARY, "proven better", found, by_p=True))
    if verdict == "worse":
        return _said(GateAction.DROP, "proven worse", found, by_p=True)
    if measured and look >= rule.looks:
        return _said(GateAction.DROP, f"not shown to be better in {plural(rule.looks, 'look')}", found, by_p=True)
    if nights >= 2 * rule.looks:
        return _said(GateAction.DROP, f"could not be measured in {plural(nights, 'night')}", found)
    if measured and chance_left(found.estimate, look, rule) <= HOPELESS:
        return _said(GateAction.DROP, "no gain is likely any more", found, by_p=True)
    return _said(GateAction.GO_ON, "not decided yet", found, by_p=True)


def chance_left(found: Estimate, look: int, rule: GateRule) -> float:
    """Return how likely the looks that are left show a gain, if it goes on as it did; 1 where it is too early to
    say."""
    if found.p is None or found.difference is None or look < FUTILE_FROM * rule.looks or look >= rule.looks:
        return 1.0
    normal, share = NormalDist(), look / rule.looks
    seen = normal.inv_cdf(1 - max(found.p, 1e-12) / 2) if found.p < 1 else 0.0
    seen = seen if found.difference > 0 else -seen
    needed = normal.inv_cdf(1 - nominal_level(rule.looks, rule.looks, rule.alpha) / 2)
    return normal.cdf((seen / share**0.5 - needed) / (1 - share) ** 0.5)


def canary(rows: Sequence[Row], new: str, old: str, rule: GateRule, nights: int) -> GateVerdict:
    """A proven challenger on the nights since: what they show, alone, is what is claimed of it.

    What proved it was the best of many looks, and so looks better than it is; these nights were not chosen.
    """
    settings = ComparisonSettings(baseline=old, contrasts=((new, old),), alpha=CLAIM_ALPHA)
    found = _measured(_units(rows, rule), new, old, settings)
    difference = found.estimate.difference
    if difference is None:
        if nights >= 2 * rule.canary_nights + 1:
            return _said(GateAction.DROP, f"could not be measured in {plural(nights, 'canary night')}", found)
        return _said(GateAction.GO_ON, "nothing was measured", found)
    if nights < rule.canary_nights:
        return _said(GateAction.GO_ON, f"canary night {nights} of {rule.canary_nights}", found)
    if difference <= 0:
        if nights < rule.canary_nights + MORE_CANARIES:
            return _said(GateAction.GO_ON, f"the gain was not confirmed in {plural(nights, 'canary night')}", found)
        return _said(GateAction.DROP, "the gain was not confirmed", found)
    claimed = claim_of(difference, found.estimate.error)
    verdict = _said(GateAction.PROMOTE, "the gain was confirmed", found)
    said = f"{verdict.reason}; because it had to be confirmed, only {points(claimed)} are claimed"
    return _allowed(rows, new, old, rule, msgspec.structs.replace(verdict, reason=said, claimed=claimed))


def claim_of(difference: float, error: float | None) -> float:
    """The gain that makes a difference as large as this most likely among those above zero: no other is promoted.

    Never below zero. A difference that is many times its error was not chosen, and is claimed as it is.
    """
    if error is None or error <= 0:
        return difference
    normal = NormalDist()

    def seen(gain: float) -> float:
        """The mean of the differences above zero that such a gain gives."""
        above = normal.cdf(gain / error)
        return gain + error * normal.pdf(gain / error) / above

    low, high = 0.0, difference
    if seen(low) >= difference:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if seen(middle) < difference else (low, middle)
    return high


def watch(rows: Sequence[Row], champion: str, control: str, alpha: float) -> GateVerdict:
    """The champion against the one before it, on the last nights; `alpha` is that of one of all nights."""
    settings = ComparisonSettings(baseline=control, contrasts=((champion, control),), alpha=alpha)
    rule = GateRule(alpha, 1, 0)
    units = _units(rows, rule)
    found = _measured(units, champion, control, settings)
    if _decided(units, found, settings) == "worse":
        return _said(GateAction.ROLL_BACK, "the champion is proven worse than the one before it", found, by_p=True)
    return _said(GateAction.KEEP, "the champion is not shown to be worse", found, by_p=True)


def sealed(rows: Sequence[Row], new: str, old: str, *, by_family: bool, looks: int = 1) -> GateVerdict:
    """A champion against another profile on tasks that were held out: what they show, and nothing follows from it.

    This is one of so many `looks` at them: p is multiplied by that number, and the interval is as wide as that.
    """
    settings = ComparisonSettings(baseline=old, contrasts=((new, old),), alpha=CLAIM_ALPHA / looks)
    found = _measured(_units(rows, GateRule(CLAIM_ALPHA, 1, 0, by_family=by_family)), new, old, settings)
    if looks == 1 or found.estimate.p is None:
        return _said(GateAction.KEEP, "on the holdout", found)
    adjusted = msgspec.structs.replace(found.estimate, p=min(1.0, looks * found.estimate.p))
    verdict = _said(GateAction.KEEP, f"on the holdout (p for {looks} looks at it)", _GateInput(adjusted, found.looks))
    return msgspec.structs.replace(verdict, looks_so_far=looks)


def same_profile_p(first: Sequence[Row], second: Sequence[Row]) -> float | None:
    """A/A: how likely two sets of trials of one profile differ so much by luck; None when no task tells."""
    found = stratified(_strata(first, second).values())
    return found.two_sided if found.informative else None


def lost_families(rows: Sequence[Row], new: str, old: str) -> tuple[str, ...]:
    """The families in which the new profile passes significantly less, after Holm's adjustment over all of them."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        if row.task.family is not None:
            families.setdefault(row.task.family, []).append(row)
    ps = []
    for held in families.values():
        sides = [[row for row in held if row.profile == name] for name in (new, old)]
        exact = stratified(_strata(*sides).values())
        ps.append(exact.fewer if exact.informative else None)
    adjusted = zip(families, holm(ps), strict=True)
    return tuple(name for name, p in adjusted if p is not None and p <= FAMILY_ALPHA)


def _units(rows: Sequence[Row], rule: GateRule) -> list[Row]:
    """The rows with what counts as one observation: the task, unless the plan says family."""
    if rule.by_family:
        return list(rows)
    bare: dict[TaskRef, TaskRef] = {}
    found = []
    for row in rows:
        if row.task.family is not None:
            task = bare.setdefault(row.task, TaskRef(row.task.id, row.task.dataset))
            row = msgspec.structs.replace(row, task=task)
        found.append(row)
    return found


def _measured(rows: Sequence[Row], new: str, old: str, settings: ComparisonSettings) -> _GateInput:
    sides = by_profile(rows)
    ours, theirs = sides.get(new), sides.get(old)
    if ours is None or theirs is None:
        return _GateInput(Estimate(units=0, trials=0), None)
    tasks = [task for task in ours.tasks if task in theirs.tasks]
    return _GateInput(
        estimate(sample(ours, theirs, tasks, "pass", "exclude"), settings), looks_now(ours, theirs, settings, 1)
    )


def _decided(rows: Sequence[Row], found: _GateInput, settings: ComparisonSettings) -> str:
    """The verdict of the comparison; it is asked only where p could decide."""
    p = found.estimate.p
    if found.looks is None or p is None or p > found.looks.level:
        return "inconclusive"
    return compare(rows, settings).contrasts[0].verdict


def _allowed(rows: Sequence[Row], new: str, old: str, rule: GateRule, verdict: GateVerdict) -> GateVerdict:
    """The verdict, unless cost or a family forbids it."""
    lost = lost_families(rows, new, old)
    if lost:
        reason = f"{verdict.reason} overall, but worse in {', '.join(lost)}"
        return msgspec.structs.replace(verdict, action=GateAction.DROP, reason=reason, lost_families=lost)
    if rule.cost_margin is None:
        return verdict
    settings = ComparisonSettings(baseline=old, contrasts=((new, old),), metric="cost")
    ratio = compare(_units(rows, rule), settings).contrasts[0].estimate.ratio
    if ratio is None:
        free = all(row.cost_usd == 0 or row.no_model for row in rows if row.measured)
        reason = f"{verdict.reason}, but its cost is unknown"
        return verdict if free else msgspec.structs.replace(verdict, action=GateAction.DROP, reason=reason)
    if ratio > 1 + rule.cost_margin:
        most = times(1 + rule.cost_margin)
        reason = f"{verdict.reason}, but at {times(ratio)} times the cost ({most} was declared as the limit)"
        return msgspec.structs.replace(verdict, action=GateAction.DROP, reason=reason, cost_ratio=ratio)
    return msgspec.structs.replace(verdict, cost_ratio=ratio)


def _strata(new: Sequence[Row], old: Sequence[Row]) -> Mapping[TaskRef, Stratum]:
    counts: dict[TaskRef, list[int]] = {}
    for place, side in ((0, new), (2, old)):
        for row in side:
            if row.measured:
                held = counts.setdefault(row.task, [0, 0, 0, 0])
                held[place] += row.outcome is Outcome.PASSED
                held[place + 1] += 1
    return {task: Stratum(*held) for task, held in counts.items()}


def _said(action: GateAction, what: str, found: _GateInput, *, by_p: bool = False) -> GateVerdict:
    """The verdict with its numbers; with the p that would decide, where it is p that does."""
    way, looks = found.estimate, found.looks
    if way.difference is None:
        return GateVerdict(action=action, reason=f"{what}: no task was measured with both")
    interval = way.interval
    numbers = [points(way.difference)]
    if interval is not None:
        numbers.append(f"{percent(interval.level)} interval {between(interval.low, interval.high, 'pass')}")
    numbers.append(p_equation(way.p))
    if by_p and looks is not None:
        numbers.append(_level_said(looks))
    numbers[-1] += f" on {plural(way.tasks, 'task')}, {plural(way.trials, 'trial')}"
    return GateVerdict(
        action=action,
        reason=f"{what}: {', '.join(numbers)}",
        difference=way.difference,
        interval=interval,
        p=way.p,
        level=looks.level if looks is not None else None,
        look=looks.look if looks is not None else None,
        looks=looks.looks if looks is not None else None,
        tasks=way.tasks,
        trials=way.trials,
    )


def _level_said(looks: LookPlan) -> str:
    if looks.method in ("plain", "growth"):
        return f"decides at {p_value(looks.level)}"
    if not looks.look:
        return f"before look 1 of {looks.looks}"
    return f"look {looks.look} of {looks.looks} decides at {p_value(looks.level)}"
