"""The same simulated trials by the local executor and on a Ray cluster of nodes on this machine.

    .venv/bin/python benchmarks/ray.py [--trials 500] [--nodes 4]

The orchestrator is `tbench run` with the processes that it starts: by the local executor that includes Harbor, on Ray
the bridge to the cluster. Harbor on the nodes and Ray's own daemons are told apart: nodes are other machines.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.ray_nodes import Cluster, processes_of
from support.tasks import write_task

TASKS = 50
EXPERIMENT = """
schema_version = 2
slug = "{slug}"
[run]
container_env = "local"
attempts = {attempts}
parallel = 4
seed = 1
{run}
[tasks]
default_dataset = "tasks"
items = [{items}]
[profiles.p]
agent = "simulated"
options = {{ solve_probability = 0.5, delay_sec = [0.0, 0.0] }}
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def measured(root: Path, slug: str, run: str, attempts: int, env: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a run and all that it has started and waited for."""
    items = ", ".join(f'{{ id = "t{number:02}" }}' for number in range(TASKS))
    (root / f"{slug}.toml").write_text(EXPERIMENT.format(slug=slug, run=run, attempts=attempts, items=items))
    tbench = [str(Path(sys.executable).with_name("tbench")), "run", f"{slug}.toml"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(tbench, cwd=root, env={**os.environ, **env}, check=True, capture_output=True, timeout=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - started, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def used(marks: list[str]) -> float:
    """CPU seconds of the processes of nodes, and of those of theirs that have ended."""
    total = 0
    for pid in {pid for mark in marks for pid in processes_of(mark)}:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / _TICKS


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=4)
    options = parser.parse_args()
    attempts = max(1, options.trials // TASKS)
    root = Path(tempfile.mkdtemp(prefix="tbray", dir="/tmp"))
    try:
        for number in range(TASKS):
            write_task(root / "tasks" / f"t{number:02}")
        measured(root, "warm", "", 1, {})
        local = measured(root, "local", "", attempts, {})
        with Cluster() as cluster:
            cluster.head(cpus=2)
            for _ in range(options.nodes - 1):
                cluster.node(cpus=2)
            run = f'executor = "ray"\nray = {{ address = "{cluster.address}" }}'
            before = used(cluster.marks)
            on_ray = measured(root, "ray", run, attempts, cluster.env)
            nodes = used(cluster.marks) - before
    finally:
        shutil.rmtree(root)
    trials = attempts * TASKS
    print(f"{trials} trials of no work; {options.nodes} nodes on this machine")
    print(f"{'':<34} {'wall s':>8} {'CPU s':>8} {'CPU ms a trial':>15}")
    for name, wall, cpu in (("local", *local), ("ray: orchestrator", *on_ray), ("ray: nodes, still alive", 0.0, nodes)):
        print(f"{name:<34} {wall:>8.1f} {cpu:>8.1f} {cpu / trials * 1000:>15.1f}")
    print(f"{'orchestrator, ray to local':<34} {on_ray[0] / local[0]:>8.2f} {on_ray[1] / local[1]:>8.2f}")


if __name__ == "__main__":
    main()
