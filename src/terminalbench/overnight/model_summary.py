"""One profile over the whole night: its pass rate, its noise, its tasks, and what it was in earlier nights."""

from collections.abc import Sequence
from math import fsum
from pathlib import Path

from terminalbench.analytics.stats import paired
from terminalbench.analytics.summary import rate_interval
from terminalbench.overnight.delta_model import ALPHA
from terminalbench.overnight.earlier_nights import against_earlier, pooled
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.groups import group_rates
from terminalbench.overnight.iteration_files import ProjectedIteration
from terminalbench.overnight.iteration_results import ProfileResult
from terminalbench.overnight.night import NightConfig, NightModel
from terminalbench.overnight.noise import flaky_tasks, noise_floor
from terminalbench.overnight.summary_model import EarlierNight, ModelSummary, NightTaskLine
from terminalbench.records.counts import Counts, Spend
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import some


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
    return ModelSummary(
        model=model.spec,
        profile=model.profile,
        profile_id=model.profile_id,
        facts=model.facts,
        simulated=any(one.simulated for one in found),
        no_model=bool(found) and all(one.no_model for one in found),
        iterations=sum(one.measured > 0 for one in found),
        total=total,
        passed=sum(one.passed for one in found),
        failed=sum(one.failed for one in found),
        errored=sum(one.errored for one in found),
        not_run=sum(one.not_run for one in found),
        pass_rate=fsum(rates) / len(rates) if rates else None,
        low=interval.low if interval is not None else None,
        high=interval.high if interval is not None else None,
        coverage=measured / total if total else None,
        cost_usd=spent.cost_usd,
        cost_unknown=spent.cost_unknown,
        tokens=spent.tokens,
        tokens_unknown=spent.tokens_unknown,
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
    """What a profile did in each iteration, as long as it was the same treatment as in the first."""
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
    """What each iteration measured of the tasks that were the same in all of them."""
    contents = _contents(found)
    return [
        {task.ref: Counts(task.passed, task.measured) for task in one.tasks if len(contents[task.ref]) <= 1}
        for one in found
    ]


def not_alike(projected: Sequence[ProjectedIteration]) -> list[str]:
    """What was not the same in all iterations."""
    first: dict[str, str] = {}
    lines = []
    for each in projected:
        for one in each.results.profiles:
            if first.setdefault(one.profile, one.profile_id) != one.profile_id:
                lines.append(f"{one.profile} was another treatment in iteration {each.results.iteration}: left out")
    found = _contents([one for each in projected for one in each.results.profiles])
    changed = sorted(f"{ref.dataset}/{ref.id}" for ref, contents in found.items() if len(contents) > 1)
    if not changed:
        return lines
    return [
        *lines,
        f"the content of {some(changed)} changed during the night: it is in no rate over several iterations",
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
