"""One profile over the whole night: its pass rate, its noise, its tasks and kinds of tasks, and what it was before.

Iterations of one profile id on the same tasks differ by luck alone. Luck explains a spread: that of independent
attempts, each task with its own rate. More than that means that iterations differ by something else.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import fsum, sqrt
from pathlib import Path
from statistics import NormalDist, stdev

import msgspec

from terminalbench.analytics.special import normal_tail
from terminalbench.analytics.stats import Stratum, paired, stratified
from terminalbench.analytics.summary import rate_interval
from terminalbench.overnight.delta import ALPHA, counts_of
from terminalbench.overnight.episodes import EpisodeFilter, EpisodeStore
from terminalbench.overnight.iteration_files import ProjectedIteration
from terminalbench.overnight.iteration_results import MeasuredProfile, ProfileResult, TaskResult
from terminalbench.overnight.night import NightConfig, NightModel
from terminalbench.records.counts import Counts, Spend
from terminalbench.records.trial import TaskRef
from terminalbench.records.values import copied
from terminalbench.text.numbers import p_equation, p_value, percent, plural, points, some

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
    whole = pooled(measured)
    rates = [_mean([count.rate or 0.0 for count in one.values()]) for one in measured]
    if len(measured) < 2:
        return Noise(iterations=len(measured), rate=rates[0] if rates else None, sentence=_too_few(len(measured)))
    usual = [_mean([whole[ref].rate or 0.0 for ref in one]) for one in measured]
    luck = [_variance(one, whole) for one in measured]
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


def _variance(one: Mapping[TaskRef, Counts], whole: Mapping[TaskRef, Counts]) -> float:
    """Return the variance of an iteration's pass rate when each attempt passes with the rate that its task has over the
    night."""
    parts = []
    for ref, count in one.items():
        total = whole[ref]
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


_BY_DIFFICULTY = ("easy", "medium", "hard", "expert")


class Grouping(StrEnum):
    """By what tasks are put together."""

    CATEGORY = "category"
    DIFFICULTY = "difficulty"


class GroupRate(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one kind over the night, by one profile; `name` is None for those of which the suite says nothing.

    `pass_rate` is the mean over tasks of passed of measured, `coverage` the measured share of the planned trials.
    """

    by: Grouping
    name: str | None
    tasks: int
    total: int
    passed: int
    measured: int
    pass_rate: float | None
    coverage: float | None


def group_rates(found: Sequence[ProfileResult], counts: Mapping[TaskRef, Counts]) -> list[GroupRate]:
    """Return what a profile did in its iterations `found`, kind by kind; none where the suite names no kinds.

    `counts` are the attempts that go into rates: those at tasks that stayed the same.
    """
    rates = []
    for by in Grouping:
        kinds: dict[str | None, list[TaskResult]] = {}
        for task in (task for one in found for task in one.tasks):
            kinds.setdefault(getattr(task, by), []).append(task)
        if any(kinds):
            rates += [_group_rate(by, name, kinds[name], counts) for name in sorted(kinds, key=_place)]
    return rates


def _place(name: str | None) -> tuple[int, str]:
    """Difficulties from easy to expert, then the alphabet, then what has no name."""
    if name is None:
        return len(_BY_DIFFICULTY) + 1, ""
    return _BY_DIFFICULTY.index(name) if name in _BY_DIFFICULTY else len(_BY_DIFFICULTY), name


def _group_rate(
    by: Grouping, name: str | None, tasks: Sequence[TaskResult], counts: Mapping[TaskRef, Counts]
) -> GroupRate:
    refs = list(dict.fromkeys(task.ref for task in tasks))
    total, measured = sum(task.attempts for task in tasks), sum(task.measured for task in tasks)
    return GroupRate(
        by=by,
        name=name,
        tasks=len(refs),
        total=total,
        passed=sum(task.passed for task in tasks),
        measured=measured,
        pass_rate=mean_rate(counts[ref] for ref in refs if ref in counts),
        coverage=measured / total if total else None,
    )


