"""The state of a batch from its events."""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.live import START, Teller, at, job, job_event, plan
from terminalbench.experiments.plan import Exclusion
from terminalbench.faults import ErrorClass
from terminalbench.index.queries import TrialRow, assign_cells
from terminalbench.live.forecast import eta_sec, wait_lines
from terminalbench.live.state import LiveState, replay
from terminalbench.records.event import Event
from terminalbench.records.trial import AgentStatus, Outcome, TaskRef, Trial, Usage
from terminalbench.records.values import stamp
from terminalbench.watch.follow import Lines

PROFILES, TASKS = ("p", "q"), ("a", "b", "c")


def totals(state: LiveState) -> dict:
    """Everything that must not depend on the order in which trials mix."""
    return {
        key: (
            p.planned, p.left_out, {k: v for k, v in p.outcomes.items() if v}, {k: v for k, v in p.errors.items() if v},
            p.done, p.retries, p.superseded, p.ended, p.cost_usd, p.cost_known, p.cost_unknown, p.tokens, p.tokens_known,
            p.tokens_unknown, p.durations, p.mean_sec, p.p90_sec, p.running,
            [round(x, 6) + 0.0 for x in (p.ahead.own_sec, p.ahead.task_sec, p.ahead.same_sec)], p.ahead.blind,
        )
        for key, p in state.profiles.items()
    }  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> list[list[Event]]:
    """Trials of two profiles and two waves, each with its own sequence: retried, cut off, running, ended every way.

    Costs and times are multiples of 1/4, so that sums do not depend on their order.
    """
    found = []
    for number in range(draw(st.integers(0, 14))):
        task, profile = draw(st.sampled_from(TASKS)), draw(st.sampled_from(PROFILES))
        trial = Teller(f"{task}__{number}", task, profile, wave=draw(st.integers(1, 2)))
        second = draw(st.integers(0, 400)) / 4
        events = []
        tries = draw(st.integers(1, 3))
        for n in range(1, tries + 1):
            events += [trial.started(second, n), trial.phase(second + 0.25, "agent")]
            second += draw(st.integers(-8, 200)) / 4
            cost = draw(st.none() | st.integers(0, 40).map(lambda n: n / 4))
            tokens = draw(st.none() | st.integers(0, 10**6))
            if n < tries:
                events.append(
                    trial.ended(second, "errored", cost, tokens, error_class="network", number=n, retried=True)
                )
            elif draw(st.integers(0, 4)):
                outcome = draw(st.sampled_from(["passed", "failed", "timed_out", "errored", "cancelled"]))
                kind = draw(st.sampled_from([None, "setup", "auth"])) if outcome == "errored" else None
                events.append(trial.ended(second, outcome, cost, tokens, error_class=kind, number=n))
        found.append(events)
    return found


def mixed(histories: list[list[Event]], seed: int) -> list[Event]:
    """One interleaving that keeps the order within each trial."""
    luck, rest = random.Random(seed), [list(events) for events in histories if events]
    out = []
    while rest:
        chosen = luck.choice(rest)
        out.append(chosen.pop(0))
        rest = [events for events in rest if events]
    return out


@settings(max_examples=30)
@given(histories(), st.integers(0, 10**6), st.integers(1, 2))
def test_any_mixture_of_trials_gives_the_same_totals(histories: list[list[Event]], seed: int, attempts: int) -> None:
    planned = plan(PROFILES, TASKS, attempts)
    assert totals(replay(planned, mixed(histories, seed))) == totals(replay(planned, mixed(histories, seed + 1)))


@settings(max_examples=30)
@given(histories(), st.integers(0, 10**6), st.integers(0, 200))
def test_a_new_plan_or_a_later_attach_changes_nothing(histories: list[list[Event]], seed: int, place: int) -> None:
    """A plan that comes late (or again) gives what one pass gives: plan.json is written again during a run."""
    events, planned = mixed(histories, seed), plan(PROFILES, TASKS, 2)
    place = min(place, len(events))
    whole = replay(planned, events)
    state = replay(plan(PROFILES, TASKS[:2], 1), events[:place])
    state.replan(planned)
    for event in events[place:]:
        state.apply(event)
    assert totals(state) == totals(whole)
    assert [t.key for t in state.running] == [t.key for t in whole.running]


