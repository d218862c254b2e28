"""Batches on a Ray cluster: real nodes on this machine, and a head that is lost."""

import os
import signal
from collections import Counter

import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

from support.aftermath import command_line, cost, measured
from support.ray_nodes import Cluster, free_port, kill_node, processes_of
from support.tasks import write_task
from terminalbench.live.processes import live_processes

pytestmark = pytest.mark.alone("ray")  # one cluster
TASKS = tuple(f"t{number}" for number in range(6))


def on(cluster_address: str, **table: object) -> str:
    more = "".join(f", {name} = {value}" for name, value in table.items())
    return f'executor = "ray"\nparallel = 2\nseed = 3\nray = {{ address = "{cluster_address}"{more} }}\n'


@pytest.mark.long
def test_a_killed_runner_costs_no_trial(lab, ray_cluster: Cluster, ray_node: str) -> None:
    """A node that is lost is in test_ray_apart.py."""
    lab.env |= ray_cluster.env
    for task in TASKS[:3]:
        write_task(lab.root / "tasks" / task)
    run = on(ray_cluster.address, wave_trials=3, cpus_per_trial=1.0)
    file = lab.experiment(scripted("p", free=1, cost_usd=0.25), tasks=TASKS[:3], run=run)
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 3 and measured(lab.batch().folder).total() == 1, process)
    (harbor,) = ray_cluster.harbors()
    process.kill()
    process.communicate()
    wait_for(lambda: not alive(harbor) and not live_processes(lab.batch()) and not ray_cluster.harbors())
    before = measured(lab.batch().folder)
    lab.go()
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert before <= measured(lab.batch().folder) == Counter({("p", task): 1 for task in TASKS[:3]})
    started = Counter(event.job for event in lab.events() if event.kind == "job_started")
    assert set(started.values()) == {1}, "no two waves have one name"
    assert sum(entry["cost_usd"] or 0.0 for entry in lab.index()) == pytest.approx(cost(lab.batch().folder))


def test_a_dead_address_is_one_error_and_no_batch_is_made(lab) -> None:
    ran = lab.process("run", lab.experiment(scripted("p"), run=on(f"127.0.0.1:{free_port()}")))
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "no Ray cluster can be joined at 127.0.0.1:" in ran.stderr
    assert not lab.batch().folder.exists()


def test_a_profile_that_fits_no_node_is_one_error_and_no_batch_is_made(lab, ray_cluster: Cluster) -> None:
    lab.env |= ray_cluster.env
    ran = lab.tbench("run", lab.experiment(scripted("p") + "parallel = 90\n", run=on(ray_cluster.address)))
    assert ran.returncode == 2
    assert "90 trials at once need 45 CPUs, but no node has more than " in ran.stderr
    assert not lab.batch().folder.exists()


@pytest.mark.long
def test_a_head_that_is_started_anew_costs_no_trial(lab, ray_cluster: Cluster, ray_node: str) -> None:
    """The last test of the cluster. Its other node is cut off from the new head, and ends its job by itself."""
    lab.env |= ray_cluster.env
    for task in TASKS:
        write_task(lab.root / "tasks" / task)
    run = on(ray_cluster.address, wave_trials=3, cpus_per_trial=3.0).replace("parallel = 2", "parallel = 1")
    process = lab.start("run", lab.experiment(scripted("p", free=2, cost_usd=0.25), tasks=TASKS, run=run))
    wait_for(lambda: at_work(lab) == 4, process)
    before, first = measured(lab.batch().folder), ray_cluster.harbors()
    assert len(first) == 2
    (raylet,) = (pid for pid in processes_of(ray_node) if command_line(pid).partition(" ")[0].endswith("/raylet"))
    os.kill(raylet, signal.SIGSTOP)
    kill_node(ray_cluster.marks[0])
    ray_cluster.head(3)
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
