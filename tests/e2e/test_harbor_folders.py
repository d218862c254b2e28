"""Folders that real `harbor run` left, without any part of ours in it: read, compared and shown as a user has them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobkit import Job, write_task

SIMULATED = "terminalbench.harbor.agents.simulated:SimulatedAgent"
SECRET = "sk-ant-scripted-0123456789abcdef"


def agent(chance: float, **more: Any) -> dict[str, Any]:
    return {"import_path": SIMULATED, "model_name": "made/up", "kwargs": {"solve_probability": chance}, **more}


def test_jobs_of_harbor_alone(tmp_path: Path, tbench: Callable[..., Any]) -> None:
    tasks = [write_task(tmp_path / name) for name in ("one", "two")]
    configured = {"good": agent(1.0), "bad": agent(0.0, env={"MY_API_KEY": SECRET, "MODE": "slow"})}
    for name, given in configured.items():
        Job(tmp_path, given, tasks, name, verifier={}, plugin=False).run()
    jobs = (tmp_path / "runs").rename(tmp_path / "jobs")
    shutil.copytree(jobs / "good", jobs / "good-copy")

    compared = tbench("compare", jobs)
    assert compared.code == 0, compared.err
    said = " ".join(compared.out.split())
    assert "simulated/up@2 vs simulated/up: -100.0 pt" in said
    assert "options.solve_probability: 1.0 -> 0.0, env.MY_API_KEY: + [hidden], env.MODE: + slow" in said
    assert "2 trials in good-copy have the same id as another trial, so they are copies and counted once" in said
    (listed,) = json.loads(tbench("list", "--results", jobs, "--json").out)
    assert (listed["trials"], listed["passed"], listed["failed"]) == (4, 2, 2)
    errors = tbench("errors", jobs / "bad").out
    assert errors.startswith("2 of 2 trials did not pass")

    trial = next(jobs.glob("bad/one__*"))
    shown = tbench("show", trial).out
    assert "profile   simulated/up@2" in shown
    assert "had       model simulated" in shown or "had       model made/up" in shown
    paths = {word for line in shown.splitlines() for word in line.split() if (trial / word).is_file()}
    assert {"agent/trajectory.json", "verifier/test-stdout.txt", "trial.log"} <= paths
    assert str(trial) in shown

    assert tbench("report", jobs, "-o", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert f'href="../jobs/bad/{trial.name}' in page
    for text in (compared.out, errors, shown, page, (jobs / "index.db").read_bytes().decode(errors="replace")):
        assert SECRET not in text
