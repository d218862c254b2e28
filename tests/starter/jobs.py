"""Run real Harbor jobs for tests, and read how each trial ended."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import terminalbench
from starter.mutants import PLANTED
from support.pace import seconds
from support.warm import Warm
from support.workers import NUMBER
from terminalbench.harbor.jobs import VERIFIER

ENVIRONMENT = os.environ.get("TBENCH_TEST_ENVIRONMENT", "terminalbench.sandbox.environment:LocalSandbox")
"""Where the trials run: "module:Class", or one of Harbor's types, such as "docker"."""

JOB_TIMEOUT_SEC = seconds(540)
WARM = Warm()


@dataclass(frozen=True)
class Result:
    """How one trial ended; what the solution and the verifier printed; the solution's exit status when not 0."""

    reward: float | None
    error: str | None
    output: str
    exit_code: str | None


def environment_config(environment: str = ENVIRONMENT) -> dict[str, str]:
    """The `environment` of a job configuration."""
    return {"import_path": environment} if ":" in environment else {"type": environment}


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this test session share, and nobody else."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get(NUMBER) else base


def once(folder: Path, produce: Callable[[Path], None]) -> Path:
    """`folder` with what `produce` puts there: called once, also when several workers ask; the others wait."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            for left in folder.iterdir():  # of another worker's try that failed
                if left.name != "lock":
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            produce(folder)
            (folder / "done").touch()
    return folder


def run_harbor(folder: Path, config: dict[str, Any], *extra: str, home: Path, status: int = 0) -> str:
    """Run a job, or continue the night, in a process group of its own that ends with it; what Harbor printed."""
    folder.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps(config))
    source = str(Path(terminalbench.__file__).parents[1])
    env = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "HARBOR_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = ["harbor", "run", "-c", str(folder / "job.json"), "-y", *extra]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = WARM(command, env, cwd=folder, **files)
    try:
        printed = process.communicate(timeout=JOB_TIMEOUT_SEC)[0].decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == status, printed[-4000:]
    return printed


def trials(folder: Path) -> list[dict[str, Any]]:
    """The `result.json` of every finished trial of the job in `folder`."""
    return [json.loads(path.read_text()) for path in sorted((folder / "job").glob("*/result.json"))]


def run_tasks(folder: Path, agent: str, tasks: list[Path], *, home: Path, environment: str = ENVIRONMENT) -> None:
    """One attempt at each task by one of Harbor's own agents."""
    config = {
        "job_name": "job",
        "jobs_dir": str(folder),
        "n_concurrent_trials": 3,
        "quiet": True,
        "environment": environment_config(environment),
        "verifier": {"import_path": VERIFIER},
        "agents": [{"name": agent}],
        "tasks": [{"path": str(task), "source": "starter"} for task in tasks],
    }
    run_harbor(folder, config, home=home)


def results(folder: Path, tasks: Path) -> dict[str, Result]:
    """How each trial of tasks in that folder ended, by the name of its task's folder."""
    found = {}
    for content in trials(folder):
        if Path(content["task_id"]["path"]).parent != tasks:
            continue
        trial = folder / "job" / content["trial_name"]
        printed = [trial / name for name in ("agent/oracle.txt", "verifier/test-stdout.txt")]
        found[Path(content["task_id"]["path"]).name] = Result(
            reward=_reward(content),
            error=_error(content),
            output="\n".join(file.read_text(errors="replace")[-3000:] for file in printed if file.exists()),
            exit_code=_text(trial / "agent/exit-code.txt"),
        )
    return found


def tried(folder: Path) -> dict[str, Result]:
    """How the checks judged everything that `mutants.TRY_ALL` tried, by `task.name`; of the attack, how its trial ended."""
    found = {}
    for content in trials(folder):
        task = Path(content["task_id"]["path"]).name
        for verdict in (folder / "job" / content["trial_name"] / "verifier").glob("*.reward"):
            output = verdict.with_suffix(".txt").read_text(errors="replace")[-3000:]
            reward = _reward(content) if verdict.stem == PLANTED else float(verdict.read_text())
            exit_code = _text(verdict.with_suffix(".exit"))
            found[f"{task}.{verdict.stem}"] = Result(reward, _error(content), output, exit_code)
    return found


def _reward(content: dict[str, Any]) -> float | None:
    return ((content["verifier_result"] or {}).get("rewards") or {}).get("reward")


def _error(content: dict[str, Any]) -> str | None:
    error = content["exception_info"]
    return f"{error['exception_type']}: {error['exception_message']}" if error else None


def _text(file: Path) -> str | None:
    return file.read_text().strip() if file.exists() else None
