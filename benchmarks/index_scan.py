"""Scanning a results folder: the first scan beside the cost of only decoding the same files, and an unchanged rescan.

    .venv/bin/python benchmarks/index_scan.py [--trials 10000] [--trajectory-kb 200]

All ratios come from one run. Trajectories are hard links to a few files, so that the disk stays small; every one of
them is read and decoded all the same.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.files import write_json
from terminalbench.index.queries import view_batch
from terminalbench.index.results import export_index
from terminalbench.index.scan import scan_batch
from terminalbench.records import TaskRef

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
        task = f"t{number % len(tasks)}"
        name = f"{task}__{number:07}"
        folder = batch.runs / JOB / name
        (folder / "agent").mkdir(parents=True)
        os.link(sources[number % DISTINCT], folder / "agent" / "trajectory.json")
        result = {
            "id": str(uuid.UUID(int=number)),
            "task_name": task,
            "trial_name": name,
            "trial_uri": "file:///x",
            "task_id": {"path": f"/x/{task}"},
            "source": "d",
            "task_checksum": "c",
            "config": {"task": {"path": f"/x/{task}", "source": "d"}, "trial_name": name, "agent": {"name": "bench"}},
            "agent_info": {"name": "bench", "version": "1"},
            "agent_result": {"n_input_tokens": 1000, "n_output_tokens": 200, "cost_usd": 0.01},
            "verifier_result": {"rewards": {"reward": float(number % 2)}},
            "started_at": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
            "finished_at": f"2026-01-01T01:{number // 60 % 60:02}:{number % 60:02}Z",
        }
        (folder / "result.json").write_text(json.dumps(result))
    return batch


def decode_floor(batch: Batch, decode: Any) -> float:
    """Seconds of CPU to read and decode every result and trajectory, and nothing else."""
    started = time.process_time()
    for folder in (batch.runs / JOB).iterdir():
        decode((folder / "result.json").read_bytes())
        decode((folder / "agent" / "trajectory.json").read_bytes())
    return time.process_time() - started


def timed(work: Any) -> float:
    """Seconds of CPU of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--trajectory-kb", type=int, default=200)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        batch = make_batch(root, options.trials, options.trajectory_kb)
        rows = {
            "msgspec decode of the same files": decode_floor(batch, msgspec.json.decode),
            "json decode of the same files": decode_floor(batch, json.loads),
            "first scan": timed(lambda: scan_batch(batch)),
            "unchanged rescan": timed(lambda: scan_batch(batch)),
            "view and export": timed(lambda: export_index(batch, view_batch(batch))),
        }
    finally:
        shutil.rmtree(root)
    floor = rows["msgspec decode of the same files"]
    print(f"{options.trials} trials, trajectories of about {options.trajectory_kb} KB")
    print(f"{'':<36} {'CPU s':>8} {'ratio':>7}")
    for name, seconds in rows.items():
        print(f"{name:<36} {seconds:>8.2f} {seconds / floor:>7.3f}")


if __name__ == "__main__":
    main()
