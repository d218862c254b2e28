"""How much the pass rate of identical runs varies, and which tasks make it vary. Pure.

Iterations of one profile id on the same tasks differ by luck alone. Luck explains a spread: that of independent
attempts, each task with its own rate. More than that means that iterations differ by something else.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import fsum, sqrt
from statistics import NormalDist, stdev

import msgspec

from terminalbench.analytics.special import normal_tail
from terminalbench.overnight.delta import ALPHA
from terminalbench.records.counts import Counts
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import p_equation, percent, plural, points

FEWEST = 3
"""Iterations below which a spread says nothing."""


class Noise(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The noise floor of one profile: the spread of its pass rate over identical iterations.

    `spread` is the standard deviation that was seen, `expected` the one that luck explains. Two iterations that differ
    by less than `floor` differ by no more than chance does in 95 of 100 pairs. `p`: that luck alone spreads so much.
    """

    iterations: int
    rate: float | None = None
    spread: float | None = None
    expected: float | None = None
    floor: float | None = None
    p: float | None = None
    sentence: str = ""


class FlakyTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that passed and failed with nothing changed; `flips` is how often an iteration differed from the last."""

    task_id: str
    dataset: str
    count: Counts
    flips: int
    iterations: int


def noise_floor(iterations: Sequence[Mapping[TaskRef, Counts]]) -> Noise:
    """The noise of identical runs: what each measured, task by task."""
    measured = [{ref: count for ref, count in one.items() if count.measured} for one in iterations]
    measured = [one for one in measured if one]
    pooled: dict[TaskRef, Counts] = {}
    for one in measured:
        for ref, count in one.items():
            pooled[ref] = pooled.get(ref, Counts()) + count
    rates = [_mean([count.rate or 0.0 for count in one.values()]) for one in measured]
    if len(measured) < 2:
        return Noise(iterations=len(measured), rate=rates[0] if rates else None, sentence=_too_few(len(measured)))
    usual = [_mean([pooled[ref].rate or 0.0 for ref in one]) for one in measured]
    luck = [_variance(one, pooled) for one in measured]
    expected = sqrt(_mean(luck))
    floor = min(1.0, NormalDist().inv_cdf(1 - ALPHA / 2) * sqrt(2) * expected)
    p = _too_wide(rates, usual, luck) if len(measured) >= FEWEST else None
    found = Noise(iterations=len(measured), rate=_mean(rates), spread=stdev(rates), expected=expected, floor=floor, p=p)
    return msgspec.structs.replace(found, sentence=_sentence(found))


def flaky_tasks(iterations: Sequence[Mapping[TaskRef, Counts]]) -> list[FlakyTask]:
    """The tasks that both passed and failed, those nearest to a coin first."""
    found: list[FlakyTask] = []
    for ref in dict.fromkeys(ref for one in iterations for ref in one):
        counts = [one[ref] for one in iterations if ref in one and one[ref].measured]
        total = sum(counts, Counts())
        if total.mixed:
            flips = sum(a.rate != b.rate for a, b in pairwise(counts))
            found.append(
                FlakyTask(task_id=ref.id, dataset=ref.dataset, count=total, flips=flips, iterations=len(counts))
            )
    return sorted(found, key=lambda one: (abs((one.count.rate or 0.0) - 0.5), one.dataset, one.task_id))


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _variance(one: Mapping[TaskRef, Counts], pooled: Mapping[TaskRef, Counts]) -> float:
    """Return the variance of an iteration's pass rate when each attempt passes with the rate that its task has over the
    night."""
    parts = []
    for ref, count in one.items():
        total = pooled[ref]
        rate = total.rate or 0.0
        unbiased = rate * (1 - rate) * total.measured / (total.measured - 1) if total.measured > 1 else 0.0
        parts.append(unbiased / count.measured)
    return fsum(parts) / len(one) ** 2


def _too_wide(rates: Sequence[float], usual: Sequence[float], luck: Sequence[float]) -> float | None:
    """The chance of so wide a spread by luck alone: chi-square, by Wilson and Hilferty. None when nothing varies."""
    seen = [(rate - mean) ** 2 / variance for rate, mean, variance in zip(rates, usual, luck, strict=True) if variance]
    freedom = len(seen) - 1
    if freedom < 1:
        return None
    scale = 2 / (9 * freedom)
    return normal_tail(((fsum(seen) / freedom) ** (1 / 3) - (1 - scale)) / sqrt(scale))


def _too_few(count: int) -> str:
    return f"no noise floor from {plural(count, 'measured iteration')}: it needs two, and its test needs {FEWEST}"


def _sentence(found: Noise) -> str:
    seen = f"over {plural(found.iterations, 'iteration')} the pass rate is {percent(found.rate)} on average"
    if not found.expected:
        return f"{seen}, and no task varied"
    spread = (
        f"{seen} and varies by {points(found.spread, sign=False)} (standard deviation); chance alone explains "
        f"{points(found.expected, sign=False)}. Two iterations that differ by less than "
        f"{points(found.floor, sign=False)} cannot be told apart"
    )
    if found.p is None:
        return spread
    wide = found.p <= ALPHA
    said = "more than chance: something else differs between iterations" if wide else "not clearly more than chance"
    return f"{spread}. The variation is {said} ({p_equation(found.p)})"
