"""Following a batch on disk."""

import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.live import START, Teller, plan
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.accounts import Account, KnownCost
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.index.places import ForeignJobs
from terminalbench.index.queries import trial_rows
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.feed import EMPTY_EVENTS, LINGER_SEC, UNREADABLE_PLAN, WITHOUT_EVENTS, Feed, untold_ends
from terminalbench.live.processes import QUIET_SEC, last_written
from terminalbench.live.state import replay
from terminalbench.live.status import running_now
from terminalbench.locks import Owner, lock
from terminalbench.secrets.values import NONE
from terminalbench.watch.logs import TAIL_BYTES, last_sign, read_tail


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = Batch(tmp_path / "results" / "s" / "0")
    found.folder.mkdir(parents=True)
    return found


def test_it_follows_events_plan_and_gate_while_the_run_lives(batch: Batch) -> None:
    write_json(batch.plan_json, plan())
    a, b = Teller("a__1"), Teller("b__1", "b")
    with lock(batch.lock, "a run"):
        feed = Feed(batch)
        assert feed.poll(START)
        assert not feed.over
        assert not feed.poll(START + 5)
        for event in a.whole(0, 10):
            append_jsonl(batch.events_jsonl, event)
        append_jsonl(batch.events_jsonl, b.started(1))
        assert feed.poll(START + 11)
        assert (feed.state.profiles["p"].done, feed.state.profiles["p"].running) == (1, 1)
        with batch.events_jsonl.open("ab") as stream:
            stream.write(b'{"torn": \n{"time": "x", "kind"')
        feed.poll(START + 12)
        assert feed.state.bad_lines == 1
        write_json(batch.plan_json, plan(attempts=3))
        Gate(batch.gate_json).create(GateState(budget_usd=3.0, accounts={"p": Account(known=KnownCost(1, 1.0))}))
        feed.poll(START + 13)
        assert feed.state.profiles["p"].planned == 6
        assert feed.state.limits is not None
        assert feed.state.limits.own.budget_usd == 3.0
        assert not feed.over
    feed.poll(START + 20)
    assert not feed.over  # this process held the batch, and lives: it may continue the night
    with lock(batch.lock, "the next round"):
        feed.poll(START + 30)
    feed.poll(START + 40)
    assert not feed.over
    feed.poll(START + 40 + LINGER_SEC)
    assert feed.over
    assert (feed.state.profiles["p"].running, feed.state.running) == (0, [])
    assert [trial.lost for trial in feed.state.trials.values()] == [False, True]


def test_a_batch_whose_run_was_killed_says_so(batch: Batch) -> None:
    write_json(batch.plan_json, plan())
    append_jsonl(batch.events_jsonl, Teller("a__1").started(0))
    with lock(batch.lock, "a run"):
        feed = Feed(batch)
        feed.poll(START)
        assert feed.cut_off is None  # it runs
    late = Feed(batch)
    late.poll(START)
    assert (late.over, late.cut_off) == (True, None)  # it ended, and let go of its batch
    write_json(batch.lock, Owner(2**22, socket.gethostname(), "2026-01-02", start_ticks=1))
    late.poll(START + 10)
    assert late.cut_off == f"its run was killed before it ended (pid {2**22}, started 2026-01-02)"
    write_json(batch.lock, Owner(7, "elsewhere", "2026-01-02"))
    assert "elsewhere" in str(late.cut_off)


def test_attaching_late_shows_what_attaching_early_shows(batch: Batch) -> None:
    write_json(batch.plan_json, plan(("p", "q")))
    with lock(batch.lock, "a run"):
        early = Feed(batch)
        for n, profile in enumerate(("p", "q")):
            for event in Teller(f"a__{n}", "a", profile).whole(n, n + 9):
                append_jsonl(batch.events_jsonl, event)
                early.poll(START + n)
        late = Feed(batch)
        late.poll(START + 30)
        assert late.state.profiles == early.state.profiles


def test_a_replaced_file_is_read_anew(batch: Batch) -> None:
    write_json(batch.plan_json, plan())
    with lock(batch.lock, "a run"):
        feed = Feed(batch)
        for event in Teller("a__1").whole(0, 10):
            append_jsonl(batch.events_jsonl, event)
        feed.poll(START)
        batch.events_jsonl.unlink()
        append_jsonl(batch.events_jsonl, Teller("b__1", "b").started(3))
        feed.poll(START + 5)
        assert (feed.state.profiles["p"].done, feed.state.profiles["p"].running) == (0, 1)