@settings(max_examples=30)
@given(histories(), st.integers(0, 10**6))
def test_the_counts_are_those_of_the_summary(histories: list[list[Event]], seed: int) -> None:
    """Which trial counts for a cell is decided as `assign_cells` decides it, which the summary of a batch shows."""
    planned, rows = plan(PROFILES, TASKS, 2), []
    for events in histories:
        last = events[-1]
        if last.kind != "trial_ended":
            continue
        started = next(e.time for e in reversed(events) if e.kind == "trial_started")
        outcome = Outcome(last.outcome or "")
        kind = ErrorClass(last.detail["error_class"]) if "error_class" in last.detail else None
        trial = Trial(
            id="", name=last.trial or "", job=last.job, task=last.task or "", outcome=outcome, agent_status=AgentStatus.COMPLETED,
            started_at=started, error_class=kind, attempt=last.attempt,
        )  # fmt: skip
        rows.append(
            TrialRow(last.job, last.trial or "", "finished", None, last.profile, last.task, "d", trial, Usage())
        )
    rows.sort(key=lambda row: (row.trial.started_at, row.name) if row.trial else ("", ""))
    cells, superseded = assign_cells(planned, rows)
    state = replay(planned, mixed(histories, seed))
    for profile in PROFILES:
        wanted = Counter(cell.outcome.value for cell in cells if cell.profile == profile and cell.row is not None)
        assert {k: v for k, v in state.profiles[profile].outcomes.items() if v} == wanted
        assert state.profiles[profile].superseded == sum(row.profile == profile for row in superseded)


def test_of_two_that_started_in_one_moment_the_same_counts_as_in_the_summary() -> None:
    """The first by its name, whatever its job is called: `assign_cells` gets them in that order."""
    first, second = Teller("a__0", wave=1), Teller("a__1", wave=2)
    told = [first.whole(0, 10, "failed"), second.whole(0, 10, "passed")]
    for events in (told, told[::-1]):
        outcomes = replay(plan(("p",)), [event for trial in events for event in trial]).profiles["p"].outcomes
        assert {name: count for name, count in outcomes.items() if count} == {"failed": 1}


def test_a_profile_counts_what_is_planned_for_it() -> None:
    a, b = Teller("a__1", "a"), Teller("b__1", "b")
    state = replay(
        plan(("p", "q")),
        [
            *a.whole(0, 10),
            *b.whole(0, 30, "errored", cost=None, tokens=None, error_class="setup", error="no room"),
            Teller("a__2", "a", "q").started(5),
        ],
    )
    p, q = state.profiles["p"], state.profiles["q"]
    assert (p.done, p.planned, p.measured, p.broken, dict(p.errors)) == (2, 2, 1, 1, {"setup": 1})
    assert (p.cost_usd, p.cost_unknown, p.tokens, p.tokens_unknown) == (0.5, 1, 1000, 1)
    assert (p.mean_sec, p.p90_sec) == (20.0, 30.0)
    assert (q.done, q.planned, q.running, q.mean_sec) == (0, 2, 1, None)
    assert [trial.name for trial in state.running] == ["a__2"]
    assert [trial.name for trial in state.finished] == ["a__1", "b__1"]


def test_a_retry_costs_and_is_no_result() -> None:
    trial = Teller("a__1")
    state = replay(
        plan(),
        [
            trial.started(0),
            trial.ended(5, "errored", 0.25, error_class="network", retried=True),
            trial.started(9, 2),
            trial.ended(19, "passed", 0.5, number=2),
        ],
    )
    p = state.profiles["p"]
    assert (p.done, p.retries, p.broken, p.cost_usd, p.durations) == (1, 1, 0, 0.75, [10.0])


def test_what_waits_is_known_with_its_reason() -> None:
    trial = Teller("a__1")
    planned = plan(("p", "q"), profiles_parallel=1)
    state = replay(
        planned,
        [
            job_event(0, "job_started"), trial.started(0), trial.ended(5, "errored", error_class="network", retried=True),
            trial.event(6, "trial_waiting", error="a further try", detail={"cause": "retry", "until": at(36)}),
        ],
    )  # fmt: skip
    assert wait_lines(state, START + 26) == ["waiting 10 s: a further try", "waiting for their turn: q"]
    assert state.in_line == ["q"]
    state.apply(trial.started(9, 2))
    state.apply(job_event(10, "job_started", "q"))
    assert (state.waiting, state.in_line) == ([], [])


@pytest.mark.parametrize("kind", ["resumed", "note"])
def test_a_later_wave_takes_the_place_of_what_was_cut_off_or_cancelled(kind: str) -> None:
    """Before it was a kind of its own, a resume was a note."""
    first, second, again = Teller("a__1"), Teller("b__1", "b"), Teller("a__2", wave=2)
    state = replay(
        plan(attempts=1),
        [
            job_event(0, "job_started"), first.started(0), second.started(0), second.ended(9, "cancelled", None, None),
            Event(at(100), kind, "s", 1, detail={"resumed": {"p": 2}, "attempts": None}),
        ],
    )  # fmt: skip
    p = state.profiles["p"]
    assert (p.done, p.running, p.outcomes["cancelled"], p.cost_unknown) == (0, 0, 1, 2)
    trial = state.trials.get((job("p"), "a__1"))
    assert trial is not None
    assert trial.lost
    assert state.began == START + 100
    for event in [
        job_event(101, "job_started", wave=2),
        *again.whole(101, 111),
        *Teller("b__2", "b", wave=2).whole(102, 112),
    ]:
        state.apply(event)
    assert (p.done, p.outcomes["passed"], p.outcomes["cancelled"], p.superseded) == (2, 2, 0, 1)


