"""The times of a night, from what it wrote down."""

import msgspec

from support.iterations import iteration
from terminalbench.overnight.night import NightEvent, NightEventKind, Role
from terminalbench.overnight.summary_model import SpendPoint, timeline_of

START, END, LOST = NightEventKind.WORKER_STARTED, NightEventKind.WORKER_ENDED, NightEventKind.WORKER_LOST


def at(minute: int, kind: NightEventKind, number: int | None = None, worker: int | None = None) -> NightEvent:
    role = Role.ITERATION if number is not None else None
    return NightEvent(f"2026-01-23T17:{minute:02}:00Z", kind, "", number, role, worker)


def spans(*events: NightEvent) -> list[tuple[int, int | None, str, str | None, bool]]:
    found = timeline_of(events, []).workers
    return [
        (s.worker, s.iteration, s.started_at[14:16], s.ended_at[14:16] if s.ended_at else None, s.lost) for s in found
    ]


def test_a_worker_works_from_its_start_to_its_end_and_a_number_is_used_again() -> None:
    events = (
        at(0, START, 1, 1),
        at(1, START, 2, 2),
        at(5, END, 1, 1),
        at(6, START, 3, 1),
        at(7, LOST, 3, 1),
        at(8, END, 3, 1),
    )
    assert spans(*events) == [(1, 1, "00", "05", False), (2, 2, "01", None, False), (1, 3, "06", "08", True)]


def test_workers_of_a_supervisor_that_was_killed_end_with_its_last_word() -> None:
    events = (at(0, START, 1, 1), at(9, NightEventKind.NOTE), at(50, NightEventKind.RESUMED), at(51, START, 1, 1))
    assert spans(*events) == [(1, 1, "00", "09", True), (1, 1, "51", None, False)]
    assert spans(*events, at(55, NightEventKind.ENDED))[1] == (1, 1, "51", "55", False)
    assert spans(at(3, LOST), at(4, END, 1, 7)) == [], "a worker that nobody saw start"


def test_spend_adds_up_by_the_time_that_trials_ended_and_its_last_point_is_kept() -> None:
    made = iteration(1, {"a": "+" * 500, "b": "x"})
    trials = made.profiles[0].tasks[0].trials
    ended = [
        msgspec.structs.replace(one, finished_at=f"2026-01-23T{n // 60:02}:{n % 60:02}:00Z", cost_usd=0.5)
        for n, one in enumerate(reversed(trials))
    ]
    task = msgspec.structs.replace(made.profiles[0].tasks[0], trials=ended[::-1])
    profile = msgspec.structs.replace(made.profiles[0], tasks=[task, made.profiles[0].tasks[1]])
    found = timeline_of([], [msgspec.structs.replace(made, profiles=[profile])]).spend
    assert found[0] == SpendPoint("2026-01-23T00:00:00Z", 0.5)
    assert found[-1] == SpendPoint(ended[-1].finished_at or "", 250.0)
    assert len(found) <= 201
    assert [one.cost_usd for one in found] == sorted(one.cost_usd for one in found)
