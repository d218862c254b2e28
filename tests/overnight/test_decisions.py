"""What the supervisor of a night decides."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.campaign import deadline_of
from terminalbench.errors import EXIT_FAILURE, EXIT_GATE, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, UserError
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.overnight.decisions import (
    NightTimeouts,
    WorkerVerdict,
    WorkerWatch,
    after,
    eta_sec,
    judge,
    may_add,
    next_work,
    reopened,
    seed_of,
    until_moment,
)
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightState,
    Role,
    WorkEnd,
    WorkerPhase,
)

PATIENCE = NightTimeouts(first_sec=40.0, start_sec=100, silent_sec=10, ending_sec=50, progress_sec=200, drain_sec=30)
ITERATION, VALIDATION = Role.ITERATION, Role.VALIDATION


def work(number: int = 1, role: Role = ITERATION, **fields) -> IterationWork:
    return IterationWork(number, role, 0, **fields)


def beat(at: float = 0.0, phase: WorkerPhase = WorkerPhase.RUNNING, **fields) -> Heartbeat:
    return Heartbeat(1, 1, at, phase, **fields)


def watched(*beats: tuple[float, Heartbeat]) -> WorkerWatch:
    watch = WorkerWatch(0.0)
    for moment, one in beats:
        watch.see(one, moment)
    return watch


def test_a_slow_worker_that_beats_is_left_alone_for_as_long_as_its_trials_may_take() -> None:
    beats = [(float(n), beat(float(n), limit_sec=10_000.0, progress=1)) for n in range(0, 5000, 5)]
    assert judge(watched(*beats), 4999.0, PATIENCE).verdict is WorkerVerdict.LEAVE


def test_a_worker_whose_loop_is_silent_is_killed_whatever_its_trials_may_take() -> None:
    judged = judge(watched((0.0, beat(limit_sec=10_000.0))), 10.5, PATIENCE)
    assert judged.verdict is WorkerVerdict.KILL
    assert "has given no sign of life for" in judged.reason


def test_the_same_beat_read_again_is_no_sign_of_life_and_what_its_clock_says_does_not_matter() -> None:
    watch = watched((0.0, beat(at=1e12)))
    for moment in range(1, 12):
        watch.see(beat(at=1e12), float(moment))
    assert judge(watch, 11.0, PATIENCE).verdict is WorkerVerdict.KILL
    watch.see(beat(at=-5.0), 11.0)  # the clock was set back: still a beat
    assert judge(watch, 12.0, PATIENCE).verdict is WorkerVerdict.LEAVE


@pytest.mark.parametrize(
    ("phase", "quiet", "verdict"),
    [
        (WorkerPhase.STARTING, 9.0, WorkerVerdict.LEAVE),
        (WorkerPhase.STARTING, 11.0, WorkerVerdict.KILL),
        (WorkerPhase.ENDING, 49.0, WorkerVerdict.LEAVE),
        (WorkerPhase.ENDING, 51.0, WorkerVerdict.KILL),
        (WorkerPhase.ENDED, 51.0, WorkerVerdict.KILL),
    ],
)
def test_each_phase_has_a_deadline(phase: WorkerPhase, quiet: float, verdict: WorkerVerdict) -> None:
    assert judge(watched((0.0, beat(phase=phase))), quiet, PATIENCE).verdict is verdict


def test_a_start_that_beats_has_its_own_time() -> None:
    beats = [(float(n), beat(float(n), phase=WorkerPhase.STARTING)) for n in range(0, 102, 1)]
    assert judge(watched(*beats), 99.0, PATIENCE).verdict is WorkerVerdict.LEAVE
    assert "did not start its batch" in judge(watched(*beats), 101.0, PATIENCE).reason


def test_a_worker_that_never_beats_is_not_waited_for_as_long_as_one_that_starts() -> None:
    assert judge(WorkerWatch(0.0), 39.0, PATIENCE).verdict is WorkerVerdict.LEAVE
    assert "gave no sign of life" in judge(WorkerWatch(0.0), 41.0, PATIENCE).reason


def test_a_batch_without_progress_is_stopped_unless_something_holds_it_back() -> None:
    beats = [(float(n), beat(float(n), limit_sec=50.0, progress=3)) for n in range(0, 252, 1)]
    assert judge(watched(*beats), 249.0, PATIENCE).verdict is WorkerVerdict.LEAVE
    assert judge(watched(*beats), 251.0, PATIENCE).verdict is WorkerVerdict.STOP
    assert judge(watched(*beats), 251.0, PATIENCE, waits=True).verdict is WorkerVerdict.LEAVE


def test_one_that_was_asked_to_end_is_killed_when_it_takes_too_long() -> None:
    watch = watched((0.0, beat()))
    watch.asked_at = 1.0
    assert judge(watch, 30.0, PATIENCE).verdict is WorkerVerdict.LEAVE
    assert judge(watch, 32.0, PATIENCE).verdict is WorkerVerdict.KILL


@pytest.mark.parametrize(
    ("end", "asked", "status"),
    [
        (WorkEnd(EXIT_OK, trials=2, measured=2), False, IterationStatus.DONE),
        (WorkEnd(EXIT_GATE, trials=2, measured=2), False, IterationStatus.DONE),
        (WorkEnd(EXIT_INCOMPLETE, trials=2, measured=1), False, IterationStatus.INCOMPLETE),
        (WorkEnd(EXIT_INCOMPLETE, trials=2, measured=1, closed=True), False, IterationStatus.INCOMPLETE),
        (WorkEnd(EXIT_FAILURE, trials=2), False, IterationStatus.INCOMPLETE),
        (WorkEnd(EXIT_INTERRUPTED, trials=2), False, IterationStatus.WAITING),
        (WorkEnd(EXIT_INTERRUPTED, trials=2), True, IterationStatus.WAITING),
        (WorkEnd(EXIT_OK, trials=2, measured=2), True, IterationStatus.DONE),
        (None, True, IterationStatus.WAITING),
        (None, False, IterationStatus.WAITING),
        (WorkEnd(2, closed=True), False, IterationStatus.WAITING),
        (WorkEnd(2, said="no such file"), False, IterationStatus.WAITING),
        (WorkEnd(EXIT_INCOMPLETE, trials=2, measured=1, cut_off=1), False, IterationStatus.WAITING),
        (WorkEnd(EXIT_INCOMPLETE, trials=2, measured=1, errors=1), False, IterationStatus.WAITING),
    ],
)
def test_what_becomes_of_an_iteration(end: WorkEnd | None, asked: bool, status: IterationStatus) -> None:
    assert after(work(), end, PATIENCE, asked=asked).status is status


def test_a_worker_that_dies_is_waited_for_longer_each_time_and_given_up_at_last() -> None:
    one, waits = work(), []
    while True:
        became = after(one, None, PATIENCE, asked=False, said="killed")
        assert became.lost
        if became.status is IterationStatus.GIVEN_UP:
            break
        waits.append(became.wait_sec)
        one.failures = became.failures
    assert waits == [min(2.0**n, 600.0) for n in range(PATIENCE.failures - 1)]
    assert became.reason == "killed"


def test_an_end_with_verdicts_forgets_earlier_failures() -> None:
    became = after(work(failures=5), WorkEnd(EXIT_OK, trials=1, measured=1), PATIENCE, asked=False)
    assert became.failures == 0


def test_errors_of_the_bench_are_tried_again_so_often_and_then_stay() -> None:
    end, one, waits = WorkEnd(EXIT_INCOMPLETE, trials=2, measured=1, errors=1), work(), []
    while (became := after(one, end, PATIENCE, asked=False)).status is IterationStatus.WAITING:
        one.rounds, waits = became.rounds, [*waits, became.wait_sec]
    assert waits == [60.0, 240.0]
    assert became.status is IterationStatus.INCOMPLETE


def test_what_was_begun_goes_first_then_by_number_a_validation_after_its_iteration() -> None:
    found = [
        work(3),
        work(1, VALIDATION),
        work(1, status=IterationStatus.DONE),
        work(2, starts=1),
        work(4, not_before=50.0),
    ]
    order = []
    while (one := next_work(found, 10.0)) is not None:
        one.status = IterationStatus.DONE
        order.append((one.number, one.role))
    assert order == [(2, ITERATION), (1, VALIDATION), (3, ITERATION)]
    assert next_work(found, 50.0) is found[4]


def test_validations_run_one_at_a_time() -> None:
    found = [work(1, VALIDATION, status=IterationStatus.LEASED), work(2, VALIDATION)]
    assert next_work(found, 0.0) is None


def state(*found: IterationWork, workers: int = 1) -> NightState:
    return NightState("r", SharedClock.here(), work=list(found), workers=workers)


def test_no_more_iterations_than_asked_for() -> None:
    assert may_add(state(work(1)), 2)
    assert not may_add(state(work(1), work(2)), 2)
    assert may_add(state(work(1), work(1, VALIDATION)), 2)
    assert may_add(state(*map(work, range(50))), None)


def test_until_is_the_next_such_time_of_day_where_one_is() -> None:
    here = timezone(timedelta(hours=2))
    evening = datetime(2026, 11, 16, 23, 0, tzinfo=here)
    assert until_moment("07:00", evening, here) == datetime(2026, 11, 17, 7, 0, tzinfo=here)
    assert until_moment("23:30", evening, here) == datetime(2026, 11, 16, 23, 30, tzinfo=here)
    assert until_moment("2026-11-18 07:00", evening, here) == datetime(2026, 11, 18, 7, 0, tzinfo=here)
    assert until_moment("2026-11-18T07:00+00:00", evening, here) == datetime(2026, 11, 18, 7, 0, tzinfo=UTC)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("07:00", "2026-03-28T22:00+00:00", "2026-03-29T05:00+00:00"),  # summer time begins in that night
        ("07:00", "2026-10-24T21:00+00:00", "2026-10-25T06:00+00:00"),  # and ends
        ("2026-12-24 07:00", "2026-07-01T00:00+00:00", "2026-12-24T06:00+00:00"),
        ("2026-07-24 07:00", "2026-03-01T00:00+00:00", "2026-07-24T05:00+00:00"),
        ("02:30", "2026-03-28T22:00+00:00", "2026-03-29T01:30+00:00"),  # which no clock shows then
        ("23:30", "2026-06-01T21:00+00:00", "2026-06-01T21:30+00:00"),
    ],
)
def test_until_is_what_the_clocks_show_on_the_other_side_of_a_change(
    in_berlin: None, text: str, now: str, expected: str
) -> None:
    assert until_moment(text, datetime.fromisoformat(now)) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("text", ["7", "25:00", "07:61", "soon", "2026-11-15 07:00", ""])
def test_an_until_that_is_no_time_or_has_passed_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        until_moment(text, datetime(2026, 11, 16, 23, 0, tzinfo=UTC), UTC)


@given(jump=st.floats(-1e5, 1e5), left=st.floats(0, 1e5), now=st.floats(0, 1e9))
def test_a_jump_of_the_wall_clock_moves_until_and_not_the_clock_of_the_night(
    jump: float, left: float, now: float
) -> None:
    wall = 1.8e9
    before, later = deadline_of(wall + left, wall, now), deadline_of(wall + left, wall + jump, now)
    assert before is not None
    assert later is not None
    assert before - now == pytest.approx(left, abs=1e-3)
    assert before - later == pytest.approx(jump, abs=1e-3)
    assert deadline_of(None, wall + jump, now) is None


@given(seed=st.integers(0, 2**31), number=st.integers(1, 500))
def test_each_iteration_has_a_seed_of_its_own_and_always_the_same(seed: int, number: int) -> None:
    assert seed_of(seed, number, ITERATION) == seed_of(seed, number, ITERATION)
    seeds = {seed_of(seed, number + more, role) for more in range(5) for role in Role}
    assert len(seeds) == 10
    assert all(0 <= one < 2**31 for one in seeds)


def test_a_resume_opens_all_that_was_not_completed() -> None:
    assert reopened(work(status=IterationStatus.DONE)).status is IterationStatus.DONE
    for status in (
        IterationStatus.LEASED,
        IterationStatus.INCOMPLETE,
        IterationStatus.GIVEN_UP,
        IterationStatus.WAITING,
    ):
        found = reopened(work(status=status, failures=12, rounds=2, not_before=99.0, starts=3))
        assert (found.status, found.failures, found.rounds, found.not_before, found.starts) == (
            IterationStatus.WAITING,
            0,
            0,
            None,
            3,
        )


def test_the_time_left_is_by_what_has_ended_and_no_longer_than_the_deadline() -> None:
    done = work(1, status=IterationStatus.DONE, started_at="2026-11-16T23:00:00Z", finished_at="2026-11-16T23:10:00Z")
    night = state(done, work(2, status=IterationStatus.LEASED), workers=2)
    assert eta_sec(night, 5, None, 0.0) == pytest.approx(600.0 * 4 / 2)
    assert eta_sec(night, 5, 100.0, 40.0) == pytest.approx(60.0)
    assert eta_sec(night, None, None, 0.0) is None
    assert eta_sec(state(), 5, None, 0.0) is None
