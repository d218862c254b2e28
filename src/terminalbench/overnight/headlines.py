"""The first lines of the morning, and what to do next. Pure."""

from collections import Counter
from math import ceil, comb, log
from pathlib import Path
from shlex import quote

from terminalbench.overnight.delta import level
from terminalbench.overnight.delta_model import ALPHA
from terminalbench.overnight.lessons_report import gained, learning_cost
from terminalbench.overnight.night import IterationStatus, NightEventKind
from terminalbench.overnight.summary_model import ModelSummary, NightSummary, model_name
from terminalbench.records.lesson import LessonState
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import cost, percent, percents, plural, some

_MOST = 3
_KINDS = {
    NightEventKind.WORKER_LOST: ("worker lost", "workers lost"),
    NightEventKind.INCIDENT: ("incident", "incidents"),
    NightEventKind.QUARANTINED: ("task quarantined", "tasks quarantined"),
    NightEventKind.RESUMED: ("resume", "resumes"),
}


def headlines(summary: NightSummary) -> list[str]:
    """What a person reads first; they stand by themselves, for a message."""
    lines = [_what_ran(summary), *summary.alerts, *_learned(summary), *(model_line(model) for model in summary.models)]
    lines += [] if summary.alerts else [_no_alert(summary)]
    lines += [f"{one.profile}: {one.earlier.sentence}" for one in summary.models if one.earlier is not None]
    if summary.validation is not None:
        lines.append(f"validation {summary.validation.sentence}")
        lines += [one.sentence for one in summary.validation.against]
    if summary.training is not None:
        lines.append(f"training {summary.training.training}: {'; '.join(summary.training.lines)}")
    if summary.incidents:
        counts = Counter(one.kind for one in summary.incidents)
        lines.append(", ".join(plural(n, *_KINDS[kind]) for kind, n in counts.items()))
    return lines


def _learned(summary: NightSummary) -> list[str]:
    """Whether lessons made it better, by how much and how sure; and the lesson that did most."""
    found = summary.lessons
    if found is None:
        return []
    best = [one for one in found.effects if one.state == LessonState.ACTIVE and one.mean > 0][:1]
    lines = [gained(one) for one in found.gains] or [
        "lessons: none was eligible for a trial yet, so nothing was gained"
    ]
    lines += [f"lesson {one}" for one in best]
    return [*lines, *[learning_cost(found)] * bool(found.gains)]


def _what_ran(summary: NightSummary) -> str:
    planned = f" of {summary.iterations_planned}" if summary.iterations_planned is not None else ""
    stopped = f" ({summary.stopped})" if summary.stopped else ""
    return (
        f"{summary.suite_name} {summary.suite_version}, run {summary.run_id}: {summary.status}{stopped}; "
        f"{summary.over}{planned} iterations over, {summary.measured} of {plural(summary.total, 'trial')} measured, "
        f"cost {_spent(summary)}"
    )


def _spent(summary: NightSummary) -> str:
    free = bool(summary.models) and all(one.no_model for one in summary.models) and summary.validation is None
    played = not free and bool(summary.models) and all(one.simulated or one.no_model for one in summary.models)
    return cost(summary.cost_usd, summary.cost_unknown, no_model=free) + (" (simulated)" if played else "")


def model_line(model: ModelSummary) -> str:
    """One model in a line: its pass rate, and on what it rests."""
    name = model_name(model.model, model.profile, simulated=model.simulated)
    if model.pass_rate is None or model.low is None or model.high is None:
        return f"{name}: nothing was measured yet"
    return (
        f"{name}: {percent(model.pass_rate)} ({model.passed} of {model.passed + model.failed} measured trials passed "
        f"in {plural(model.iterations, 'iteration')}; {percents(model.low, model.high)} on tasks like these)"
    )


def _no_alert(summary: NightSummary) -> str:
    compared = sum(len(line.profiles) for line in summary.iterations if line.number > 1)
    if not compared:
        return "no regression alert: there are no two iterations to compare yet"
    blind = bool(summary.models) and all(_too_few(model, summary) for model in summary.models)
    return "no regression alert: with so few tasks none is possible" if blind else "no regression alert"


