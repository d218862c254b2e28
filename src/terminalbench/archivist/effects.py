"""The effect of lessons, learned from trials that were shown them or not by chance, as entries of the log.

Each trial is in the log once, with the EDIT that counted it: whatever becomes of its batch, what was learned from it
stays, and counting it again changes nothing. What is believed is computed anew from all counted trials each time.

- Models are apart: a belief comes from trials of one model. Simulated trials are apart from real ones, and may retire
  a lesson only where no real trial was counted yet, or where the lesson itself is simulated.
- A trial that had a lesson before its text was changed says nothing of it as it reads now (`old`).
- Trials of tasks that a lesson comes from (`own`) are apart: they say what is recalled, not what is transferred.
- Harmful on one model is enough to be retired, idle must be on all. One that was retired by its effect is used again
  when what was counted since speaks for it, or when a task that it did not come from teaches the same (`memory.py`).
  Where it was put into use again, by that or by a person, only trials that were counted since may retire it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from terminalbench.archivist.entries import BY_EFFECT, CountedTrial, LessonChanges, MemoryEntry, Operation
from terminalbench.archivist.inventory import LessonFilter, each_lesson, history
from terminalbench.archivist.memory import is_retired_by_effect
from terminalbench.archivist.store import Store
from terminalbench.archivist.tables import find_lesson
from terminalbench.archivist.utility import (
    LITTLE,
    RETURN,
    ExposedTrial,
    chance_of_harm,
    is_harmful,
    is_idle,
    learn,
    prior,
)
from terminalbench.decode import decode, decoder
from terminalbench.index.exposures import LessonTrial
from terminalbench.live.model import seconds
from terminalbench.records.lesson import Lesson, LessonState, Utility
from terminalbench.records.trial import Exposure
from terminalbench.text.numbers import plural, points

type Revised = Mapping[str, MemoryEntry]
"""By lesson, the last entry that changed its text."""


def revised(store: Store) -> Revised:
    """The lessons whose text was changed, which resets their effects."""
    query = "SELECT record FROM entries WHERE instr(record, ?) ORDER BY seq"
    rows = store.connection.execute(query, (b'"effects":[]',))
    entries = (decode(row[0], MemoryEntry) for row in rows)
    return {entry.id: entry for entry in entries if _changes_text(entry)}


def _changes_text(entry: MemoryEntry) -> bool:
    made = entry.changes
    return made is not None and made.effects == [] and (made.do is not UNSET or made.avoid is not UNSET)


def counted_before(trial: CountedTrial, seq: int, changes: Revised) -> CountedTrial:
    """A trial that an entry has counted, with the lessons whose text was changed after that."""
    later = [name for name in trial.eligible if name in changes and seq < changes[name].seq]
    return replace(trial, old=list(dict.fromkeys([*trial.old, *later]))) if later else trial


def first_starts(trials: Iterable[LessonTrial]) -> dict[tuple[str, str], float]:
    """Return when the first trial with a snapshot of each batch started: the lessons were looked up before that."""
    starts: dict[tuple[str, str], float] = {}
    for one in trials:
        if (start := seconds(one.started_at)) is not None:
            key = (one.batch, one.snapshot)
            starts[key] = min(starts.get(key, start), start)
    return starts


def old_texts(trial: LessonTrial, start: float | None, changes: Revised, lessons: Mapping[str, Lesson]) -> list[str]:
    """The lessons of a trial whose text was another: looked up before the change, or not as long as it is now."""

    def old(told: Exposure) -> bool:
        changed = seconds(changes[told.lesson].time)
        before = start is not None and changed is not None and start <= changed
        return before or told.characters != len(lessons[told.lesson].text)

    known = changes.keys() & lessons.keys()
    return [one.lesson for one in trial.exposures if one.lesson in known and old(one)]


_DIGITS = 6
_OWN = " own"
"""Behind the id of a lesson where it is told to a task that it comes from."""
_OLD = " old"
"""Behind that, where its text was another."""


class World(NamedTuple):
    """Trials that may be pooled."""

    model: str | None
    simulated: bool


@dataclass(frozen=True)
class EffectCount:
    """What came of counting trials: how many were new, whose belief changed, and which lessons went or came back."""

    trials: int = 0
    changed: tuple[str, ...] = ()
    retired: tuple[Lesson, ...] = ()
    returned: tuple[Lesson, ...] = ()


def count_trials(store: Store, trials: Iterable[LessonTrial]) -> EffectCount:
    """Learn from trials that the log has not counted yet; those it has, and those without a verdict, change nothing."""
    trials = list(trials)
    starts = first_starts(trials)
    found = [(one, trial) for trial in trials if trial.measured and (one := counted_trial(trial)) is not None]
    new: list[CountedTrial] = []

    def make() -> list[MemoryEntry]:
        rows = store.connection.execute("SELECT trial, seq, record FROM counted ORDER BY seq, trial").fetchall()
        known = {row["trial"] for row in rows}
        changes = revised(store)
        decode = decoder(CountedTrial).decode
        everything = [
            _NumberedTrial(counted_before(decode(row["record"]), row["seq"], changes), row["seq"]) for row in rows
        ]
        names = {name for one, _ in found for name in one.eligible}
        names |= {name for one in everything for name in one.trial.eligible}
        lessons = {name: lesson for name in sorted(names) if (lesson := find_lesson(store.connection, name))}
        for one, trial in found:
            if one.id not in known:
                start = starts.get((trial.batch, trial.snapshot))
                new.append(replace(one, old=old_texts(trial, start, changes, lessons)))
        new[:] = {one.id: one for one in new}.values()  # each once
        everything += [_NumberedTrial(one, None) for one in new]
        effects = beliefs(lessons.values(), [one.trial for one in everything])
        edits = _edits(lessons, effects, new)
        return [*edits, *_retirements(store, lessons, effects, everything), *_returns(store, lessons, effects)]

    entries = store.write(make)
    changed = dict.fromkeys(entry.id for entry in entries if entry.op is Operation.EDIT)
    retired = [find_lesson(store.connection, entry.id) for entry in entries if entry.op is Operation.RETIRE]
    returned = [find_lesson(store.connection, entry.id) for entry in entries if _puts_into_use(entry)]
    counted = sum(len(entry.trials) for entry in entries)
    return EffectCount(counted, tuple(changed), tuple(filter(None, retired)), tuple(filter(None, returned)))


def counted_trial(trial: LessonTrial) -> CountedTrial | None:
    """A trial of the index as it is kept; None when nothing was eligible for it."""
    if not trial.exposures or trial.outcome is None:
        return None
    policy = trial.policy_id or trial.profile_id or f"{trial.batch}/{trial.profile}"
    return CountedTrial(
        id=trial.id or f"{trial.job}/{trial.trial} {trial.started_at or ''}".rstrip(),
        group=f"{policy} {trial.dataset}/{trial.task}",
        passed=trial.outcome == "passed",
        eligible=[one.lesson for one in trial.exposures],
        shown=[one.lesson for one in trial.exposures if one.shown],
        own=[one.lesson for one in trial.exposures if one.own],
        model=trial.model,
        simulated=trial.simulated,
        chances=[one.propensity for one in trial.exposures],
        family=trial.family,
    )


class _NumberedTrial(NamedTuple):
    """A trial and the entry that counted it; None: the one that is being made."""

    trial: CountedTrial
    seq: int | None


def beliefs(lessons: Iterable[Lesson], trials: Iterable[CountedTrial]) -> dict[str, list[Utility]]:
    """The effects of each lesson that was eligible, one for each world of trials. Pure."""
    importance = {lesson.id: lesson.importance for lesson in lessons}
    worlds: dict[World, list[ExposedTrial]] = {}
    for one in trials:
        worlds.setdefault(World(one.model, one.simulated), []).append(_exposed(one))
    found: dict[str, list[Utility]] = {}
    for world in sorted(worlds, key=lambda one: (one.simulated, one.model or "")):
        exposed = worlds[world]
        names = sorted({name for one in exposed for name in one.eligible if _lesson(name) in importance})
        priors = {name: prior(importance[_lesson(name)]) for name in names}
        for name, effect in learn(exposed, priors).items():
            if name.endswith(_OLD):
                continue
            rounded = {"mean": round(effect.mean, _DIGITS), "sd": round(effect.sd, _DIGITS)}
            kept = replace(effect, **rounded, **world._asdict(), own=name.endswith(_OWN))
            found.setdefault(_lesson(name), []).append(kept)
    return found


def _lesson(name: str) -> str:
    return name.removesuffix(_OLD).removesuffix(_OWN)


def _exposed(trial: CountedTrial) -> ExposedTrial:
    """A trial for the regression."""

    def named(names: Iterable[str]) -> frozenset[str]:
        return frozenset(name + _OWN * (name in trial.own) + _OLD * (name in trial.old) for name in names)

    eligible = named(trial.eligible)
    task = trial.group.rpartition("/")[2]
    if len(trial.chances) != len(trial.eligible):  # of an older log
        group = f"{trial.group} {' '.join(sorted(eligible))}"
        return ExposedTrial(group, trial.passed, eligible, named(trial.shown), {}, trial.family or task)
    chances = {min(named([name])): chance for name, chance in zip(trial.eligible, trial.chances, strict=True)}
    return ExposedTrial(trial.group, trial.passed, eligible, named(trial.shown), chances, trial.family or task)


def in_use(effects: Sequence[Utility]) -> Utility | None:
    """The one of several effects that stands for a lesson: a real one before a simulated one, then by its trials."""
    found = [one for one in effects if not one.own]
    return max(found, key=lambda one: (not one.simulated, one.n, one.model or ""), default=None)


type _Effects = Mapping[str, list[Utility]]


def _edits(lessons: dict[str, Lesson], effects: _Effects, new: list[CountedTrial]) -> list[MemoryEntry]:
    holder = {one.id: next((name for name in one.eligible if name in lessons), None) for one in new}
    entries = []
    for name, lesson in lessons.items():
        of_it = [one for one in new if holder[one.id] == name]
        after = effects.get(name, [])
        if after == lesson.effects and not of_it:
            continue
        changes = LessonChanges(utility=in_use(after), effects=after)
        reason = f"{plural(len(of_it), 'trial')} more" if of_it else "computed anew"
        entries.append(
            MemoryEntry(op=Operation.EDIT, id=name, by=BY_EFFECT, reason=reason, changes=changes, trials=of_it)
        )
    return entries


def _retirements(
    store: Store, lessons: dict[str, Lesson], effects: _Effects, everything: list[_NumberedTrial]
) -> list[MemoryEntry]:
    """The active lessons that harm; of one that was put into use again, by what was counted since."""
    real = any(not one.trial.simulated for one in everything)
    entries = []
    for name, lesson in lessons.items():
        worst = _worst(lesson, effects.get(name, []), real=real)
        if lesson.state is not LessonState.ACTIVE or worst is None:
            continue
        approved = _approved(store, name)
        if approved is not None:
            since = [one.trial for one in everything if one.seq is None or one.seq > approved]
            worst = _worst(lesson, beliefs(lessons.values(), since).get(name, []), real=real)
            if worst is None:
                continue
        entries.append(MemoryEntry(op=Operation.RETIRE, id=name, by=BY_EFFECT, reason=harm_said(worst)))
    return entries


def _returns(store: Store, lessons: dict[str, Lesson], effects: _Effects) -> list[MemoryEntry]:
    """The lessons that were retired by their effect, and of which no effect is likely to be harm any more."""
    entries = []
    for name, lesson in lessons.items():
        found = [one for one in effects.get(name, []) if one.n and (lesson.simulated or not one.simulated)]
        if lesson.state is not LessonState.RETIRED or not found or lesson.superseded_by is not None:
            continue
        harmless = max(map(chance_of_harm, found)) < RETURN and not all(map(is_idle, found))
        if harmless and is_retired_by_effect(store, lesson):
            best = in_use(found) or found[0]
            said = f"more trials now support it: {points(best.mean)} (sd {points(best.sd, sign=False)})"
            changes = LessonChanges(state=LessonState.ACTIVE, reason=said)
            entries.append(MemoryEntry(op=Operation.EDIT, id=name, by=BY_EFFECT, reason=said, changes=changes))
    return entries


def _puts_into_use(entry: MemoryEntry) -> bool:
    return entry.changes is not None and entry.changes.state is LessonState.ACTIVE


def _worst(lesson: Lesson, effects: Sequence[Utility], *, real: bool) -> Utility | None:
    """The effect for which a lesson is to be retired, harmful on one model or idle on all; None when there is none."""
    counting = [one for one in effects if one.n and (not one.simulated or lesson.simulated or not real)]
    harmful = [one for one in counting if is_harmful(one)]
    idle = counting if all(map(is_idle, counting)) else []
    return max(harmful or idle, key=chance_of_harm, default=None)


def harm_said(effect: Utility) -> str:
    """Return why a lesson is retired, with the evidence."""
    where = f" on {effect.model}" if effect.model else ""
    where += ", on its own tasks" if effect.own else ""
    kind = "simulated trial" if effect.simulated else "trial"
    harm = f"below zero with a probability of {chance_of_harm(effect):.2f}"
    idle = f"very probably not above {points(LITTLE, sign=False)}"
    return (
        f"its effect{where} is {harm if is_harmful(effect) else idle}: {points(effect.mean)} "
        f"(sd {points(effect.sd, sign=False)}) in {plural(effect.n, kind)}, {effect.shown} of them with it"
    )


def _approved(store: Store, name: str) -> int | None:
    """The last entry that has put a lesson into use again; None when there is none."""
    found = next(filter(_puts_into_use, history(store, name)), None)
    return found.seq if found is not None else None


def retired_by_effect(store: Store) -> list[Lesson]:
    """The lessons that were retired by their effect, and may do better on another model: a person may approve them."""
    retired = each_lesson(store, LessonFilter(state=LessonState.RETIRED))
    return [one for one in retired if is_retired_by_effect(store, one)]
