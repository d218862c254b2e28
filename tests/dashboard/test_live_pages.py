"""Pages of batches that run: what has ended, what is left, what is waited for."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from support.dashboard import Root
from support.live import START, Teller, job, job_event
from support.results import STAMP, make_plan, make_trial
from terminalbench.dashboard import serve
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.live import LiveFeed
from terminalbench.dashboard.serve import Refresher
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import allocate
from terminalbench.index.scan import scan_all
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.forecast import eta_sec
from terminalbench.live.state import replay
from terminalbench.records.event import Event
from terminalbench.text.numbers import duration


def test_the_first_look_at_a_new_batch_waits_for_nothing_that_takes_long(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    Refresher(root.site).prepare()

    def read_again(*_: object) -> None:
        raise AssertionError("every trial is read")

    monkeypatch.setattr("terminalbench.dashboard.site.view_batch", read_again)
    monkeypatch.setattr("terminalbench.dashboard.pages.batch.profile_totals", read_again)
    assert "a__2" in root.text("batches/study/0/")


def test_what_ends_while_the_dashboard_starts_is_not_missed(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is scanned, and its last trial ends before the first look for changes."""

    def slow_scan(path: Path) -> None:
        scan_all(path)
        make_trial(root.batch, "b__4", profile="q", reward=1.0)
        append_jsonl(root.batch.events_jsonl, Event("2026-01-23T16:40:00Z", "job_ended", f"{STAMP}__q", 1))

    monkeypatch.setattr(serve, "scan_all", slow_scan)
    refresher = Refresher(root.site)
    refresher.start()
    refresher.stop()
    assert root.site.summary("study/0").passed == 5


def test_the_live_state_follows_the_events(root: Root) -> None:
    feed = root.site.feed("study/0")
    base = {"job": f"{STAMP}__p", "pid": 1, "profile": "p", "trial": "a__1", "task": "a", "dataset": "d"}
    assert feed.state(START).done == 0
    for kind, more in (("job_started", {}), ("trial_started", {}), ("trial_phase", {"phase": "agent"})):
        append_jsonl(root.batch.events_jsonl, {"time": "2026-01-23T16:30:00Z", "kind": kind, **base, **more})
    state = feed.state(START)
    assert [(t.trial, t.phase) for t in state.running] == [("a__1", "agent")]
    place = {"detail": {"at": {"step": "gen_patch", "attempt": 2, "cycle": 1}}}
    append_jsonl(
        root.batch.events_jsonl,
        {"time": "2026-01-23T16:30:10Z", "kind": "trial_phase", **base, "phase": "agent", **place},
    )
    assert [t.phase for t in feed.state(START).running] == ["gen_patch, attempt 2, cycle 1"]
    append_jsonl(
        root.batch.events_jsonl, {"time": "2026-01-23T16:31:00Z", "kind": "trial_ended", **base, "outcome": "passed"}
    )
    ended = feed.state(START)
    assert (ended.done, ended.running, ended.recent[0].outcome, ended.cost_usd) == (1, [], "passed", 0.0)
    assert ended.version > state.version


