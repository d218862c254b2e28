"""Limits, orders, ends and nights on a Ray cluster of two nodes: what holds for one machine holds for both."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

from support.aftermath import command_line, cost, measured
from support.ray_nodes import Cluster, kill_node, processes_of
from support.tasks import write_task
from terminalbench.live.processes import live_processes

pytestmark = pytest.mark.alone("ray")  # one cluster
TASKS = tuple(f"t{number}" for number in range(6))
BUDGET_USD = 4.5
DRAWN = re.compile(r"\w+_sec|\w+_at|batch|batches|job|trial|trials|folder")
"""Names of fields with times, or with names that are of one batch."""
TIMES = re.compile(r"s/\d, \S+ \S+|\d+(?:\.\d+)? (?:s|min|h)\b")
SIMULATED = """
[profiles.{key}]
agent = "simulated"
options = {{ solve_probability = {chance}, delay_sec = [0.0, 0.0], cost_per_mtok_usd = 50.0 }}
"""
LIMITED = """

from harbor.agents.installed.base import ApiRateLimitError


class Limited(Scripted):
    async def run(self, instruction, environment, context) -> None:
        if begun() == 1:
            while Path(__file__).with_name("begun").stat().st_size < 2:
                await asyncio.sleep(0.02)
            (self.logs_dir / "log.txt").write_text("429 Too Many Requests, retry-after: 600")
            raise ApiRateLimitError("429: slow down")
        while not Path(__file__).with_name("go").exists():
            await asyncio.sleep(0.02)