def test_errors_that_were_run_again_on_request_do_not_count() -> None:
    events = [*Teller("a__1").whole(0, 5, "errored", error_class="auth"), *Teller("a__2", wave=2).whole(9, 19)]
    state = replay(plan(superseded=(f"{job('p')}/a__1",)), events)
    p = state.profiles["p"]
    assert (p.done, p.outcomes["passed"], p.outcomes["errored"], p.superseded, p.cost_usd) == (1, 1, 0, 1, 1.0)


def test_what_is_left_out_is_not_planned_unless_it_has_run() -> None:
    excluded = (Exclusion("no key", profile="q"), Exclusion("quarantined: flaky", task=TaskRef("b", "d")))
    planned = plan(("p", "q"), attempts=3, excluded=excluded)
    state = replay(planned, [])
    assert [(p.planned, p.left_out) for p in state.profiles.values()] == [(3, 3), (0, 6)]
    state.apply(Teller("b__1", "b").ended(4))
    assert (state.profiles["p"].planned, state.profiles["p"].done, state.profiles["p"].left_out) == (4, 1, 2)


def test_held_trials_wait_until_their_job_ends() -> None:
    state = replay(
        plan(), [job_event(0, "job_started"), Teller("a__1").event(1, "trial_held", error="the budget is used up")]
    )
    assert state.held == [("p", "the budget is used up")]
    state.apply(job_event(2, "job_ended"))
    assert state.held == []


def test_notes_orders_and_kinds_nobody_knows_are_shown_with_their_reason() -> None:
    note = Event(at(0), "note", "j", 1, profile="p", error="Harbor ended its job")
    state = replay(
        plan(),
        [
            note,
            msgspec.structs.replace(note, time=at(5)),
            Event(
                at(2),
                "control",
                "",
                1,
                "p",
                error="quota",
                detail={"action": "pause", "target": "p", "by": "tbench ctl"},
            ),
            Event(at(3), "surprise", "j", 1, detail={"x": 1}),
            Event(at(1), "bad", "j", 1, detail={"message": "look", "severity": "error"}),
            Event(at(4), "note", "j", 1, detail={"top_up": {"reason": "4 trials more", "added": [1, 2]}}),
            Event("not a time", "heartbeat", "j", 1),
        ],
    )
    assert [(n.kind, n.severity, n.text, n.count) for n in state.notices.worst()] == [
        ("bad", "error", "look", 1),
        ("note", "info", "Harbor ended its job", 2),
        ("note", "info", "top_up: 4 trials more", 1),
        ("surprise", "info", "x 1", 1),
        ("control", "info", "pause: quota", 1),
    ]
    assert state.notices.worst()[-1].line == "control [p]: pause: quota", "it names the profile once"


def test_an_alert_stands_until_it_is_cleared() -> None:
    detail = {
        "cause": "stalled",
        "message": "no sign for 10 min",
        "severity": "warning",
        "since": at(1),
        "state": "raised",
    }
    raised = Teller("a__1").event(1, "alert", error="no sign for 10 min", detail=detail)
    state = replay(plan(), [raised])
    assert [(alert.cause, alert.trial) for alert in state.alerts.standing.values()] == [("stalled", "a__1")]
    state.apply(Teller("a__1").event(2, "alert", error="no sign for 10 min", detail={**detail, "state": "cleared"}))
    assert not state.alerts.standing


def test_torn_and_misplaced_lines_do_no_harm() -> None:
    trial = Teller("a__1")
    state = replay(
        plan(),
        [
            trial.ended(20),  # its start was torn
            trial.phase(21, "verifier"),  # came after its end
            Teller("x__1", "x", "unplanned").started(5),
            Event(at(3), "trial_ended", "j", 1),
        ],
    )
    p = state.profiles["p"]
    assert (p.done, p.running, p.durations) == (1, 0, [])
    assert state.profiles["unplanned"].planned is None
    assert state.profiles["unplanned"].running == 1


def test_a_clock_that_is_set_back_gives_no_negative_time() -> None:
    trial = Teller("a__1")
    state = replay(plan(tasks=("a", "b")), [trial.started(100), trial.ended(40), *Teller("b__1", "b").whole(50, 60)])
    p = state.profiles["p"]
    assert (p.done, p.durations) == (2, [10.0])
    assert eta_sec(state, START) == 0


def test_the_same_line_twice_counts_once() -> None:
    events = Teller("a__1").whole(0, 10)
    once, twice = replay(plan(), events), replay(plan(), [*events, events[-1]])
    assert totals(once) == totals(twice)