def test_a_batch_that_grows_or_runs_errors_again_is_never_more_than_done(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    planned = make_plan(batch, tasks="ab")
    feed = LiveFeed(batch)

    def tell(event: Event) -> None:
        append_jsonl(batch.events_jsonl, event)

    def counts() -> tuple[int, int | None, dict[str, int], list[str]]:
        state = feed.state(START)
        return state.done, state.planned, state.profiles[0].outcomes, [trial.trial for trial in state.running]

    for event in (
        *Teller("a__1").whole(0, 10, "errored"),
        *Teller("b__1", "b").whole(0, 10),
        Teller("x__1").started(1),
    ):
        tell(event)
    assert counts() == (2, 2, {"errored": 1, "passed": 1}, ["x__1"])
    again = (f"{job('p')}/a__1",)
    write_json(batch.plan_json, msgspec.structs.replace(planned, superseded=again))
    tell(job_event(100, "resumed", resumed={"p": 1}))
    assert counts() == (1, 2, {"passed": 1}, [])
    for event in Teller("a__2", wave=2).whole(110, 120, "failed"):
        tell(event)
    assert counts() == (2, 2, {"passed": 1, "failed": 1}, [])
    more = make_plan(batch, tasks="ab", attempts=2, superseded=again)
    for event in Teller("a__3", wave=3, attempt=2).whole(130, 140):
        tell(event)
    assert (sum(job.trials for job in more.jobs), counts()) == (4, (3, 4, {"passed": 2, "failed": 1}, []))


def test_the_time_left_is_the_one_that_watch_shows(tmp_path: Path) -> None:
    """One profile that is slow and in line behind a quick one: the share of trials that is done says little."""
    batch = allocate(tmp_path, "s")
    planned = make_plan(batch, ("p", "q"), "abcd", settings={"parallel": 1, "profiles_parallel": 1})
    events = [
        *(event for n, task in enumerate("abcd") for event in Teller(f"{task}__1", task).whole(10 * n, 10 * n + 10)),
        *Teller("a__2", "a", "q").whole(40, 140),
        Teller("b__2", "b", "q").started(140),
    ]
    for event in events:
        append_jsonl(batch.events_jsonl, event)
    scan_all(tmp_path)
    now = datetime.fromtimestamp(START + 150, UTC)
    left = eta_sec(replay(planned, events), now.timestamp())
    assert left is not None
    assert left > 250  # ninety of this one, and two more of a hundred each
    site = Site(tmp_path, lambda: now)
    assert "left" not in str(answer(site, "batches/s/0/", {}).body).split('id="live"')[1].split("</div>")[0]
    site.live = ("s/0",)
    assert f"about {duration(left)} left" in str(answer(site, "batches/s/0/", {}).body)
    data = json.loads(answer(site, "batches/s/0/data.json", {}).body or b"")
    assert data["left_sec"] == pytest.approx(left)
    batch.events_jsonl.write_bytes(b"")  # replaced: nothing is known any more
    assert json.loads(answer(site, "batches/s/0/data.json", {}).body or b"")["left_sec"] is None


def test_times_that_cannot_be_read_break_no_live_page(root: Root) -> None:
    for kind in ("job_started", "trial_started"):
        trial = "a__9" if kind == "trial_started" else None
        append_jsonl(root.batch.events_jsonl, Event("nonsense", kind, f"{STAMP}__p", 1, "p", trial, task="a"))
    root.site.live = ("study/0",)
    assert "<b>1</b> running" in root.text("batches/study/0/")


def test_a_live_batch_says_what_is_wrong_and_what_is_waited_for(root: Root) -> None:
    about = {"cause": "stall", "severity": "error", "since": "2026-01-23T16:00:00Z", "state": "raised"}
    waiting = {"cause": "paused"}
    job = f"{STAMP}__p"
    for event in (
        Event("2026-01-23T16:00:00Z", "job_started", job, 1, "p"),
        Event("2026-01-23T16:00:01Z", "alert", "", 1, "p", "a__9", error="<b>no activity</b>", detail=about),
        Event("2026-01-23T16:00:02Z", "trial_waiting", job, 1, "p", "b__9", error="paused: quota", detail=waiting),
    ):
        append_jsonl(root.batch.events_jsonl, event)
    root.site.live = ("study/0",)
    page = root.text("batches/study/0/")
    assert "<b>error (stall)</b> <b>p</b> &lt;b&gt;no activity&lt;/b&gt;" in page
    assert "waiting: paused: quota" in page
    cleared = Event(
        "2026-01-23T16:00:03Z", "alert", "", 1, "p", "a__9", error="x", detail={**about, "state": "cleared"}
    )
    append_jsonl(root.batch.events_jsonl, cleared)
    assert "no activity" not in root.text("batches/study/0/")
