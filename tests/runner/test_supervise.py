"""What a Harbor process said with its last breath counts when its end is judged."""

from pathlib import Path

import pytest

from support.live import plan
from terminalbench.experiments.batch import Batch
from terminalbench.files import append_jsonl, write_json
from terminalbench.records import Event
from terminalbench.runner import supervise
from terminalbench.runner.supervise import Launch, Supervisor


class EndsAtOnce:
    """A Harbor process that writes its last events and is gone between two steps of the runner."""

    returncode = 0

    def __init__(self, batch: Batch, job: str, number: int) -> None:
        self.batch, self.job, self.number = batch, job, number

    def poll(self) -> int:
        if self.number == 1:
            for kind, detail in (("trial_started", {}), ("control", {"done": True})):
                event = Event("t", kind, self.job, 1, "p", "a__1", "a", "d", detail=detail)
                append_jsonl(self.batch.events_jsonl, event)
        else:
            task = {"config": {"task": {"path": "a", "source": "d"}}}
            result = {**task, "finished_at": "t", "verifier_result": {"rewards": {"reward": 1}}}
            write_json(self.batch.job_folder(self.job) / "a__2" / "result.json", result)
        return 0


class Started:
    """What `start_job` returns, of a process that is none."""

    def __init__(self, job: str, process: EndsAtOnce) -> None:
        self.job, self.profile, self.process = job, "p", process

    def kill(self) -> None:
        """There is nothing to kill."""


def test_a_trial_requeued_as_harbor_ended_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(tmp_path / "results" / "s" / "0")
    batch.folder.mkdir(parents=True)
    waves: list[str] = []

    def start(job: str, *_: object) -> Started:
        waves.append(job)
        return Started(job, EndsAtOnce(batch, job, len(waves)))

    monkeypatch.setattr(supervise, "start_job", start)
    (job,) = plan(tasks=("a",)).jobs
    told: list[str] = []
    launch = Launch(job, lambda _job: {}, lambda _job: [], {})
    supervisor = Supervisor(batch, [launch], 0, lambda event: told.append(event.kind), lambda: None)
    (end,) = supervisor.run()
    assert (end.left_over, len(end.waves)) == ({}, 2)
    assert told == ["trial_started", "control"]
