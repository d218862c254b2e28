"""What a report says first: a few sentences, the answer before its limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from shlex import quote

from terminalbench.analytics.error_groups import FailureCause
from terminalbench.analytics.model import Comparison, Contrast
from terminalbench.report.model import DeliveryRow, ProfileLine, Report
from terminalbench.text.names import typed
from terminalbench.text.numbers import amount, between, dollars, p_value, percent, percents, plural

_MOST_TIMES = 5
"""Times as many attempts as there were: more are not advised to decide a contrast."""
FEW = 3
"""More sentences than so many about the same thing become one."""


@dataclass(frozen=True)
class Headline:
    """One sentence; `kind` is a verdict, "note" or "warning"; `anchor` is where the evidence stands."""

    text: str
    kind: str
    anchor: str


def headlines(report: Report) -> list[Headline]:
    """The verdict of each contrast, proven ones first (or the rate of the only profile), then what limits them."""
    found = [
        Headline(contrast.sentence, contrast.verdict, f"k{index}") for index, contrast in enumerate(report.contrasts)
    ]
    found.sort(key=lambda one: one.kind not in ("better", "worse"))
    if not found:
        found = [Headline(rate_sentence(line), "note", f"p{index}") for index, line in enumerate(report.profiles)]
    if report.pooled:
        over = f"The verdicts are over {', '.join(report.pooled)} together; " if report.contrasts else ""
        said = f"{over}everything else is about {report.batch}, the newest of {len(report.pooled)} batches."
        found.append(Headline(said[:1].upper() + said[1:], "note", "trend"))
    played = "Simulated agents took part: no measurement of real agents."
    return [*[Headline(played, "warning", "profiles")] * report.simulated, *found, *_limits(report)]


def method_sentence(contrasts: Sequence[Contrast]) -> str:
    """Return what the numbers in the sentences of contrasts are, once for all; empty where none has an interval."""
    found = {one.estimate.interval.level for one in contrasts if one.estimate.interval is not None}
    if not found:
        return ""
    levels = " or ".join(percent(level).replace(".0 %", " %") for level in sorted(found, reverse=True))
    many = " (Holm's correction for several contrasts)" if len(contrasts) > 1 else ""
    family = (
        " A family: tasks of one kind, which count as one." if any(one.unit == "family" for one in contrasts) else ""
    )
    return (
        f"pt: percentage points. In brackets: the {levels} interval of the difference on tasks like these{many}. p: "
        "how likely so large a difference is by chance, an exact test over the tasks that differ. It decides: where it "
        f"does not exclude zero, neither does the interval.{family}"
    )


def rate_sentence(line: ProfileLine) -> str:
    """One profile alone."""
    summary = line.summary
    if summary.rate is None:
        return f"{summary.profile}: none of {plural(summary.planned, 'planned trial')} was measured"
    within = f" ({percents(summary.interval.low, summary.interval.high)})" if summary.interval else ""
    return (
        f"{summary.profile}: {percent(summary.rate)}{within} of {plural(summary.measured, 'measured trial')} passed; "
        f"{percent(summary.rate_all)} of all {summary.planned:,} planned"
    )


def coverage_sentence(report: Report) -> str:
    """Return how many of the planned trials count."""
    lost = report.planned - report.measured
    what = plural(report.planned, "planned trial" if report.picked_of is None else "picked trial")
    part = "" if report.picked_of is None else f" {report.picked_of:,} were planned."
    if not lost:
        return f"All {what} were measured.{part}"
    return f"{report.measured:,} of {what} were measured; {lost:,} were not.{part}"


def looks_sentence(contrast: Contrast) -> str:
    """Return what a plan of looks, or trials that became more without one, says now; empty where there is neither."""
    looks = contrast.sequential
    if looks is None:
        return ""
    decides = f"p of at most {p_value(looks.level)} decides: {'decided' if looks.decided else 'not decided'}"
    if looks.never:
        decides = f"{plural(contrast.estimate.units, contrast.unit)} can never show a difference"
    if looks.method == "growth":
        grown = f"trials were added {plural(max((looks.looks or 1) - 1, 1), 'time')} without declared looks"
        return f"{grown}: {decides}; declaring analysis.looks = {looks.looks} beforehand would cost almost nothing"
    if looks.method == "sign-flips":
        at = f" at look {looks.decided_at}" if looks.decided else ""
        at += f", {percent(looks.chance)} likely to be decided at the end" if looks.chance is not None else ""
        ended = f"; the run ended early, without {plural(looks.spared, 'trial')}" if looks.spared else ""
        return f"look {looks.look} of {looks.looks} (at any time, by whole tasks): {decides}{at}{ended}"
    if not looks.look:
        return f"before the first of {looks.looks} declared looks: {decides if looks.never else 'not decided'}"
    return f"look {looks.look} of {looks.looks} (O'Brien-Fleming): {decides}"


def repeat_sentence(comparison: Comparison) -> str:
    """Return how to get back the trials that were not measured, in one line; empty when there is none to run again."""
    if not comparison.repeat:
        return ""
    commands = "; ".join(f"{one.before}: {one.command}" if one.before else one.command for one in comparison.repeat)
    return f"run {plural(sum(one.trials for one in comparison.repeat), 'missing trial')} again: {commands}"


def missing_sentence(contrast: Contrast) -> str:
    """Return what the trials that were not measured can make of the difference, and whether the verdict stands."""
    missing = contrast.missing
    if missing is None:
        return ""
    lost = _trials_of(contrast, missing.new, missing.old)
    again = _trials_of(contrast, missing.redrawn_new, missing.redrawn_old)
    early = contrast.sequential is not None and contrast.sequential.method != "growth"
    parts = [f"missing{' of those that have started' if early else ''}: {lost}"] if lost else []
    parts += [f"run again after they broke, so their first result is unknown: {again}"] if again else []
    low, high = missing.lowest.difference, missing.highest.difference
    if low is not None and high is not None:
        parts.append(f"if measured, the difference would be {between(low, high, 'pass')}")
    if missing.verdict != "inconclusive" and contrast.verdict == missing.verdict:
        parts.append(f'"{missing.verdict}" holds whatever they were')
    return "; ".join(parts)


def _trials_of(contrast: Contrast, new: int, old: int) -> str:
    counts = ((new, contrast.new), (old, contrast.old))
    return ", ".join(f"{plural(count, 'trial')} of {name}" for count, name in counts if count)


def next_steps(
    comparison: Comparison, place: str, resume: str | None = None, causes: Sequence[FailureCause] = ()
) -> list[str]:
    """Return what to do next, the most useful first: what is missing, what is proven, what is undecided, where two
    part, what fails most.

    `place` is the batch as a command takes it, "" where there is none, as for results of another tool; `resume` the
    same where it may be resumed.
    """
    found = [said[:1].upper() + said[1:]] if (said := repeat_sentence(comparison)) else []
    decided = max(
        (one for one in comparison.contrasts if one.verdict in ("better", "worse")),
        key=lambda one: (one.verdict == "better", abs(one.estimate.difference or 0.0)),
        default=None,
    )
    if decided is not None:
        found.append(_adopted(comparison, decided))
    undecided = next((one for one in comparison.contrasts if one.verdict == "inconclusive" and not one.refused), None)
    if undecided is not None and not undecided.same_treatment:
        found.append(_more_trials(comparison, undecided, resume))
    if decided is not None and place:
        sides = f"{quote(decided.new)} {quote(decided.old)}"
        found.append(f"See where {decided.new} and {decided.old} differ: tbench errors {typed(place)} --vs {sides}")
    elif not comparison.contrasts and len(comparison.profiles) == 1 and place:
        found.append("Add a second profile to compare with: tbench init --slug NAME")
    if causes:
        compared = {name for one in comparison.contrasts for name in (one.new, one.old)}
        own = [one for one in causes if one.profile in compared] or causes  # controls that must fail teach nothing
        most = max(own, key=lambda one: one.count)
        found.append(f"{most.profile} most often failed because {most.words}: {most.advice}")
    return found


def _adopted(comparison: Comparison, contrast: Contrast) -> str:
    """Return what follows from a verdict. Simulated agents are no reason to adopt anything."""
    if any(one.simulated for one in comparison.profiles if one.profile in (contrast.new, contrast.old)):
        return f"Try {contrast.new} and {contrast.old} with a real agent: simulated ones prove nothing of it"
    if contrast.verdict == "worse":
        return f"Stay with {contrast.old}: {contrast.new} is worse"
    return f'Use {contrast.new} from now on: baseline = "{contrast.new}" in [analysis] compares what comes next with it'


def _more_trials(comparison: Comparison, contrast: Contrast, place: str | None) -> str:
    """Return how an undecided contrast can be decided. Nothing is promised of the gap that happened to be seen."""
    names = f"{contrast.new} vs {contrast.old} is undecided"
    found = contrast.estimate
    if contrast.units_needed is not None:
        few = plural(found.units, contrast.unit)
        return f"{names}: {few} can never show a difference, however many attempts: {contrast.units_needed} are needed"
    if contrast.trials_needed is None or contrast.effect is None:
        return (
            f"{names}: more tasks may decide it; analysis.effect, the smallest gap that matters, tells how many trials"
        )
    now = max(1, round(found.trials / 2 / max(found.tasks or found.units, 1)))
    wanted = amount(abs(contrast.effect), contrast.metric, sign=False)
    attempts = max(now + 1, ceil(now * contrast.trials_needed / max(found.trials, 1)))
    gap = f"{names}: a gap of {wanted} takes about {plural(attempts, 'attempt')}"
    trials = [one.planned for one in comparison.profiles]
    more = round(sum(trials) * (attempts / now - 1))
    known = [one.cost_usd for one in comparison.profiles if one.cost_usd is not None and not one.cost_unknown_trials]
    usd = f", {dollars(more * sum(known) / sum(trials))}" if sum(trials) and len(known) == len(trials) else ""
    gap += f" at each task ({plural(more, 'more trial')}{usd})"
    if attempts > _MOST_TIMES * now:
        return f"{gap}: take more tasks, or leave it open"
    return gap + (f": tbench resume {typed(place)} --attempts {attempts}" if place else "")


_BY_CHANCE = ("called", "fired", "shown")
"""What need not happen in every trial: nothing is wrong unless it happened in none."""


def delivery_sentence(item: DeliveryRow) -> str | None:
    """Return what is wrong with one part of a treatment, or None."""
    if item.reached < item.known and not item.part.endswith(_BY_CHANCE):
        return f"{item.profile}: {item.part} in {item.reached:,} of {plural(item.known, 'trial')}"
    if item.part.endswith(_BY_CHANCE) and item.known and not item.reached:
        return f"{item.profile}: {item.part} in none of {plural(item.known, 'trial')}"
    return None


def _limits(report: Report) -> list[Headline]:
    found = []
    kind = "note" if report.measured == report.planned else "warning"
    place = "not-measured" if report.not_measured else "profiles"
    found.append(Headline(coverage_sentence(report), kind, place))
    if said := repeat_sentence(report.comparison):
        found.append(Headline(said[:1].upper() + said[1:], "note", place))
    doubtful = sum(group.count for group in report.suspects)
    if doubtful:
        verb = "looks" if doubtful == 1 else "look"
        found.append(
            Headline(
                f"{plural(doubtful, 'result')} {verb} doubtful: see below why, and what to do.", "warning", "suspects"
            )
        )
    missed = [said for item in report.delivery if (said := delivery_sentence(item))]
    if len(missed) > FEW:
        missed = [f"{'; '.join(missed[:FEW])}; and {len(missed) - FEW} more"]
    found += [
        Headline(f"Some trials did not get their configuration: {said}.", "warning", "delivery") for said in missed
    ]
    found += [Headline(text, "warning", "plan") for text in report.comparison.departures]
    found += [Headline(text, "warning", "contrasts") for text in report.comparison.warnings]
    return found
