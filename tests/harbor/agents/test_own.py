"""The agent that `tbench init --agent` writes."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from terminalbench.experiments.scaffold import agent_module


def test_a_cut_off_trial_keeps_its_steps(tmp_path: Path) -> None:
    module: dict[str, Any] = {"__name__": "mine"}
    exec(compile(agent_module("mine"), "mine.py", "exec"), module)
    agent = module["Mine"](logs_dir=tmp_path)
    file, steps = tmp_path / "trajectory.json", []

    async def run(_command: str, timeout_sec: int) -> SimpleNamespace:
        steps.append([step["source"] for step in json.loads(file.read_bytes())["steps"]])
        if len(steps) == 2:
            raise KeyError("choices")
        return SimpleNamespace(stdout=f"ended within {timeout_sec} s", stderr=None)

    with pytest.raises(KeyError):
        asyncio.run(agent.run("Add them.", SimpleNamespace(exec=run, session_id="s"), None))
    assert steps == [["user"], ["user", "agent"]]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
