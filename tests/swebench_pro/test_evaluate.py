"""`tbench swebench-pro evaluate` as a batch: by which executor, with which flags, and what a second call changes.

The machines only pretend: each is given one job, and leaves the results that Harbor would.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.experiments import Project
from support.tasks import write_task
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.tables import RunTable
from terminalbench.harbor.predictions import entries
from terminalbench.json_files import read_json
from terminalbench.live import processes
from terminalbench.live.processes import Worker
from terminalbench.runner import kill, supervise
from terminalbench.runner import run as runner
from terminalbench.runner.executors.base import JobRun

INSTANCES = {name: f"instance_o__{name}-{digit * 40}" for name, digit in (("one", "a"), ("two", "b"), ("three", "c"))}
REWARDS: dict[str, dict[str, float]] = {
    "good": {"reward": 1, "patch_applied": 1},
    "bad": {"reward": 0, "patch_applied": 0},
}
TAMPERED = "good conftest"


@dataclass
class PretendedMachines:
    """A cluster of which each job is one trial: `started` are the patches, by instance, in the order of the jobs."""

    started: list[str] = field(default_factory=list)
    at_once: list[int] = field(default_factory=list)
    afterlife_sec: float = 0.0

    def ready(self, settings: RunTable) -> None:
        self.at_once.append(settings.parallel)

    def wave_trials(self, settings: RunTable, trials: int) -> int:
        return 1

    def waits(self, worker: Worker) -> bool:
        return False

    def leave(self) -> None:
        return None

    def start(self, job: JobRun) -> Worker:
        config = json.loads(Path(job.argv[job.argv.index("-c") + 1]).read_text())
        (task,), (agent,) = config["tasks"], config["agents"]
        name = Path(task["path"]).name
        patch = dict(entries(Path(agent["kwargs"]["predictions"]).read_bytes(), ""))[name]
        self.started.append(patch)
        self._end(job.folder / f"{name[:24]}__{len(self.started)}", task, patch)
        return Worker(job.name, job.profile, reference=job.name)

    def _end(self, folder: Path, task: dict[str, Any], patch: str) -> None:
        folder.mkdir(parents=True)
        rewards = REWARDS.get(patch.partition(" ")[0])
        result = {
            "id": f"00000000-0000-0000-0000-{len(self.started):012}", "task_name": "x", "trial_name": folder.name,
            "trial_uri": f"file://{folder}", "task_id": {"path": task["path"]}, "source": task.get("source"),
            "task_checksum": "c" * 64, "config": {"task": task, "trial_name": folder.name, "agent": {"name": "patch"}},
            "agent_info": {"name": "patch", "version": "1"}, "agent_result": None,
            "verifier_result": rewards and {"rewards": rewards},
            "exception_info": None if rewards else {
                "exception_type": "RewardFileNotFoundError", "exception_message": "none", "exception_traceback": "",
                "occurred_at": "2026-01-23T16:30:00Z",
            },
            "started_at": "2026-01-23T16:30:00Z", "finished_at": "2026-01-23T16:31:00Z",
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result))
        if patch == TAMPERED:
            (folder / "safety.json").write_text('{"mode": "separate", "test_config": ["conftest"]}')

    def poll(self, worker: Worker) -> int:
        return 0

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        return None

    def alive(self, worker: Worker) -> bool:
        return False


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> PretendedMachines:
    found = PretendedMachines()
    for module, name in (
        (supervise, "executor"),
        (kill, "executor"),
        (processes, "executor"),
        (runner, "find_executor"),
    ):
        monkeypatch.setattr(module, name, lambda _name: found)
    return found


@pytest.fixture
def evaluate(project: Project, tbench: Callable[..., Any]) -> Callable[..., Any]:
    for name in INSTANCES.values():
        task = write_task(project.root / "tasks" / name)
        known = "[metadata]\nswebench_pro = true\nrepo = 'o/r'\nlanguage = 'python'\n"
        (task / "task.toml").write_text((task / "task.toml").read_text().replace("[metadata]\n", known))

    def run(*options: str, **patches: str) -> Any:
        told = [{"instance_id": INSTANCES[name], "patch": patch} for name, patch in patches.items()]
        project.write("predictions/mine.json", json.dumps(told))
        command = ("swebench-pro", "evaluate", "--predictions-dir", "predictions", "--tasks", "tasks")
        return tbench(*command, "--container-env", "local", *options)

    return run


def test_an_evaluation_runs_by_the_executor_that_is_named_and_shows_signs_of_tampering(
    evaluate: Callable[..., Any], machines: PretendedMachines, project: Project
) -> None:
    """One patch a job, as the machines of a cluster take them; what has a verdict is not judged again."""
    ran = evaluate("--executor", "ray", "--max-workers", "3", one=TAMPERED, two="bad", three="no verdict")
    assert ran.code == 3, ran.err
    assert sorted(machines.started) == ["bad", TAMPERED, "no verdict"]
    evaluation = project.root / "predictions" / "evaluation"
    (plan,) = evaluation.glob("batches/*/0/plan.json")
    settings = read_json(plan, Plan).settings
    assert (settings.executor, settings.parallel, {*machines.at_once}) == ("ray", 3, {3})
    table = [line.split() for line in ran.out.splitlines() if line.startswith(("arm", "mine"))]
    assert table[0] == ["arm", "resolved", "unresolved", "not", "applied", "errors", "missing", "suspect"]
    assert table[1] == ["mine", "1", "1", "1", "1", "0", "1"]
    assert f"mine: {INSTANCES['one']}: suspect: test_config:conftest" in ran.err
    kept = json.loads((evaluation / "resolved.json").read_text())
    assert kept["resolved"]["mine"] == {INSTANCES["one"]: True, INSTANCES["two"]: False, INSTANCES["three"]: None}
    suspect = {one["instance_id"]: one["suspect"] for one in kept["verdicts"] if "suspect" in one}
    assert suspect == {INSTANCES["one"]: ["test_config:conftest"]}
    local = ("--executor", "local", "--max-workers", "2")
    again = evaluate(*local, "--json", one=TAMPERED, two="bad", three="no verdict")
    assert (again.code, json.loads(again.out)["arms"]["mine"]["suspect"]) == (3, 1)
    assert machines.started[3:] == ["no verdict"], "an error is tried again, and nothing else"
    settings = read_json(plan, Plan).settings
    assert (settings.executor, settings.parallel) == ("local", 2), "as this call says, not as the first did"
