"""One profile over the whole night: its pass rate, its noise, its tasks, and what it was in earlier nights."""

from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path

import msgspec

from terminalbench.analytics.stats import Stratum, paired, stratified
from terminalbench.analytics.summary import rate_interval
from terminalbench.overnight.delta import ALPHA, counts_of
from terminalbench.overnight.episodes import EpisodeFilter, EpisodeStore
from terminalbench.overnight.groups import group_rates
from terminalbench.overnight.iteration_files import ProjectedIteration
from terminalbench.overnight.iteration_results import ProfileResult
from terminalbench.overnight.night import NightConfig, NightModel
from terminalbench.overnight.noise import flaky_tasks, noise_floor
from terminalbench.overnight.summary_model import EarlierNight, ModelSummary, NightTaskLine
from terminalbench.records.counts import Counts, Spend
from terminalbench.records.trial import TaskRef
from terminalbench.records.values import copied
from terminalbench.text.numbers import p_equation, p_value, percent, plural, points, some


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
        gone = f"run {found.run_id} had the same tasks, but its results cannot be read any more: {found.results_path}"
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
    store = EpisodeStore.of_project(Path(config.project_root)) if config.project_root else None
    return copied(
        ModelSummary,
        model,
        model=model.spec,
        simulated=any(one.simulated for one in found),
        no_model=bool(found) and all(one.no_model for one in found),
        iterations=sum(one.measured > 0 for one in found),
        total=total,
        **{name: sum(getattr(one, name) for one in found) for name in ("passed", "failed", "errored", "not_run")},
        pass_rate=fsum(rates) / len(rates) if rates else None,
        low=interval.low if interval is not None else None,
        high=interval.high if interval is not None else None,
        coverage=measured / total if total else None,
        **msgspec.structs.asdict(spent),
        noise=noise_floor(same),
        flaky=flaky_tasks(same),
        tasks=_tasks(same),
        groups=group_rates(found, counts),
        earlier=_earlier(store, found, config) if store else None,
    )


def _earlier(store: EpisodeStore, found: Sequence[ProfileResult], config: NightConfig) -> EarlierNight | None:
    profiles = len(config.models)
    return against_earlier(store, found, run_id=config.run_id, before=config.created_at, profiles=profiles)


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
    changed = sorted(f"{ref.dataset}/{ref.id}" for ref, contents in found.items() if len(contents) > 1)
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
