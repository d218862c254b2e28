"""Going on with a finished batch: `tbench resume` finds nothing to do, beside `harbor run -c` on the same job folder.

    .venv/bin/python benchmarks/resume.py [--trials 10000] [--harbor-trials 250 500 1000]

`--harbor-trials` without a number leaves Harbor out.

A small batch really runs; its trials are then copied under new names until there are as many as wanted. Harbor compares
every planned trial with every one on disk, so it is asked at smaller sizes only, and its growth is shown. Seconds are
CPU time of the process and its children; start-up is in them.
"""

import argparse
import json
import math
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
from terminalbench.harbor.read.notes import PLANNED
from terminalbench.json_files import read_json, write_json

ATTEMPTS = 5
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
    env |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root / "pycache")}  # compiled once, as installed
    ran = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, timeout=_LIMIT_SEC)
    if ran.returncode != 0:
        raise SystemExit(f"{argv} ended with {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Took(cpu, time.monotonic() - started)


def task_name(number: int) -> str:
    """Tasks are told apart by their number alone, so that the documents of one can be made those of another."""
    return f"task{number:05}"


def seed(root: Path) -> Batch:
    """A batch that really ran: one trial."""
    (root / "pyproject.toml").touch()
    write_experiment(root, 1, 1)
    run([*TBENCH, "run", "exp.toml"], root)
    return Batch(root / "results" / "bench" / "0")


def write_experiment(root: Path, tasks: int, attempts: int) -> None:
    """The experiment file, and the tasks it names."""
    names = [task_name(number) for number in range(tasks)]
    for name in names:
        if not (root / "tasks" / name).exists():
            write_task(root / "tasks" / name)
    items = ", ".join(f'{{ id = "{name}" }}' for name in names)
    (root / "exp.toml").write_text(EXPERIMENT.format(attempts=attempts, items=items))


def grow(root: Path, batch: Batch, trials: int) -> Path:
    """Make the batch one of `trials` finished trials; the path of its JobConfig."""
    tasks = trials // ATTEMPTS
    write_experiment(root, tasks, ATTEMPTS)
    shutil.copy(root / "exp.toml", batch.experiment_toml)
    plan = read_json(batch.plan_json)
    plan["settings"]["attempts"] = ATTEMPTS
    (job,) = plan["jobs"]
    job |= {"attempts": ATTEMPTS, "tasks": [renumbered(job["tasks"][0], number) for number in range(tasks)]}
    write_json(batch.plan_json, plan)
    folder = batch.job_folder(job["name"])
    for file in (batch.job_config(job["name"]), folder / "config.json"):
        config = json.loads(file.read_text())
        config |= {"n_attempts": ATTEMPTS, "tasks": [renumbered(config["tasks"][0], n) for n in range(tasks)]}
        file.write_text(json.dumps(config))
    (folder / "lock.json").unlink(missing_ok=True)  # Harbor writes another; the old one has fewer trials
    original = next(folder.glob(f"{task_name(0)}__*/"))
    told = [line for line in batch.events_jsonl.read_text().splitlines() if original.name in line]
    with batch.events_jsonl.open("a") as events:
        for number in range(tasks):
            for attempt in range(ATTEMPTS):
                if copy := copy_trial(original, number, attempt):
                    for line in told:
                        events.write(json.dumps(retold(line, original.name, copy.name, number, attempt)) + "\n")
    return batch.job_config(job["name"])


def renumbered(document: dict, number: int) -> dict:
    """The same document about another task."""
    return json.loads(json.dumps(document).replace(task_name(0), task_name(number)))


def retold(line: str, original: str, copy: str, number: int, attempt: int) -> dict:
    """The same event of another trial: of its name, task and attempt."""
    event = renumbered(json.loads(line.replace(original, copy)), number)
    return event | ({"attempt": attempt + 1} if "attempt" in event else {})


def copy_trial(original: Path, number: int, attempt: int) -> Path | None:
    """Another finished trial: the files are hard links, but for those that name it. None when it was there."""
    folder = original.with_name(f"{task_name(number)}__{attempt:07}")
    if folder.exists() or (number, attempt) == (0, 0):
        return None  # it is there from a smaller size, or it is the original
    shutil.copytree(original, folder, copy_function=os.link, symlinks=True)
    for file in ("result.json", "config.json", PLANNED):
        document = json.loads((original / file).read_text().replace(original.name, folder.name))
        if file == "result.json":
            document["id"] = str(uuid.uuid4())
        if file == PLANNED:
            document["attempt"] = attempt + 1  # a trial of an attempt that has its verdict is none of the batch
        (folder / file).unlink()
        (folder / file).write_text(json.dumps(renumbered(document, number)))
    return folder


def beside_harbor(root: Path, batch: Batch, sizes: list[int]) -> None:
    """The table of both, at sizes that Harbor can take."""
    alone = run([HARBOR, "run", "-c", str(next(batch.runs.glob("*.job.json"))), "-y"], root)
    print(f"a finished batch of {ATTEMPTS} attempts at each task, nothing to do; CPU seconds")
    print(f"{'trials':>8} {'harbor run -c':>14} {'tbench resume':>14} {'ratio':>7} {'harbor / trial':>15}")
    print(f"{1:>8} {alone.cpu_sec:>14.2f}")
    net: list[tuple[int, float]] = []
    for trials in sorted(sizes):
        config = grow(root, batch, trials)
        run([*TBENCH, "resume", "exp.toml"], root)
        ours = run([*TBENCH, "resume", "exp.toml"], root)
        theirs = run([HARBOR, "run", "-c", str(config), "-y"], root)
        net.append((trials, theirs.cpu_sec - alone.cpu_sec))
        ratio, each = theirs.cpu_sec / ours.cpu_sec, 1000 * net[-1][1] / trials
        print(f"{trials:>8} {theirs.cpu_sec:>14.2f} {ours.cpu_sec:>14.2f} {ratio:>7.1f} {each:>12.1f} ms")
    if len(net) > 1 and min(seconds for _, seconds in net) > 0:
        (few, little), (many, much) = net[0], net[-1]
        exponent = math.log(much / little) / math.log(many / few)
        print(f"without its start-up, Harbor's time grows with the number of trials to the power of {exponent:.1f}")


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
        if options.harbor_trials:
            beside_harbor(root, batch, options.harbor_trials)
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
