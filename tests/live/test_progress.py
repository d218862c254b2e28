from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from support.live import Teller, job_event, plan
from terminalbench.experiments.plan import Exclusion, JobSpec, PlannedTask
from terminalbench.live.progress import Progress, clock
from terminalbench.live.waiting import WaitingRoom
from terminalbench.records import Event, TaskRef, Usage
from terminalbench.runner.process import log_tail
from terminalbench.runner.supervise import SILENT_SEC, START_SEC, _Line


def event(kind: str, trial: str, outcome: str | None = None, **fields: object) -> Event:
    about = {"profile": "p", "dataset": "d", "task": "a", "trial": trial, "outcome": outcome}
    return Event("t", kind, "job", 1, **about, **fields)  # ty: ignore[invalid-argument-type]


def progress_of(trials: int) -> Progress:
    """The progress of a job with one task."""
    return Progress.of_jobs([JobSpec("job", "p", "id-p", trials, (PlannedTask(TaskRef("a", "d"), "d", {}),))], 0.0)


def test_it_counts_what_ended_what_runs_and_what_it_cost() -> None:
    progress = progress_of(4)
    for trial in ("a", "b", "c"):
        progress.add(event("trial_started", trial))
    progress.add(event("trial_ended", "a", "passed", usage=Usage(cost_usd=0.5)))
    progress.add(event("trial_ended", "b", "errored", usage=Usage(cost_usd=0.25), detail={"retried": True}))
    progress.add(event("heartbeat", "x"))
    assert (progress.done, progress.total, len(progress.running)) == (1, 4, 1)
    assert progress.cost_usd == 0.75
    assert progress.eta_sec(10.0) == 30.0
    assert progress.line(10.0) == "0:10  1/4 trials, 1 passed, 1 running, $0.75, 0:30 left"


def test_a_trial_whose_start_was_never_told_counts_last() -> None:
    """As in the summary."""
    progress = progress_of(1)
    progress.add(event("trial_ended", "a", "failed"))
    progress.add(event("trial_started", "b"))
    progress.add(event("trial_ended", "b", "passed"))
    assert progress.outcomes["passed"] == 1
    assert progress.outcomes["failed"] == 0


