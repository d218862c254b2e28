"""A comparison as plain text: the sentences first, then the tables they rest on. Pure."""

import textwrap
from collections.abc import Sequence
from math import ceil

from terminalbench.analytics.model import Comparison, Contrast, Estimate, Interval, Metric, ProfileSummary
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.sentences import missing_sentence, repeat_sentence
from terminalbench.text.names import named
from terminalbench.text.numbers import (
    NOTHING,
    amount,
    between,
    cost,
    dollars,
    duration,
    p_equation,
    p_value,
    percent,
    percents,
    plural,
    some,
    tokens,
)
from terminalbench.text.outcomes import word
from terminalbench.text.table import columns, fitted

WIDTH = 100
SAME = ("equivalent", "inconclusive")
ALONE = "There is only one profile, so there is nothing to compare."
_SHOWN_TASKS = 8
_SHOWN_LIMITS = 4
"""Departures and warnings that stand below the answer; the details have all."""
_METRICS = {"pass": "pass rate", "cost": "cost a trial", "tokens": "tokens a trial", "time": "agent time per trial"}
_WAYS = {"exclude": "measured only", "fail": "all planned", "low": "at worst", "high": "at best"}


def comparison_text(comparison: Comparison, width: int = WIDTH) -> str:
    """The whole comparison, readable at `width` columns (80 or more)."""
    sentences = [contrast.sentence for contrast in comparison.contrasts] or [ALONE]
    parts = [_head(comparison, width), *(_wrapped(sentence, width) for sentence in sentences)]
    parts.append(_wrapped(repeat_sentence(comparison), width))
    parts += [_profiles(comparison, width), _money(comparison.profiles, comparison.pareto_note, width)]
    parts += [_standings(comparison, width), _estimates(comparison, width)]
    parts += [_details(contrast, comparison.alpha, width) for contrast in comparison.contrasts]
    parts.append(_list("Warnings", comparison.warnings, width))
    parts.append(_list("Departures from the declared plan", comparison.departures, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def answer_text(comparison: Comparison, width: int = WIDTH, next_steps: Sequence[str] = ()) -> str:
    """Return the answer alone: the verdicts, one table, what limits them, and the next step."""
    sentences = [contrast.sentence for contrast in comparison.contrasts] or [ALONE]
    limits = [f"departure: {text}" for text in comparison.departures]
    limits += [f"warning: {text}" for text in comparison.warnings]
    limits += [
        f"warning: {contrast.new} vs {contrast.old}: {text}"
        for contrast in comparison.contrasts
        for text in contrast.warnings
    ]
    more = len(limits) - _SHOWN_LIMITS
    further = [f"and {plural(more, 'further limit')}: --details"] if more > 0 else []
    lines = [_wrapped(line, width) for line in (*limits[:_SHOWN_LIMITS], *further)]
    end = _next(next_steps[0], width) if next_steps else []
    parts = [
        _answer_head(comparison, width), *(_wrapped(sentence, width) for sentence in sentences),
        _answer_table(comparison, width), "\n".join(lines),
        "\n".join([*end, "for intervals, both ways of counting, costs and notes: --details"]),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _answer_head(comparison: Comparison, width: int) -> str:
    lines = [f"{', '.join(comparison.batches)}: {_METRICS[comparison.metric]}, baseline {comparison.baseline}"]
    lines += [f"expected: {comparison.hypothesis}"] if comparison.hypothesis else []
    return "\n".join(_wrapped(line, width) for line in lines)


def _answer_table(comparison: Comparison, width: int) -> str:
    """One row a profile: what passed, how sure that is, what it cost, how long its agent took."""
    missing = {p.profile: _not_measured(p) for p in comparison.profiles}
    last = "not measured" if any(missing.values()) else ""
    rows = [["profile", "passed", "measured", "pass rate", "interval", "cost", "a success", "agent time", last]]
    for p in comparison.profiles:
        rows.append([
            named(p.profile, oracle=p.oracle), str(p.passed), f"{p.measured}/{p.planned}", percent(p.rate),
            percents(p.interval.low, p.interval.high) if p.interval else NOTHING,
            cost(p.cost_usd, p.cost_unknown_trials, no_model=p.no_model), _per_success(p),
            duration(p.mean_agent_sec) if p.measured else NOTHING, missing[p.profile] or ("-" if last else ""),
        ])  # fmt: skip
    simulated = [p.profile for p in comparison.profiles if p.simulated and not p.no_model]
    note = f"\n{_wrapped(f'simulated: {", ".join(simulated)}', width)}" if simulated else ""
    return fitted(rows, (0, len(rows[0]) - 1), width) + note


def _next(step: str, width: int) -> list[str]:
    """The next step; a command on a line of its own, to be copied whole."""
    words, sign, command = step.partition(": tbench ")
    return [_wrapped(f"next: {words}{sign[:1]}", width), *([f"  tbench {command}"] if command else [])]


def _head(comparison: Comparison, width: int) -> str:
    rule = "left out" if comparison.rule == "exclude" else "counted as not passed"
    lines = [
        f"{', '.join(comparison.batches)}: {_METRICS[comparison.metric]}, baseline {comparison.baseline}",
        f"{_levels(comparison)} (alpha {comparison.alpha:g}); trials not measured are {rule}; "
        f"a verdict needs {percent(comparison.coverage)} measured",
    ]
    if comparison.hypothesis:
        lines.append(f"expected: {comparison.hypothesis}")
    return "\n".join(_wrapped(line, width) for line in lines)


def _levels(comparison: Comparison) -> str:
    """The levels that hold: that of a profile's rate, and those that Holm or a look widened the differences to."""
    own = f"{100 * (1 - comparison.alpha):g} %"
    found = (contrast.estimate.interval for contrast in comparison.contrasts)
    levels = sorted({f"{100 * one.level:.4g} %" for one in found if one is not None}, key=lambda text: float(text[:-2]))
    if not levels or levels == [own]:
        return f"{own} intervals"
    span = levels[0] if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"
    return f"{own} intervals of a profile, {span} of the differences"


def _profiles(comparison: Comparison, width: int) -> str:
    """One row a profile: counts always, both rates, the interval, pass@k and pass^k."""
    k = comparison.k or min((max(p.pass_at, default=1) for p in comparison.profiles), default=1)
    head = ["profile", "passed", "measured", "pass rate", "interval", "of planned", "agent time"]
    if k > 1:
        head[6:6] = [f"pass@{k}", f"pass^{k}"]
    missing = {p.profile: _not_measured(p) for p in comparison.profiles}
    head.append("not measured" if any(missing.values()) else "")
    rows = []
    for p in comparison.profiles:
        row = [
            named(p.profile, oracle=p.oracle),
            str(p.passed),
            f"{p.measured}/{p.planned}",
            percent(p.rate),
            percents(p.interval.low, p.interval.high) if p.interval else NOTHING,
            percent(p.rate_all),
        ]
        if k > 1:
            row += [percent(p.pass_at.get(k)), percent(p.pass_hat.get(k))]
        rows.append(
            [
                *row,
                duration(p.mean_agent_sec) if p.measured else NOTHING,
                missing[p.profile] or ("-" if head[-1] else ""),
            ]
        )
    left = (0, len(head) - 1)
    if max(map(len, columns([head, *rows], left).splitlines())) > width:
        head = [_NARROW.get(field, field) for field in head]
    return fitted([head, *rows], left, width)


def _standings(comparison: Comparison, width: int) -> str:
    """Three or more profiles beside each other, by partial pooling; nothing where there are fewer."""
    found = comparison.standings
    if not found:
        return ""
    fronts = any(one.on_front is not None for one in found)
    rows = [["profile", "pooled rate", "interval", "rank", "best for cost" if fronts else "", ""]]
    for one in found:
        front = NOTHING if one.on_front is None else percent(one.on_front)
        ranks = str(one.best_rank) if one.best_rank == one.worst_rank else f"{one.best_rank} to {one.worst_rank}"
        kept = "not shown worse than the best" if one.not_worse_than_best else ""
        row = [one.profile, percent(one.rate), percents(one.low, one.high), ranks, front if fronts else "", kept]
        rows.append(row)
    level = f"{100 * found[0].level:g} %"
    note = (
        f"a second opinion, not a verdict: rates are shrunk towards their mean by as much as chance may explain; "
        f"{level} intervals of the rate, and the fewest ranks that hold at least {level}"
    )
    return f"{fitted(rows, (0, 5), width)}\n{_wrapped(note, width)}"


def _per_success(profile: ProfileSummary) -> str:
    """Return what a success cost; without one, or a model, there is no such thing."""
    return dollars(profile.cost_per_success) if profile.passed and not profile.no_model else NOTHING


def _money(profiles: Sequence[ProfileSummary], note: str | None, width: int) -> str:
    """Return what each profile cost, and what a success did; a line when nothing is known, and none when nothing has
    run."""
    if all(set(p.outcomes) <= {Outcome.NOT_RUN.value} and not p.superseded_trials for p in profiles):
        return ""
    if all(p.cost_usd is None and p.tokens is None and not p.no_model for p in profiles):
        return "Cost and tokens are unknown."
    rows = [["profile", "cost", "a success", "interval", "tokens", ""]]
    for p in profiles:
        bounds = p.cost_per_success_interval
        rows.append(
            [
                named(p.profile, oracle=p.oracle),
                f"{cost(p.cost_usd, p.cost_unknown_trials, no_model=p.no_model)}"
                f"{' (simulated)' if p.simulated and not p.no_model else ''}",
                _per_success(p),
                _range(bounds, "cost") if p.passed and not p.no_model else NOTHING,
                NOTHING if p.no_model else tokens(p.tokens, p.tokens_unknown_trials),
                ("best for its cost" if p.on_pareto_front else "")
                + (f"  {p.superseded_trials} run again" if p.superseded_trials else ""),
            ]
        )
    table = fitted(rows, (0, 1, 5), width)
    return table if note is None else f"{table}\n{_wrapped(note, width)}"


def _estimates(comparison: Comparison, width: int) -> str:
    """Both ways of counting and both questions, a row each."""
    if not any(contrast.estimate.units for contrast in comparison.contrasts):
        return ""
    starts: list[int] = []
    rows = [["contrast", "difference", "tasks like these", "these tasks", "p", "Holm", "+/-/="]]
    for contrast in comparison.contrasts:
        other = "fail" if contrast.rule == "exclude" else "exclude"
        ways = [(contrast.rule, contrast.estimate, contrast.p_adjusted), (other, contrast.other_way, None)]
        if contrast.missing is not None:
            ways += [("low", contrast.missing.lowest, None), ("high", contrast.missing.highest, None)]
        rows += [[f"  {_WAYS[way]}", *_numbers(found, contrast.metric, holm)] for way, found, holm in ways]
        starts.append(len(ways))
    lines = columns(rows).splitlines()
    if max(map(len, lines)) > width:
        lines = columns([[_NARROW.get(field, field) for field in row] for row in rows]).splitlines()
    for place, contrast in reversed(list(enumerate(comparison.contrasts))):
        lines.insert(1 + sum(starts[:place]), _wrapped(f"{contrast.new} vs {contrast.old}", width))
    return "\n".join(lines)


_NARROW = {
    "difference": "diff.", "  measured only": "  measured", "  all planned": "  planned", "pass rate": "rate",
    "of planned": "of plan",
}  # fmt: skip
"""What stands in a table where it would be too wide."""


def _numbers(found: Estimate, metric: Metric, holm: float | None) -> list[str]:
    return [
        amount(found.difference, metric),
        _range(found.interval, metric, sign=True),
        _range(found.suite_interval, metric, sign=True),
        p_value(found.p),
        "" if holm is None else p_value(holm),
        f"{found.wins}/{found.losses}/{found.ties}",
    ]


def _details(contrast: Contrast, alpha: float, width: int) -> str:
    """Return what else a reader of one contrast must know."""
    lines = [*contrast.warnings, *contrast.notes]
    looks = contrast.sequential
    never = f"{plural(contrast.estimate.units, contrast.unit)} can never show a difference"
    if looks is not None and looks.method == "sign-flips":
        at = (
            f"decided at look {looks.decided_at}"
            if looks.decided
            else f"p of at most {p_value(looks.level)} decides at it"
        )
        at = never if looks.never else at
        at += (
            f"; the probability of a decision at the end is {percent(looks.chance)}" if looks.chance is not None else ""
        )
        at += f"; the run ended early, without {plural(looks.spared, 'trial')}" if looks.spared else ""
        lines.append(f"look {looks.look} of {looks.looks} (at any time, by whole tasks): {at}")
    elif looks is not None and looks.method == "growth":
        grown = f"trials were added {plural((looks.looks or 1) - 1, 'time')} without declared looks"
        left = (
            f"the remaining alpha is {p_value(looks.level)}"
            if not looks.never
            else f"with the remaining alpha, {never}"
        )
        lines.append(f"{grown}: {left}; declaring analysis.looks = {looks.looks} beforehand would cost almost nothing")
    elif looks is not None:
        at = never if looks.never else f"p of at most {p_value(looks.level)} decides"
        lines.append(f"look {looks.look} of {looks.looks} (O'Brien-Fleming): {at}")
    if contrast.verdict in ("better", "worse") and contrast.metric == "pass" and not contrast.strict:
        lines.append(_symmetry(contrast, alpha))
    if contrast.trials_needed is not None and contrast.effect is not None and contrast.verdict == "inconclusive":
        shown = amount(contrast.effect, contrast.metric)
        lines.append(
            f"about {plural(contrast.trials_needed, 'trial')} on tasks like these would show {shown} 4 times in 5"
        )
    if contrast.margin is not None and contrast.metric == "pass":
        fits = contrast.equivalence_interval
        seen = (
            f"; the interval that must fit into it is {between(fits.low, fits.high, 'pass')}"
            if fits is not None and contrast.verdict in SAME
            else ""
        )
        lines.append(f"equivalent means within {amount(contrast.margin, 'pass', sign=False)} either way{seen}")
    if contrast.missing is not None:
        lines.append(missing_sentence(contrast))
    if contrast.error_rate_p is not None and contrast.error_rate_p >= 0.05:
        lines.append(f"trials broke at similar rates ({p_equation(contrast.error_rate_p)})")
    for what, tasks in (
        (f"only {contrast.new} has", contrast.only_new),
        (f"only {contrast.old} has", contrast.only_old),
        ("neither has", contrast.unmeasured),
    ):
        if tasks:
            lines.append(f"{what} a value for: {_tasks(tasks)}")
    return _list(f"{contrast.new} vs {contrast.old}", lines, width)


FEW_ATTEMPTS = 3
"""With so many attempts a unit, lopsided truths do not exceed alpha: docs/design/statistics-measured.md."""


def _symmetry(contrast: Contrast, alpha: float) -> str:
    """Return what a verdict assumes, whether it holds without that too, and if not, what of as many trials would."""
    found = contrast.estimate
    text = "the verdict assumes that a task favours equal profiles equally often"
    if contrast.strict_p is not None and contrast.strict_p <= alpha:
        return f"{text}; without this assumption it holds as well ({p_equation(contrast.strict_p)})"
    attempts = found.trials / 2 / max(found.units, 1)
    if attempts <= FEW_ATTEMPTS:
        return f"{text}; with at most {FEW_ATTEMPTS} attempts per {contrast.unit} this matters little"
    instead = plural(ceil(found.trials / 2 / FEW_ATTEMPTS), contrast.unit)
    return (
        f"{text}; if one profile lost a lot on a few only, {plural(found.units, contrast.unit)} x {attempts:.3g} "
        f"attempts would be wrong more often than alpha allows. As many trials on {instead} x {FEW_ATTEMPTS} attempts, "
        "or analysis.strict = true (which needs a larger gap), would not"
    )


def _tasks(tasks: Sequence[TaskRef]) -> str:
    return some([task.id for task in tasks], _SHOWN_TASKS)


def _not_measured(profile: ProfileSummary) -> str:
    measured = (Outcome.PASSED.value, Outcome.FAILED.value)
    rest = [f"{count:,} {word(name)}" for name, count in profile.outcomes.items() if name not in measured]
    return ", ".join(rest)


def _range(interval: Interval | None, metric: Metric, *, sign: bool = False) -> str:
    return NOTHING if interval is None else between(interval.low, interval.high, metric, sign=sign, unit=False)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _list(title: str, lines: Sequence[str], width: int) -> str:
    if not lines:
        return ""
    filled = [
        textwrap.fill(
            line, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        for line in lines
    ]
    return "\n".join([_wrapped(title, width), *filled])
