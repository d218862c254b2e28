"""Going on with a finished batch: `tbench resume` finds nothing to do, beside `harbor run -c` on the same job folder.

    .venv/bin/python benchmarks/resume.py [--trials 10000] [--harbor-trials 250 500 1000]

A small batch really runs; its trials are then copied under new names until there are as many as wanted. Harbor compares
every planned trial with every one on disk, so it is asked at smaller sizes only, and its growth is shown. Seconds are
CPU time of the process and its children; start-up is in them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.tasks import write_task
from terminalbench.experiments.batch import Batch
from terminalbench.files import read_json, write_json

TASKS = 10
EXPERIMENT = """
schema_version = 2
slug = "bench"
[run]
container_env = "local"
attempts = {attempts}
parallel = 4
[tasks]
default_dataset = "tasks"
items = [{items}]
[profiles.p]
agent = "oracle"
"""
TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]
HARBOR = str(Path(sys.executable).parent / "harbor")
_LIMIT_SEC = 3600


@dataclass(frozen=True)
class Took:
    """What one command took."""

    cpu_sec: float
    wall_sec: float


def run(argv: list[str], root: Path) -> Took:
    """Run a command to its end; it must succeed."""
    before, started = os.times(), time.monotonic()
    env = {**os.environ, "HARBOR_TELEMETRY": "off", "XDG_STATE_HOME": str(root / "state")}
    ran = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, timeout=_LIMIT_SEC)
    if ran.returncode != 0:
        raise SystemExit(f"{argv} ended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(cpu, time.monotonic() - started)


def seed(root: Path) -> Batch:
    """A batch that really ran: ten tasks, one attempt each."""
    (root / "pyproject.toml").touch()
    for number in range(TASKS):
        write_task(root / "tasks" / f"t{number}")
    write_experiment(root, 1)
    run([*TBENCH, "run", "exp.toml"], root)
    return Batch(root / "results" / "bench" / "0")


def write_experiment(root: Path, attempts: int) -> None:
    """The experiment file, with so many attempts of each task."""
    items = ", ".join(f'{{ id = "t{number}" }}' for number in range(TASKS))
    (root / "exp.toml").write_text(EXPERIMENT.format(attempts=attempts, items=items))


def grow(root: Path, batch: Batch, trials: int) -> Path:
    """Make the batch one of `trials` finished trials; the path of its JobConfig."""
    attempts = trials // TASKS
    write_experiment(root, attempts)
    shutil.copy(root / "exp.toml", batch.experiment_toml)
    plan = read_json(batch.plan_json)
    plan["settings"]["attempts"] = attempts
    for job in plan["jobs"]:
        job["attempts"] = attempts
    write_json(batch.plan_json, plan)
    name = plan["jobs"][0]["name"]
    for file in (batch.job_config(name), batch.job_folder(name) / "config.json"):
        config = json.loads(file.read_text())
        file.write_text(json.dumps({**config, "n_attempts": attempts}))
    (batch.job_folder(name) / "lock.json").unlink(
        missing_ok=True
    )  # Harbor writes it anew; the old one has fewer trials
    folders = sorted(entry for entry in batch.job_folder(name).iterdir() if entry.is_dir())
    originals = {folder.name.partition("__")[0]: folder for folder in reversed(folders)}
    for task, original in originals.items():
        have = sum(folder.name.startswith(f"{task}__") for folder in folders)
        for number in range(have, attempts):
            copy_trial(original, f"{task}__{number:07}")
    return batch.job_config(name)


def copy_trial(original: Path, name: str) -> None:
    """Another finished trial: the files are hard links, but for those that name it."""
    folder = original.with_name(name)
    shutil.copytree(original, folder, copy_function=os.link, symlinks=True)
    for file in ("result.json", "config.json"):
        text = (original / file).read_text().replace(original.name, name)
        document = json.loads(text)
        if file == "result.json":
            document["id"] = str(uuid.uuid4())
        (folder / file).unlink()
        (folder / file).write_text(json.dumps(document))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--harbor-trials", type=int, nargs="*", default=[250, 500, 1000])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        batch = seed(root)
        floor = run([*TBENCH, "--version"], root)
        print("a finished batch, nothing to do; CPU seconds")
        print(f"{'trials':>8} {'harbor run -c':>14} {'tbench resume':>14} {'ratio':>7} {'harbor per trial':>17}")
        for trials in sorted(options.harbor_trials):
            config = grow(root, batch, trials)
            run([*TBENCH, "resume", "exp.toml"], root)
            ours = run([*TBENCH, "resume", "exp.toml"], root)
            theirs = run([HARBOR, "run", "-c", str(config), "-y"], root)
            ratio, each = theirs.cpu_sec / ours.cpu_sec, 1000 * theirs.cpu_sec / trials
            print(f"{trials:>8} {theirs.cpu_sec:>14.2f} {ours.cpu_sec:>14.2f} {ratio:>7.1f} {each:>14.1f} ms")
        grow(root, batch, options.trials)
        first = run([*TBENCH, "resume", "exp.toml"], root)
        again = run([*TBENCH, "resume", "exp.toml"], root)
        print(f"\ntbench resume of {options.trials} trials (start-up alone: {floor.cpu_sec:.2f} s CPU)")
        for what, took in (("not in the index yet", first), ("no-op", again)):
            print(f"{what:<22} {took.cpu_sec:>7.2f} s CPU {took.wall_sec:>7.2f} s")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