def test_a_batch_without_events_is_read_from_the_index(batch: Batch) -> None:
    make_plan(batch, ("p",), "abc")
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    feed = Feed(batch)
    feed.poll(START)
    assert feed.over
    assert feed.note == WITHOUT_EVENTS
    p = feed.state.profiles["p"]
    assert (p.planned, p.done, p.outcomes["passed"], p.broken, p.cost_usd, p.durations) == (
        3,
        2,
        1,
        1,
        0.5,
        [60.0, 60.0],
    )


def test_harbor_jobs_of_others_are_shown_without_a_plan(tmp_path: Path) -> None:
    batch = ForeignJobs(tmp_path / "jobs")
    folder = make_trial(batch, "a__1", job="mine")
    (folder.parent / "config.json").write_text("{}")
    (folder.parent / "result.json").write_text(json.dumps({"finished_at": None}))
    result = json.loads((folder / "result.json").read_text()) | {"finished_at": datetime.now(UTC).isoformat()}
    (folder / "result.json").write_text(json.dumps(result))  # its next trial is about to begin
    told = []
    feed = Feed(batch, each=lambda event: told.append((event.trial, event.kind)))
    now = time.time()
    feed.poll(now)
    assert (feed.over, feed.note) == (False, WITHOUT_EVENTS)
    make_trial(batch, "b__1", job="mine", reward=0.0)
    (folder.parent / "result.json").write_text(json.dumps({"finished_at": "2026-01-23T16:40:00Z"}))
    feed.poll(now + 10)
    assert (feed.over, feed.cut_off) == (True, None)
    assert told == [(trial, kind) for trial in ("a__1", "b__1") for kind in ("trial_started", "trial_ended")]
    row = feed.state.profiles["oracle"]
    assert (row.planned, row.done, row.outcomes["passed"], row.outcomes["failed"]) == (None, 2, 1, 1)


def test_one_job_of_harbor_among_batches_can_be_watched(tmp_path: Path, tbench) -> None:
    root = tmp_path / "results"
    ours = Batch(root / "s" / "0")
    make_plan(ours)
    make_trial(ours, "a__1")
    for name, second in (("late__1", 30), ("early__1", 10)):
        folder = make_trial(ForeignJobs(root), name, job="mine", second=second)
    (folder.parent / "config.json").write_text("{}")
    (folder.parent / "result.json").write_text('{"finished_at": "2026-01-02T03:00:00Z"}')
    shown = tbench("watch", folder.parent)
    assert shown.code == 0, shown.err
    assert shown.out.index("early") < shown.out.index("late")
    assert "2/?" in shown.out
    refused = tbench("watch", root)
    assert f"name one of them, such as {ours.folder}" in refused.err
    (root / "empty").mkdir()
    assert "is neither a batch nor a folder of Harbor jobs" in tbench("watch", root / "empty").err


def test_a_job_of_others_that_was_killed_is_over_when_nothing_was_written_for_long(tmp_path: Path) -> None:
    batch = ForeignJobs(tmp_path / "jobs")
    for job in ("dead", "done", "live"):
        folder = make_trial(batch, "a__1", job=job).parent
        (folder / "config.json").write_text("{}")
        (folder / "result.json").write_text(json.dumps({"finished_at": "2026" if job == "done" else None}))
        for place in (folder, *folder.rglob("*")):
            os.utime(place, (START, START))
    made_up = batch.folder / "dead" / "a__1" / "future.txt"
    made_up.touch()
    os.utime(made_up, (START + 10**8, START + 10**8))
    os.utime(made_up.parent, (START, START))
    ahead = tmp_path / "ahead"
    (ahead / "job").mkdir(parents=True)
    for place in (ahead, ahead / "job"):
        os.utime(place, (START + 10**6, START + 10**6))
    assert last_written(ahead, START + QUIET_SEC) == START, "the writer's clock is ahead: nobody knows"
    feed = Feed(batch)
    feed.poll(START + QUIET_SEC - 40)
    assert (feed.over, feed.cut_off) == (False, None)
    log = batch.folder / "live" / "a__1" / "agent.log"
    log.touch()
    os.utime(log, (START + QUIET_SEC - 20, START + QUIET_SEC - 20))  # after the first look at it
    feed.poll(START + QUIET_SEC)
    assert (feed.over, feed.cut_off) == (False, None)
    feed.poll(START + 2 * QUIET_SEC)
    assert feed.over
    assert feed.cut_off == "never finished: dead, live; nothing has been written there for 30.3 min"


