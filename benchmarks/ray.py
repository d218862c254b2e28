"""The same simulated trials by the local executor and on a Ray cluster of nodes on this machine.

    .venv/bin/python benchmarks/ray.py [--trials 500 2000] [--nodes 4] [--tasks 50] [--waves N]

Each size is run in both ways. With two, one further trial is what the larger takes more than the smaller, for each
trial more: without what a start of tbench, of Harbor and of the cluster takes. Asked for: on Ray at most 1.2 of what it
takes by the local executor, and orchestrator with bridge at most 4 % of it.

The orchestrator is the process `tbench run`, on Ray with the bridge to the cluster, as the kernel has counted their CPU
when they have ended. All else is told apart: by the local executor Harbor and its sandboxes; on Ray the check before
the run, and on the nodes Harbor, its sandboxes and Ray. That needs a control group of its own: run it as root.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.ray_nodes import Cluster
from support.tasks import write_task

AT_ONCE = 4
"""Trials at once on each node; by the local executor as many as on all nodes together."""
EXPERIMENT = """
schema_version = 2
slug = "{slug}"
[run]
container_env = "local"
attempts = {attempts}
seed = 1
{run}
[tasks]
default_dataset = "tasks"
items = [{items}]
[profiles.p]
agent = "simulated"
options = {{ solve_probability = 0.5, delay_sec = [0.0, 0.0] }}
"""
COUNTED = """
import json, os, resource, subprocess, sys

book = {"bridge": 0.0, "Harbor": 0.0}


class Counted(subprocess.Popen):
    def _try_wait(self, flags):
        try:
            pid, status, used = os.wait4(self.pid, flags)
        except ChildProcessError:
            return self.pid, 0
        if pid:
            kind = "bridge" if any("ray_bridge" in str(argument) for argument in self.args) else "Harbor"
            book[kind] += used.ru_utime + used.ru_stime
        return pid, status


subprocess.Popen = Counted
from terminalbench.cli.main import main

code = main(sys.argv[2:])
own = resource.getrusage(resource.RUSAGE_SELF)
with open(sys.argv[1], "w") as file:
    json.dump(book | {"tbench": own.ru_utime + own.ru_stime}, file)
