"""Two profiles of equal ability, one of which crashes when it fails and may try again: no difference may come of it."""

import asyncio
import json
import random
import shutil
from pathlib import Path

from support.results import make_plan, make_trial
from terminalbench.analytics.compare import compare_views
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.read.agent_logs import LogEvidence
from terminalbench.harbor.read.outcome import classify
from terminalbench.harbor.retry_queue import JobTries, set_aside
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch

TASKS, ABILITY, TRIES = 60, 0.5, 3


def make_batch(root: Path) -> Batch:
    """60 tasks by `steady` and `crashy`: the same luck of an even coin; what `crashy` fails, it fails by a crash.

    Earlier versions tried the crashes again, up to three times: the tries are where those left them.
    """
    batch = Batch(root / "results" / "s" / "0")
    tasks = tuple(f"t{n}" for n in range(TASKS))
    batch.folder.mkdir(parents=True)
    make_plan(batch, ("steady", "crashy"), tasks)
    luck = {profile: random.Random(profile) for profile in ("steady", "crashy")}
    for task in tasks:
        make_trial(batch, f"{task}__s", profile="steady", reward=float(luck["steady"].random() < ABILITY), attempt=1)
        for number in range(1, TRIES + 1):
            solved = luck["crashy"].random() < ABILITY
            folder = make_trial(
                batch, f"{task}__c", profile="crashy", reward=1.0 if solved else None, second=number, attempt=1,
                error=None if solved else "RuntimeError",
            )  # fmt: skip
            document = json.loads((folder / "result.json").read_text())
            document["agent_execution"] = {"started_at": "2026-01-23T16:29:50Z", "finished_at": "2026-01-23T16:30:00Z"}
            (folder / "result.json").write_text(json.dumps(document))
            acted = {"steps": [{"source": "agent", "tool_calls": [{"function_name": "bash"}]}]}
            (folder / "agent").mkdir(exist_ok=True)
            (folder / "agent" / "trajectory.json").write_text(json.dumps(acted))
            if solved or number == TRIES:
                break
            set_aside(folder, batch.superseded, number)
            shutil.rmtree(folder)
    return batch


def test_the_one_that_crashes_when_it_fails_gains_nothing(tmp_path: Path) -> None:
    batch = make_batch(tmp_path)
    scan_batch(batch)
    view = view_batch(batch)
    found = compare_views([view])
    by_profile = {profile.profile: profile for profile in found.profiles}
    assert all(profile.coverage == 1.0 for profile in by_profile.values()), "a crash after acting is measured"
    steady, crashy = by_profile["steady"].rate, by_profile["crashy"].rate
    assert steady is not None
    assert crashy is not None
    assert abs(crashy - steady) < 0.1, "as equal as two even coins of 60 throws"
    assert found.contrasts[0].verdict == "inconclusive"
    last = sum(outcome == "passed" for outcome in view.repeats().values())
    assert (last / TASKS) > 0.2, "what counting the last try would have given away"
    (told,) = [text for text in found.warnings if "run again after a verdict" in text]
    assert told.startswith(f"crashy: {len(view.repeats())} trials were run again after a verdict; the first verdict")


def test_a_crash_after_acting_is_never_tried_again_by_itself() -> None:
    tries = JobTries()
    tries._most = TRIES
    crash = {"exception_type": "RuntimeError", "occurred_at": "2026-01-02T03:04:25Z"}
    run = {"started_at": "2026-01-02T03:04:09Z", "finished_at": "2026-01-02T03:04:25Z"}
    result = {"task_name": "t", "trial_name": "t__1", "exception_info": crash, "agent_execution": run}

    async def decide(acted: bool) -> bool:
        return tries.decide("t__1", classify(result, LogEvidence(acted=acted)))

    tries.began("t__1")
    assert not asyncio.run(decide(acted=True))
    assert asyncio.run(decide(acted=False)), "one that did not start is"
    tries.began("t__1")
    tries.began("t__1")
    assert not asyncio.run(decide(acted=False)), "as often as run.retries says"