def test_a_copied_job_of_others_whose_trials_ended_long_ago_does_not_run(tmp_path: Path, tbench) -> None:
    """Its files are as new as the copy; the trials say when they ended, and the job itself was cut off."""
    folder = make_trial(ForeignJobs(tmp_path / "jobs"), "a__1", job="mine").parent
    (folder / "config.json").write_text("{}")
    (folder / "result.json").write_text('{"finished_at": null}')
    assert "is still running" not in tbench("compare", tmp_path / "jobs").out
    (folder / "b__1").mkdir()
    (folder / "b__1" / "config.json").write_text("{}")
    assert "is still running" in tbench("compare", tmp_path / "jobs").out, "a trial without a result may go on"


def test_a_job_of_others_that_finished_does_not_run_whatever_its_trials_left(tmp_path: Path, tbench) -> None:
    """Its own word counts: it was written a moment ago, and one of its trials was cut off without a result."""
    folder = make_trial(ForeignJobs(tmp_path / "jobs"), "a__1", job="mine").parent
    (folder / "config.json").write_text("{}")
    (folder / "b__1").mkdir()
    (folder / "b__1" / "config.json").write_text("{}")
    (folder / "result.json").write_text('{"finished_at": null}')
    assert running_now(ForeignJobs(tmp_path / "jobs")) is not None
    (folder / "result.json").write_text('{"finished_at": "2026-01-23T16:40:00Z"}')
    assert running_now(ForeignJobs(tmp_path / "jobs")) is None
    said = tbench("compare", tmp_path / "jobs")
    assert (said.code, "is still running" in said.out, "running" in said.out) == (0, False, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "task,profile,passed\na,p,1\na,q,0\nb,p,\n"),
        ("t.xml", "<testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase></testsuite>"),
        ("eval_results.json", '{"instance_a__b-1": true, "instance_a__b-2": false}'),
        ("results.json", '{"results": [{"task_id": "a", "is_resolved": null}, {"task_id": "b", "is_resolved": true}]}'),
        ("l.json", '{"status": "started", "eval": {"task": "t", "model": "m"}, "samples": [{"id": 1, "epoch": 1}]}'),
    ],
)
def test_results_of_other_tools_never_run(tmp_path: Path, tbench, name: str, text: str) -> None:
    """Whatever they leave open: written this moment, alone and in their folder, read and imported."""
    file = tmp_path / "theirs" / name
    file.parent.mkdir()
    file.write_text(text)
    for place in (file, file.parent):
        said = tbench("compare", place)
        assert said.code == 0, said.err
        assert "still" not in said.out
        assert "running" not in said.out
    assert tbench("import", file, "--results", tmp_path / "results").code == 0
    (listed,) = json.loads(tbench("list", "--json", "--results", tmp_path / "results").out)
    assert listed["running"] == 0


def test_a_killed_job_of_others_ends_a_watch_that_waits_for_it(tmp_path: Path, tbench) -> None:
    folder = make_trial(ForeignJobs(tmp_path / "jobs"), "a__1", job="mine").parent
    (folder / "config.json").write_text("{}")
    (folder / "result.json").write_text('{"finished_at": null}')
    old = time.time() - 3 * 86400
    for place in (folder, *folder.rglob("*")):
        os.utime(place, (old, old))
    shown = tbench("watch", tmp_path / "jobs")
    assert shown.code == 3
    assert "never finished: mine; nothing has been written there for 72.0 h" in shown.err
    assert "1/?" in shown.out


def test_a_folder_of_a_batch_means_the_batch_and_one_above_says_what_to_name(batch: Batch, tbench) -> None:
    make_plan(batch, ("p",), "a")
    job = make_trial(batch, "a__1").parent
    (job / "config.json").write_text("{}")
    (job / "result.json").write_text("{}")
    for place in (batch.folder, batch.runs, job):
        shown = tbench("watch", place)
        assert (shown.code, "1/1" in shown.out) == (0, True), place
    make_plan(Batch(batch.folder.parent / "1"))
    for place in (batch.folder.parent, batch.folder.parent.parent):
        refused = tbench("watch", place)
        assert refused.code == 2
        assert f"name one of them, such as {batch.folder.parent}/" in refused.err