sys.exit(code)
"""
"""`tbench`, which notes the CPU of its own process, and of each child that has ended with all that it waited for."""


@dataclass(frozen=True)
class Run:
    """Seconds: on the clock, and of CPU. `nodes`: of the whole cluster."""

    wall: float
    tbench: float
    bridge: float
    harbor: float
    nodes: float = 0.0

    @property
    def orchestrator(self) -> float:
        """What runs where `tbench run` was typed, but for Harbor."""
        return self.tbench + self.bridge

    @property
    def whole(self) -> float:
        """All of it."""
        return self.orchestrator + self.harbor + self.nodes

    def less(self, other: Self) -> Self:
        """What it took more than another run."""
        return type(self)(*(ours - theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


def measured(root: Path, slug: str, run: str, attempts: int, env: dict[str, str]) -> Run:
    """Run all tasks there are to the end."""
    items = ", ".join(f'{{ id = "{task.name}" }}' for task in sorted((root / "tasks").iterdir()))
    (root / f"{slug}.toml").write_text(EXPERIMENT.format(slug=slug, run=run, attempts=attempts, items=items))
    command = [sys.executable, "-c", COUNTED, str(root / "cpu.json"), "run", f"{slug}.toml"]
    started = time.monotonic()
    ran = subprocess.run(command, cwd=root, env={**os.environ, **env}, capture_output=True, text=True, timeout=3600)
    wall = time.monotonic() - started
    if ran.returncode != 0:
        sys.exit(ran.stdout + ran.stderr)
    used = json.loads((root / "cpu.json").read_text())
    return Run(wall, used["tbench"], used["bridge"], used["Harbor"])


class Group:
    """A control group, which this process is in for the length of a block; what is started there stays in it."""

    def __init__(self) -> None:
        above = Path("/sys/fs/cgroup/cpuacct")
        self._above = above if above.is_dir() else Path("/sys/fs/cgroup")
        self._folder = self._above / f"tbench-benchmark-{os.getpid()}"

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        (self._above / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self) -> float:
        """The CPU of all that was in it so far."""
        old, new = self._folder / "cpuacct.usage", self._folder / "cpu.stat"
        return int(old.read_text()) / 1e9 if old.exists() else int(new.read_text().split()[1]) / 1e6

    def remove(self) -> None:
        """When all that was started has ended."""
        while (self._folder / "cgroup.procs").read_text():
            time.sleep(0.1)
        self._folder.rmdir()


def run_both(root: Path, sizes: Sequence[int], nodes: int, tasks: int, waves: int) -> dict[int, tuple[Run, Run]]:
    """By trials: the run by the local executor, and that on Ray."""
    group = Group()
    local, on_ray = {}, {}
    try:
        for number in range(tasks):
            write_task(root / "tasks" / f"t{number:02}")
        measured(root, "warm", f"parallel = {AT_ONCE}", 1, {})
        with group:
            for size in sizes:
                before = group.seconds()
                ran = measured(root, f"local{size}", f"parallel = {AT_ONCE * nodes}", size // tasks, {})
                local[size] = replace(ran, harbor=group.seconds() - before - ran.orchestrator)
        with Cluster() as cluster:
            with group:
                cluster.head(cpus=2)
                for _ in range(nodes - 1):
                    cluster.node(cpus=2)
            for size in sizes:
                wave = f", wave_trials = {size // waves}" if waves else ""
                run = f'parallel = {AT_ONCE}\nexecutor = "ray"\nray = {{ address = "{cluster.address}"{wave} }}'
                before = group.seconds()
                ran = measured(root, f"ray{size}", run, size // tasks, cluster.env)
                on_ray[size] = replace(ran, nodes=group.seconds() - before)
        group.remove()
    finally:
        shutil.rmtree(root)
    return {size: (local[size], on_ray[size]) for size in sizes}


def table(trials: int, local: Run, on_ray: Run) -> list[str]:
    """The lines of one size, or of what one size takes more than another."""
    lines = [f"{'CPU ms a trial':<28} {'local':>9} {'ray':>9} {'ray/local':>10}"]
    rows = {
        "tbench run": (local.tbench, on_ray.tbench),
        "bridge to the cluster": (local.bridge, on_ray.bridge),
        "orchestrator: both": (local.orchestrator, on_ray.orchestrator),
        "Harbor and sandboxes here": (local.harbor, on_ray.harbor),
        "nodes: these, and Ray": (local.nodes, on_ray.nodes),
        "all of it": (local.whole, on_ray.whole),
    }
    for name, (here, there) in rows.items():
        ratio = f"{there / here:>10.2f}" if here else ""
        lines.append(f"{name:<28} {here / trials * 1e3:>9.1f} {there / trials * 1e3:>9.1f} {ratio}".rstrip())
    shares = [f"{100 * run.orchestrator / run.whole:>7.1f} %" if run.whole else "" for run in (local, on_ray)]
    return [
        *lines,
        f"{'orchestrator of all':<28} {' '.join(shares)}",
        f"{'wall s':<28} {local.wall:>9.0f} {on_ray.wall:>9.0f}",
    ]


def report(runs: dict[int, tuple[Run, Run]], nodes: int) -> list[str]:
    """The table of each size; of two or more also that of one further trial, between the smallest and the largest."""
    lines = [f"trials of no work, {AT_ONCE * nodes} at once; {nodes} nodes on this machine"]
    for size, (local, on_ray) in runs.items():
        lines += ["", f"{size} trials", *table(size, local, on_ray)]
    few, many = min(runs), max(runs)
    if few != many:
        local, on_ray = (more.less(fewer) for more, fewer in zip(runs[many], runs[few], strict=True))
        lines += ["", f"one further trial, {few} to {many} (all of it: at most 1.20; orchestrator on Ray: at most 4 %)"]
        lines += table(many - few, local, on_ray)
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--waves", type=int, default=0, help="so many at every size, which leaves their cost out")
    options = parser.parse_args()
    sizes = [max(1, trials // options.tasks) * options.tasks for trials in options.trials]
    root = Path(tempfile.mkdtemp(prefix="tbray", dir="/tmp"))
    print(*report(run_both(root, sizes, options.nodes, options.tasks, options.waves), options.nodes), sep="\n")


if __name__ == "__main__":
    main()
