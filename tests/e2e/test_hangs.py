"""What hangs is ended by its limit and named: environment, set-up, agent, verifier; each hook of Claude Code has a limit (test_outage has one that hangs)."""

import json

import pytest

from support.tasks import write_task

FOREVER = "sleep 100000"
LONG = 100_000.0
AGENTS = """
import asyncio
from harbor.agents.base import BaseAgent


class Works(BaseAgent):
    @staticmethod
    def name() -> str:
        return "works"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        await environment.exec("if [ -e /hang ]; then sleep 100000; fi")


class NeverReady(Works):
    async def setup(self, environment) -> None:
        await environment.exec("sleep 100000")
"""


def test_each_phase_that_hangs_is_ended_and_named(lab) -> None:
    """Limits are the tasks' own times, and Harbor's 360 s for the set-up, times 0.01; all that works has plenty."""
    lab.project.write("lab_agents.py", AGENTS)
    tasks = {name: write_task(lab.root / "tasks" / name, agent_sec=LONG) for name in ("build", "work", "grade")}
    for name, folder in tasks.items():
        toml = (folder / "task.toml").read_text().replace("120.0", str(LONG)).replace("60.0", str(LONG))
        limits = {"build": ("build_timeout_sec", ""), "work": ("timeout_sec", "[agent]\n"), "grade": ("timeout_sec", "[verifier]\n")}  # fmt: skip
        key, table = limits[name]
        (folder / "task.toml").write_text(toml.replace(f"{table}{key} = {LONG}", f"{table}{key} = 300.0"))
    dockerfile = "environment/Dockerfile"
    (tasks["build"] / dockerfile).write_text(f"FROM debian:bookworm-slim\nRUN {FOREVER}\n")
    (tasks["work"] / dockerfile).write_text("FROM debian:bookworm-slim\nRUN touch /hang\n")
    (tasks["grade"] / "tests" / "test.sh").write_text(f"#!/bin/bash\n{FOREVER}\n")
    profiles = '[profiles.p]\nagent = "lab_agents:Works"\n[profiles.q]\nagent = "lab_agents:NeverReady"\n'
    file = lab.experiment(profiles, tasks=tuple(tasks), run="parallel = 3\ntimeout_multiplier = 0.01")
    ran = lab.tbench("run", file)
    shown = {(e["agent_key"], e["task_id"]): e for e in lab.index()}
    said = {
        ("p", "build"): ("errored", "the start of the environment did not end within 3.0 s"),
        ("p", "work"): ("failed", "the agent did not end within 3.0 s"),
        ("p", "grade"): ("errored", "the verifier did not end within 3.0 s"),
        ("q", "work"): ("errored", "agent setup did not end within 3.6 s"),
    }
    for cell, (outcome, message) in said.items():
        entry = shown[cell]
        assert entry["outcome"] == outcome, entry
        assert message in lab.tbench("show", json.loads((lab.batch().folder / entry["results_json"]).read_text())["trial_name"]).stdout  # fmt: skip
    for _, (outcome, message) in said.items():
        assert outcome == "failed" or message in " ".join(ran.stdout.split())
    classes = {
        e.task: e.detail.get("error_class") for e in lab.events() if e.kind == "trial_ended" and e.profile == "p"
    }
    assert classes == {"build": "environment", "work": "agent_timeout", "grade": "verifier"}


@pytest.mark.parametrize(("own", "limit"), [({}, 60), ({"timeout": 5}, 5), ({"timeout": None}, 60)])
def test_every_hook_has_a_limit(own: dict, limit: int) -> None:
    from terminalbench.experiments.claude_settings import HOOK_SEC, bound_hooks

    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "x", **own}]}], "Odd": "left alone", "Worse": [3]}
    bound = bound_hooks(hooks, HOOK_SEC)
    assert bound["Stop"][0]["hooks"][0]["timeout"] == limit
    assert (bound["Odd"], bound["Worse"]) == ("left alone", [3])
