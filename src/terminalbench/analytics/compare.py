"""`compare`: rows and settings in, a `Comparison` out. Pure: no clock, no files, nothing random without a seed."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from terminalbench.analytics import power, sign_flip, stats
from terminalbench.analytics.checks import Comparability, comparability
from terminalbench.analytics.contrast import (
    BY_STAGES,
    CountedWay,
    LookPlan,
    chance_to_decide,
    crossing,
    ended_only,
    estimate,
    judge,
    looks_early,
    looks_now,
    sequential_record,
    size_of,
    unit_values,
    with_interval,
)
from terminalbench.analytics.missing import (
    MeasuredShare,
    TippingPoint,
    begun,
    coverage,
    first_tries_only,
    lost_trials,
    repeats,
    trials_apart,
    undone_by,
    undone_in_stages,
)
from terminalbench.analytics.model import Comparison, Contrast, Estimate, Interval, MissingTrials, Row, Verdict
from terminalbench.analytics.rows import repeats_told, rows_of
from terminalbench.analytics.sentence import (
    HAS_VALUE,
    could_be_undone,
    ended_early,
    notes,
    sentence,
    still_runs,
    still_to_come,
    too_early,
    unknown_k,
)
from terminalbench.analytics.settings import ComparisonRequest, ComparisonSettings, is_oracle, settings_of
from terminalbench.analytics.standings import standings
from terminalbench.analytics.summary import (
    BOUNDS,
    WAYS,
    PairedSample,
    ProfileRows,
    Way,
    by_profile,
    has_value,
    pareto_front,
    sample,
    summarise,
    task_differences,
)
from terminalbench.errors import UserError, did_you_mean
from terminalbench.index.queries import BatchView
from terminalbench.records.trial import TaskRef
from terminalbench.text.names import typed
from terminalbench.text.numbers import noun, percent, plural, some


def compare_views(views: Sequence[BatchView], asked: ComparisonRequest | None = None) -> Comparison:
    """Return what batches say about their profiles: as their plans declare, and as it is asked now."""
    rows = rows_of(views, by_snapshot=asked is not None and asked.by_snapshot)
    comparison = compare(rows, settings_of(views, asked))
    running = [line for view in views for line in still_runs(view)]
    return msgspec.structs.replace(comparison, warnings=[*running, *comparison.warnings, *_unreadable(views, asked)])


def _unreadable(views: Sequence[BatchView], asked: ComparisonRequest | None) -> list[str]:
    """The results that cannot be read, and how to get others."""
    lines: list[str] = []
    for view in views:
        rows = [cell.row for cell in view.cells if cell.row is not None]
        rows += [row for row in view.superseded if row.task is None]  # of which cell it was cannot be told
        found = [row.why or "" for row in rows if row.unreadable]
        if found:
            place = view.batch if asked is None or asked.places is None else asked.places.get(view.batch)
            again = f"; tbench resume {typed(place)} runs {noun(len(found), 'it', 'them')} again" if place else ""
            lines.append(f"{view.batch}: {some(found, 3)}{again}")
    return lines


def compare(rows: Sequence[Row], settings: ComparisonSettings) -> Comparison:
    """Everything the trials say about the profiles: each by itself, and every contrast with its verdict."""
    profiles = by_profile(rows)
    for name in (settings.baseline, *(name for pair in settings.contrasts for name in pair)):
        if name not in profiles:
            raise UserError(f'no profile is called "{name}"', hint=did_you_mean(name, list(profiles)))
    needed = {name: _needed_only(found) for name, found in profiles.items()}
    ranked = {name: found for name, found in needed.items() if not is_oracle(settings.profiles, name)}
    front = pareto_front(ranked)
    summaries = summarise(needed, settings, front)
    sides = profiles if looks_early(settings) else needed
    prepared = [_prepare(sides[new], sides[old], settings) for new, old in settings.contrasts]
    return Comparison(
        batches=list(dict.fromkeys(row.batch for row in rows)),
        metric=settings.metric,
        alpha=settings.alpha,
        baseline=settings.baseline,
        profiles=summaries,
        contrasts=_contrasts(prepared, settings),
        pareto=front.profiles,
        pareto_note=front.note,
        warnings=[
            *settings.warnings,
            *still_to_come(needed),
            *unknown_k(summaries, settings),
            *repeats_told(rows),
        ],
        departures=[str(one) for one in settings.departures],
        departure_kinds=[one.kind for one in settings.departures],
        rule=settings.rule,
        coverage=settings.coverage,
        hypothesis=settings.hypothesis,
        k=settings.k,
        repeat=repeats(rows, settings),
        standings=standings(ranked, settings.alpha),
    )


def _needed_only(profile: ProfileRows) -> ProfileRows:
    """The profile without the trials that were spared: a run that ended early, as its plan said, is whole."""
    spared = any(row.spared for row in profile.rows())
    return profile.only(lambda row: not row.spared) if spared else profile


@dataclass(frozen=True)
class _PreparedContrast:
    """A contrast before the family is known."""

    new: ProfileRows
    old: ProfileRows
    tasks: list[TaskRef]
    checked: Comparability
    samples: dict[Way, PairedSample | None]
    estimates: dict[Way, Estimate]
    planned: tuple[ProfileRows, ProfileRows]
    doubted: tuple[ProfileRows, ProfileRows]
    lost: tuple[int, int]
    redrawn: tuple[int, int]

    def worst_p(self, rule: Way) -> float | None:
        """The largest p that the missing trials allow; 1 where they can turn the difference round."""
        ways = [self.estimates[way] for way in (rule, *BOUNDS)]
        known = [found.p for found in ways if found.p is not None]
        signs = {(found.difference or 0) > 0 for found in ways}
        return None if len(known) < len(ways) else max(known) if len(signs) == 1 else 1.0


def _prepare(new: ProfileRows, old: ProfileRows, settings: ComparisonSettings) -> _PreparedContrast:
    planned = (new, old)
    if looks_early(settings):
        new, old = ended_only(new), ended_only(old)
    checked = comparability(new, old, settings.profiles, planned)
    tasks = [task for task in new.tasks if task in old.tasks and task not in checked.changed]
    apart = checked.redrawn
    doubted = first_tries_only(new, at_different_rates=apart), first_tries_only(old, at_different_rates=apart)
    lost, unknown = ((lost_trials(a, tasks), lost_trials(b, tasks)) for a, b in ((new, old), doubted))
    ways: tuple[Way, ...] = (*WAYS, *(BOUNDS if settings.metric == "pass" else ()))
    measured = sample(new, old, tasks, settings.metric, "exclude") if not checked.refused else None
    samples: dict[Way, PairedSample | None] = dict.fromkeys(ways, measured)
    estimates: dict[Way, Estimate] = dict.fromkeys(ways, estimate(measured, settings))
    if any(unknown) and not checked.refused:
        possible = begun(new, old, tasks)
        for way in ways[1:]:
            sides, which = ((new, old), tasks) if way in WAYS else (doubted, possible)
            samples[way] = sample(*sides, which, settings.metric, way)
            estimates[way] = estimate(samples[way], settings)
    redrawn = (unknown[0] - lost[0], unknown[1] - lost[1])
    return _PreparedContrast(new, old, tasks, checked, samples, estimates, planned, doubted, lost, redrawn)


def _contrasts(prepared: Sequence[_PreparedContrast], settings: ComparisonSettings) -> list[Contrast]:
    adjusted: dict[Way, list[float | None]] = {way: stats.holm([p.estimates[way].p for p in prepared]) for way in WAYS}
    if settings.metric == "pass":
        adjusted |= dict.fromkeys(BOUNDS, stats.holm([p.worst_p(settings.rule) for p in prepared]))
    family = max(1, sum(p.estimates[settings.rule].p is not None for p in prepared))
    found = []
    for place, contrast in enumerate(prepared):
        looks = looks_now(*contrast.planned, settings, family)
        ways: dict[Way, CountedWay] = {}
        for way, ps in adjusted.items():
            same = ways.get("exclude") if contrast.samples[way] is contrast.samples["exclude"] else None
            ways[way] = (
                dataclasses.replace(same, p_adjusted=ps[place])
                if same is not None
                else _counted(contrast, way, ps[place], settings, family, looks)
            )

        def counted(turned: PairedSample, place: int = place, looks: LookPlan = looks) -> CountedWay:
            """The contrast with other passes, among the others as they are."""
            changed = estimate(turned, settings)
            ps = [changed.p if n == place else p.worst_p(settings.rule) for n, p in enumerate(prepared)]
            alpha, margin = _margin_alpha(settings, family, looks), settings.margin
            fit = stats.margin_fit(turned.paired, margin, alpha) if margin is not None else None
            return CountedWay(changed, stats.holm(ps)[place], fit=fit)

        steps = stats.holm_steps([p.estimates[settings.rule].p for p in prepared])[place]
        found.append(_FamilyContrast(contrast, ways, settings, family, steps, looks, counted).contrast())
    return found


def _counted(
    prepared: _PreparedContrast, way: Way, p: float | None, settings: ComparisonSettings, family: int, looks: LookPlan
) -> CountedWay:
    sides = prepared.doubted if way in BOUNDS else (prepared.new, prepared.old)
    tasks = begun(prepared.new, prepared.old, prepared.tasks) if way in BOUNDS else prepared.tasks
    crossed = crossing(*sides, tasks, way, looks, settings.metric)
    found, margin = prepared.samples[way], settings.margin
    if found is None or margin is None or settings.metric != "pass":
        return CountedWay(prepared.estimates[way], p, crossing=crossed)
    narrow = stats.equivalence_interval(found.paired, _margin_alpha(settings, family, looks))
    fit = stats.MarginFit(-margin < narrow.low, narrow.high < margin)
    return CountedWay(prepared.estimates[way], p, narrow, fit, crossed)


def _margin_alpha(settings: ComparisonSettings, family: int, looks: LookPlan) -> float:
    """Return the error of each end of the margin. Where trials became more, each time has its share."""
    return settings.alpha / family / (len(looks.stages) if looks.method == "growth" else 1)


@dataclass(frozen=True)
class _FamilyContrast:
    """A contrast among the others: each way of counting it, Holm's step, the looks, and how it counts with other
    passes."""

    prepared: _PreparedContrast
    ways: Mapping[Way, CountedWay]
    settings: ComparisonSettings
    family: int
    steps: int
    looks: LookPlan
    counted: Callable[[PairedSample], CountedWay]

    def contrast(self) -> Contrast:
        """Return the contrast with its verdict, in numbers and in words."""
        prepared, settings, looks, checked = self.prepared, self.settings, self.looks, self.prepared.checked
        declared = self.ways[settings.rule]
        other_way: Way = "fail" if settings.rule == "exclude" else "exclude"
        shares = self._shares()
        missing = self._missing()
        verdict, reason = self._verdict(shares, missing)
        fewest = power.fewest_units(stats.last_level(settings.looks, settings.alpha / self.family))
        spared = sum(row.spared for side in prepared.planned for row in side.rows())
        chance = chance_to_decide(looks, declared, settings, self.family)
        if verdict == "inconclusive" and reason is None and declared.estimate.units >= fewest:
            reason = ended_early(looks, chance) if spared else too_early(looks)
        found = prepared.samples[settings.rule]
        sequential = sequential_record(looks, declared, fewest, chance, spared)
        size = size_of(found, declared, settings, self.family, sequential)
        in_families = found is not None and found.by_family and found.paired.unit_count < len(found.tasks)
        alone = self._alone(set(found.tasks) if found is not None else set())
        contrast = Contrast(
            new=prepared.new.profile,
            old=prepared.old.profile,
            metric=settings.metric,
            rule=settings.rule,
            estimate=with_interval(declared, found, looks, settings, self.steps),
            other_way=with_interval(self.ways[other_way], prepared.samples[other_way], looks, settings, self.steps),
            verdict=verdict,
            sentence="",
            p_adjusted=declared.p_adjusted,
            unit="family" if in_families else "task",
            tasks=task_differences(found),
            only_new=alone[0],
            only_old=alone[1],
            unmeasured=alone[2],
            changed=checked.changed,
            smallest_detectable=size.smallest,
            smallest_in_third=size.in_third,
            trials_needed=size.trials,
            units_needed=fewest if declared.estimate.units < fewest else None,
            effect=settings.effect if size.trials is not None else None,
            margin=settings.margin,
            strict=settings.strict,
            equivalence_interval=self._to_fit_margin(),
            error_rate_p=checked.error_rate_p,
            warnings=checked.warnings,
            refused=checked.refused,
            reason=reason,
            coverage_new=shares[0].compared,
            coverage_old=shares[1].compared,
            doubtful_new=checked.doubtful[0].share,
            doubtful_old=checked.doubtful[1].share,
            missing=missing,
            sequential=sequential,
            same_treatment=checked.same_treatment,
            strict_p=self._strict_p(found, verdict),
        )
        return msgspec.structs.replace(contrast, sentence=sentence(contrast, fewest), notes=notes(contrast))

    def _judged(self, *ways: CountedWay) -> Verdict:
        """The verdict that holds in every one of some ways; without any, in those that it must hold in."""
        return judge(ways or [self.ways[way] for way in _needed(self.settings)], self.looks, self.settings)

    def _strict_p(self, found: PairedSample | None, verdict: Verdict) -> float | None:
        """The p of a difference at one look that is told, without the assumption that a task favours either alike."""
        told = verdict in ("better", "worse") and self.settings.metric == "pass" and self.looks.method == "plain"
        if found is None or not told:
            return None
        return min(1.0, self.steps * sign_flip.strict_p(*unit_values(found, self.settings)))

    def _shares(self) -> list[MeasuredShare]:
        sides, changed = (self.prepared.new, self.prepared.old), self.prepared.checked.changed
        planned = self.prepared.planned
        common = {task for task in planned[0].tasks if task in planned[1].tasks}
        return [
            coverage(side, self.prepared.tasks, trials_apart(side, other, common, changed), self.settings)
            for side, other in (sides, sides[::-1])
        ]

    def _missing(self) -> MissingTrials | None:
        """The bounds of what was not measured, and how much of it undoes the verdict; None when nothing was lost."""
        prepared, looks, settings = self.prepared, self.looks, self.settings
        low, high = (prepared.samples.get(way) for way in BOUNDS)
        if low is None or high is None or not any((*prepared.lost, *prepared.redrawn)):
            return None
        verdict = self._judged(self.ways[settings.rule])

        def holds(turned: PairedSample, *, upward: bool) -> bool:
            found = self.counted(turned)
            if verdict != "equivalent":
                return self._judged(found) == verdict
            return found.fit is not None and (found.fit.low if upward else found.fit.high)

        def decides(new: ProfileRows, old: ProfileRows) -> bool:
            """The same of what is judged by stages, which totals do not tell."""
            sampled = sample(new, old, low.tasks, settings.metric, "exclude")
            crossed = crossing(new, old, low.tasks, "exclude", looks, settings.metric)
            return self._judged(CountedWay(estimate(sampled, settings), None, crossing=crossed)) == verdict

        ends = {"better": (True,), "worse": (False,), "equivalent": (True, False)}.get(verdict, ())
        if self._judged() == verdict:
            ends = ()
        if looks.method in BY_STAGES and verdict != "equivalent":
            found = [undone_in_stages(prepared.doubted, low, high, decides, upward=up) for up in ends]
        else:
            found = [undone_by(low, high, lambda s, up=up: holds(s, upward=up), upward=up) for up in ends]
        undone = [one for one in found if one.count is not None]
        fewest = min(undone, key=lambda one: one.count or 0, default=TippingPoint())
        return MissingTrials(
            new=prepared.lost[0],
            old=prepared.lost[1],
            redrawn_new=prepared.redrawn[0],
            redrawn_old=prepared.redrawn[1],
            lowest=self.ways["low"].estimate,
            highest=self.ways["high"].estimate,
            verdict=verdict,
            undone_by=fewest.count,
            exact=fewest.exact,
        )

    def _verdict(self, shares: Sequence[MeasuredShare], missing: MissingTrials | None) -> tuple[Verdict, str | None]:
        """The verdict, and why there is none where the numbers alone would not say."""
        prepared, settings = self.prepared, self.settings
        if prepared.checked.refused:
            return "inconclusive", f"not compared ({'; '.join(prepared.checked.refused)})"
        if prepared.samples[settings.rule] is None:
            return "inconclusive", None
        if (held := self._too_little(shares)) is not None:
            return "inconclusive", held
        alone, verdict = self._judged(self.ways[settings.rule]), self._judged()
        if prepared.checked.same_treatment and verdict in ("better", "worse"):
            return "inconclusive", "both have the same content, so any difference is noise"
        if verdict == "inconclusive" and alone != "inconclusive":
            if missing is None:
                return verdict, "it does not hold if trials that were not measured are counted the other way"
            return verdict, could_be_undone(missing)
        fits = all(self.ways[way].inside for way in _needed(settings))
        if verdict == "inconclusive" and self.looks.method == "sign-flips" and not self.looks.last and fits:
            return verdict, "equivalence is judged once, when every trial has ended"
        return verdict, None

    def _too_little(self, shares: Sequence[MeasuredShare]) -> str | None:
        """Return why what was measured is no ground for a verdict, whatever it says; None when it is."""
        prepared, settings = self.prepared, self.settings
        wanted = f"({percent(settings.coverage)} wanted)"
        for side, share in zip((prepared.new, prepared.old), shares, strict=True):
            if share.measured is not None and share.measured < settings.coverage:
                due = "has begun" if looks_early(settings) else "was to do"  # what is to come is not missing at a look
                what = f"what {side.profile} {due} {HAS_VALUE[settings.metric]}"
                return f"only {percent(share.measured)} of {what} {wanted}"
        if any(share.compared is not None and share.compared < settings.coverage for share in shares):
            everything = {task for side in prepared.planned for task in side.tasks}
            return f"only {len(prepared.tasks)} of {plural(len(everything), 'task')} are the same for both {wanted}"
        for side, doubtful in zip((prepared.new, prepared.old), prepared.checked.doubtful, strict=True):
            if doubtful.share is not None and doubtful.share > settings.doubtful:
                borne = f"analysis.doubtful allows {percent(settings.doubtful)}"
                return (
                    f"{percent(doubtful.share)} of {side.profile}'s results look doubtful: {doubtful.names} ({borne})"
                )
        return None

    def _to_fit_margin(self) -> Interval | None:
        """Return what must lie inside the margin, over every way of counting that is needed; None without a margin."""
        needed = _needed(self.settings)
        found = [one for way in needed if (one := self.ways[way].narrow) is not None]
        if not found or len(found) < len(needed):
            return None
        return msgspec.structs.replace(found[0], low=min(one.low for one in found), high=max(one.high for one in found))

    def _alone(self, with_value: set[TaskRef]) -> tuple[list[TaskRef], ...]:
        """Tasks with a value only under new, only under old, and under neither; those that changed stand apart."""
        prepared = self.prepared
        lists: tuple[list[TaskRef], list[TaskRef], list[TaskRef]] = ([], [], [])
        for task in dict.fromkeys([*prepared.new.tasks, *prepared.old.tasks]):
            if task in with_value or task in prepared.checked.changed or prepared.checked.refused:
                continue
            sides = (prepared.new.tasks.get(task, ()), prepared.old.tasks.get(task, ()))
            place = next(
                (
                    i
                    for i, rows in enumerate(sides)
                    if any(has_value(row, self.settings.metric, self.settings.rule) for row in rows)
                ),
                2,
            )
            lists[place].append(task)
        return lists


def _needed(settings: ComparisonSettings) -> tuple[Way, ...]:
    """The ways of counting a verdict must hold in: those that trials not measured can have made of it, at the worst.

    What a trial would have cost has no bound: there it must hold without those that broke, and with what they cost.
    """
    return (settings.rule, *BOUNDS) if settings.metric == "pass" else WAYS
