"""The line of a run, and which numbers it takes from the state."""

from collections import Counter
from typing import Any

import pytest

from support.live import START, Teller, at, job_event, plan
from terminalbench.experiments.plan import Exclusion, Plan
from terminalbench.live.forecast import eta_sec, run_line, wait_lines, waiting_lines
from terminalbench.live.state import LiveState, replay
from terminalbench.records.event import Event
from terminalbench.records.trial import TaskRef


def counts(state: LiveState) -> tuple[int, int | None, Counter[str]]:
    return state.total.done, state.total.planned, +state.total.outcomes


def one_task(attempts: int, **settings: Any) -> Plan:
    return plan(tasks=("a",), attempts=attempts, **settings)


def test_it_says_what_ended_what_runs_what_waits_and_what_it_cost() -> None:
    first, second, third = Teller("a__1"), Teller("a__2"), Teller("a__3")
    events = [
        *(trial.started(0) for trial in (first, second, third)),
        first.ended(10, "passed", 0.5),
        second.ended(10, "errored", 0.25, retried=True),
        job_event(10, "heartbeat"),
    ]
    state = replay(one_task(4, parallel=1), events)
    assert run_line(state, START + 10) == "10 s  1/4 trials, 1 passed, 1 running, $0.75, about 22 s left, 2 waiting"


def test_a_trial_whose_start_was_never_told_counts_last() -> None:
    """As in the summary."""
    state = replay(one_task(1), [Teller("a__1").ended(1, "failed"), *Teller("a__2", wave=2).whole(2, 3)])
    assert counts(state) == (1, 1, Counter(passed=1))


def test_nothing_done_means_no_guess() -> None:
    state = replay(one_task(4), [])
    assert eta_sec(state, START) is None
    assert run_line(state, START + 5, START) == "5.0 s  0/4 trials, 4 waiting"
    state.apply(Teller("a__1").started(6))
    assert run_line(state, START + 7, START).startswith("7.0 s  "), "its first event does not set it back"


def test_a_cost_that_is_unknown_is_not_left_out() -> None:
    state = replay(one_task(1), Teller("a__1").whole(0, 10, cost=None, tokens=None))
    assert run_line(state, START + 10) == "10 s  1/1 trial, 1 passed, unknown"


def waits(trial: Teller, reason: str, cause: str, until: float | None = None) -> Event:
    detail = {"cause": cause} | ({"until": at(until)} if until is not None else {})
    return trial.event(0, "trial_waiting", error=reason, detail=detail)


def test_it_says_what_trials_wait_for() -> None:
    a, b, c, d = (Teller(f"a__{n}") for n in range(1, 5))
    state = replay(one_task(4), [waits(a, "rate limit of m", "rate_limit", 42)])
    assert wait_lines(state, START) == ["waiting 42 s: rate limit of m"]
    state.apply(waits(b, "rate limit of m", "rate_limit", 30))
    state.apply(waits(c, "paused", "paused"))
    assert wait_lines(state, START) == ["waiting 30 s: rate limit of m (2 trials)", "waiting: paused"]
    assert wait_lines(state, START + 3600) == ["waiting 0.0 s: rate limit of m (2 trials)", "waiting: paused"]
    assert "waiting 30 s: rate limit of m (2 trials), waiting: paused" in run_line(state, START)
    state.apply(a.started(1))
    state.apply(c.event(1, "trial_held"))
    state.apply(waits(d, "paused", "paused"))
    state.apply(d.event(1, "control", detail={"action": "cancel", "target": "d"}))
    assert [waiting.trial for waiting in state.waiting] == ["a__2", "a__4"], "it was ordered, not done"
    state.apply(d.event(1, "control", detail={"action": "cancel", "done": True}))
    assert [waiting.trial for waiting in state.waiting] == ["a__2"]
    state.apply(job_event(2, "job_ended"))
    assert wait_lines(state, START) == []


def test_a_batch_that_is_resumed_has_nothing_running_from_before() -> None:
    first, second = Teller("a__1"), Teller("a__2")
    state = replay(
        one_task(3),
        [
            *(trial.started(0) for trial in (first, second, Teller("a__3"))),
            first.ended(1),
            second.ended(1, "cancelled"),
            job_event(2, "resumed", resumed={"p": 2}),
        ],
    )
    assert (state.total.done, state.running, state.total.running) == (1, [], 0)
    state.apply(Teller("a__4", wave=2).started(3))
    assert len(state.running) == 1


