"""One real training, keyless: killed in its first night, resumed, and a profile that is better becomes champion.

It is that of the page, made smaller; tests/trainer/test_kills.py decides the same as it is, with scripted trials.
"""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from conftest import REPO
from support.experiments import Project
from support.pages import commands_of
from support.tasks import write_task
from support.warm import Warm, start_tbench
from terminalbench.experiments.config import load
from terminalbench.runner.executors import local
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.gym import Gym
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.training import open_training

PLAN = "experiments/training-quickstart.toml"
SMALLER = {
    'environment = "starter"': 'environment = "tasks"',
    "delay_sec": "steps_mean = 2, delay_sec",
    "trials = 32\ncontrol = 0.2": "trials = 10\ncontrol = 0.1",
    "alpha = 0.1\nlooks = 2": "alpha = 0.4\nlooks = 1",  # four dev tasks can decide, in one night
}


def results(root: Path) -> list[Path]:
    return sorted(root.glob("results/training-quickstart/*/runs/*/*/result.json"))


@pytest.mark.long
def test_a_training_from_zero_to_a_promoted_profile(project: Project, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(8):
        write_task(project.root / f"tasks/task-{number}", environment=f'[metadata]\nfamily = "{number // 2}"')
    text = (REPO / PLAN).read_text()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    file = project.write(PLAN, text)
    learned = load_plan(file).split.train[0].id
    night = project.root / "results/night"
    options = ["--learn", PLAN, "--iterations", "1", "--tasks", learned, "--output", str(night)]
    begun = start_tbench(["overnight", *options], os.environ, project.root)
    while not results(project.root) and begun.poll() is None:
        time.sleep(0.05)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    assert not (project.root / ".terminalbench/training/training-quickstart/nights.jsonl").exists()

    monkeypatch.setattr(local, "spawn", Warm())
    iterated = sorted(night.glob("batches/night/*/runs/*/*/result.json"))
    assert len(iterated) == 1  # the champion as it is: there is no lesson yet
    assert tbench("overnight", "--resume", night, "--learn", "other.toml").code == 2
    ran = tbench("overnight", "--resume", night)
    assert ran.code == 0, ran.out + ran.err
    assert sorted(night.glob("batches/night/*/runs/*/*/result.json")) == iterated
    said = (night / "report.md").read_text()
    assert "<summary>Training training-quickstart, night 1</summary>" in said
    assert "goes on: most failures are results that nobody looked at" in said
    assert "night 1 of 4, 1 waiting, challenger 0 of 2 (simulated)" in said
    first = open_training(file).nights[0]
    kept = results(project.root)
    nights = project.root / ".terminalbench/training/training-quickstart/nights.jsonl"
    nights.write_text("")  # as if it was killed before the night was recorded: the same again, and nothing is paid
    assert tbench("trainer", "run", PLAN, "--resume", "--nights", 1).code == 3
    again = open_training(file).nights[0]
    assert (again.after, again.explored, again.trials) == (first.after, first.explored, first.trials)
    assert results(project.root) == kept
    assert tbench("trainer", "run", PLAN).code == 2  # it was begun

    told = commands_of(REPO / "docs/tbench/training.md", "trainer")
    for arguments in (one for one in told if one[1] != "gym"):  # those: tests/trainer/test_gym.py
        more = ["--resume"] if arguments[1] == "run" else []
        ran = tbench(*arguments, *more)
        assert ran.code == 0, f"{arguments} {ran.out} {ran.err}"
        assert arguments[1] == "report" or max(map(len, ran.out.splitlines())) <= 80
    training = open_training(file)
    best = training.lineage.crowned[-1]
    assert (best.why, training.lineage.variants[best.id].reason) == (
        "promoted",
        "most failures are results that nobody looked at",
    )
    assert best.evidence["interval"]["low"] <= 0.8 <= best.evidence["interval"]["high"]
    assert "simulated" in tbench("trainer", "status", PLAN).out

    # Every trial once, and those that confirm on no task that the search has seen.
    cells = Counter()
    tasks: dict[str, set[str]] = {}
    for plan in project.root.glob("results/training-quickstart/*/plan.json"):
        part = json.loads(plan.read_text())["labels"]["part"]
        for held in (json.loads(one.read_text()) for one in plan.parent.glob("runs/*/*/result.json")):
            tasks.setdefault(part.partition("-")[0], set()).add(held["task_name"])
        cells[json.loads(plan.read_text())["labels"]["night"], part] += 1
    assert set(cells.values()) == {1}
    assert tasks["explore"].isdisjoint(tasks["confirm"] | tasks["canary"] | tasks["control"])
    assert tasks["holdout"].isdisjoint(tasks["explore"] | tasks["confirm"] | tasks["canary"] | tasks["control"])
    (look,) = Gym(project.root).looks(open_environment("tasks", project.root))
    assert look.reason == "the last word on the promoted prompt"
    assert {Path(task).name for task in tasks["holdout"]} == {Path(task).name for task in look.tasks}

    chosen = project.experiment(
        'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "starter"\nitems = [{ id = "csv-clean" }]\n'
        '[profiles.best]\nchampion = "training-quickstart"\n'
    )
    assert load(chosen).profiles[0].id == best.id
    assert tbench("trainer", "rollback", PLAN, "--reason", "not for us").code == 0
    assert load(chosen).profiles[0].id == best.before