def test_a_broken_plan_is_said_and_is_not_a_whole_batch(batch: Batch, tbench) -> None:
    make_plan(batch, ("p",), "ab")
    make_trial(batch, "a__1")
    whole = batch.plan_json.read_bytes()
    batch.plan_json.write_bytes(whole[:-20])
    shown = tbench("watch", batch.folder)
    assert shown.code == 3
    assert UNREADABLE_PLAN in shown.err
    assert "1/?" in shown.out
    with lock(batch.lock, "a run"):
        feed = Feed(batch)
        assert feed.poll(START)
        assert UNREADABLE_PLAN in str(feed.plan_problem)
        assert not feed.poll(START + 5)
        batch.plan_json.write_bytes(whole)
        assert feed.poll(START + 10)
        assert (feed.plan_problem, feed.state.profiles["p"].planned) == (None, 2)


def test_events_that_cannot_be_read_are_not_called_missing(batch: Batch) -> None:
    make_plan(batch, ("p",), "a")
    make_trial(batch, "a__1")
    batch.events_jsonl.touch()
    feed = Feed(batch)
    feed.poll(START)
    assert feed.note == EMPTY_EVENTS
    batch.events_jsonl.write_text("{\nnonsense\n")
    feed = Feed(batch)
    feed.poll(START)
    assert "none of the 2 lines of events.jsonl can be read" in str(feed.note)
    assert (feed.state.bad_lines, feed.state.profiles["p"].done) == (2, 1)


def test_the_tail_of_a_log_is_bounded_text(batch: Batch) -> None:
    folder = batch.job_folder("j") / "t"
    (folder / "agent").mkdir(parents=True)
    assert read_tail(batch, ("j", "t"), NONE).note == "no log yet"
    (folder / "agent" / "old.log").write_text("old\n")
    os.utime(folder / "agent" / "old.log", (1, 1))
    (folder / "agent" / "trajectory.json").write_text("{}")
    log = folder / "agent" / "agent.log"
    log.write_bytes(b"x" * (2 * TAIL_BYTES) + b"\n" + b"\x1b[2J\xff evil\r\n" + b"sk-ant-0123456789abcdef\tend\n")
    (folder / "trial.log").write_text("harbor\n")
    tail = read_tail(batch, ("j", "t"), NONE, 1)
    assert tail.names == ("steps", "agent/agent.log", "agent/old.log", "agent/trajectory.json", "trial.log")
    assert tail.lines == ("␛[2J� evil", "[redacted]  end")
    assert tail.size > 2 * TAIL_BYTES
    assert read_tail(batch, ("j", "t"), NONE, -1).lines == ("harbor",)
    assert last_sign(batch, ("j", "t")) == pytest.approx(
        max(log.stat().st_mtime, (folder / "trial.log").stat().st_mtime)
    )


def test_links_and_pipes_an_agent_left_are_not_opened(batch: Batch, tmp_path: Path) -> None:
    folder = batch.job_folder("j") / "t"
    (folder / "agent").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    (folder / "agent" / "link.log").symlink_to(secret)
    (folder / "trial.log").symlink_to(secret)
    os.mkfifo(folder / "agent" / "pipe.log")
    assert read_tail(batch, ("j", "t"), NONE).lines == ()
    (folder / "agent" / "link.log").unlink()
    (folder / "agent" / "pipe.log").unlink()
    (folder / "agent").rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.log").write_text("secret\n")
    (folder / "agent").symlink_to(elsewhere)
    assert read_tail(batch, ("j", "t"), NONE).lines == ()


def test_an_end_is_untold_only_where_the_start_is_told_and_counts_as_the_next_try(batch: Batch) -> None:
    a, b, c = Teller("a__1"), Teller("b__1", "b"), Teller("c__1", "c")
    write_json(batch.plan_json, plan())
    for name in ("a__1", "b__1", "c__1"):
        make_trial(batch, name, cost=1.0, job=a.about["job"])
    scan_batch(batch)
    rows = trial_rows(batch.results_root, "s/0")
    told = [a.started(0), a.ended(1, "errored", 0.5, retried=True), a.started(2, 2), *b.whole(0, 3, cost=0.25)]
    (end,) = untold_ends(rows, told)
    assert (end.kind, end.trial, end.detail["try"]) == ("trial_ended", "a__1", 2), "of c no start was told"
    state = replay(plan(), [*told, end])
    assert (len(state.finished), state.profiles["p"].cost_usd) == (2, 0.5 + 1.0 + 0.25)
    assert list(untold_ends(rows, [*told, end, *c.whole(4, 9)])) == []
