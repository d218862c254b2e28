"""The answer of the morning in at most eight lines, and what to do next, by value. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, comb, inf, log
from pathlib import Path
from shlex import quote

from terminalbench.archivist.gains import KINDS, Gain
from terminalbench.overnight.control_profiles import is_with_lessons
from terminalbench.overnight.delta import ALPHA, level
from terminalbench.overnight.lessons_report import gained
from terminalbench.overnight.night import IterationStatus, NightEventKind, iterations_said
from terminalbench.overnight.summary_model import ModelSummary, NightSummary, model_name
from terminalbench.records.trial import Outcome
from terminalbench.records.values import known_total
from terminalbench.text.foreign import brief
from terminalbench.text.numbers import cost, dollars, percent, percents, plural, points, some
from terminalbench.text.outcomes import word

ROOM = 8
"""Lines of the answer: with the title and an empty line the first ten of the report."""
_MOST = 3
_POWER = 1.43
"""How much larger than half of its 95 % interval a gain must be to be shown in four of five such nights."""
_CURVE = 6
"""Iterations of which the gain is told, the last ones."""
_CAUSE, _REASON = 200, 90
"""Letters of why trials broke, where it is to be mended, and among other things."""
_LOSS = 0.05
"""From this share of broken trials on, they are what keeps a night from telling anything."""
_MOST_MORE = 10.0
"""Times as many iterations as there were: more are not advised to decide a gain."""
_WORDS = {"better": "yes", "worse": "no, worse", "equivalent": "no, the same"}
_MODES = {kind: mode for mode, kind in KINDS.items()}
_KINDS = {
    NightEventKind.WORKER_LOST: ("worker lost", "workers lost"),
    NightEventKind.INCIDENT: ("incident", "incidents"),
}
_NUMBER = re.compile(r"\d+")
_PATH = re.compile(r"(?:/[^\s/:,;()]+){2,}")
"""Where a trial lies, in what it says of its error: others broke alike elsewhere."""


def headlines(summary: NightSummary) -> list[str]:
    """Return what a person reads first: did it get better, what was learned, what waits, the cost, what broke, next."""
    better = _better(summary)
    more = f" ({len(better) - 2} more below)" if len(better) > 2 else ""
    if _played(summary):
        better = [f"(simulated agents) {one.replace(' (simulated)', '')}" for one in better]
    found = [f"Better? {one}" for one in better[:2]]
    found[-1] += more
    waits = _decisions(summary)
    rest = [
        rates_line(summary.models),
        f"Waits: {'; '.join(waits) or 'nothing to approve'}",
        f"Ran: {ran(summary)}",
        f"Broke: {broke(summary)}{_again(summary)}",
        *(f"Next: {'what waits' if one in waits else one}" for one in summary.next_steps[:1]),
    ]
    learned = _learned(summary)[: max(1, ROOM - len(found) - len(rest))]
    return [*found, rest[0], *(f"Learned: {one}" for one in learned), *rest[1:]]


def _better(summary: NightSummary) -> list[str]:
    """Return whether it got better, by how much and how sure; what needs attention first."""
    found = [f"no: {one}" for one in summary.alerts]
    if summary.training is not None and summary.training.answer:
        found.append(summary.training.answer)
    gains = summary.lessons.gains if summary.lessons is not None else []
    found += [f"{_gain_word(one)}: {gained(one)}{_limit(one)}{_by_iteration(summary, one)}" for one in gains]
    found += [f"{one.profile} is {one.earlier.sentence}" for one in summary.models if one.earlier is not None]
    return found or [_nothing_compared(summary)]


def _by_iteration(summary: NightSummary, gain: Gain) -> str:
    """Return how a gain grew as lessons were learned, from the first iteration on in which one was eligible."""
    told = []
    known = summary.lessons.iterations if summary.lessons is not None else []
    for line in (one for one in summary.iterations if one.number in known):
        rates = {one.profile: one.pass_rate for one in line.profiles}
        with_them, without = rates.get(gain.profile), rates.get(gain.control)
        if with_them is not None and without is not None:
            told.append(points(with_them - without))
    left = len(told) - _CURVE
    return f"; by iteration {'... ' if left > 0 else ''}{', '.join(told[-_CURVE:])}" if len(told) > 1 else ""


def _gain_word(gain: Gain) -> str:
    if gain.withheld is not None:
        return "not decided"
    if gain.difference is None or gain.verdict in _WORDS:
        return "unknown" if gain.difference is None else _WORDS[gain.verdict]
    return "no proof either way"


def _limit(gain: Gain) -> str:
    """Return how large a gain must be for such trials to show it, where they did not."""
    least = _least_shown(gain) if gain.verdict == "inconclusive" and gain.withheld is None else None
    if least is None:
        return ""
    return f"; so few trials miss a true gain of {points(least, sign=False)} in 1 of 5 such nights"


def _least_shown(gain: Gain) -> float | None:
    """The gain that as many trials of as many tasks would show in four of five nights."""
    return None if gain.low is None or gain.high is None else (gain.high - gain.low) / 2 * _POWER


def _nothing_compared(summary: NightSummary) -> str:
    """Return why nothing can have got better: the same profiles again, with or without enough to see them get worse."""
    alone = len(summary.models) == 1
    same = f"one profile, {summary.models[0].profile}" if alone else "the same profiles in every iteration"
    said = f"cannot be told: {same}, nothing to compare {'it' if alone else 'them'} with"
    lines = [line for line in summary.iterations if line.profiles]
    if not any(line.number > 1 for line in lines):
        return f"{said} yet: one iteration, and no earlier night on these tasks"
    if alone:
        told = [f"{percent(line.profiles[0].pass_rate)} in iteration {line.number}" for line in lines]
        said += f"; {', '.join(told[-_CURVE:])}"
    blind = bool(summary.models) and all(_too_few(model, summary) for model in summary.models)
    return f"{said}; {'with so few tasks no alert is possible' if blind else 'no regression alert'}"


def rates_line(models: Sequence[ModelSummary]) -> str:
    """Return the pass rates of a night in a line; they are means over tasks, as everywhere."""
    known = [one for one in models if one.pass_rate is not None]
    if not known:
        return "Pass rate: nothing was measured yet"
    tasks = len({(task.dataset, task.task_id) for one in known for task in one.tasks})
    measured = len({(task.dataset, task.task_id) for one in known for task in one.tasks if task.count.measured})
    over = plural(tasks, "task") if measured == tasks else f"{measured} of {plural(tasks, 'task')}"
    told = [_rate(one, inside=len(known) < _MOST) for one in known[: _MOST + 1]]
    left = [f"{len(known) - len(told)} more below"] if len(known) > len(told) else []
    return f"Pass rate, mean over {over}: {'; '.join([*told, *left])}"


def _rate(one: ModelSummary, *, inside: bool) -> str:
    name = model_name(one.model, one.profile, simulated=one.simulated)
    counted = f"{one.passed} of {plural(one.passed + one.failed, 'trial')}"
    if inside and one.low is not None and one.high is not None:
        counted += f", 95 % on tasks like these: {percents(one.low, one.high)}"
    return f"{name} {percent(one.pass_rate)} ({counted})"


def _learned(summary: NightSummary) -> list[str]:
    """The lessons that counted, each with its effect and its text; what a training learned is told with its answer."""
    found = summary.lessons
    if found is None:
        return ["not asked: the night ran without lessons"] if summary.training is None else []
    counted = [one for one in found.effects if one.counts]
    if counted:
        return [str(one) for one in counted]
    if not found.effects:
        return [_nothing_learned(summary)]
    return [f"no effect is proven yet; the clearest so far: {found.effects[0].said(_REASON)}"]


def _nothing_learned(summary: NightSummary) -> str:
    found = summary.lessons
    active = len(found.active) if found is not None else 0
    return f"{plural(active, 'lesson')} in use, but none was eligible for a measured trial yet"


def _decisions(summary: NightSummary) -> list[str]:
    """Return what waits for a person, and the command for it."""
    found = [summary.training.waits] if summary.training is not None and summary.training.waits is not None else []
    if summary.lessons is not None and summary.lessons.held:
        held = plural(summary.lessons.held, "lesson")
        found.append(f"{held} in quarantine until you approve them: tbench memory list --state quarantined")
    return found


def ran(summary: NightSummary) -> str:
    """Return how far a night is, what it measured and what it cost, by part, in a line: the same on every surface."""
    stopped = f" ({summary.stopped})" if summary.stopped else ""
    counted = f"{summary.measured} of {plural(summary.total, 'trial')} measured, {summary.passed} passed"
    far = iterations_said(summary.done, summary.over, summary.iterations_planned)
    return f"{summary.status}{stopped}{_holes(summary)}; {far}; {counted}; cost {_spent(summary)}"


def _holes(summary: NightSummary) -> str:
    """Return which iterations are over and lack trials, and how many of them."""
    told = []
    for line in summary.iterations:
        total = sum(one.total for one in line.profiles)
        if total and line.status is not None and line.status.over and line.status is not IterationStatus.DONE:
            lacking = total - sum(one.measured for one in line.profiles)
            told.append(f"iteration {line.number} lacks {lacking} of {plural(total, 'trial')}")
    lacks = {one.partition(" lacks ")[2] for one in told}
    alike = f"each of {len(told)} iterations lacks {lacks.pop()}" if len(told) > 1 and len(lacks) == 1 else ""
    return f", but incomplete: {alike or some(told, _MOST)}" if told else ""


def _again(summary: NightSummary) -> str:
    """Return how many trials can be run again."""
    steps = [one for one in summary.next_steps if "--retry-errors" in one]
    if not steps:
        return ""
    where = "Next" if steps[0] is summary.next_steps[0] else "below"
    return f"; {plural(sum(one.errored for one in summary.models), 'trial')} can be run again, see {where}"


def _played(summary: NightSummary) -> bool:
    """Return whether no agent of the night was a real one, and some called a model in play."""
    return any(one.simulated for one in summary.models) and all(one.simulated or one.no_model for one in summary.models)


def _spent(summary: NightSummary) -> str:
    free = bool(summary.models) and all(one.no_model for one in summary.models) and summary.validation is None
    own = known_total(one.cost_usd for one in summary.models)
    parts = [(f"for {plural(summary.total, 'trial')} of iterations", own)]
    lessons, training, validation = summary.lessons, summary.training, summary.validation
    if lessons is not None and lessons.cost_usd:
        parts.append(("for reflection", lessons.cost_usd))
    if validation is not None:
        parts.append(("for validation", validation.cost_usd))
    if training is not None:
        of = f"{plural(training.trials, 'trial')} of " if training.trials else ""
        parts.append((f"for {of}the training", training.cost_usd))
    told = [f"{dollars(usd)} {what}" for what, usd in parts if usd]
    whole = cost(summary.cost_usd, summary.cost_unknown, no_model=free)
    unknown = [str(line.number) for line in summary.iterations if any(one.cost_unknown for one in line.profiles)]
    if summary.cost_usd is not None and unknown:
        whole += f" ({'iteration' if len(unknown) == 1 else 'iterations'} {some(unknown)}, with the trials run again)"
    whole += " (simulated)" if not free and _played(summary) else ""
    if lessons is not None and lessons.control_cost_usd:
        controls = plural(lessons.control_trials, "trial")
        whole += f", {dollars(lessons.control_cost_usd)} of it for {controls} without lessons"
    return f"{whole}: {', '.join(told)}" if len(told) > 1 else whole


def broke(summary: NightSummary) -> str:
    """Return what went wrong in a night, in a line."""
    by, why, tasks = Counter[str](), dict[str, str](), dict[str, dict[str, None]]()
    for one in summary.lost:  # the most frequent reasons first
        name = f"{one.error_class} errors" if one.error_class else word(one.outcome)
        by[name] += one.count
        why.setdefault(name, one.reason if one.outcome is Outcome.ERRORED else "")
        tasks.setdefault(name, {}).update(dict.fromkeys(one.tasks))
    lost = sum(by.values())
    told = [
        (f"{count} {name}{_of(list(tasks[name]) if why[name] else [])}", brief(why[name], _REASON))
        for name, count in by.most_common(_MOST)
    ]
    causes = "; ".join(": ".join(filter(None, pair)) for pair in told)
    found = [f"{lost} of {plural(summary.total, 'trial')} not measured ({causes})"] if lost else []
    found += [f"{plural(summary.crashed, 'trial')} failed because the agent crashed"] if summary.crashed else []
    counts = Counter(one.kind for one in summary.incidents)
    found += [
        f"{plural(counts[kind], *names)} ({_named(summary, kind)})" for kind, names in _KINDS.items() if counts[kind]
    ]
    names = [f"{one.dataset}/{one.task}" for one in summary.quarantined]
    found += [f"{plural(len(names), 'task')} left out: {some(names, _MOST)}"] if names else []
    found += [f"{plural(len(summary.problems), 'note')} about unreadable files"] if summary.problems else []
    return "; ".join(found) or "nothing"


def _of(tasks: Sequence[str]) -> str:
    return f" of {some(tasks, _MOST)}" if tasks else ""


def _named(summary: NightSummary, kind: NightEventKind) -> str:
    """The incidents of a kind in their own words; those alike but for their numbers are counted."""
    first: dict[str, str] = {}
    alike = Counter[str]()
    for one in summary.incidents:
        if one.kind is kind:
            key = _NUMBER.sub("", one.said)
            first.setdefault(key, one.said)
            alike[key] += 1
    told = [first[key] + (f", and {count - 1} more like it" if count > 1 else "") for key, count in alike.items()]
    return some(told, _MOST)


@dataclass(frozen=True)
class _NightAdvice:
    """Something to do: what, the command for it if there is one, and how many trials that takes."""

    what: str
    command: str | None = None
    trials: int = 0

    def said(self, summary: NightSummary) -> str:
        """It in a line, with its price."""
        if self.command is None:
            return self.what
        return f"{self.what}: {self.command}" + (f" ({_price(summary, self.trials)})" if self.trials else "")


def _price(summary: NightSummary, trials: int) -> str:
    """Return what so many more trials cost, by those of the night."""
    if summary.models and all(one.no_model for one in summary.models):
        return f"{plural(trials, 'trial')}, no model"
    known = sum(one.passed + one.failed + one.errored - one.cost_unknown for one in summary.models)
    usd = known_total(one.cost_usd for one in summary.models)
    price = f"about {dollars(trials * usd / known)}" if usd is not None and known > 0 else "the price is unknown"
    return f"{plural(trials, 'trial')}, {price}"


def next_steps(summary: NightSummary, place: Path) -> list[str]:
    """Return what to do next, the most valuable first, with commands and prices. `place` is the folder of the night.

    What got worse comes first; then what keeps the night from telling anything (many broken trials), what is not
    measured yet, what is proven and waits, and what a few more iterations would decide.
    """
    much = _lost_much(summary)
    broken = _broken(summary, place)
    undecided = list(_undecided(summary, place))
    found = [
        *_alarmed(summary, place),
        *(broken if much else []),
        *_go_on(summary, place),
        *_waiting(summary),
        *_decided(summary),
        *undecided,
        *([] if much else broken),
        *_quarantined(summary),
        *_uncertain(summary, place, again=not undecided),
        _NightAdvice("look at every trial", f"tbench view {quote(str(place / 'batches'))}"),
    ]
    return [one.said(summary) for one in found]


def _lost_much(summary: NightSummary) -> bool:
    """Return whether so many trials broke that they keep the night from telling anything."""
    return summary.total > 0 and sum(one.errored for one in summary.models) >= _LOSS * summary.total


def _go_on(summary: NightSummary, place: Path) -> Iterable[_NightAdvice]:
    trained = summary.training is None or summary.training.stopped is None
    left = (summary.iterations_planned or 0) - summary.done
    if summary.status in ("finished", "running") or (summary.status == "stopped" and not left and trained):
        return
    more = (
        ", with a larger --budget-usd or a later --until if one of them ended it" if summary.status == "stopped" else ""
    )
    trials = max(0, left) * _iteration_trials(summary)
    yield _NightAdvice(f"continue the night{more}", f"tbench overnight --resume {quote(str(place))}", trials)


def _iteration_trials(summary: NightSummary) -> int:
    return max((sum(one.total for one in line.profiles) for line in summary.iterations), default=0)


def _alarmed(summary: NightSummary, place: Path) -> Iterable[_NightAdvice]:
    worse = [line for line in summary.iterations if line.batch and any(one.alert for one in line.profiles)]
    for line in worse[:_MOST]:
        batch = quote(str(place / "batches" / (line.batch or "")))
        yield _NightAdvice(f"see why iteration {line.number} got worse", f"tbench errors {batch}")


def _broken(summary: NightSummary, place: Path) -> list[_NightAdvice]:
    found = []
    for line in summary.iterations:
        broken = sum(one.errored for one in line.profiles)
        if broken and line.batch and line.status is not IterationStatus.LEASED:
            batch = quote(str(place / "batches" / line.batch))
            what = f"run what broke in iteration {line.number} again"
            found.append(_NightAdvice(what, f"tbench resume {batch} --retry-errors", broken))
    more = [_NightAdvice(f"and {plural(len(found) - _MOST, 'more iteration')} with broken trials")] * (
        len(found) > _MOST
    )
    alike, tasks, first = Counter[str](), dict[str, dict[str, None]](), dict[str, str]()
    for one in (one for one in summary.lost if one.outcome is Outcome.ERRORED):
        reason = _PATH.sub("", one.reason)
        first.setdefault(reason, one.reason)
        alike[reason] += one.count
        tasks.setdefault(reason, {}).update(dict.fromkeys(one.tasks))
    several = f"retry the broken trials of {len(found)} iterations, first"
    then = f"; then {several if len(found) > 1 else found[0].what}: {found[0].command}" if found else ""
    causes = [
        _NightAdvice(
            f"fix what broke {plural(count, 'trial')}{_of(list(tasks[reason]))} in the same way: "
            f"{brief(first[reason], _CAUSE)}{then}"
        )
        for reason, count in alike.most_common(_MOST)
        if count >= _MOST
    ]
    return [*causes, *found[:_MOST], *more]


def _waiting(summary: NightSummary) -> Iterable[_NightAdvice]:
    """Yield what the training would do next, where a challenger waits."""
    found = summary.training
    if found is not None and found.waits is not None:
        yield _NightAdvice(found.waits)


def _decided(summary: NightSummary) -> Iterable[_NightAdvice]:
    """Yield what a proven gain is good for; that of simulated agents is a rehearsal."""
    for one in summary.lessons.gains if summary.lessons is not None else []:
        real = "if a real agent shows the same, " if one.simulated else ""
        if one.verdict == "better":
            setting = f'lessons = "{_MODES[one.kind]}" in [profiles.{one.control}] of your experiment file'
            read = "read what was learned (tbench memory list --state active)"
            yield _NightAdvice(f"{real}{read}; to use it, set {setting}")
        elif one.verdict == "worse":
            yield _NightAdvice(f"{real}leave {one.control} without lessons, and look at them", "tbench memory list")


def _undecided(summary: NightSummary, place: Path) -> Iterable[_NightAdvice]:
    """More iterations, where a few would show a gain as large as the one that was seen."""
    gains = summary.lessons.gains if summary.lessons is not None else []
    if summary.training is not None or summary.status != "finished":
        return
    for one in gains:
        if one.verdict != "inconclusive" or one.difference is None or (least := _least_shown(one)) is None:
            continue
        if one.withheld is not None:
            last = next((line.batch for line in reversed(summary.iterations) if line.batch), "")
            command = f"tbench errors {quote(str(place / 'batches' / last))}"
            yield _NightAdvice("check the doubtful results, because of which the gain is undecided", command)
            continue
        times = (least / _POWER / one.difference) ** 2 if one.difference > 0 else inf
        more = max(1, ceil((min(times, 2 * _MOST_MORE) - 1) * one.batches))
        if more <= _MOST_MORE * one.batches:
            whole = len(summary.iterations) + more
            what = (
                f"settle whether lessons help {one.control}: at least {plural(more, 'more iteration')}, {whole} in all"
            )
            command = f"tbench overnight --resume {quote(str(place))} --iterations {whole}"
            yield _NightAdvice(what, command, more * _iteration_trials(summary))
        elif not _lost_much(summary):
            what = f"use more than {one.tasks} tasks next time: with these tasks and attempts, a true gain below about"
            yield _NightAdvice(f"{what} {points(least, sign=False)} is missed in more than one of five nights")


def _quarantined(summary: NightSummary) -> Iterable[_NightAdvice]:
    names = [f"{one.dataset}/{one.task}" for one in summary.quarantined]
    if names:
        yield _NightAdvice(f"repair the quarantined tasks before the next night: {some(names)}")


def _uncertain(summary: NightSummary, place: Path, *, again: bool) -> Iterable[_NightAdvice]:
    """Yield what chance may have decided; `again`: nothing else asks for more iterations."""
    worse = {one.profile for line in summary.iterations for one in line.profiles if one.alert}
    for model in summary.models:
        if model.noise.p is not None and model.noise.p <= ALPHA and not is_with_lessons(model.profile):
            said = f"find out what differs between iterations of {model.profile}: they vary more than by chance"
            yield _NightAdvice(said)
    flaky = [] if _settled(summary) else [one for one in summary.models if one.profile not in worse]
    names = list(dict.fromkeys(task.task_id for one in flaky for task in one.flaky))
    if again and names and summary.status == "finished":
        what = f"see tasks that pass and fail by turns once more ({some(names, _MOST)})"
        command = f"tbench overnight --resume {quote(str(place))} --iterations {len(summary.iterations) + 1}"
        yield _NightAdvice(what, command, _iteration_trials(summary))
    blind = [f"{least} tasks ({model.profile})" for model in summary.models if (least := _too_few(model, summary))]
    if blind:
        fewest = " or ".join(blind)
        yield _NightAdvice(f"no alert could be raised: with fewer than {fewest} a regression may be luck")


def _settled(summary: NightSummary) -> bool:
    """Return whether the night has its answer: no more of the same would change it."""
    gains = summary.lessons.gains if summary.lessons is not None else []
    return bool(gains) and all(one.verdict != "inconclusive" for one in gains)


def _too_few(model: ModelSummary, summary: NightSummary) -> int | None:
    """Return how many tasks a night like this needs before an alert is possible; None when it has them.

    At the most, every task passed in all iterations before and fails in the last.
    """
    iterations = summary.iterations_planned or model.iterations
    if iterations < 2 or not model.tasks:
        return None
    asked = level(iterations - 1, summary.iterations_planned, len(summary.models))
    least = ceil(log(1 / asked) / log(comb(iterations * summary.attempts, summary.attempts)) - 1e-9)
    return least if least > len(model.tasks) else None