"""
"""An agent that the provider refuses the first time, of all runs of the project, once another has begun; later it waits for the file `go`."""


@pytest.fixture(scope="module")
def cluster(ray_cluster: Cluster, ray_node: str) -> Generator[Cluster]:
    """That of other modules, for the last time: two nodes, each with room for one trial of 3 CPUs at once."""
    yield ray_cluster
    ray_cluster.end()


def on(cluster: Cluster, more: str = "") -> str:
    ray = f'{{ address = "{cluster.address}", cpus_per_trial = 3.0, wave_trials = 3 }}'
    return f'executor = "ray"\nparallel = 1\nseed = 3\nray = {ray}\n{more}'


def start(lab: Any, cluster: Cluster, profiles: str, more: str = "") -> Any:
    """A run of two waves, which are on two nodes at once when agents of both have begun."""
    lab.env |= cluster.env
    for task in TASKS:
        write_task(lab.root / "tasks" / task)
    return lab.start("run", lab.experiment(profiles, tasks=TASKS, run=on(cluster, more)))


def jobs_on(cluster: Cluster) -> list[int]:
    """How many jobs each node has that is there."""
    nodes = filter(None, map(processes_of, cluster.marks))
    return [sum("NodeJob" in command_line(pid) for pid in node) for node in nodes]


def waiting(lab: Any, reason: str) -> set[str]:
    """The jobs that a trial waits in, for this reason."""
    return {event.job for event in lab.events() if event.kind == "trial_waiting" and event.error == reason}


def told(lab: Any, number: int) -> dict[str, Any]:
    """What the commands say of a batch, without times, and names that are drawn anew."""
    place = lab.batch(number).folder
    said = {
        name: lasting(json.loads(lab.tbench(*command, place).stdout))
        for name, command in {"compare": ("compare", "--json"), "export": ("export", "--format", "json")}.items()
    }
    assert lab.tbench("report", place).returncode == 0
    lines = (place / "analytics" / "comparison_report.md").read_text().splitlines()
    return said | {"report": [TIMES.sub("", line) for line in lines if not line.startswith("- run settings: ")]}


def lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: lasting(one) for key, one in value.items() if not DRAWN.fullmatch(key)}
    return [lasting(one) for one in value] if isinstance(value, list) else value


def ctl(lab: Any, *arguments: str) -> None:
    ran = lab.tbench("ctl", *arguments, "--in", lab.batch().folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
def test_a_pause_holds_both_nodes_and_together_they_keep_one_budget(lab: Any, cluster: Cluster) -> None:
    process = start(lab, cluster, scripted("p", free=1, cost_usd=1.0), f"budget_usd = {BUDGET_USD}")
    wait_for(lambda: at_work(lab) == 3, process)  # the first ran alone, and told what a trial costs
    assert jobs_on(cluster) == [1, 1]
    ctl(lab, "pause", "--reason", "quota")
    lab.go()
    wait_for(lambda: len(waiting(lab, "paused: quota")) == 2, process)
    assert at_work(lab) == 3
    ctl(lab, "resume", "--reason", "new day")
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 3, out + err
    assert f"the budget of ${BUDGET_USD:.2f} is used up" in out
    assert at_work(lab) > 3
    assert BUDGET_USD - 1.0 <= cost(lab.batch().folder) <= BUDGET_USD + 2 * 1.0, "at most a trial for each slot"
    wait_for(lambda: jobs_on(cluster) == [0, 0])


def test_one_429_holds_both_nodes_and_kill_ends_both(lab: Any, cluster: Cluster) -> None:
    lab.project.write("lab_agents.py", (lab.root / "lab_agents.py").read_text() + LIMITED)
    profile = '[profiles.p]\nmodel = "some/model"\nagent = "lab_agents:Limited"\n'
    process = start(lab, cluster, profile)
    wait_for(lambda: at_work(lab) == 2 and len(waiting(lab, "rate limit of some/model")) == 1, process)
    lab.go()
    wait_for(lambda: len(waiting(lab, "rate limit of some/model")) == 2, process)
    limited = [event for event in lab.events() if event.detail.get("error_class") == "rate_limit"]
    assert len({event.job for event in limited}) == 1, "the other node met no 429 itself"
    assert jobs_on(cluster) == [1, 1]
    killed = lab.tbench("kill", lab.batch().folder, "--yes")
    assert killed.returncode == 0, killed.stdout + killed.stderr
    assert not live_processes(lab.batch())
    assert sum(event.kind == "job_ended" for event in lab.events()) == 2, "kill returns when both have ended"
    process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 130


def test_a_night_runs_on_the_cluster(lab: Any, cluster: Cluster) -> None:
    lab.env |= cluster.env
    suite = lab.experiment(SIMULATED.format(key="p", chance=1.0), run="parallel = 1\nseed = 3")
    where = ("--executor", "ray", "--ray-address", cluster.address)
    ran = lab.tbench("overnight", "--suite", suite, "--output", lab.root / "night", "--iterations", "1", *where)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (plan,) = (lab.root / "night").rglob("plan.json")
    settings = json.loads(plan.read_text())["settings"]
    assert (settings["executor"], settings["ray"]["address"]) == ("ray", cluster.address)
    assert measured(plan.parent) == Counter({("p", "a"): 1, ("p", "b"): 1})


@pytest.mark.long
def test_the_same_experiment_here_and_on_the_cluster_gives_the_same_report(lab: Any, cluster: Cluster) -> None:
    lab.env |= cluster.env
    profiles = SIMULATED.format(key="strong", chance=0.8) + SIMULATED.format(key="weak", chance=0.3)
    for run in (on(cluster).replace("wave_trials = 3", "wave_trials = 2"), "parallel = 1\nseed = 3\n"):
        file = lab.experiment(profiles, run=f"{run}attempts = 2")
        assert lab.tbench("run", file).returncode == 0
    assert len(list(lab.batch(0).runs.glob("*.job.json"))) == 2 * len(list(lab.batch(1).runs.glob("*.job.json")))
    there, here = told(lab, 0), told(lab, 1)
    assert sum(trial["cost_usd"] for trial in here["export"]) > 0
    assert there == here


@pytest.mark.long
def test_a_head_that_is_started_anew_costs_no_trial(lab: Any, cluster: Cluster, ray_node: str) -> None:
    """The last test of the cluster. Its other node is cut off from the new head, and ends its job by itself."""
    process = start(lab, cluster, scripted("p", free=2, cost_usd=0.25))
    wait_for(lambda: at_work(lab) == 4, process)
    before, first = measured(lab.batch().folder), cluster.harbors()
    assert len(first) == 2
    (raylet,) = (pid for pid in processes_of(ray_node) if command_line(pid).partition(" ")[0].endswith("/raylet"))
    os.kill(raylet, signal.SIGSTOP)
    kill_node(cluster.marks[0])
    cluster.head(3)
    wait_for(lambda: not any(map(alive, first)), process)
    kill_node(ray_node)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    assert before <= measured(lab.batch().folder) == Counter({("p", task): 1 for task in TASKS})
    started = Counter(event.job for event in lab.events() if event.kind == "job_started")
    assert set(started.values()) == {1}, "no two waves have one name"
    assert sum(entry["cost_usd"] or 0.0 for entry in lab.index()) == pytest.approx(cost(lab.batch().folder))
    assert not live_processes(lab.batch())
