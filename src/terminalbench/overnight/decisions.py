"""What the supervisor of a night decides: pure functions, with the time as an argument."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum

import msgspec

from terminalbench.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_OK, UserError
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightState,
    Role,
    WorkEnd,
    WorkerPhase,
)
from terminalbench.text.numbers import duration

_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_SEEDS = 2**31


@dataclass(frozen=True)
class NightTimeouts:
    """How long a night waits, in seconds: for a worker to begin, to beat, to end; and before it tries again.

    The first beat comes as soon as the worker has loaded, before it looks at models or tasks.
    """

    first_sec: float = 600.0
    start_sec: float = 2100.0
    silent_sec: float = 60.0
    ending_sec: float = 600.0
    progress_sec: float = 3600.0
    finish_sec: float = 900.0
    drain_sec: float = 90.0
    backoff_sec: float = 1.0
    most_backoff_sec: float = 600.0
    retry_sec: float = 60.0
    failures: int = 12
    rounds: int = 2


class WorkerVerdict(StrEnum):
    """What is to be done about a worker that has not ended."""

    LEAVE = "leave"
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True)
class WorkerDecision:
    """What is to be done about a worker, and why."""

    verdict: WorkerVerdict
    reason: str = ""


@dataclass
class WorkerWatch:
    """What is known of a worker that runs, by the seconds in which the supervisor was awake.

    Only a beat that differs from the one before is a sign of life: whatever a clock says, it was written since.
    """

    started: float
    beat: Heartbeat | None = None
    beat_at: float = 0.0
    progress_at: float = 0.0
    asked_at: float | None = None

    def see(self, beat: Heartbeat | None, now: float) -> None:
        """Take a beat into account."""
        if beat is None or beat == self.beat:
            return
        before, self.beat, self.beat_at = self.beat, beat, now
        if before is None or (before.progress, before.phase) != (beat.progress, beat.phase):
            self.progress_at = now


def judge(watch: WorkerWatch, now: float, patience: NightTimeouts, *, waits: bool = False) -> WorkerDecision:
    """Return whether a worker is dead in all but name. One that beats is left alone, however long its trials take.

    `waits`: something holds its trials back (a pause, a rate limit), so that no progress is not its fault.
    """
    if watch.asked_at is not None:
        late = now - watch.asked_at > patience.drain_sec
        return (
            WorkerDecision(WorkerVerdict.KILL, f"did not end within {duration(patience.drain_sec)}") if late else _LEFT
        )
    phase = watch.beat.phase if watch.beat is not None else WorkerPhase.STARTING
    quiet = now - (watch.beat_at if watch.beat is not None else watch.started)
    if watch.beat is None and quiet > patience.first_sec:
        return WorkerDecision(WorkerVerdict.KILL, f"gave no sign of life within {duration(patience.first_sec)}")
    if phase is WorkerPhase.STARTING and now - watch.started > patience.start_sec:
        return WorkerDecision(WorkerVerdict.KILL, f"did not start its batch within {duration(patience.start_sec)}")
    if phase in (WorkerPhase.ENDING, WorkerPhase.ENDED):
        late = quiet > patience.ending_sec
        return (
            WorkerDecision(WorkerVerdict.KILL, f"did not finish within {duration(patience.ending_sec)}")
            if late
            else _LEFT
        )
    if watch.beat is not None and quiet > patience.silent_sec:
        return WorkerDecision(WorkerVerdict.KILL, f"has given no sign of life for {duration(patience.silent_sec)}")
    if phase is not WorkerPhase.RUNNING or watch.beat is None or waits:
        return _LEFT
    allowed = watch.beat.limit_sec + patience.progress_sec
    if now - watch.progress_at > allowed:
        return WorkerDecision(WorkerVerdict.STOP, f"none of its trials has made progress for {duration(allowed)}")
    return _LEFT


_LEFT = WorkerDecision(WorkerVerdict.LEAVE)


@dataclass(frozen=True)
class NextAction:
    """What becomes of an iteration whose worker has ended: `wait_sec` before it runs again; `lost`: it died."""

    status: IterationStatus
    wait_sec: float = 0.0
    failures: int = 0
    rounds: int = 0
    lost: bool = False
    reason: str | None = None


def after(
    work: IterationWork, end: WorkEnd | None, patience: NightTimeouts, *, asked: bool, said: str = ""
) -> NextAction:
    """Return what becomes of an iteration by what its worker said at its end; None: it died without a word.

    `asked`: the supervisor had asked it to stop. `said` is how it ended, for one that died.
    """
    kept = work.rounds
    if asked and (end is None or end.code == EXIT_INTERRUPTED):
        return NextAction(IterationStatus.WAITING, rounds=kept)
    if end is None:
        return _again(work, patience, said or "its worker died", lost=True)
    if end.closed:
        return NextAction(
            IterationStatus.WAITING if not end.trials else IterationStatus.INCOMPLETE, reason=end.said, rounds=kept
        )
    if end.code in (EXIT_OK, EXIT_GATE):
        return NextAction(IterationStatus.DONE, reason=end.said, rounds=kept)
    if end.code == EXIT_INTERRUPTED:
        return NextAction(
            IterationStatus.WAITING, patience.backoff_sec, reason="its worker was interrupted", rounds=kept
        )
    if not end.trials:
        return _again(work, patience, end.said or "its worker could not run it")
    if end.cut_off:
        return _again(work, patience, end.said or f"{end.cut_off} of {end.trials} trials did not run")
    if end.errors and work.rounds < patience.rounds:
        wait = patience.retry_sec * 4**work.rounds
        said = f"{end.errors} of {end.trials} trials ended with an error of the bench: tried again"
        return NextAction(IterationStatus.WAITING, wait, rounds=work.rounds + 1, reason=said)
    return NextAction(
        IterationStatus.INCOMPLETE,
        reason=end.said or f"{end.measured} of {end.trials} trials were measured",
        rounds=kept,
    )


def _again(work: IterationWork, patience: NightTimeouts, reason: str, *, lost: bool = False) -> NextAction:
    failures = work.failures + 1
    if failures >= patience.failures:
        return NextAction(IterationStatus.GIVEN_UP, failures=failures, rounds=work.rounds, lost=lost, reason=reason)
    wait = min(patience.backoff_sec * 2 ** (failures - 1), patience.most_backoff_sec)
    return NextAction(IterationStatus.WAITING, wait, failures, work.rounds, lost, reason)


def next_work(work: Iterable[IterationWork], now: float) -> IterationWork | None:
    """Return what to lease next: what has been begun first, then by its number, a validation after its iteration.

    One validation runs at a time: what it may spend depends on what the ones before it have.
    """
    found = list(work)
    validating = any(one.status is IterationStatus.LEASED and one.role is Role.VALIDATION for one in found)
    ready = [
        one
        for one in found
        if one.status is IterationStatus.WAITING
        and (one.not_before is None or one.not_before <= now)
        and not (validating and one.role is Role.VALIDATION)
    ]
    return min(ready, key=lambda one: (not one.starts, one.number, one.role is Role.VALIDATION), default=None)


def may_add(state: NightState, iterations: int | None) -> bool:
    """Return whether one more iteration may be begun: there is no limit, or it has not been reached."""
    begun = sum(work.role is Role.ITERATION for work in state.work)
    return iterations is None or begun < iterations


def until_moment(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return when `--until` is: a time of day means the next such moment, else it is a date and time.

    Both are read on the clocks of `zone`, by default this machine's, with the offset that holds there at that moment.
    """

    def on_the_clock(wall: datetime) -> datetime:
        aware = wall.replace(tzinfo=zone) if zone is not None else wall.astimezone()
        return aware.astimezone(UTC).astimezone(zone)

    match = _TIME.fullmatch(text.strip())
    if match is not None and int(match[1]) < 24 and int(match[2]) < 60:
        here = now.astimezone(zone).replace(tzinfo=None)
        wall = here.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
        today, tomorrow = on_the_clock(wall), on_the_clock(wall + timedelta(days=1))
        return today if today.astimezone(UTC) > now.astimezone(UTC) else tomorrow
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = 'a time of day such as "07:00", or "2026-11-18 07:00"'
        raise UserError(f'--until: "{text}" is not a time', hint=hint) from None
    found = found if found.tzinfo is not None else on_the_clock(found)
    if found.astimezone(UTC) <= now.astimezone(UTC):
        raise UserError(f"--until: {text} has already passed")
    return found


