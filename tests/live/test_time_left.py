"""How long a batch still takes, by what has ended."""

import pytest

from support.live import START, Teller, at, job_event, plan
from terminalbench.live.forecast import eta_sec
from terminalbench.live.state import replay
from terminalbench.records.event import Event


def test_time_left_comes_from_the_tasks_own_durations() -> None:
    planned = plan(tasks=("a", "b"), attempts=2, parallel=1)
    state = replay(planned, [*Teller("a__1", "a").whole(0, 10), *Teller("b__1", "b").whole(10, 110)])
    assert eta_sec(state, START + 110) == 110  # one more of each
    state.apply(Teller("b__2", "b", attempt=2).started(110))
    assert eta_sec(state, START + 150) == 70  # sixty left of it, then ten


def test_time_left_of_an_unseen_task_is_that_of_others_at_this_profiles_pace() -> None:
    planned = plan(("p", "q"), ("a", "b"), parallel=1)
    fast = [*Teller("a__1", "a").whole(0, 10), *Teller("b__1", "b").whole(10, 50)]
    slow = Teller("a__2", "a", "q").whole(0, 30)
    state = replay(planned, [*fast, *slow])
    # On a, q took 30 where p took 10: three times as long. On b, p took 40.
    assert eta_sec(state, START + 50) == pytest.approx(120)


def test_time_left_counts_trials_and_profiles_side_by_side() -> None:
    tasks = tuple("abcdefgh")
    done = [e for p in ("p", "q") for n, t in enumerate(tasks[:4]) for e in Teller(f"{t}__{p}", t, p).whole(n, n + 10)]
    assert eta_sec(replay(plan(("p", "q"), tasks, parallel=4), done), START + 14) == 10
    assert eta_sec(replay(plan(("p", "q"), tasks, parallel=2), done), START + 14) == 20
    assert eta_sec(replay(plan(("p", "q"), tasks, parallel=2, profiles_parallel=1), done), START + 14) == 40


def test_time_left_knows_how_many_trials_somebody_lets_run_at_once() -> None:
    tasks = tuple("abcdefgh")
    done = [e for p in ("p", "q") for n, t in enumerate(tasks[:4]) for e in Teller(f"{t}__{p}", t, p).whole(n, n + 10)]
    state = replay(plan(("p", "q"), tasks, parallel=4), done)

    def after(profile: str | None, value: int) -> float | None:
        detail = {"action": "set", "target": profile or "all", "value": value}
        state.apply(Event(at(14), "control", "", 1, profile, error="load", detail=detail))
        return eta_sec(state, START + 14)

    assert [after("q", 1), after("q", 2), after(None, 4), after("p", 1), after(None, 2)] == [40, 20, 10, 40, 20]
    state.apply(Event(at(20), "resumed", "s", 1, detail={"resumed": {"p": 4, "q": 4}}))
    assert eta_sec(state, START + 20) == 10, "a resume begins without orders"


def test_time_left_is_unknown_before_anything_ended_and_short_when_nothing_starts() -> None:
    state = replay(plan(), [Teller("a__1").started(0)])
    assert eta_sec(state, START + 50) is None
    planned = plan(tasks=tuple("abcdefgh"), parallel=2)
    state = replay(
        planned,
        [*Teller("a__1").whole(0, 10), Teller("b__1", "b").started(10), Teller("c__1", "c").event(11, "trial_held", error="budget")],
    )  # fmt: skip
    # One took ten seconds, another has lasted four: fourteen for each that ends, so ten more for this one.
    assert eta_sec(state, START + 14) == 10


def test_a_profile_that_goes_on_later_in_line_is_not_given_up() -> None:
    planned = plan(("p", "q"), ("a", "b"), parallel=1, profiles_parallel=1)
    first = [
        e
        for profile in ("p", "q")
        for e in (
            job_event(0, "job_started", profile),
            *Teller(f"a__{profile}", "a", profile).whole(0, 10),
            job_event(10, "job_ended", profile),
        )
    ]
    state = replay(planned, first)
    assert state.never == 2
    again = Event(at(100), "resumed", "s", 1, detail={"resumed": {"p": 1, "q": 1}})
    for event in (again, job_event(101, "job_started", "p", wave=2), Teller("b__1", "b", "p", wave=2).started(101)):
        state.apply(event)
    assert (state.never, state.shut, state.in_line) == (0, set(), ["q"])
    both = eta_sec(state, START + 101)
    state.apply(job_event(102, "job_started", "q", wave=2))
    state.apply(job_event(103, "job_ended", "q", wave=2))
    alone = eta_sec(state, START + 101)
    assert both is not None
    assert alone is not None
    assert both > alone
    assert state.never == 1
