"""Run one real Harbor job in the local sandbox: a tiny task, one agent, the result files it leaves."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.warm import Warm

WARM = Warm()
SANDBOX = "terminalbench.sandbox.environment:LocalSandbox"
INSTRUCTION = "Write the word hello into /app/out.txt.\n"
SOLVE = "echo hello > /app/out.txt"
TASK_TOML = """schema_version = "1.4"
[task]
name = "tests/say-hello"
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 120.0
[environment]
build_timeout_sec = 120.0
[metadata]
host_base = true
"""
TEST_SH = """#!/bin/bash
if [ "$(cat /app/out.txt 2>/dev/null)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


@dataclass(frozen=True)
class Trial:
    """One finished trial: its folder and its `result.json`."""

    folder: Path
    result: Mapping[str, Any]

    @property
    def reward(self) -> float | None:
        """What the verifier gave; None when it gave nothing."""
        verdict = self.result["verifier_result"]
        return verdict["rewards"]["reward"] if verdict else None

    @property
    def error(self) -> str | None:
        """The type of the exception that ended the trial."""
        info = self.result["exception_info"]
        return info["exception_type"] if info else None

    def json(self, name: str) -> Any:
        """A JSON file of the trial."""
        return json.loads((self.folder / name).read_text())

    def events(self) -> list[dict[str, Any]]:
        """The events Claude Code printed."""
        lines = (self.folder / "agent" / "claude-code.txt").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def write_task(folder: Path) -> Path:
    """A task that is solved by `SOLVE` and by nothing else; returns its folder."""
    task = folder / "say-hello"
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "task.toml").write_text(TASK_TOML)
    (task / "instruction.md").write_text(INSTRUCTION)
    (task / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    (task / "tests" / "test.sh").write_text(TEST_SH)
    return task


def run_trial(
    folder: Path,
    agent: Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[Mapping[str, Any]] = (),
    timeout_sec: float = 240,
) -> Trial:
    """Run `agent` once on the tiny task in a Harbor process; `env` is all it gets beyond the basics."""
    config = {
        "job_name": "job",
        "jobs_dir": str(folder / "jobs"),
        "n_concurrent_trials": 1,
        "quiet": True,
        "environment": {
            "import_path": SANDBOX,
            "mounts": list(mounts),
            "kwargs": {"network": {"model": re.findall(r"http://127[.][^\s\"']*", json.dumps([agent, env]))}},
        },
        "agents": [agent],
        "tasks": [{"path": str(write_task(folder))}],
    }
    (folder / "job.json").write_text(json.dumps(config))
    home = folder / "home"
    home.mkdir()
    basics = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
    given = {"HOME": str(home), "HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True", **(env or {})}
    command = ["harbor", "run", "-c", str(folder / "job.json"), "-y"]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = WARM(command, {**basics, **given}, cwd=folder, **files)
    try:
        said = process.communicate(timeout=timeout_sec)[0].decode()
    finally:
        process.kill()
    assert process.returncode == 0, said
    (result,) = (folder / "jobs" / "job").glob("*/result.json")
    return Trial(result.parent, json.loads(result.read_text()))