def test_nothing_done_means_no_guess() -> None:
    progress = progress_of(4)
    assert progress.eta_sec(5.0) is None
    assert progress.line(5.0) == "0:05  0/4 trials"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01"), (-1, "0:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_the_last_words_of_a_job_name_what_it_raised(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("start\n╭─ Traceback ─╮\n│ line 14 │\n│ RuntimeError: no room; api_key=abcdef123456 │\n╰──╯\n")
    assert log_tail(log) == "RuntimeError: no room; api_key=[redacted]"
    log.write_text("one\n\ntwo\n")
    assert log_tail(log) == "one two"
    assert log_tail(tmp_path / "none") == ""


def test_it_says_what_trials_wait_for() -> None:
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    room = WaitingRoom()
    detail = {"cause": "rate_limit", "until": "2026-01-01T12:00:42.000Z"}
    room.add(event("trial_waiting", "a", error="rate limit of m", detail=detail))
    assert room.lines(now) == ["waiting 42 s: rate limit of m"]
    room.add(
        event("trial_waiting", "b", error="rate limit of m", detail={**detail, "until": "2026-01-01T12:00:30.000Z"})
    )
    room.add(event("trial_waiting", "c", error="paused", detail={"cause": "paused"}))
    assert room.lines(now) == ["waiting 30 s: rate limit of m (2 trials)", "waiting: paused"]
    assert room.lines(now + timedelta(hours=1)) == ["waiting 0 s: rate limit of m (2 trials)", "waiting: paused"]
    room.add(event("trial_started", "a"))
    room.add(event("trial_held", "c"))
    room.add(event("trial_waiting", "d", error="paused", detail={"cause": "paused"}))
    room.add(event("control", "d", detail={"action": "cancel", "target": "d"}))
    assert list(room.trials) == ["b", "d"], "it was ordered, not done"
    room.add(event("control", "d", detail={"action": "cancel", "done": True}))
    assert list(room.trials) == ["b"]
    room.add(Event("t", "job_ended", "job", 1))
    assert room.lines(now) == []


def test_the_line_of_progress_names_the_wait() -> None:
    progress = progress_of(4)
    progress.add(event("trial_waiting", "a", error="rate limit of m", detail={"cause": "rate_limit"}))
    assert progress.line(5.0) == "0:05  0/4 trials, waiting: rate limit of m"


@pytest.mark.parametrize(
    ("started", "quiet", "why"),
    [
        ({}, START_SEC, None),
        ({}, START_SEC + 1, "Harbor did not start a trial within 1800 s"),
        ({("d", "a"): 1}, SILENT_SEC, None),
        ({("d", "a"): 1}, SILENT_SEC + 1, "Harbor hung: no sign of life for 300 s"),
    ],
)
def test_a_silent_harbor_hangs(started: dict, quiet: float, why: str | None) -> None:
    line = _Line(None, started=Counter(started), heard_at=100.0)  # ty: ignore[invalid-argument-type]
    assert line.why_hung(100.0 + quiet) == why


def test_a_batch_that_goes_on_has_nothing_running_from_before() -> None:
    progress = progress_of(3)
    for trial in ("a", "b", "c"):
        progress.add(event("trial_started", trial))
    progress.add(event("trial_ended", "a", "passed"))
    progress.add(event("trial_ended", "b", "cancelled"))
    progress.add(Event("t", "note", "s", 1, detail={"resumed": {"p": 2}}))
    assert (progress.done, len(progress.running)) == (1, 0)
    progress.add(event("trial_started", "b2"))
    assert len(progress.running) == 1


def test_an_error_that_is_run_again_counts_once() -> None:
    first, other, again = Teller("a__1"), Teller("b__1", "b"), Teller("a__2", wave=2)
    old, new = plan(), plan(superseded=(f"{first.about['job']}/a__1",))
    progress = Progress.of_plan(old, 0.0)
    for one in (*first.whole(0, 10, "errored"), *other.whole(0, 10)):
        progress.add(one)
    assert (progress.done, progress.total, +progress.outcomes) == (2, 2, Counter(errored=1, passed=1))
    progress.replan(new)
    progress.add(job_event(20, "note", resumed={"p": 1}))
    assert (progress.done, progress.total, +progress.outcomes) == (1, 2, Counter(passed=1))
    for one in again.whole(20, 30, "failed"):
        progress.add(one)
    assert (progress.done, progress.total, +progress.outcomes) == (2, 2, Counter(failed=1, passed=1))
    assert progress.cost_usd == 1.5, "every try is paid for"


def test_a_plan_that_grows_is_never_more_than_done() -> None:
    progress = Progress.of_plan(plan(tasks=("a",)), 0.0)
    for one in Teller("a__1").whole(0, 10):
        progress.add(one)
    progress.replan(plan(tasks=("a",), attempts=2))
    assert (progress.done, progress.total) == (1, 2)
    for one in Teller("a__2", wave=2).whole(20, 30, "errored"):
        progress.add(one)
    assert (progress.done, progress.total, +progress.outcomes) == (2, 2, Counter(passed=1, errored=1))
    for one in Teller("a__3", wave=3).whole(40, 50, "failed"):
        progress.add(one)
    assert (progress.done, progress.total, +progress.outcomes) == (2, 2, Counter(passed=1, failed=1))


def test_what_a_place_that_is_left_out_has_done_was_planned() -> None:
    progress = Progress.of_plan(plan(excluded=(Exclusion("no room", task=TaskRef("a", "d")),)), 0.0)
    assert (progress.done, progress.total) == (0, 1)
    for one in Teller("a__1").whole(0, 10):
        progress.add(one)
    assert (progress.done, progress.total) == (1, 2)


def test_a_cancelled_trial_is_not_done_and_an_agent_without_a_model_costs_nothing() -> None:
    progress = Progress.of_plan(plan(agents={"p": "oracle"}), 0.0)
    progress.add(Teller("a__1").ended(1, "cancelled", cost=None, tokens=None))
    assert (progress.done, progress.spent_usd, progress.cost_unknown) == (0, 0.0, 0)
    paid = Progress.of_plan(plan(), 0.0)
    paid.add(Teller("a__1").ended(1, cost=None, tokens=None))
    assert (paid.done, paid.spent_usd, paid.cost_unknown) == (1, None, 1)


def test_the_pace_is_that_since_the_batch_went_on() -> None:
    progress = Progress.of_plan(plan(attempts=2), 0.0)
    for one in (*Teller("a__1").whole(0, 10), job_event(1000, "note", resumed={"p": 3})):
        progress.add(one)
    progress.started_at = 1000.0
    assert progress.eta_sec(1010.0) is None
    progress.add(Teller("b__1", "b", wave=2).ended(1010))
    assert progress.eta_sec(1010.0) == 20.0


def test_what_is_held_is_said_of_its_profile_until_its_job_ends_and_spoils_the_guess() -> None:
    progress = Progress.of_plan(plan(("p", "q"), attempts=2), 0.0)
    held = Teller("b__1", "b").event(11, "trial_held", error="cancelled by hand")
    for one in (*Teller("a__1").whole(0, 10), Teller("a__2").started(10), held):
        progress.add(one)
    assert progress.waiting_lines() == ["nothing new starts in p: waiting for the running trials"]
    assert progress.eta_sec(12.0) is None, "the rest of p does not run"
    progress.add(Teller("b__2", "b", "q").event(12, "trial_held", error="the budget is used up"))
    assert progress.waiting_lines() == ["nothing new starts: waiting for the running trials"]
    progress.add(job_event(13, "job_ended"))
    assert progress.waiting_lines() == ["nothing new starts in q: waiting for the running trials"]
    progress.add(job_event(14, "job_ended", "q"))
    assert progress.waiting_lines() == []
    progress.add(job_event(100, "note", resumed={"p": 3, "q": 4}))
    progress.started_at = 100.0
    progress.add(Teller("a__3", wave=2).ended(110))
    assert progress.eta_sec(110.0) == 60.0


def test_what_a_harbor_that_died_was_running_or_kept_waiting_is_gone() -> None:
    progress = progress_of(4)
    progress.add(event("trial_started", "a"))
    progress.add(event("trial_waiting", "b", error="rate limit of m", detail={"cause": "rate_limit"}))
    progress.add(Event("t", "trial_started", "another job", 1, profile="p", trial="c"))
    progress.add(Event("t", "note", "job", 1, profile="p", detail={"code": -9}))
    assert (progress.running, list(progress.waiting.trials)) == ({("another job", "c")}, [])
