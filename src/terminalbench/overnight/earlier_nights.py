"""Tonight against the night before: the baseline of a profile on the same tasks, from the episode store."""

from collections.abc import Mapping, Sequence

import msgspec

from terminalbench.analytics.strata import Stratum, stratified
from terminalbench.overnight.delta import counts_of
from terminalbench.overnight.delta_model import ALPHA
from terminalbench.overnight.episodes import EpisodeFilter, EpisodeStore
from terminalbench.overnight.iteration_results import ProfileResult
from terminalbench.overnight.summary_model import EarlierNight
from terminalbench.records.counts import Counts
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import p_equation, p_value, percent, plural, points


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
    rate = _rate(older)
    told = EarlierNight(episode=found.id, run_id=found.run_id, iterations=len(same), pass_rate=rate, sentence="")
    if rate is None:
        gone = f"run {found.run_id} had the same tasks, but its results can no longer be read: {found.results_path}"
        return msgspec.structs.replace(told, sentence=gone)
    p = stratified(_strata(newer, older)).two_sided
    now_rate = _rate(newer) or 0.0
    level = level_of(profiles)
    verdict = "not different from" if p > level else "better than" if now_rate > rate else "worse than"
    of = f" of {profiles} profiles" if profiles > 1 else ""
    spread = f"{p_value(level)} decides: {percent(ALPHA)} over {NIGHTS} nights{of}"
    sentence = (
        f"{verdict} run {found.run_id} ({plural(len(same), 'iteration')}, {percent(rate)}) on the same tasks: "
        f"{points(now_rate - rate)}, exact {p_equation(p)} ({spread})"
    )
    return msgspec.structs.replace(told, sentence=sentence, p=p)


def _rate(counts: Mapping[TaskRef, Counts]) -> float | None:
    rates = [count.rate for count in counts.values() if count.rate is not None]
    return sum(rates) / len(rates) if rates else None


def _strata(newer: Mapping[TaskRef, Counts], older: Mapping[TaskRef, Counts]) -> list[Stratum]:
    return [
        Stratum(count.passed, count.measured, older[ref].passed, older[ref].measured)
        for ref, count in newer.items()
        if ref in older
    ]