def test_an_agent_without_a_model_has_no_unknown_cost() -> None:
    state = replay(plan(agents={"p": "oracle"}), Teller("a__1").whole(0, 10, cost=None, tokens=None))
    p = state.profiles["p"]
    assert (p.free, p.cost_unknown, p.tokens_unknown) == (True, 0, 0)


def test_nothing_of_a_harbor_process_that_died_runs_any_more() -> None:
    died = job_event(9, "job_died", code=-9)
    state = replay(plan(), [job_event(0, "job_started"), Teller("a__1").started(0), died])
    p = state.profiles["p"]
    assert (state.running, p.running, p.cost_unknown, state.never) == ([], 0, 1, 2)
    for event in (job_event(12, "job_started", wave=2), Teller("a__2", wave=2).started(12)):
        state.apply(event)
    assert ([trial.name for trial in state.running], p.cost_unknown, state.never) == (["a__2"], 1, 0)


def test_attempts_are_numbered_by_task_not_by_job() -> None:
    first = Teller("a__1")
    planned = plan(tasks=("a",), attempts=3, superseded=(f"{first.about['job']}/a__1",))
    state = replay(
        planned,
        [
            *first.whole(0, 10, "errored"),
            *Teller("a__2", attempt=2).whole(0, 10),
            Teller("a__3", attempt=3).started(5),
            job_event(100, "resumed", resumed={"p": 3}),
            job_event(101, "job_started", wave=2),
            Teller("a__4", wave=2, attempt=1).started(102),
            Teller("a__5", wave=2, attempt=2).started(103),
            Teller("a__6", wave=2, attempt=3).started(104),
        ],
    )
    numbers = {trial.name: state.attempt(trial) for trial in state.trials.values()}
    assert {name: numbers[name] for name in ("a__2", "a__4", "a__5", "a__6")} == {
        "a__2": 1, "a__4": 2, "a__5": 3, "a__6": 4,
    }  # fmt: skip


def test_a_trial_of_a_further_job_is_told_by_its_number_at_the_task() -> None:
    state = LiveState()
    state.replan(plan(tasks=("a",), attempts=2))
    lines = Lines()
    told = []
    for event in [*Teller("a__1").whole(0, 10), *Teller("a__2", wave=2).whole(20, 30)]:
        state.apply(event)
        told.append(lines.line(state, event))
    assert [line.split("  ")[3] for line in told if line] == ["a #1", "a #2"]


@pytest.mark.parametrize("jump", [7200.0, -7200.0])
def test_what_goes_on_gets_neither_older_nor_younger_when_the_time_is_set(jump: float) -> None:
    def event(kind: str, clock: float, moved: float = 0.0, **fields: Any) -> Event:
        time = stamp(datetime.fromtimestamp(1_700_000_000 + clock + moved, UTC))
        return Event(time, kind, "j", 1, "p", dataset="d", clock=clock, **fields)

    until = stamp(datetime.fromtimestamp(1_700_000_000 + 300.0, UTC))
    before = [
        event("job_started", 0.0, detail={"boot": "b"}),
        event("trial_started", 10.0, trial="a__1", task="a"),
        event("trial_waiting", 11.0, trial="b__1", task="b", error="rate limit", detail={"until": until}),
    ]
    state = replay(None, [*before, event("heartbeat", 100.0, jump)])
    now = 1_700_000_000 + 100.0 + jump
    assert [now - (trial.started or 0) for trial in state.running] == [90.0]
    assert now - (state.began or 0) == 100.0
    assert [waiting.left_sec(now) for waiting in state.waiting] == [200.0]
    state.apply(event("trial_ended", 130.0, jump, trial="a__1", task="a", outcome="passed"))
    assert [trial.duration for trial in state.finished] == [120.0]
    old = [msgspec.structs.replace(one, clock=None) for one in before]
    assert [trial.started for trial in replay(None, old).running] == [1_700_000_010.0], "an older batch"


def test_a_trial_says_where_in_its_workflow_it_is_until_its_phase_is_over() -> None:
    one, place = Teller("a__1"), {"step": "gen_patch", "attempt": 2, "cycle": 1}
    state = replay(
        plan(),
        [one.started(0), one.phase(1, "agent"), one.event(2, "trial_phase", phase="agent", detail={"at": place})],
    )
    assert state.running[0].doing == "gen_patch, attempt 2, cycle 1"
    state.apply(one.event(3, "trial_phase", phase="agent", detail={"at": {"step": 7}}))
    assert state.running[0].doing == "agent", "what cannot be read says nothing"
    state.apply(one.event(4, "trial_phase", phase="agent", detail={"at": place}))
    state.apply(one.phase(5, "verifier"))
    assert state.running[0].doing == "verifier"
