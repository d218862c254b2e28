"""Batches of finished trials for the benchmarks, written without running anything."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef

DISTINCT = 8
JOB = "2026-01-01__00-00-00__p"


def trajectory(kilobytes: int, seed: int) -> bytes:
    """An ATIF document of about the wanted size: steps with tool calls and observations."""
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "do it"}]
    size = 0
    while size < kilobytes * 1024:
        number = len(steps) + 1
        call = {"tool_call_id": f"c{number}", "function_name": "Bash", "arguments": {"command": f"ls -la /app/{seed}"}}
        text = f"line {number} of output, seed {seed}\n" * 40
        step = {
            "step_id": number,
            "timestamp": "2026-01-01T00:00:00Z",
            "source": "agent",
            "message": "looking",
            "tool_calls": [call],
            "observation": {"results": [{"source_call_id": f"c{number}", "content": text}]},
            "metrics": {"prompt_tokens": 100, "completion_tokens": 20},
        }
        steps.append(step)
        size += len(text) + 350
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "bench", "version": "1"},
        "steps": steps,
        "final_metrics": {"total_prompt_tokens": 1000, "total_completion_tokens": 200, "total_cost_usd": 0.01},
    }
    return json.dumps(document).encode()


def write_trial(job: Path, task: str, label: str, number: int, agent: str, day: str = "2026-01-01") -> Path:
    """A trial of a job that has ended, without a trajectory; its folder. Every second one has passed."""
    name = f"{task}__{number:07}"
    folder = job / name
    (folder / "agent").mkdir(parents=True)
    config = {"task": {"path": f"/x/{task}", "source": label}, "trial_name": name, "agent": {"name": agent}}
    minute = f"{number // 60 % 60:02}:{number % 60:02}"
    result = {
        "id": str(uuid.UUID(int=number)),
        "task_name": task,
        "trial_name": name,
        "trial_uri": "file:///x",
        "task_id": {"path": f"/x/{task}"},
        "source": label,
        "task_checksum": "c",
        "config": config,
        "agent_info": {"name": agent, "version": "1"},
        "agent_result": {"n_input_tokens": 1000, "n_output_tokens": 200, "cost_usd": 0.01},
        "verifier_result": {"rewards": {"reward": float(number % 2)}},
        "started_at": f"{day}T00:{minute}Z",
        "finished_at": f"{day}T01:{minute}Z",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def make_batch(root: Path, trials: int, kilobytes: int) -> Batch:
    """A batch of finished trials, each with its own result and a trajectory."""
    root.mkdir(parents=True, exist_ok=True)
    batch = allocate(root, "bench")
    tasks = tuple(PlannedTask(TaskRef(f"t{n}", "d"), "d", {"path": f"/x/t{n}"}) for n in range(max(1, trials // 10)))
    job = JobSpec(JOB, "p", "id", 10, tasks)
    write_json(batch.plan_json, Plan("bench", "bench", 0, "f", "p", (job,)))
    sources = []
    for seed in range(DISTINCT):
        source = root / f"trajectory-{seed}.json"
        source.write_bytes(trajectory(kilobytes, seed))
        sources.append(source)
    for number in range(trials):
        folder = write_trial(batch.runs / JOB, f"t{number % len(tasks)}", "d", number, "bench")
        os.link(sources[number % DISTINCT], folder / "agent" / "trajectory.json")
    return batch
