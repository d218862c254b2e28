"""Real Harbor jobs for tests: small tasks written on the spot, run by `harbor run` in the local sandbox.

Set TBENCH_TEST_ENVIRONMENT to another environment (a Harbor type such as "docker", or "module:Class") to see
the same tests run there.
"""

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import terminalbench
from support.pace import seconds
from support.tasks import on_host
from support.warm import Forked, Warm
from terminalbench.harbor.read.results import read_job, read_trial
from terminalbench.json_files import read_jsonl
from terminalbench.records.event import Event
from terminalbench.records.trial import Trial, TrialReading

ENVIRONMENT = os.environ.get("TBENCH_TEST_ENVIRONMENT", "terminalbench.sandbox.environment:LocalSandbox")
everywhere = pytest.mark.parametrize(
    "environment", [ENVIRONMENT, "container_like:ContainerLike"], ids=["local", "container"]
)
"""A test in the local sandbox and in one that looks as a container does."""
SAFE = "terminalbench.harbor.verifier:SafeVerifier"
PLUGIN = "terminalbench.harbor.plugin:EventPlugin"
TIMEOUT_SEC = seconds(240)
WARM = Warm()

# Passes when /app/answer.txt holds what the tests expect; writes 0 otherwise.
TEST_SH = """#!/bin/bash
if cmp -s /app/answer.txt /tests/expected.txt; then echo 1 > /logs/verifier/reward.txt
else echo 0 > /logs/verifier/reward.txt; fi
"""
ANSWER = "forty-two\n"
SOLVE = f"printf '{ANSWER.strip()}\\n' > /app/answer.txt"


def write_task(
    folder: Path, *, test_sh: str = TEST_SH, toml: str = "", environment: str = "", agent_sec: float = 60.0
) -> Path:
    """A small real Harbor task: write the right word to /app/answer.txt."""
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    whole = (
        f'schema_version = "1.4"\n[task]\nname = "tests/{folder.name}"\nversion = "1.0.0"\n'
        f"[agent]\ntimeout_sec = {agent_sec}\n[environment]\nbuild_timeout_sec = 120.0\n{environment}\n"
        f"{toml or '[verifier]' + chr(10) + 'timeout_sec = 60.0'}\n"
    )
    (folder / "task.toml").write_text(on_host(whole))
    (folder / "instruction.md").write_text("Write the answer to /app/answer.txt.\n")
    (folder / "environment/Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    (folder / "solution/solve.sh").write_text(f"#!/bin/bash\n{SOLVE}\n")
    (folder / "tests/test.sh").write_text(test_sh)
    (folder / "tests/expected.txt").write_text(ANSWER)
    (folder / "tests/test.sh").chmod(0o755)
    return folder


@cache
def _home() -> Path:
    """A home folder without anybody's settings, for the jobs of this process."""
    folder = Path(tempfile.mkdtemp(prefix="tbench-test-home-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass
class Job:
    """One Harbor job of a test: its configuration, and after `run` what it left."""

    root: Path
    agent: dict[str, Any]
    tasks: list[Path]
    name: str = "job"
    settings: dict[str, Any] = field(default_factory=dict)
    verifier: dict[str, Any] = field(default_factory=lambda: {"import_path": SAFE})
    profile: str = "scripted"
    heartbeat_sec: float = 30.0
    plugin: bool = True

    @property
    def folder(self) -> Path:
        return self.root / "runs" / self.name

    @property
    def events_path(self) -> Path:
        return self.root / "events.jsonl"

    def start(self, *extra: str) -> Forked:
        """Start `harbor run` in a process group of its own."""
        command, env = self._command(*extra)
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return WARM(command, env, cwd=self.root, **files)

    def _command(self, *extra: str) -> tuple[list[str], dict[str, str]]:
        environment = {"import_path": ENVIRONMENT} if ":" in ENVIRONMENT else {"type": ENVIRONMENT}
        config = {
            "job_name": self.name,
            "jobs_dir": str(self.root / "runs"),
            "n_concurrent_trials": 2,
            "environment": environment,
            "verifier": self.verifier,
            "agents": [self.agent],
            "tasks": [{"path": str(task), "source": "tests"} for task in self.tasks],
            **self.settings,
        }
        path = self.root / f"{self.name}.job.json"
        path.write_text(json.dumps(config))
        command = ["harbor", "run", "-c", str(path), "-y"]
        if self.plugin:
            command += ["--plugin", PLUGIN, "--pk", f"events={self.events_path}", "--pk", f"profile={self.profile}"]
            command += ["--pk", f"heartbeat_sec={self.heartbeat_sec}"]
        # The agents of the tests are in this folder; the product may come from several source folders.
        path_list = [str(Path(__file__).parent), str(Path(terminalbench.__file__).parents[1])]
        path_list += [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path_list),
            "HOME": str(_home()),
            "HARBOR_TELEMETRY": "off",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        return [*command, *extra], env

    def run(self, *extra: str, expect: int | None = 0) -> str:
        """Run `harbor run` to its end and return what it printed."""
        process = self.start(*extra)
        try:
            output = process.communicate(timeout=TIMEOUT_SEC)[0].decode()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if expect is not None:
            assert process.returncode == expect, output
        return output

    def readings(self) -> list[TrialReading]:
        return read_job(self.folder, profile=self.profile)

    def trials(self) -> list[Trial]:
        readings = self.readings()
        assert all(reading.trial is not None for reading in readings), readings
        return [reading.trial for reading in readings if reading.trial is not None]

    def trial(self) -> Trial:
        (trial,) = self.trials()
        return trial

    def events(self, kind: str | None = None) -> list[Event]:
        read = read_jsonl(self.events_path, Event)
        assert not read.bad, read.bad
        return [event for event in read.records if kind in (None, event.kind)]


def run_trial(
    root: Path, task: Path, agent: dict[str, Any], verifier: dict[str, Any] | None = None, **settings: Any
) -> Trial:
    """One trial by Harbor's own machinery in this process: as in a job, without the start of a command."""
    reading = read_trial(run_trial_dir(root, task, agent, verifier, **settings))
    assert reading.trial is not None, reading
    return reading.trial


def run_trial_dir(
    root: Path, task: Path, agent: dict[str, Any], verifier: dict[str, Any] | None = None, **settings: Any
) -> Path:
    """As `run_trial`, but the trial's folder."""
    from harbor.models.trial.config import TrialConfig
    from harbor.trial.trial import Trial as HarborTrial

    environment = settings.pop("environment", ENVIRONMENT)
    config = TrialConfig.model_validate(
        {
            "task": {"path": str(task), "source": "tests"},
            "trials_dir": str(root / "trials"),
            "agent": agent,
            "environment": {"import_path": environment} if ":" in environment else {"type": environment},
            "verifier": {"import_path": SAFE} if verifier is None else verifier,
            **settings,
        }
    )

    async def run() -> None:
        await (await HarborTrial.create(config)).run()

    asyncio.run(run())
    return root / "trials" / config.trial_name


def scripted(script: str = "true", **kwargs: Any) -> dict[str, Any]:
    """The configuration of an agent that runs `script`."""
    timeout = kwargs.pop("timeout_sec", None)
    model = kwargs.pop("model_name", None)
    config: dict[str, Any] = {"import_path": "scripted:ScriptedAgent", "kwargs": {"script": script, **kwargs}}
    if timeout is not None:
        config["override_timeout_sec"] = timeout
    if model is not None:
        config["model_name"] = model
    return config


def stop(process: Forked) -> None:
    """End a process group that is still there."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=600)
