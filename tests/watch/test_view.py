"""The live view as text: golden pictures, and what holds at any size."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from conftest import REPO
from support.live import START, Teller, at, feed_of, job, job_event, plan
from terminalbench.analytics.long_trajectory import SpentSoFar
from terminalbench.experiments.plan import Exclusion
from terminalbench.harbor.limits.accounts import Account, KnownCost
from terminalbench.harbor.limits.budget import GateState
from terminalbench.live.limits import GateLimits
from terminalbench.live.model import LiveProfile
from terminalbench.live.state import LiveState, replay
from terminalbench.records.event import Event
from terminalbench.records.trial import TaskRef
from terminalbench.watch.follow import Lines
from terminalbench.watch.logs import LogTail
from terminalbench.watch.tables import Column, Frame, cut, sentence, table
from terminalbench.watch.terminal import Controls, ScreenMode
from terminalbench.watch.view import render

HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\r\nname\u202e"
WIDE = "日本語のとても長い課題の名前"
TASKS = ("csv-clean", "git-lost-commit", "http-item-store", HOSTILE, WIDE, "left-out")


def busy() -> LiveState:
    """A batch in the middle of it, with everything there is to show."""
    planned = plan(
        ("baseline", "with-notes-and-a-very-long-name", "oracle"), TASKS, 2, agents={"oracle": "oracle"}, parallel=4,
        excluded=(Exclusion("needs 64 GB of memory", task=TaskRef("left-out", "d")),),
    )  # fmt: skip
    long = "with-notes-and-a-very-long-name"
    alert = {"cause": "rate_limit", "severity": "error", "since": at(890), "state": "raised"}
    retry = Teller("csv-clean__2", "csv-clean", long)
    events = [
        *(job_event(0, "job_started", p) for p in ("baseline", long, "oracle")),
        *Teller("csv-clean__1", "csv-clean", "baseline").whole(0, 61, cost=0.12, tokens=41_000),
        *Teller("git-lost-commit__1", "git-lost-commit", "baseline").whole(0, 340, "failed", cost=1.5, tokens=912_000),
        *Teller("http-item-store__1", "http-item-store", "baseline").whole(
            5, 12, "errored", cost=None, tokens=None, error_class="setup", error=f"cannot install: {HOSTILE}"
        ),
        *Teller("evil__1", HOSTILE, "baseline").whole(12, 900, "timed_out", error_class="agent_timeout", error="no verdict"),
        retry.started(0),
        retry.ended(20, "errored", None, None, error_class="network", retried=True),
        retry.started(25, 2),
        retry.ended(77, "passed", 0.31, 80_000, number=2),
        *Teller("git-lost-commit__2", "git-lost-commit", long).whole(1, 200, "passed", cost=2.25, tokens=1_200_000),
        *Teller("csv-clean__3", "csv-clean", "oracle").whole(0, 4, cost=None, tokens=None),
        *Teller("git-lost-commit__3", "git-lost-commit", "oracle").whole(0, 6, cost=None, tokens=None),
        *Teller("cut__1", "http-item-store", "oracle").whole(4, 9, "cancelled", cost=None, tokens=None),
        Teller("wide__1", WIDE, "baseline", attempt=2).started(830),
        Teller("wide__1", WIDE, "baseline", attempt=2).phase(833, "agent"),
        Teller("http-item-store__2", "http-item-store", long).started(880),
        Teller("evil__7", HOSTILE, long).ended(885, "errored", error_class="network", error=f"reset by {HOSTILE}", retried=True),
        Teller("evil__7", HOSTILE, long).event(886, "trial_waiting", error=f"tried again after {HOSTILE}", detail={"cause": "retry", "until": at(930)}),
        Event(at(890), "alert", job("baseline"), 1, profile="baseline", error="12 answers of 429 within a minute", detail=alert),
        Event(at(891), "control", "", 1, "baseline", error="too many", detail={"action": "set", "target": "all", "value": 2}),
        Teller("http-item-store__9", "http-item-store", long, attempt=2).event(896, "trial_held", error="the budget of $5.00 is used up"),
    ]  # fmt: skip
    state = replay(planned, events)
    state.bad_lines = 1
    gate = GateState(budget_usd=5.0, accounts={"baseline": Account(known=KnownCost(20, 4.18), unknown=2)})
    gate.deadline = gate.clock.now() + 3099.0
    state.limits = GateLimits(gate)
    return state


def picture(**changes: object) -> Frame:
    frame = Frame(feed_of(busy()), START + 901, signs={(job("baseline"), "wide__1"): START + 897})
    return replace(frame, **changes)


def text(frame: Frame, width: int, height: int) -> str:
    return "\n".join(line.plain.rstrip() for line in render(frame, width, height)) + "\n"


@pytest.mark.parametrize("width", [60, 100, 200])
def test_golden_pictures(golden, width: int) -> None:
    golden(REPO / "tests" / "golden" / "watch" / f"table-{width}.txt", text(picture(), width, 34))


def test_golden_pages(golden) -> None:
    chosen = (job("baseline"), "wide__1")
    tail = LogTail(("agent/agent.log", "trial.log"), 0, 90_000, tuple(f"line {n}" for n in range(40)))
    pages = {
        "chosen": picture(controls=Controls(chosen=chosen)),
        "tail": picture(controls=Controls(mode=ScreenMode.TAIL, chosen=chosen, scroll=5), tail=tail),
        "help": picture(controls=Controls(mode=ScreenMode.HELP)),
        "ask": picture(controls=Controls(mode=ScreenMode.ASK, owner=True, chosen=chosen)),
    }
    shown = "".join(f"--- {name}\n{text(frame, 80, 24)}" for name, frame in pages.items())
    golden(REPO / "tests" / "golden" / "watch" / "pages-80.txt", shown)


@pytest.mark.parametrize("width", [80, 120])
def test_a_running_trial_shows_step_attempt_and_cycle(width: int) -> None:
    one = Teller("instance__1", "instance_some-owner__some-repo-0123456789", "s1_tdd_review_backtrack")
    told = one.event(2, "trial_phase", phase="agent", detail={"at": {"step": "gen_patch", "attempt": 2, "cycle": 3}})
    frame = Frame(feed_of(replay(None, [one.started(0), told])), START + 60)
    assert "gen_patch, attempt 2, cycle 3" in text(frame, width, 20)
    opened = replace(frame, controls=Controls(mode=ScreenMode.TAIL, chosen=(told.job, "instance__1")))
    assert "gen_patch, attempt 2, cycle 3" in text(opened, width, 20)


def test_a_screen_of_80_by_24_says_why_trials_failed_and_one_of_40_by_12_has_all_profiles() -> None:
    names = ("baseline", "with-notes", "with-tests", "oracle", "nop")
    told = [
        Teller("csv-clean__1", "csv-clean", "baseline").whole(0, 61, "failed", cost=0.12),
        Teller("git-lost__1", "git-lost-commit", "with-notes").whole(0, 70, "errored", error_class="network", error="reset by peer"),
    ]  # fmt: skip
    state = replay(plan(names, TASKS), [event for events in told for event in events])
    failed = (told[0][0].job, "csv-clean__1")
    frame = Frame(feed_of(state), START + 901, checks={failed: "test_rows: 3 rows are missing"})
    shown = text(frame, 80, 24)
    assert "test_rows: 3 rows are missing" in shown
    assert "network: reset by peer" in shown
    small = text(frame, 40, 12)
    assert all(name in small for name in names), small


def test_what_a_running_trial_has_used_is_on_its_line() -> None:
    one = Teller("csv-clean__1", "csv-clean")
    frame = Frame(feed_of(replay(plan(), [one.started(0), one.phase(1, "agent")])), START + 60)
    frame.spent[one.started(0).job, "csv-clean__1"] = SpentSoFar(12, 45_200, 0.031, at_least=True)
    shown = text(frame, 120, 20)
    assert "12 steps  45.2k tokens  at least $0.031" in shown
    assert "12 steps" in text(frame, 80, 20)


def test_a_sentence_is_cut_between_words() -> None:
    told = "! held: 1 trial does not start: the budget of $5.00 is used up"
    assert sentence(told, 40) == "! held: 1 trial does not start: the…"
    assert sentence(told, 80) == told
    assert sentence("x" * 50, 40) == "x" * 39 + "…", "a word that takes all of the room"
    assert sentence("日本語の とても長い", 9) == "日本語の…"


@given(st.integers(1, 240), st.integers(1, 90), st.sampled_from(list(ScreenMode)), st.booleans())
def test_no_picture_is_larger_than_its_terminal_or_drives_it(
    width: int, height: int, mode: ScreenMode, chosen: bool
) -> None:
    key = (job("baseline"), "wide__1") if chosen else None
    lines_of_log = (HOSTILE, WIDE * 30, "\x1b[31mred\x1b[0m" * 50, "\t\ttabs")
    frame = picture(controls=Controls(mode=mode, chosen=key), tail=LogTail((f"agent/{HOSTILE}",), 0, 10, lines_of_log))
    lines = render(frame, width, height)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert line.plain.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=2), max_leaves=3
)
KINDS = (
    "job_started",
    "job_ended",
    "trial_started",
    "trial_held",
    "trial_phase",
    "trial_ended",
    "trial_cancelled",
    "note",
    "alert",
    "?",
)
NAMES = ("try", "at", "retried", "error_class", "step", "message", "cause", "severity", "resumed", "lost", "x")
ANY_EVENT = st.builds(
    Event, time=st.text(max_size=5) | st.floats(-1e6, 1e6).map(at), kind=st.sampled_from(KINDS), job=st.sampled_from("jk"), pid=st.just(1),
    profile=st.none() | st.sampled_from("pq"), trial=st.none() | st.sampled_from("xyz"), task=st.none() | st.sampled_from("ab"),
    outcome=st.none() | st.sampled_from(["passed", "failed", "cancelled", "new"]), error=st.none() | st.text(max_size=9),
    detail=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3),
)  # fmt: skip


@given(st.lists(ANY_EVENT, max_size=25), st.booleans())
def test_no_event_whatever_it_says_breaks_the_view(events: list[Event], planned: bool) -> None:
    state, lines = replay(plan(("p",), ("a", "b")) if planned else None, []), Lines()
    for event in events:
        state.apply(event)
        assert (lines.line(state, event) or "").isprintable()
    state.close()
    assert all(line.plain.isprintable() for line in render(Frame(feed_of(state), START), 90, 30))
    assert all(profile.running == 0 for profile in state.profiles.values())


def test_a_narrow_title_keeps_the_time_left_and_cuts_the_names() -> None:
    place = "starter-core__six-profiles-with-long-names__sim-errors/0"
    for width in (60, 80, 100, 200):
        title = text(picture(feed=feed_of(busy(), place)), width, 30).splitlines()[0]
        assert title.endswith("left")
        assert "running 15.0 min" in title
        assert title.startswith(("starter-core", "An experiment"))


def test_the_total_stays_when_there_is_no_room_for_all_profiles() -> None:
    planned = plan(tuple(f"profile-{n}" for n in range(9)), ("a",))
    done = Teller("a__1", "a", "profile-0").whole(0, 10)
    frame = Frame(feed_of(replay(planned, done)), START + 20)
    low, lower = (text(frame, 60, height).splitlines() for height in (15, 8))
    assert [line.split()[0] for line in low[2:6]] == ["profile", "profile-0", "and", "total"]
    assert "  and 8 more profiles" in low
    assert [line.split()[0] for line in lower[2:4]] == ["profile", "total"]


def test_a_profile_is_shown_on_the_smallest_terminal() -> None:
    state = replay(plan(tuple(f"profile-{n}" for n in range(9)), ("a",)), Teller("a__1", "a", "profile-0").whole(0, 10))
    lines = text(Frame(feed_of(state), START + 20), 40, 12).splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["profile", "profile-0", "and", "total"]


def test_trials_that_will_not_run_are_not_called_waiting() -> None:
    planned = plan(("p", "q"), tuple("abcd"), parallel=1)
    events = [
        job_event(0, "job_started"), job_event(0, "job_started", "q"), *Teller("a__1").whole(0, 10),
        Teller("b__1", "b").event(11, "trial_held", error="the budget is used up"),
        *Teller("a__2", "a", "q").whole(0, 10), Teller("b__2", "b", "q").started(10),
    ]  # fmt: skip
    state = replay(planned, events)
    assert "1 held" in text(Frame(feed_of(state), START + 12), 100, 30)
    state.apply(job_event(12, "job_ended"))
    shown = text(Frame(feed_of(state), START + 12), 100, 30)
    assert "1 running  2 waiting  3 not run" in shown
    assert "about 34 s left" in shown  # what q has left, at twelve seconds a trial; nothing of p


def test_a_cost_nobody_knows_is_called_a_cost() -> None:
    state = replay(plan(), Teller("a__1").whole(0, 10, cost=None, tokens=None))
    for width in (60, 100):
        assert "cost unknown" in text(Frame(feed_of(state), START + 12), width, 30).splitlines()[1]
    assert "cost" not in text(Frame(feed_of(replay(plan(), [])), START), 100, 30).splitlines()[1]


def test_unknown_money_is_written_out_and_the_least_important_columns_give_way() -> None:
    retried = Teller("a__1")
    state = replay(plan(("p", "q")), [*retried.whole(0, 10, cost=None, tokens=None), *Teller("b__1", "b").whole(0, 99)])
    head, row = text(Frame(feed_of(state), START + 12), 100, 30).splitlines()[3:5]
    assert head.split()[-3:] == ["cost", "mean", "retries"]
    assert "$0.50 + 1 unknown" in row


def test_every_fact_has_a_place_on_a_wide_terminal() -> None:
    shown = text(picture(), 200, 50)
    for fact in (
        "An experiment", "s/0", "running 15.0 min", "left",
        "8/30 done", "2 running", "1 held", "1 cancelled", "$4.18 + 2 unknown of $5.00", "deadline in 51.6 min",
        "4/10", "50.0 %", "9.5 to 90.5 %", "$2.12 + 1 unknown", "$3.06 + 1 unknown", "no model", "954k", "setup 1", "agent_timeout 1",
        "error (rate_limit) [baseline]: 12 answers of 429 within a minute, raised 11 s ago", "control [baseline]: set all 2: too many, 10 s ago",
        "held: 1 trial does not start: the budget of $5.00 is used up", "6 planned trials are left out: needs 64 GB of memory",
        "1 line unreadable", "waiting 29 s: tried again after evil", "Running (2)", "agent", "71 s", "4.0 s ago", "T timed out", "E errored", "+ passed", "retried 1x",
    ):  # fmt: skip
        assert fact in shown, fact


def test_unknown_is_said_and_nothing_is_not_unknown() -> None:
    state = replay(None, Teller("a__1").whole(0, 10, cost=None, tokens=None))
    shown = text(Frame(feed_of(state), START + 11), 160, 30)
    assert "1/?" in shown
    broken = Frame(feed_of(state), START + 11)
    broken.feed.plan_problem = "plan.json cannot be read: \x1b[2J"
    assert "! plan.json cannot be read: " in text(broken, 160, 30)
    assert shown.count(" unknown") >= 3  # money and tokens of the profile, money of the trial
    assert "$0.00" not in shown
    fresh = text(Frame(feed_of(replay(plan(), [])), START), 160, 30)
    assert "starting" in fresh
    assert "time left unknown" in fresh
    assert "$0.00" not in fresh


def test_many_profiles_and_many_trials_are_counted_where_they_do_not_fit() -> None:
    profiles = tuple(f"p{n:02}" for n in range(40))
    running = [Teller(f"a__{n}", "a", f"p{n:02}").started(n) for n in range(40)]
    shown = text(Frame(feed_of(replay(plan(profiles), running)), START + 50), 100, 24)
    assert "more profiles" in shown
    assert "Running (40), " in shown


def test_the_chosen_trial_stays_in_sight() -> None:
    running = [Teller(f"a__{n}", f"task-{n}").started(n) for n in range(60)]
    state = replay(plan(), running)
    frame = Frame(feed_of(state), START + 90, Controls(chosen=(job("p"), "a__45")))
    assert "> " in text(frame, 100, 24)
    assert "task-45" in text(frame, 100, 24)


def test_columns_give_way_by_importance_and_never_overflow() -> None:
    columns = (
        Column("name", lambda row: row[0], flexible=True, least=4),
        Column("kept", lambda row: row[1], right=True),
        Column("dropped", lambda row: row[2], 9),
    )
    rows = [("a-long-name", "12", "x" * 20)]
    assert [line.plain for line in table(columns, rows, 45, narrow=False)] == [
        "name         kept  dropped",
        "a-long-name    12  xxxxxxxxxxxxxxxxxxxx",
    ]
    assert [line.plain for line in table(columns, rows, 14, narrow=False)] == ["name      kept", "a-long-…    12"]
    assert all(line.cell_len <= 5 for line in table(columns, rows, 5, narrow=False))


@given(st.text(), st.integers(0, 30))
def test_cut(text: str, width: int) -> None:
    assert cell_len(cut(text, width)) <= width


def test_percentiles_of_few_trials() -> None:
    profile = LiveProfile("p")
    for seconds in (3.0, 1.0, 2.0):
        profile.time(seconds, 1)
    assert profile.p90_sec == 3.0
    profile.time(3.0, -1)
    assert (profile.p90_sec, profile.mean_sec) == (2.0, 1.5)
