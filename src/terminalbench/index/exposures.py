"""The trials that were shown a lesson, or might have been: the worth of a lesson is learned from them."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import convert, decoder
from terminalbench.index.store import open_index
from terminalbench.records.trial import Exposure, LessonsDelivery, Outcome

_KEY = ("batch", "job", "trial")
_TRIAL = (
    *_KEY, "profile", "profile_id", "policy_id", "dataset", "task", "family", "attempt", "model", "outcome",
    "started_at", "simulated",
)  # fmt: skip
_INSERT = "INSERT OR REPLACE INTO exposures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_COUNTED = """FROM exposures e JOIN trials t USING (batch, job, trial)
    WHERE coalesce(t.counts, 1) AND NOT t.copy"""
_ASKED = f"""
    SELECT {", ".join(f"t.{name}" for name in _TRIAL)}, e.mode, e.snapshot, e.lesson, e.propensity, e.shown,
           e.characters, e.own, t.record
    {_COUNTED}
    ORDER BY batch, job, trial, e.rank
"""
_MEASURED = ", ".join(f"'{outcome}'" for outcome in Outcome if outcome.measured)
_COUNTS = f"""
    SELECT e.lesson, e.mode, count(*) eligible, sum(e.shown) shown, sum(e.own) own,
           sum(e.shown AND t.outcome IN ({_MEASURED})) shown_measured,
           sum(e.shown AND t.outcome = 'passed') shown_passed,
           sum(NOT e.shown AND t.outcome IN ({_MEASURED})) withheld_measured,
           sum(NOT e.shown AND t.outcome = 'passed') withheld_passed
    {_COUNTED} AND (? IS NULL OR e.lesson = ?)
    GROUP BY e.lesson, e.mode ORDER BY e.mode
"""
_TRIALS = f"""
    SELECT batch, job, trial, t.profile, t.task, t.outcome, t.started_at, e.mode, e.shown, e.own
    {_COUNTED} AND e.lesson = ?
    ORDER BY t.started_at DESC, batch, job, trial LIMIT ?
"""


class _NamedTrial(msgspec.Struct):
    """Of the record of a trial only what it is called everywhere."""

    id: str | None = None


_decode = decoder(_NamedTrial).decode


class LessonTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that counts and for which lessons were eligible, with each of them, shown or withheld.

    `policy_id` is the `profile_id` whatever the memory held. `outcome` None: it has not ended. `id` is Harbor's: no
    other trial has it, in whatever results folder.
    """

    batch: str
    job: str
    trial: str
    profile: str | None
    profile_id: str | None
    policy_id: str | None
    dataset: str | None
    task: str
    family: str | None
    attempt: int | None
    model: str | None
    outcome: Outcome | None
    started_at: str | None
    simulated: bool
    mode: str
    snapshot: str
    exposures: tuple[Exposure, ...]
    id: str | None = None

    @property
    def measured(self) -> bool:
        """Return whether the verifier's word counts."""
        return self.outcome is not None and self.outcome.measured


def keep_exposures(connection: sqlite3.Connection, trials: Iterable[Mapping[str, Any]]) -> None:
    """Put what trials were shown (`lessons`) in the place of what the index had of them."""
    for trial in trials:
        place = [trial[name] for name in _KEY]
        connection.execute("DELETE FROM exposures WHERE batch = ? AND job = ? AND trial = ?", place)
        told: LessonsDelivery | None = trial.get("lessons")
        if told is None:
            continue
        for rank, one in enumerate(told.exposures, start=1):
            found = (one.propensity, one.shown, one.characters, one.own)
            connection.execute(_INSERT, (*place, one.lesson, rank, told.mode, told.snapshot, *found))


def exposed_trials(results_root: Path) -> list[LessonTrial]:
    """The trials of all batches for which lessons were eligible, from the index as it is: call `scan_all` first."""
    with open_index(results_root) as connection:
        return list(each_exposed(connection))


def each_exposed(connection: sqlite3.Connection) -> Iterator[LessonTrial]:
    """The same from an open index, in the order of batches, jobs and names."""
    for _, rows in groupby(connection.execute(_ASKED), key=lambda row: tuple(row[:3])):
        found = list(rows)
        known = {name: found[0][name] for name in (*_TRIAL, "mode", "snapshot")}
        known["outcome"] = Outcome(known["outcome"]) if known["outcome"] is not None else None
        known["simulated"] = bool(known["simulated"])
        exposures = tuple(
            Exposure(row["lesson"], row["propensity"], bool(row["shown"]), row["characters"], bool(row["own"]))
            for row in found
        )
        record = found[0]["record"]
        yield LessonTrial(**known, exposures=exposures, id=_decode(record).id if record is not None else None)


class LessonCounts(msgspec.Struct, frozen=True):
    """In how many trials of a mode a lesson was eligible and was shown, and how those ended that were measured.

    `own` are trials of its own task or family.
    """

    lesson: str
    mode: str
    eligible: int
    shown: int
    own: int
    shown_measured: int
    shown_passed: int
    withheld_measured: int
    withheld_passed: int

    @property
    def withheld(self) -> int:
        """Trials that were not shown it, by chance."""
        return self.eligible - self.shown


class LessonLook(msgspec.Struct, frozen=True):
    """One trial for which a lesson was eligible. `night`: the one that it is of, where that has an index of its own."""

    batch: str
    job: str
    trial: str
    profile: str | None
    task: str
    outcome: str | None
    started_at: str | None
    mode: str
    shown: bool
    own: bool
    night: str | None = None


def lesson_counts(connection: sqlite3.Connection, lesson: str | None = None) -> dict[str, list[LessonCounts]]:
    """The counts of each lesson that was ever eligible, or of one; a mode each."""
    found: dict[str, list[LessonCounts]] = {}
    for row in connection.execute(_COUNTS, (lesson, lesson)):
        found.setdefault(row["lesson"], []).append(LessonCounts(*row))
    return found


def add_counts(parts: Iterable[Mapping[str, list[LessonCounts]]]) -> dict[str, list[LessonCounts]]:
    """The counts of several indexes together."""
    sums: dict[str, dict[str, list[int]]] = {}
    for part in parts:
        for one in (one for counts in part.values() for one in counts):
            lesson, mode, *numbers = msgspec.structs.astuple(one)
            before = sums.setdefault(lesson, {}).get(mode, [0] * len(numbers))
            sums[lesson][mode] = [old + new for old, new in zip(before, numbers, strict=True)]
    return {
        lesson: [LessonCounts(lesson, mode, *numbers) for mode, numbers in sorted(modes.items())]
        for lesson, modes in sums.items()
    }


def lesson_trials(connection: sqlite3.Connection, lesson: str, limit: int) -> list[LessonLook]:
    """The trials for which a lesson was eligible, newest first."""
    rows = connection.execute(_TRIALS, (lesson, limit))
    return [convert(dict(row), LessonLook, strict=False) for row in rows]
