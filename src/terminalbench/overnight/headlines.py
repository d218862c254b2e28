"""The answer of the morning in at most eight lines, and what to do next, by value. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, comb, inf, log
from pathlib import Path
from shlex import quote

from terminalbench.archivist.gains import KINDS, Gain
from terminalbench.overnight.delta import ALPHA, level
from terminalbench.overnight.iteration_files import is_with_lessons
from terminalbench.overnight.lessons_report import gained
from terminalbench.overnight.model_summary import ModelSummary
from terminalbench.overnight.night import IterationStatus, NightEventKind, iterations_said
from terminalbench.overnight.summary_model import LostTrials, NightSummary, model_name
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
"""Iterations of which a rate or a gain is told, the last ones."""
_CAUSE, _REASON = 200, 90
"""Letters of why trials broke, where it is to be mended, and among other things."""
_LOSS = 0.05
"""From this share of broken trials on, they are what keeps a night from telling anything."""
_MOST_MORE = 10.0
"""Times as many iterations as there were: more are not advised to decide a gain."""
_WORDS = {"better": "yes", "worse": "no, worse", "equivalent": "no, the same"}
_PATH = re.compile(r"(?:/[^\s/:,;()]+){2,}")
"""The folder of a trial in the words of its error: others broke alike elsewhere."""


def headlines(summary: NightSummary) -> list[str]:
    """Return what a person reads first: did it get better, what was learned, what waits, the cost, what broke, next."""
    better, waits = _better(summary), _waits(summary)
    played = "(simulated agents) " if _played(summary) else ""
    first = [f"Better? {played}{one}" for one in better[:2]]
    first[-1] += f" ({len(better) - 2} more below)" if len(better) > 2 else ""
    last = [
        f"Waits: {'; '.join(waits) or 'nothing to approve'}",
        f"Ran: {ran(summary)}",
        f"Broke: {broke(summary)}",
        *(f"Next: {'what waits' if one in waits else one}" for one in summary.next_steps[:1]),
    ]
    room = max(1, ROOM - len(first) - 1 - len(last))
    return [*first, rates_line(summary.models), *(f"Learned: {one}" for one in _learned(summary)[:room]), *last]


def _better(summary: NightSummary) -> list[str]:
    """Return whether it got better, by how much and how sure; what needs attention first."""
    found = [f"no: {one}" for one in summary.alerts]
    if summary.training is not None and summary.training.answer:
        found.append(summary.training.answer)
    found += [_gain_line(summary, one) for one in _gains(summary)]
    found += [f"{one.profile} is {one.earlier.sentence}" for one in summary.models if one.earlier is not None]
    return found or [_nothing_compared(summary)]


def _gains(summary: NightSummary) -> list[Gain]:
    return summary.lessons.gains if summary.lessons is not None else []


def _gain_line(summary: NightSummary, gain: Gain) -> str:
    """Return what lessons gained, how large a gain such trials would show, and how it grew as lessons were learned."""
    verdict = "unknown" if gain.difference is None else _WORDS.get(gain.verdict, "no proof either way")
    said = f"{verdict if gain.withheld is None else 'not decided'}: {gained(gain)}"
    least = _least_shown(gain)
    if gain.verdict == "inconclusive" and gain.withheld is None and least is not None:
        said += f"; so few trials miss a true gain of {points(least, sign=False)} in 1 of 5 such nights"
    eligible = summary.lessons.iterations if summary.lessons is not None else []
    rates = [
        {one.profile: one.pass_rate for one in line.profiles} for line in summary.iterations if line.number in eligible
    ]
    told = [
        points(with_them - without)
        for one in rates
        if (with_them := one.get(gain.profile)) is not None and (without := one.get(gain.control)) is not None
    ]
    return f"{said}; by iteration {', '.join(told[-_CURVE:])}" if len(told) > 1 else said


def _least_shown(gain: Gain) -> float | None:
    """The gain that as many trials of as many tasks would show in four of five nights."""
    return None if gain.low is None or gain.high is None else (gain.high - gain.low) / 2 * _POWER


def _nothing_compared(summary: NightSummary) -> str:
    """Return that no profile can have got better, with what its iterations passed; whether an alert was possible."""
    names = ", ".join(one.profile for one in summary.models)
    lines = [line for line in summary.iterations if line.profiles]
    known = "no measured lessons, no training, no earlier night on these tasks"
    said = f"cannot be told: nothing to compare {names} with ({known})"
    if len(lines) < 2:
        return said
    rates = [f"{percent(line.profiles[0].pass_rate)} in iteration {line.number}" for line in lines[-_CURVE:]]
    told = f"; {', '.join(rates)}" if len(summary.models) == 1 else ""
    blind = all(_too_few(model, summary) for model in summary.models)
    return f"{said}{told}; {'with so few tasks no alert is possible' if blind else 'no regression alert'}"


def rates_line(models: Sequence[ModelSummary]) -> str:
    """Return the pass rates of a night in a line; they are means over tasks, as everywhere."""
    known = [one for one in models if one.pass_rate is not None]
    if not known:
        return "Pass rate: nothing was measured yet"
    tasks = {(task.dataset, task.task_id): False for one in known for task in one.tasks}
    tasks |= {(task.dataset, task.task_id): True for one in known for task in one.tasks if task.count.measured}
    told = [_rate(one) for one in known[:_MOST]]
    told += [f"{len(known) - _MOST} more below"] if len(known) > _MOST else []
    return f"Pass rate, mean over {sum(tasks.values())} of {plural(len(tasks), 'task')}: {'; '.join(told)}"


def _rate(one: ModelSummary) -> str:
    name = model_name(one.model, one.profile, simulated=one.simulated)
    counted = f"{one.passed} of {plural(one.measured, 'trial')}"
    if one.low is not None and one.high is not None:
        counted += f", 95 % on tasks like these: {percents(one.low, one.high)}"
    return f"{name} {percent(one.pass_rate)} ({counted})"


def _learned(summary: NightSummary) -> list[str]:
    """The lessons that counted, each with its effect and its text; what a training learned is told with its answer."""
    found = summary.lessons
    if found is None:
        return ["not asked: the night ran without lessons"] if summary.training is None else []
    if not found.effects:
        active = plural(len(found.active), "lesson")
        return [f"{active} in use, but none was eligible for a measured trial yet"]
    counted = [str(one) for one in found.effects if one.counts]
    return counted or [f"no effect is proven yet; the clearest so far: {found.effects[0].said(_REASON)}"]


def _waits(summary: NightSummary) -> list[str]:
    """Return what waits for a person, and the command for it."""
    found = [summary.training.waits] if summary.training is not None and summary.training.waits is not None else []
    if summary.lessons is not None and summary.lessons.held:
        held = plural(summary.lessons.held, "lesson")
        found.append(f"{held} in quarantine until you approve them: tbench memory list --state quarantined")
    return found


def ran(summary: NightSummary) -> str:
    """Return how far a night is, what it measured and what it cost, by part, in a line: the same on every surface."""
    stopped = f" ({summary.stopped})" if summary.stopped else ""
    holes = _holes(summary)
    lacks = f", but incomplete: {some(holes, _MOST)}" if holes else ""
    far = iterations_said(summary.done, summary.over, summary.iterations_planned)
    counted = f"{summary.measured} of {plural(summary.total, 'trial')} measured, {summary.passed} passed"
    return f"{summary.status}{stopped}{lacks}; {far}; {counted}; cost {_spent(summary)}"


def _holes(summary: NightSummary) -> list[str]:
    """Return which iterations are over and lack trials, and how many of them."""
    told = []
    for line in summary.iterations:
        total = sum(one.total for one in line.profiles)
        if total and line.status is not None and line.status.over and line.status is not IterationStatus.DONE:
            lacking = total - sum(one.measured for one in line.profiles)
            told.append(f"iteration {line.number} lacks {lacking} of {plural(total, 'trial')}")
    return told


def _played(summary: NightSummary) -> bool:
    """Return whether no agent of the night was a real one, and some called a model in play."""
    return any(one.simulated for one in summary.models) and all(one.simulated or one.no_model for one in summary.models)


def _spent(summary: NightSummary) -> str:
    """Return the cost of a night, and of its parts where it has several."""
    free = bool(summary.models) and all(one.no_model for one in summary.models) and summary.validation is None
    lessons, training, validation = summary.lessons, summary.training, summary.validation
    parts = {
        f"{plural(summary.total, 'trial')} of iterations": known_total(one.cost_usd for one in summary.models),
        "reflection": lessons.cost_usd if lessons is not None else None,
        "validation": validation.cost_usd if validation is not None else None,
        f"{plural(training.trials if training else 0, 'trial')} of the training": training.cost_usd
        if training
        else None,
    }
    told = [f"{dollars(usd)} for {what}" for what, usd in parts.items() if usd]
    whole = cost(summary.cost_usd, summary.cost_unknown, no_model=free)
    whole += " (simulated)" if not free and _played(summary) else ""
    if lessons is not None and lessons.control_cost_usd:
        controls = plural(lessons.control_trials, "trial")
        whole += f", {dollars(lessons.control_cost_usd)} of it for {controls} without lessons"
    return f"{whole}: {', '.join(told)}" if len(told) > 1 else whole


def broke(summary: NightSummary) -> str:
    """Return what went wrong in a night, in a line."""
    kinds: dict[str, list[LostTrials]] = {}
    for one in summary.lost:  # the most frequent reasons first
        kinds.setdefault(f"{one.error_class} errors" if one.error_class else word(one.outcome), []).append(one)
    counts = Counter({name: sum(one.count for one in held) for name, held in kinds.items()})
    causes = [f"{count} {name}{_why(kinds[name])}" for name, count in counts.most_common(_MOST)]
    lost = f"{counts.total()} of {plural(summary.total, 'trial')} not measured ({'; '.join(causes)})"
    found = [lost] if causes else []
    found += [f"{plural(summary.crashed, 'trial')} failed because the agent crashed"] if summary.crashed else []
    for kind, name in ((NightEventKind.WORKER_LOST, "lost worker"), (NightEventKind.INCIDENT, "incident")):
        said = [one.said for one in summary.incidents if one.kind is kind]
        found += [f"{plural(len(said), name)} ({some(said, _MOST)})"] if said else []
    names = [f"{one.dataset}/{one.task}" for one in summary.quarantined]
    found += [f"{plural(len(names), 'task')} left out: {some(names, _MOST)}"] if names else []
    found += [f"{plural(len(summary.problems), 'note')} about unreadable files"] if summary.problems else []
    return "; ".join(found) or "nothing"


def _why(lost: Sequence[LostTrials]) -> str:
    """Return of which tasks trials ended by an error, and the most frequent reason; nothing of what did not run."""
    errors = [one for one in lost if one.outcome is Outcome.ERRORED]
    return f"{_of(errors)}: {brief(errors[0].reason, _REASON)}" if errors else ""


def _of(lost: Iterable[LostTrials]) -> str:
    names = list(dict.fromkeys(name for one in lost for name in one.tasks))
    return f" of {some(names, _MOST)}" if names else ""


def next_steps(summary: NightSummary, place: Path) -> list[str]:
    """Return what to do next, the most valuable first, with commands and prices. `place` is the folder of the night.

    What got worse comes first; then what keeps the night from telling anything (many broken trials), what is not
    measured yet, what is proven and waits, and what a few more iterations would decide.
    """
    much = summary.total > 0 and sum(one.errored for one in summary.models) >= _LOSS * summary.total
    broken = _broken(summary, place)
    undecided = _undecided(summary, place, much=much)
    names = [f"{one.dataset}/{one.task}" for one in summary.quarantined]
    return [
        *_alarmed(summary, place),
        *(broken if much else []),
        *_go_on(summary, place),
        *([summary.training.waits] if summary.training is not None and summary.training.waits is not None else []),
        *_decided(summary),
        *undecided,
        *([] if much else broken),
        *_failed(summary, place),
        *([f"repair the quarantined tasks before the next night: {some(names)}"] if names else []),
        *_uncertain(summary, place, again=not undecided),
        f"look at every trial: tbench view {quote(str(place))}",
    ]


def _priced(summary: NightSummary, trials: int) -> str:
    """Return so many more trials, and what they cost by those of the night, in brackets."""
    if not trials:
        return ""
    if summary.models and all(one.no_model for one in summary.models):
        return f" ({plural(trials, 'trial')}, no model)"
    known = sum(one.measured + one.errored - one.cost_unknown for one in summary.models)
    usd = known_total(one.cost_usd for one in summary.models)
    price = f"about {dollars(trials * usd / known)}" if usd is not None and known > 0 else "the price is unknown"
    return f" ({plural(trials, 'trial')}, {price})"


def _resumed(place: Path, iterations: int | None = None) -> str:
    more = f" --iterations {iterations}" if iterations is not None else ""
    return f"tbench overnight --resume {quote(str(place))}{more}"


def _iteration_trials(summary: NightSummary) -> int:
    return max((sum(one.total for one in line.profiles) for line in summary.iterations), default=0)


def _go_on(summary: NightSummary, place: Path) -> list[str]:
    trained = summary.training is None or summary.training.stopped is None
    left = (summary.iterations_planned or 0) - summary.done
    stopped = summary.status == "stopped"
    if summary.status in ("finished", "running") or (stopped and not left and trained):
        return []
    more = ", with a larger --budget-usd or a later --until if one of them ended it" if stopped else ""
    trials = max(0, left) * _iteration_trials(summary)
    return [f"continue the night{more}: {_resumed(place)}{_priced(summary, trials)}"]


def _alarmed(summary: NightSummary, place: Path) -> list[str]:
    worse = [line for line in summary.iterations if line.batch and any(one.alert for one in line.profiles)]
    return [
        f"see why iteration {line.number} got worse: tbench errors {quote(str(place / 'batches' / (line.batch or '')))}"
        for line in worse[:_MOST]
    ]


def _broken(summary: NightSummary, place: Path) -> list[str]:
    """Return what broke many trials alike and is to be mended, then the commands that run broken trials again."""
    again = []
    for line in summary.iterations:
        broken = sum(one.errored for one in line.profiles)
        if broken and line.batch and line.status is not IterationStatus.LEASED:
            command = f"tbench resume {quote(str(place / 'batches' / line.batch))} --retry-errors"
            again.append(f"run what broke in iteration {line.number} again: {command}{_priced(summary, broken)}")
    more = [f"and {plural(len(again) - _MOST, 'more iteration')} with broken trials"] if len(again) > _MOST else []
    alike: dict[str, list[LostTrials]] = {}
    for one in summary.lost:
        if one.outcome is Outcome.ERRORED:
            alike.setdefault(_PATH.sub("", one.reason), []).append(one)
    counts = Counter({reason: sum(one.count for one in held) for reason, held in alike.items()})
    causes = []
    for reason, count in counts.most_common(_MOST):
        if count >= _MOST:
            held = alike[reason]
            said = (
                f"fix what broke {plural(count, 'trial')}{_of(held)} in the same way: {brief(held[0].reason, _CAUSE)}"
            )
            causes.append(f"{said}; then {again[0]}" if again else said)
    return [*causes, *again[:_MOST], *more]


def _failed(summary: NightSummary, place: Path) -> list[str]:
    """Return how to see why trials failed, of the last iteration in which some that called a model did."""
    for line in reversed(summary.iterations):
        own = [one for one in line.profiles if not one.no_model]
        if line.batch and (failed := sum(one.measured - one.passed for one in own)):
            if any(one.alert for one in own):
                return []  # that it got worse says so already
            counted = f"{failed} of {plural(sum(one.total for one in own), 'trial')} of iteration {line.number}"
            return [f"see why {counted} failed: tbench errors {quote(str(place / 'batches' / line.batch))}"]
    return []


def _decided(summary: NightSummary) -> Iterable[str]:
    """Yield what a proven gain is good for; that of simulated agents is a rehearsal."""
    modes = {kind: mode for mode, kind in KINDS.items()}
    for one in _gains(summary):
        real = "if a real agent shows the same, " if one.simulated else ""
        if one.verdict == "better":
            setting = f'lessons = "{modes[one.kind]}" in [profiles.{one.control}] of your experiment file'
            yield f"{real}read what was learned (tbench memory list --state active); to use it, set {setting}"
        elif one.verdict == "worse":
            yield f"{real}leave {one.control} without lessons, and look at them: tbench memory list"


def _undecided(summary: NightSummary, place: Path, *, much: bool) -> list[str]:
    """Return how many more iterations would show a gain as large as the one that was seen, where a few would.

    `much`: so many trials broke that more tasks are not what is missing.
    """
    found = []
    if summary.training is not None or summary.status != "finished":
        return found
    for one in _gains(summary):
        least = _least_shown(one)
        if one.verdict != "inconclusive" or one.difference is None or least is None:
            continue
        if one.withheld is not None:
            last = next((line.batch for line in reversed(summary.iterations) if line.batch), "")
            command = f"tbench errors {quote(str(place / 'batches' / last))}"
            found.append(f"check the doubtful results, because of which the gain is undecided: {command}")
            continue
        times = (least / _POWER / one.difference) ** 2 if one.difference > 0 else inf
        more = max(1, ceil((min(times, 2 * _MOST_MORE) - 1) * one.batches))
        if more <= _MOST_MORE * one.batches:
            whole = len(summary.iterations) + more
            said = (
                f"settle whether lessons help {one.control}: at least {plural(more, 'more iteration')}, {whole} in all"
            )
            found.append(f"{said}: {_resumed(place, whole)}{_priced(summary, more * _iteration_trials(summary))}")
        elif not much:
            said = f"use more than {one.tasks} tasks next time: with these tasks and attempts, a true gain below about"
            found.append(f"{said} {points(least, sign=False)} is missed in more than one of five nights")
    return found


def _uncertain(summary: NightSummary, place: Path, *, again: bool) -> Iterable[str]:
    """Yield what chance may have decided; `again`: nothing else asks for more iterations."""
    worse = {one.profile for line in summary.iterations for one in line.profiles if one.alert}
    for model in summary.models:
        if model.noise.p is not None and model.noise.p <= ALPHA and not is_with_lessons(model.profile):
            yield f"find out what differs between iterations of {model.profile}: they vary more than by chance"
    settled = bool(_gains(summary)) and all(one.verdict != "inconclusive" for one in _gains(summary))
    flaky = [task for one in summary.models if one.profile not in worse for task in one.flaky]
    names = list(dict.fromkeys(task.task_id for task in flaky))
    if again and names and not settled and summary.status == "finished":
        command = f"{_resumed(place, len(summary.iterations) + 1)}{_priced(summary, _iteration_trials(summary))}"
        yield f"see tasks that pass and fail by turns once more ({some(names, _MOST)}): {command}"
    blind = [f"{least} tasks ({model.profile})" for model in summary.models if (least := _too_few(model, summary))]
    if blind:
        yield f"use at least {' or '.join(blind)} next time: with fewer a regression may be luck, and raises no alert"


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
