"""A night that learns, killed and resumed: what iteration 1 teaches stands in the prompts of iteration 2, and counts."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from test_run import wait_for

from servers.base import Turn
from servers.ollama import OllamaServer
from support.pace import seconds
from support.tasks import write_task
from terminalbench.archivist.effects import count_trials
from terminalbench.archivist.entries import MemoryEntry
from terminalbench.archivist.inventory import each_lesson, history
from terminalbench.archivist.store import MemoryFolder, open_store
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.lessons import draw, read_snapshot
from terminalbench.index.exposures import exposed_trials
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.live.processes import Worker
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.lessons_report import read_reflection
from terminalbench.overnight.night import Heartbeat, NightConfig, Role
from terminalbench.records.trial import Outcome
from terminalbench.runner.executors.local import OWN_PROCESSES

LESSON = "Look whether each file that the task asks for is in its place."
MODEL = "small:1b"
SAID = {"do": LESSON, "evidence": [{"attempt": "A1", "step": 2, "quote": "Let me see where I am."}]}
AGENT = f"""
[profiles.p]
agent = "simulated"
options = {{ solve_probability = {{ a = 0.0, b = 0.0, c = 1.0 }}, skill_text = {{ "{LESSON}" = -1.0 }} }}
"""
INSTRUCTION = "Write the answer to the file /app/answer.txt.\n"


def told(trial: Path) -> str:
    """What an agent was told, by its trajectory."""
    return json.loads((trial / "agent" / "trajectory.json").read_text())["steps"][0]["message"]


def kill_all(night: NightFolder, process: Any) -> None:
    """The supervisor, its workers and their Harbor processes, all at once (SIGKILL)."""
    pids = [process.pid]
    for number in (1, 2):
        with contextlib.suppress(Exception):
            pids.append(read_json(night.heartbeat(number, Role.ITERATION), Heartbeat).pid)
    for file in night.results_root.glob("night/*/workers/*.json"):
        with contextlib.suppress(Exception):
            pids.append(read_json(file, Worker).pid or 0)
    for pid in filter(None, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=seconds(60))


def test_a_lesson_of_iteration_1_stands_in_the_prompts_of_iteration_2_whatever_is_killed(lab: Any) -> None:
    """The failures of a and b teach a lesson that keeps the agent from solving c, whenever it is shown."""
    lab.env[OWN_PROCESSES] = "1"
    write_task(lab.root / "tasks" / "c")
    for task in "abc":
        (lab.root / "tasks" / task / "instruction.md").write_text(INSTRUCTION)
    suite = lab.experiment(AGENT, tasks=("a", "b", "c"), run="parallel = 2")
    night, memory = NightFolder(lab.root / "night"), MemoryFolder(lab.root / ".terminalbench")
    with OllamaServer([Turn(json.dumps({"lessons": [SAID]}))] * 9, model=MODEL) as server:
        lab.env["OLLAMA_HOST"] = server.url
        asked = ("--iterations", "2", "--lessons", "--reflect-model", f"ollama:{MODEL}", "--seed", "3")
        running = lab.start("overnight", "--suite", suite, "--output", night.folder, *asked)
        wait_for(lambda: memory.log.exists() and read_jsonl(memory.log, MemoryEntry).records)
        kill_all(night, running)
        (first_entry,) = read_jsonl(memory.log, MemoryEntry).records

        running = lab.start("overnight", "--resume", night.folder)
        wait_for(lambda: any(night.results_root.glob("night/2/runs/*__p-lessons/c__*/lessons.json")))
        kill_all(night, running)
        batch = Batch(night.results_root / "night" / "2")
        planned = batch.plan_json.read_bytes()

        running = lab.start("overnight", "--resume", night.folder)
        out, err = running.communicate(timeout=seconds(240))
        assert running.returncode == 0, out + err
        assert len(server.native_chats) == 2, "each iteration was asked about once"

    config = read_json(night.config_json, NightConfig)
    assert [model.profile for model in config.models] == ["p", "p-lessons"]
    first = read_reflection(night, 1)
    assert first is not None
    assert first.stopped is None
    (taught,) = first.active
    with open_store(lab.root / ".terminalbench", write=True) as store:
        (lesson,) = list(each_lesson(store))
        assert (lesson.id, lesson.do, lesson.simulated) == (taught, LESSON, True)
        entries = history(store, taught)
        assert entries[-1] == first_entry
        assert first_entry.lesson is not None
        assert sorted(task.id for task in first_entry.lesson.source_tasks) == ["a", "b"]
        assert (first_entry.op, first_entry.by, first_entry.trigger) == ("add", f"ollama:{MODEL}", "batch")
        assert sum(entry.op == "add" for entry in entries) == 1, "written once"

        # Only c may see it, only in iteration 2, and only the profile with lessons.
        found = exposed_trials(night.results_root)
        assert {(one.profile, one.task, one.batch) for one in found} == {("p-lessons", "c", "night/2")}
        assert [[one.lesson for one in trial.exposures] for trial in found] == [[taught]]
        for trial in found:
            shown = trial.exposures[0].shown
            folder = night.results_root / trial.batch / "runs" / trial.job / trial.trial
            assert (lesson.text in told(folder)) is shown
            assert trial.outcome is (Outcome.FAILED if shown else Outcome.PASSED)
        trials = [file.parent for file in night.results_root.glob("night/*/runs/*/*/result.json")]
        assert len(trials) == 9, "before a lesson is known its twin would be the control once more"
        withheld = sum(LESSON not in told(trial) for trial in trials)
        assert withheld == 9 - sum(trial.exposures[0].shown for trial in found)

        # Whatever was killed: each attempt drew as the lessons of its plan and its seed say.
        assert batch.plan_json.read_bytes() == planned
        jobs = [json.loads(file.read_text()) for file in batch.runs.glob("*__p-lessons.job.json")]
        (seed,) = {job["agents"][0]["kwargs"]["lessons"]["seed"] for job in jobs}
        assert seed.endswith(" night/2")
        for trial in found:
            snapshot = read_snapshot(batch.lessons("p-lessons"), trial.snapshot)
            place = next(key for key in snapshot.tasks if key.endswith("/c"))
            assert trial.attempt is not None
            assert draw(snapshot, trial.snapshot, place, trial.attempt, seed).exposures == list(trial.exposures)

        # Each is counted once: the night has done it.
        assert lesson.utility is not None
        assert (lesson.utility.n, lesson.utility.simulated) == (1, True)
        assert count_trials(store, found).trials == 0
    report = night.report_md.read_text()
    assert "<summary>Lessons</summary>" in report
    assert " by lessons from other tasks, p-lessons against p" in report
    assert re.search("learning took 3 control trials for .* beside 3 with lessons", report), "iteration 1 had no lesson"
    assert "(simulated)" in report
    ran = lab.tbench("memory", "stats", "--results", night.folder)
    said = " ".join(ran.stdout.split())
    assert "p-lessons: inconclusive; simulated: no real agent was measured" in said
    assert any(line.split()[:3] == ["transfer", "p-lessons", "p"] for line in ran.stdout.splitlines())
    assert max(map(len, ran.stdout.splitlines())) <= 80
