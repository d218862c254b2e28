"""A comparison as plain text: the sentences first, then the tables they rest on. Pure."""

import textwrap
from collections.abc import Sequence
from math import ceil

from terminalbench.analytics.model import Comparison, Contrast, Estimate, Interval, Metric, ProfileSummary, Standing
from terminalbench.records.trial import Outcome
from terminalbench.report.sentences import looks_sentence, missing_sentence, repeat_sentence
from terminalbench.report.text import PROFILE_CELLS, ProfileCells, per_success, picked
from terminalbench.text.numbers import (
    NOTHING,
    UNKNOWN,
    amount,
    between,
    p_equation,
    p_value,
    percent,
    percents,
    plural,
    some,
    tokens,
)
from terminalbench.text.outcomes import word
from terminalbench.text.table import Columns, columns, fitted

WIDTH = 100
SAME = ("equivalent", "inconclusive")
ALONE = "There is only one profile, so there is nothing to compare."
_SHOWN_TASKS = 8
_SHOWN_LIMITS = 4
"""Departures and warnings that stand below the answer; the details have all."""
_METRICS = {
    "pass": "pass rate", "reward": "reward per trial", "cost": "cost a trial", "tokens": "tokens a trial",
    "time": "agent time per trial",
}  # fmt: skip
_WAYS = {"exclude": "measured only", "fail": "all planned", "low": "at worst", "high": "at best"}