def seed_of(night_seed: int, number: int, role: Role) -> int:
    """The seed of an iteration: another for each, the same whenever it is asked for."""
    digest = hashlib.sha256(f"{night_seed}/{number}/{role}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % _SEEDS


def eta_sec(state: NightState, iterations: int | None, until: float | None, now: float) -> float | None:
    """Return how long the night probably takes yet: by the mean time of what has ended, and no longer than its
    deadline."""
    times = [seconds for work in state.work if (seconds := _lasted(work)) is not None]
    left = None if until is None else max(0.0, until - now)
    if iterations is None or not times:
        return left
    open_work = sum(not work.status.over for work in state.work)
    begun = sum(work.role is Role.ITERATION for work in state.work)
    rest = sum(times) / len(times) * (open_work + iterations - begun) / max(1, state.workers)
    return rest if left is None else min(rest, left)


def _lasted(work: IterationWork) -> float | None:
    if (
        work.status not in (IterationStatus.DONE, IterationStatus.INCOMPLETE)
        or not work.started_at
        or not work.finished_at
    ):
        return None
    lasted = datetime.fromisoformat(work.finished_at) - datetime.fromisoformat(work.started_at)
    return max(0.0, lasted.total_seconds())


def nothing_left(state: NightState, iterations: int | None) -> bool:
    """Return whether a night is through: all that was asked for is done."""
    return not may_add(state, iterations) and all(work.status is IterationStatus.DONE for work in state.work)


def reopened(work: IterationWork) -> IterationWork:
    """An iteration as a resume of its night finds it: what was not completed is tried again, whoever ran it."""
    if work.status is IterationStatus.DONE:
        return work
    return msgspec.structs.replace(
        work, status=IterationStatus.WAITING, lease=None, not_before=None, failures=0, rounds=0
    )
