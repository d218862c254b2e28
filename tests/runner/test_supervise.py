"""What a supervisor makes of processes that end, with processes that only pretend."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import append_jsonl
from terminalbench.live.processes import Worker
from terminalbench.records.event import Event
from terminalbench.runner import supervise
from terminalbench.runner.deaths import how_it_ended
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.supervise import BatchSupervisor
from terminalbench.runner.waves import SILENT_SEC, START_SEC, Launch, ProfileWaves


@dataclass
class Pretender:
    """An executor whose jobs have ended when it is first asked, and do their last things in that very moment."""

    last_words: Callable[[str], None]
    started: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    def start(self, job: JobRun) -> Worker:
        self.started.append(job.name)
        return Worker(job.name, job.profile, reference=job.name)

    def poll(self, worker: Worker) -> int:
        if worker.job not in self.ended:
            self.ended.add(worker.job)
            self.last_words(worker.job)
        return 0

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        return None


def test_what_a_process_wrote_just_before_it_ended_is_known_when_it_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch: Batch = allocate(tmp_path, "s")
    plan = make_plan(batch, ("p",), "a", 1)

    def last_words(job: str) -> None:
        """The first is told, as its last thing, to run the trial again; the second finishes it."""
        if len(pretender.started) == 1:
            told = {"action": "requeue", "done": True}
            append_jsonl(
                batch.events_jsonl,
                Event("t", "control", job, 1, "p", "a__1", task="a", dataset="d", detail=told),
            )
        else:
            make_trial(batch, "a__2", job=job)

    pretender = Pretender(last_words)
    monkeypatch.setattr(supervise, "executor", lambda _name: pretender)
    monkeypatch.setattr(supervise, "_POLL_SEC", 0.0)
    seen: list[str] = []
    launch = Launch(plan.jobs[0], lambda _job: {}, lambda _job: [], {})
    left_over = BatchSupervisor(batch, [launch], 0, lambda event: seen.append(event.kind), lambda: None).run()
    assert len(pretender.started) == 2, "the trial was to be run again"
    assert left_over == {}
    assert seen == ["control"]


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (-9, "", "Harbor was killed by signal 9"),
        (-15, "half a line", "Harbor was killed by signal 15: half a line"),
        (1, "ValueError: no", "Harbor ended its job (code 1): ValueError: no"),
    ],
)
def test_how_a_harbor_process_ended(code: int, words: str, said: str) -> None:
    assert how_it_ended(code, words) == said


@pytest.mark.parametrize(
    ("started", "limit", "quiet", "why"),
    [
        (False, 0.0, START_SEC, None),
        (False, 0.0, START_SEC + 1, "Harbor did not start a trial within 30.0 min"),
        (True, 0.0, SILENT_SEC, None),
        (True, 0.0, SILENT_SEC + 1, "Harbor hung: it gave no sign of life for 5.0 min"),
        (True, 600.0, SILENT_SEC + 600, None),
        (True, 600.0, SILENT_SEC + 601, "Harbor hung: it gave no sign of life for 15.0 min"),
    ],
)
def test_a_silent_harbor_hangs(started: bool, limit: float, quiet: float, why: str | None) -> None:
    """With a trial that may take `limit`, an agent that keeps the interpreter to itself has its time."""
    line = ProfileWaves(None)  # ty: ignore[invalid-argument-type]
    if started:
        event = Event("t", "trial_started", "j", 1, "p", "a__1", task="a", dataset="d", detail={"limit_sec": limit})
        line.hear(event, 100.0)
    line.heard_at = 100.0
    line.hear(Event("t", "heartbeat", "j", 1, "p", detail={"blocked_sec": 20.0}), 100.0 + quiet)
    assert line.why_hung(100.0 + quiet) == why, "its process lives, but its event loop does not answer"
    line.hear(Event("t", "heartbeat", "j", 1, "p"), 100.0 + quiet)
    assert line.why_hung(100.0 + quiet) is None
    if started and limit:
        line.hear(Event("t", "trial_ended", "j", 1, "p", "a__1", task="a", dataset="d"), 100.0)
        assert line.why_hung(100.0 + SILENT_SEC + 1) == "Harbor hung: it gave no sign of life for 5.0 min"


def test_a_harbor_that_is_stopped_is_not_waited_for_as_long_as_its_trials_may_take() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        line = ProfileWaves(None, worker=Worker("j", "p", process.pid))  # ty: ignore[invalid-argument-type]
        line.hear(Event("t", "trial_started", "j", 1, "p", "a__1", detail={"limit_sec": 3600.0}), 0.0)
        assert line.why_hung(SILENT_SEC) is None
        assert line.why_hung(SILENT_SEC + 1) == "Harbor was stopped by a signal for 5.0 min"
    finally:
        process.kill()
        process.wait()
