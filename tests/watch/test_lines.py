"""A batch as plain lines, and as JSON."""

import json
from pathlib import Path

import msgspec
import pytest

from support.live import Teller, at, job, job_event, plan
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event
from terminalbench.watch.follow import Lines


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def told(events: list[Event]) -> list[str]:
    state, lines = LiveState(), Lines()
    state.replan(plan(agents={"p": "simulated"}, attempts=2))
    found = []
    for event in events:
        state.apply(event)
        found.append(lines.line(state, event))
    return [line for line in found if line is not None]


def test_a_line_for_each_finished_trial_and_each_thing_said() -> None:
    retried = Teller("b__1", "b")
    held = Teller("b__2", "b", attempt=2)
    alert = {"cause": "auth", "message": "every trial\nfails", "severity": "error"}
    assert told(
        [
            job_event(0, "job_started"),
            *Teller("a__1").whole(0, 61.5, cost=0.25),
            retried.started(0),
            retried.ended(70, "errored", None, None, error_class="network", error="reset", retried=True),
            retried.started(71, 2),
            retried.ended(80, "errored", None, None, error_class="setup", error="no\x1b[2Jroom", number=2),
            held.event(81, "trial_held", error="the budget is used up"),
            Teller("a__2", attempt=2).event(82, "trial_held", error="the budget is used up"),
            Event(at(83), "alert", job("p"), 1, profile="p", detail=alert),
            Event(at(84), "heartbeat", job("p"), 1),
            held.event(85, "trial_waiting", error="rate limit of m: 9 s", detail={"cause": "rate_limit"}),
            held.event(86, "trial_waiting", error="rate limit of m: 8 s", detail={"cause": "rate_limit"}),
            Event(at(87), "alert", job("p"), 1, profile="p", detail={**alert, "state": "cleared"}),
        ]
    ) == [
        "03:01:01  1/4  + passed  a #1  p  62 s  $0.25",
        "03:01:10  1/4  E errored, is tried again  b #1  p  cost unknown  network: reset",
        "03:01:20  2/4  E errored  b #1  p  9.0 s  cost unknown  setup: no␛[2Jroom",
        "03:01:21  held: nothing new starts [p]: the budget is used up",
        "03:01:23  alert (error) [p]: auth: every trial␊fails",
        "03:01:25  waiting [p]: rate limit of m: 9 s",
        "03:01:27  alert (error) [p]: auth: every trial␊fails (cleared)",
    ]


@pytest.fixture
def finished(project) -> Batch:
    batch = Batch(project.root / "results" / "s" / "0")
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("p",), "ab")
    make_trial(batch, "a__1")
    make_trial(batch, "b__1", reward=0.0)
    for event in [*Teller("a__1").whole(0, 10), *Teller("b__1", "b").whole(0, 20, "failed")]:
        append_jsonl(batch.events_jsonl, event)
    return batch


def test_watching_a_finished_batch_prints_its_lines_and_its_summary(finished: Batch, tbench) -> None:
    ran = tbench("watch", finished.folder)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[:2] == [
        "03:00:10  1/2  + passed  a #1  p  10 s  $0.50",
        "03:00:20  2/2  x failed  b #1  p  20 s  $0.50",
    ]
    assert "measured" in ran.out
    assert "2/2" in ran.out


def test_json_streams_the_events_then_the_summary(finished: Batch, tbench) -> None:
    ran = tbench("watch", finished.folder, "--json")
    *events, last = [json.loads(line) for line in ran.out.splitlines()]
    assert [msgspec.convert(event, Event).kind for event in events] == [
        "trial_started",
        "trial_phase",
        "trial_phase",
        "trial_ended",
    ] * 2
    assert last["kind"] == "summary"
    assert [cell["outcome"] for cell in last["cells"]] == ["passed", "failed"]


def test_an_incomplete_batch_ends_with_three(finished: Batch, tbench) -> None:
    write_json(finished.plan_json, make_plan(finished, ("p",), "abc"))
    assert tbench("watch", finished.folder).code == 3


def test_a_batch_without_events_says_so(project, tbench) -> None:
    batch = Batch(project.root / "results" / "s" / "0")
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("p",), "a")
    make_trial(batch, "a__1")
    ran = tbench("watch", batch.folder)
    assert ran.code == 0
    assert "read from the index" in ran.err
    assert "+ passed  a #1  p" in ran.out


def test_harbor_jobs_of_others_are_watched_too(project, tbench) -> None:
    jobs = project.root / "jobs"
    folder = make_trial(Batch(jobs), "a__1", job="mine")
    (jobs / "runs").rename(jobs / "all")
    place = jobs / "all"
    folder = place / "mine"
    (folder / "config.json").write_text("{}")
    (folder / "result.json").write_text(json.dumps({"finished_at": "2026-01-23T16:40:00Z"}))
    ran = tbench("watch", place)
    assert (ran.code, "read from the index" in ran.err) == (0, True)
    assert "1/?" in ran.out


@pytest.mark.parametrize("arguments", [["no-such.toml"], ["."], ["--batch", "7"], []])
def test_what_is_no_batch_is_a_clear_error(project, tbench, arguments: list[str]) -> None:
    ran = tbench("watch", *arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ")


def test_detach_and_watch_do_not_go_together(project, tbench) -> None:
    ran = tbench("run", "exp.toml", "--detach", "--watch")
    assert ran.code == 2
    assert "tbench watch" in ran.err