class NightTaskLine(msgspec.Struct, frozen=True, kw_only=True):
    """One task over the night. `marks` has a letter an iteration: `+` passed, `x` failed, `~` both, `.` neither."""

    task_id: str
    dataset: str
    count: Counts
    marks: str


class EarlierNight(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A profile against the night its baseline is of; without `p` the results of that night are gone."""

    episode: str
    run_id: str
    iterations: int
    pass_rate: float | None
    sentence: str
    p: float | None = None


class ModelSummary(MeasuredProfile, frozen=True, omit_defaults=True, kw_only=True):
    """One profile over the night: all its iterations together, its noise, and what it was before this night."""

    facts: dict[str, str]
    iterations: int
    low: float | None
    high: float | None
    noise: Noise
    flaky: list[FlakyTask]
    tasks: list[NightTaskLine]
    earlier: EarlierNight | None = None
    groups: list[GroupRate] = msgspec.field(default_factory=list)


def pooled(iterations: Sequence[Mapping[TaskRef, Counts]]) -> dict[TaskRef, Counts]:
    """The attempts of several iterations together."""
    found: dict[TaskRef, Counts] = {}
    for one in iterations:
        for ref, count in one.items():
            found[ref] = found.get(ref, Counts()) + count
    return found


NIGHTS = 31
"""In a month of nights in which nothing changes, at most a share ALPHA says better or worse."""


def level_of(profiles: int) -> float:
    """The p that decides for one of so many profiles of a night."""
    return ALPHA / NIGHTS / max(profiles, 1)


def against_earlier(
    store: EpisodeStore, now: Sequence[ProfileResult], *, run_id: str, before: str, profiles: int = 1
) -> EarlierNight | None:
    """A profile against the run of its baseline, on the same tasks; None when there is no baseline.

    `now` are its iterations tonight. Those with the task digest of the first that knows one are compared. ALPHA is
    spread over the nights of a month, and over so many `profiles` a night.
    """
    first = next((one for one in now if one.task_digest is not None and one.measured), None)
    if first is None:
        return None
    found = store.baseline(
        first.profile_id, first.task_digest, simulated=first.simulated, before=before, other_than=run_id
    )
    if found is None:
        return None
    run = store.query(EpisodeFilter(run_id=found.run_id))
    same = [one for one in run if (one.profile_id, one.task_digest) == (first.profile_id, first.task_digest)]
    older = pooled([counts_of(results) for one in same if (results := store.results(one)) is not None])
    newer = pooled([counts_of(one) for one in now if one.task_digest == first.task_digest])
    rate = mean_rate(older.values())
    told = EarlierNight(episode=found.id, run_id=found.run_id, iterations=len(same), pass_rate=rate, sentence="")
    if rate is None:
        gone = f"run {found.run_id} had the same tasks, but its results cannot be read any more: {found.results_path}"
        return msgspec.structs.replace(told, sentence=gone)
    p = stratified(_strata(newer, older)).two_sided
    now_rate = mean_rate(newer.values()) or 0.0
    level = level_of(profiles)
    verdict = "not different from" if p > level else "better than" if now_rate > rate else "worse than"
    of = f" of {profiles} profiles" if profiles > 1 else ""
    spread = f"{p_value(level)} decides: {percent(ALPHA)} over {NIGHTS} nights{of}"
    sentence = (
        f"{verdict} run {found.run_id} ({plural(len(same), 'iteration')}, {percent(rate)}) on the same tasks: "
        f"{points(now_rate - rate)}, exact {p_equation(p)} ({spread})"
    )
    return msgspec.structs.replace(told, sentence=sentence, p=p)


def mean_rate(counts: Iterable[Counts]) -> float | None:
    """The mean of the rates of tasks; None where none was measured."""
    rates = [count.rate for count in counts if count.rate is not None]
    return fsum(rates) / len(rates) if rates else None


def _strata(newer: Mapping[TaskRef, Counts], older: Mapping[TaskRef, Counts]) -> list[Stratum]:
    return [
        Stratum(count.passed, count.measured, older[ref].passed, older[ref].measured)
        for ref, count in newer.items()
        if ref in older
    ]


def whole_night(model: NightModel, projected: Sequence[ProjectedIteration], config: NightConfig) -> ModelSummary:
    """All that a profile did in a night."""
    found = _of_profile(model.profile, projected)
    same = _same_content(found)
    counts = pooled(same)
    rates = [count.rate for count in counts.values() if count.rate is not None]
    measured = sum(one.measured for one in found)
    total = sum(one.total for one in found)
    interval = rate_interval(paired(rates), measured, ALPHA) if rates else None
    spent = Spend.total(Spend(one.cost_usd, one.cost_unknown, one.tokens, one.tokens_unknown) for one in found)
    earlier = None
    if config.project_root:
        store, profiles = EpisodeStore.of_project(Path(config.project_root)), len(config.models)
        earlier = against_earlier(store, found, run_id=config.run_id, before=config.created_at, profiles=profiles)
    return copied(
        ModelSummary,
        model,
        model=model.spec,
        simulated=any(one.simulated for one in found),
        no_model=bool(found) and all(one.no_model for one in found),
        iterations=sum(one.measured > 0 for one in found),
        total=total,
        **{name: sum(getattr(one, name) for one in found) for name in ("passed", "failed", "errored", "not_run")},
        pass_rate=mean_rate(counts.values()),
        low=interval.low if interval is not None else None,
        high=interval.high if interval is not None else None,
        coverage=measured / total if total else None,
        **msgspec.structs.asdict(spent),
        noise=noise_floor(same),
        flaky=flaky_tasks(same),
        tasks=_tasks(same),
        groups=group_rates(found, counts),
        earlier=earlier,
    )


def _of_profile(profile: str, projected: Sequence[ProjectedIteration]) -> list[ProfileResult]:
    """Return what a profile did in each iteration, as long as it was the same treatment as in the first."""
    found = [one for each in projected for one in each.results.profiles if one.profile == profile]
    return [one for one in found if one.profile_id == found[0].profile_id]


def _contents(found: Sequence[ProfileResult]) -> dict[TaskRef, set[str]]:
    """The contents that each task had."""
    contents: dict[TaskRef, set[str]] = {}
    for one in found:
        for task in one.tasks:
            contents.setdefault(task.ref, set()).update({task.digest} if task.digest is not None else set())
    return contents


def _same_content(found: Sequence[ProfileResult]) -> list[dict[TaskRef, Counts]]:
    """Return what each iteration measured of the tasks that were the same in all of them."""
    contents = _contents(found)
    return [
        {task.ref: Counts(task.passed, task.measured) for task in one.tasks if len(contents[task.ref]) <= 1}
        for one in found
    ]


def not_alike(projected: Sequence[ProjectedIteration]) -> list[str]:
    """Return what was not the same in all iterations."""
    first: dict[str, str] = {}
    lines = []
    for each in projected:
        for one in each.results.profiles:
            if first.setdefault(one.profile, one.profile_id) != one.profile_id:
                lines.append(
                    f"{one.profile} had different content in iteration {each.results.iteration}, which is left out"
                )
    found = _contents([one for each in projected for one in each.results.profiles])
    changed = sorted(ref.name for ref, contents in found.items() if len(contents) > 1)
    if not changed:
        return lines
    return [
        *lines,
        f"the content of {some(changed)} changed during the night, so no rate over several iterations includes it",
    ]


def _tasks(same: Sequence[dict[TaskRef, Counts]]) -> list[NightTaskLine]:
    return [
        NightTaskLine(
            task_id=ref.id, dataset=ref.dataset, count=count, marks="".join(_mark(one.get(ref)) for one in same)
        )
        for ref, count in pooled(same).items()
    ]


def _mark(count: Counts | None) -> str:
    if count is None or not count.measured:
        return "."
    return "~" if count.mixed else "+" if count.passed else "x"