def test_an_error_that_is_run_again_counts_once() -> None:
    first, other, again = Teller("a__1"), Teller("b__1", "b"), Teller("a__2", wave=2)
    state = replay(plan(), [*first.whole(0, 10, "errored"), *other.whole(0, 10)])
    assert counts(state) == (2, 2, Counter(errored=1, passed=1))
    state.replan(plan(superseded=(f"{first.about['job']}/a__1",)))
    state.apply(job_event(20, "resumed", resumed={"p": 1}))
    assert counts(state) == (1, 2, Counter(passed=1))
    for one in again.whole(20, 30, "failed"):
        state.apply(one)
    assert counts(state) == (2, 2, Counter(failed=1, passed=1))
    assert state.total.cost_usd == 1.5, "every try is paid for"


def test_a_plan_that_grows_is_never_more_than_done() -> None:
    state = replay(one_task(1), Teller("a__1").whole(0, 10))
    state.replan(one_task(2))
    assert counts(state) == (1, 2, Counter(passed=1))
    for one in Teller("a__2", wave=2, attempt=2).whole(20, 30, "errored"):
        state.apply(one)
    assert counts(state) == (2, 2, Counter(passed=1, errored=1))
    for one in Teller("a__3", wave=3, attempt=2).whole(40, 50, "failed"):
        state.apply(one)
    assert counts(state) == (2, 2, Counter(passed=1, failed=1))
    for one in Teller("a__4", wave=4, attempt=2).whole(60, 70):
        state.apply(one)
    assert counts(state) == (2, 2, Counter(passed=1, failed=1)), "the first verdict of an attempt counts"


def test_what_a_place_that_is_left_out_has_done_was_planned() -> None:
    state = replay(plan(excluded=(Exclusion("no room", task=TaskRef("a", "d")),)), [])
    assert counts(state)[:2] == (0, 1)
    for one in Teller("a__1").whole(0, 10):
        state.apply(one)
    assert counts(state)[:2] == (1, 2)


def test_a_cancelled_trial_is_not_done_and_an_agent_without_a_model_costs_nothing() -> None:
    ended = Teller("a__1").ended(1, "cancelled", cost=None, tokens=None)
    free = replay(plan(agents={"p": "oracle"}), [ended]).total
    assert (free.done, free.spent_usd, free.cost_unknown) == (0, 0.0, 0)
    paid = replay(plan(), [Teller("a__1").ended(1, cost=None, tokens=None)]).total
    assert (paid.done, paid.spent_usd, paid.cost_unknown) == (1, None, 1)


def test_what_is_held_is_said_of_its_profile_until_its_job_ends() -> None:
    held = Teller("b__1", "b").event(11, "trial_held", error="cancelled by hand")
    state = replay(plan(("p", "q"), attempts=2), [*Teller("a__1").whole(0, 10), *Teller("a__2").whole(0, 10)[:2], held])
    assert waiting_lines(state, START) == ["nothing new starts in p: waiting for the running trials"]
    state.apply(Teller("b__2", "b", "q").event(12, "trial_held", error="the budget is used up"))
    assert waiting_lines(state, START) == ["nothing new starts: waiting for the running trials"]
    assert state.to_start == 4, "two are held, one runs, one is done"
    state.apply(job_event(13, "job_ended"))
    assert waiting_lines(state, START) == ["nothing new starts in q: the budget is used up"], "none of them runs"
    state.apply(job_event(14, "job_ended", "q"))
    assert waiting_lines(state, START) == []


@pytest.mark.parametrize("kind", ["job_died", "note"])
def test_what_a_harbor_that_died_was_running_or_kept_waiting_is_gone(kind: str) -> None:
    """A batch of an older version tells it in a note with an exit code."""
    other = Teller("a__3", wave=2)
    state = replay(
        one_task(4),
        [
            Teller("a__1").started(0),
            waits(Teller("a__2"), "rate limit of m", "rate_limit"),
            other.started(0),
            job_event(1, kind, code=-9),
        ],
    )
    assert ([trial.name for trial in state.running], state.waiting) == (["a__3"], [])
    assert state.total.cost_unknown == 1, "what it spent is not known"