def comparison_text(comparison: Comparison, width: int = WIDTH) -> str:
    """The whole comparison, readable at `width` columns (80 or more)."""
    rule = "left out" if comparison.rule == "exclude" else "counted as not passed"
    counting = (
        f"{_levels(comparison)} (alpha {comparison.alpha:g}); trials not measured are {rule}; "
        f"a verdict needs {percent(comparison.coverage)} measured"
    )
    parts = [
        *_head(comparison, width, counting),
        _wrapped(repeat_sentence(comparison), width),
        _profiles(comparison, width),
        _money(comparison.profiles, comparison.pareto_note, width),
        _standings(comparison, width),
        _estimates(comparison, width),
        *(_details(contrast, comparison.alpha, width) for contrast in comparison.contrasts),
        _list("Warnings", comparison.warnings, width),
        _list("Departures from the declared plan", comparison.departures, width),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def answer_text(comparison: Comparison, width: int = WIDTH, next_steps: Sequence[str] = ()) -> str:
    """Return the answer alone: the verdicts, one table, what limits them, and the next step."""
    limits = [f"departure: {text}" for text in comparison.departures]
    limits += [f"warning: {text}" for text in comparison.warnings]
    limits += [f"warning: {one.new} vs {one.old}: {text}" for one in comparison.contrasts for text in one.warnings]
    more = len(limits) - _SHOWN_LIMITS
    further = [f"and {plural(more, 'further limit')}: --details"] if more > 0 else []
    end = _next(next_steps[0], width) if next_steps else []
    simulated = [p.profile for p in comparison.profiles if p.simulated and not p.no_model]
    reward = ("reward",) if comparison.metric == "reward" else ()
    told = {name: {PROFILE_CELLS[name](p) for p in comparison.profiles} for name in ("cost", "a success", "agent time")}
    untold = [name for name, values in told.items() if values - {NOTHING} == {UNKNOWN}]
    known = [name for name, values in told.items() if values - {NOTHING, UNKNOWN}]
    notes = [f"simulated: {', '.join(simulated)}"] if simulated else []
    notes += [f"unknown: {', '.join(untold)}"] if untold else []
    table = _profile_table(comparison.profiles, picked(*_COUNTS, *reward, *known), width)
    parts = [
        *_head(comparison, width),
        "\n".join([table, *(_wrapped(line, width) for line in notes)]),
        "\n".join(_wrapped(line, width) for line in (*limits[:_SHOWN_LIMITS], *further)),
        "\n".join([*end, "for intervals, both ways of counting, costs and notes: --details"]),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _head(comparison: Comparison, width: int, *more: str) -> list[str]:
    """What is compared, and the sentence of each contrast."""
    lines = [f"{', '.join(comparison.batches)}: {_METRICS[comparison.metric]}, baseline {comparison.baseline}", *more]
    lines += [f"expected: {comparison.hypothesis}"] if comparison.hypothesis else []
    sentences = [contrast.sentence for contrast in comparison.contrasts] or [ALONE]
    return ["\n".join(_wrapped(line, width) for line in lines), *(_wrapped(sentence, width) for sentence in sentences)]


def _next(step: str, width: int) -> list[str]:
    """The next step; a command on a line of its own, to be copied whole."""
    words, sign, command = step.partition(": tbench ")
    return [_wrapped(f"next: {words}{sign[:1]}", width), *([f"  tbench {command}"] if command else [])]


def _levels(comparison: Comparison) -> str:
    """The levels that hold: that of a profile's rate, and those that Holm or a look widened the differences to."""
    own = f"{100 * (1 - comparison.alpha):g} %"
    found = (contrast.estimate.interval for contrast in comparison.contrasts)
    levels = sorted({f"{100 * one.level:.4g} %" for one in found if one is not None}, key=lambda text: float(text[:-2]))
    if not levels or levels == [own]:
        return f"{own} intervals"
    span = levels[0] if len(levels) == 1 else f"{levels[0]} to {levels[-1]}"
    return f"{own} intervals of a profile, {span} of the differences"


_COUNTS = ("profile", "passed", "measured", "pass rate", "interval")


def _profile_table(profiles: Sequence[ProfileSummary], cells: ProfileCells, width: int) -> str:
    """One row a profile; the last column, where any has trials without a verdict, says how these ended."""
    head, rows = Columns(cells | {"not measured": _not_measured}).of(profiles)
    some_lost = any(row[-1] for row in rows)
    head[-1] = head[-1] if some_lost else ""
    rows = [[*row[:-1], row[-1] or ("-" if some_lost else "")] for row in rows]
    left = (0, len(head) - 1)
    if max(map(len, columns([head, *rows], left).splitlines())) > width:
        head = [_NARROW.get(field, field) for field in head]
    return fitted([head, *rows], left, width)


def _profiles(comparison: Comparison, width: int) -> str:
    """One row a profile: counts always, both rates, the interval, pass@k and pass^k."""
    k = comparison.k or min((max(p.pass_at, default=1) for p in comparison.profiles), default=1)
    of_k: ProfileCells = {
        f"pass@{k}": lambda p: percent(p.pass_at.get(k)), f"pass^{k}": lambda p: percent(p.pass_hat.get(k)),
    }  # fmt: skip
    counts = picked(*_COUNTS, "of planned") | (of_k if k > 1 else {})
    return _profile_table(comparison.profiles, counts | picked("agent time"), width)


def _standings(comparison: Comparison, width: int) -> str:
    """Three or more profiles beside each other, by partial pooling; nothing where there are fewer."""
    found = comparison.standings
    if not found:
        return ""
    fronts = any(one.on_front is not None for one in found)
    table = Columns[Standing]({
        "profile": lambda one: one.profile,
        "pooled rate": lambda one: percent(one.rate),
        "interval": lambda one: percents(one.low, one.high),
        "rank": lambda one: " to ".join(map(str, dict.fromkeys((one.best_rank, one.worst_rank)))),
        **({"best for cost": lambda one: percent(one.on_front)} if fronts else {}),
        "": lambda one: "not shown worse than the best" if one.not_worse_than_best else "",
    }).of(found)  # fmt: skip
    level = f"{100 * found[0].level:g} %"
    note = (
        f"a second opinion, not a verdict: rates are shrunk towards their mean by as much as chance may explain; "
        f"{level} intervals of the rate, and the fewest ranks that hold at least {level}"
    )
    return f"{fitted([table.head, *table.rows], (0, len(table.head) - 1), width)}\n{_wrapped(note, width)}"


def _money(profiles: Sequence[ProfileSummary], note: str | None, width: int) -> str:
    """Return what each profile cost, and what a success did; a line when nothing is known, and none when nothing has
    run."""
    if all(set(p.outcomes) <= {Outcome.NOT_RUN.value} and not p.superseded_trials for p in profiles):
        return ""
    if all(p.cost_usd is None and p.tokens is None and not p.no_model for p in profiles):
        return "Cost and tokens are unknown."
    table = fitted([_MONEY.of(profiles).head, *_MONEY.of(profiles).rows], (0, 1, 5), width)
    return table if note is None else f"{table}\n{_wrapped(note, width)}"


_MONEY = Columns[ProfileSummary](
    picked("profile")
    | {
        "cost": lambda p: PROFILE_CELLS["cost"](p) + (" (simulated)" if p.simulated and not p.no_model else ""),
        "a success": per_success,
        "interval": lambda p: _range(p.cost_per_success_interval if p.passed and not p.no_model else None, "cost"),
        "tokens": lambda p: NOTHING if p.no_model else tokens(p.tokens, p.tokens_unknown_trials),
        "": lambda p: (
            ("best for its cost" if p.on_pareto_front else "")
            + (f"  {p.superseded_trials} run again" if p.superseded_trials else "")
        ),
    }
)


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
    if contrast.sequential is not None:
        lines.append(looks_sentence(contrast))
    if contrast.verdict in ("better", "worse") and contrast.metric == "pass" and not contrast.strict:
        lines.append(_symmetry(contrast, alpha))
    if contrast.trials_needed is not None and contrast.effect is not None and contrast.verdict == "inconclusive":
        shown = amount(contrast.effect, contrast.metric)
        lines.append(
            f"about {plural(contrast.trials_needed, 'trial')} on tasks like these would show {shown} 4 times in 5"
        )
    if contrast.margin is not None and contrast.metric == "pass":
        fits = contrast.equivalence_interval if contrast.verdict in SAME else None
        seen = "" if fits is None else f"; the interval that must fit into it is {between(fits.low, fits.high, 'pass')}"
        lines.append(f"equivalent means within {amount(contrast.margin, 'pass', sign=False)} either way{seen}")
    if contrast.missing is not None:
        lines.append(missing_sentence(contrast))
    if contrast.error_rate_p is not None and contrast.error_rate_p >= 0.05:
        lines.append(f"trials broke at similar rates ({p_equation(contrast.error_rate_p)})")
    for who, tasks in (
        (f"only {contrast.new} has", contrast.only_new),
        (f"only {contrast.old} has", contrast.only_old),
        ("neither has", contrast.unmeasured),
    ):
        if tasks:
            lines.append(f"{who} a value for: {some([task.id for task in tasks], _SHOWN_TASKS)}")
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


def _not_measured(profile: ProfileSummary) -> str:
    measured = (Outcome.PASSED.value, Outcome.FAILED.value)
    rest = [f"{count:,} {word(name)}" for name, count in profile.outcomes.items() if name not in measured]
    return ", ".join(rest)


def _range(interval: Interval | None, metric: Metric, *, sign: bool = False) -> str:
    return NOTHING if interval is None else between(interval.low, interval.high, metric, sign=sign, unit=False)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    after = f"{indent}  "
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
    )


def _list(title: str, lines: Sequence[str], width: int) -> str:
    return "\n".join([_wrapped(title, width), *(_wrapped(line, width, "  ") for line in lines)]) if lines else ""