def next_steps(summary: NightSummary, place: Path) -> list[str]:
    """Commands and advice, the most urgent first. `place` is the folder of the night."""
    return [
        *_go_on(summary, place),
        *_alarmed(summary, place),
        *_broken(summary, place),
        *_waiting(summary),
        *_quarantined(summary),
        *_uncertain(summary),
        f"look at every trial: tbench view {quote(str(place / 'batches'))}",
    ]


def _go_on(summary: NightSummary, place: Path) -> list[str]:
    done = sum(line.status is IterationStatus.DONE for line in summary.iterations) == summary.iterations_planned
    trained = summary.training is None or summary.training.stopped is None
    if summary.status in ("finished", "running") or (summary.status == "stopped" and done and trained):
        return []
    more = ", with a larger --budget-usd or a later --until where these ended it" if summary.status == "stopped" else ""
    return [f"go on with it: tbench overnight --resume {quote(str(place))}{more}"]


def _alarmed(summary: NightSummary, place: Path) -> list[str]:
    worse = [line for line in summary.iterations if line.batch and any(one.alert for one in line.profiles)]
    return [
        f"see why iteration {line.number} got worse: tbench errors {quote(str(place / 'batches' / (line.batch or '')))}"
        for line in worse[:_MOST]
    ]


def _broken(summary: NightSummary, place: Path) -> list[str]:
    lines = []
    for line in summary.iterations:
        broken = sum(one.errored for one in line.profiles)
        if broken and line.batch and line.status is not IterationStatus.LEASED:
            batch = quote(str(place / "batches" / line.batch))
            lines.append(
                f"run what broke in iteration {line.number} again ({plural(broken, 'trial')}): "
                f"tbench resume {batch} --retry-errors"
            )
    more = [f"and {plural(len(lines) - _MOST, 'more iteration')} with broken trials"] if len(lines) > _MOST else []
    stuck = [one for one in summary.lost if one.outcome is Outcome.ERRORED and one.count >= _MOST]
    causes = [f"{plural(one.count, 'trial')} of {one.profile} broke alike: {one.reason}" for one in stuck[:_MOST]]
    return [*causes, *lines[:_MOST], *more]


def _waiting(summary: NightSummary) -> list[str]:
    """What the training would do next, where a challenger waits."""
    found = summary.training
    return [found.waits] if found is not None and found.waits is not None else []


def _quarantined(summary: NightSummary) -> list[str]:
    names = [f"{one.dataset}/{one.task}" for one in summary.quarantined]
    return [f"repair before the next night what was quarantined: {some(names)}"] if names else []


def _uncertain(summary: NightSummary) -> list[str]:
    lines = []
    worse = {one.profile for line in summary.iterations for one in line.profiles if one.alert}
    for model in summary.models:
        wide = model.noise.p is not None and model.noise.p <= ALPHA
        if wide:
            lines.append(f"find out what differs between iterations of {model.profile}: their spread is more than luck")
        if model.flaky and model.profile not in worse:  # else they vary because something broke
            names = [one.task_id for one in model.flaky]
            lines.append(f"give flaky tasks of {model.profile} more attempts (--attempts): {some(names)}")
    blind = [f"{model.profile} ({least} tasks)" for model in summary.models if (least := _too_few(model, summary))]
    if blind:
        lines.append(
            f"no alert could be raised, a regression of so few tasks may be luck; it takes: {', '.join(blind)}"
        )
    return lines


def _too_few(model: ModelSummary, summary: NightSummary) -> int | None:
    """How many tasks a night like this needs before an alert is possible; None when it has them.

    At the most, every task passed in all iterations before and fails in the last.
    """
    iterations = summary.iterations_planned or model.iterations
    if iterations < 2 or not model.tasks:
        return None
    asked = level(iterations - 1, summary.iterations_planned, len(summary.models))
    least = ceil(log(1 / asked) / log(comb(iterations * summary.attempts, summary.attempts)) - 1e-9)
    return least if least > len(model.tasks) else None
