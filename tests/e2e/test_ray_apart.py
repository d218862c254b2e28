"""Batches on nodes that see neither the project nor the results: real Ray nodes, each on a machine of its own.

Such a machine is a mount namespace, and a network namespace with its own address and loopback where these can be made.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from test_ray import on
from test_run import LIMIT_SEC, scripted, wait_for

from support.aftermath import measured
from support.ray_nodes import Cluster, kill_node, processes_of
from support.tasks import write_task
from support.tools import need_root
from terminalbench.live.processes import live_processes

pytestmark = pytest.mark.alone("ray")  # one cluster
TASKS = tuple(f"t{number}" for number in range(6))
SIMULATED = '[profiles.s]\nagent = "simulated"\noptions = { solve_probability = 0.5, delay_sec = [0.0, 0.0] }\n'


CPUS = 8
"""Of the nodes here; the others of the cluster have no room for two trials of half as many each."""


@pytest.fixture(scope="module")
def cluster(ray_cluster: Cluster) -> Generator[Cluster]:
    """With nodes where neither the projects nor the results of tests are seen, once they are started."""
    need_root("a node that sees other files is in a mount namespace, and of an ordinary user no sandbox starts there")
    others = len(ray_cluster.marks)
    yield ray_cluster
    for mark in ray_cluster.marks[others:]:
        kill_node(mark)


@pytest.fixture(scope="module")
def apart(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Such a node, for both tests."""
    return cluster.node(CPUS, hides=tmp_path_factory.getbasetemp())


def places(cluster: Cluster) -> list[Path]:
    """Where jobs work on such nodes."""
    return list(cluster.temporary.glob("tbench-*/*/job-*"))


def let_go(cluster: Cluster) -> None:
    """As `lab.go`, there."""
    for place in places(cluster):
        with contextlib.suppress(FileNotFoundError):  # it is being made, or removed
            (place / "project" / "go").touch()


def at_work(lab) -> list[Path]:
    """The logs of agents that have begun, as they are seen here."""
    return list(lab.batch().runs.glob("*/*/agent/log.txt"))


def rows(lab, number: int = 0) -> set[tuple[object, ...]]:
    """What is known of the simulated trials of a batch, but for times."""
    names = ("task_id", "attempt", "dataset", "profile_id", "outcome", "cost_usd", "accuracy")
    return {tuple(row[name] for name in names) for row in lab.index(number) if row["agent_key"] == "s"}


def told(lab, kind: str) -> list[str]:
    events = lab.events() if lab.batch().events_jsonl.exists() else []
    return [event.trial or "" for event in events if event.kind == kind]


def cut_off(cluster: Cluster, node: str, process, is_lost: Callable[[], bool]) -> None:
    """Pull the cable of its machine until it is given up and its jobs have ended, and put it back. Without one: kill it."""
    if cluster.network is None:
        kill_node(node)
        return
    cluster.network.cable("cut off", "down")
    wait_for(is_lost, process)
    wait_for(lambda: not cluster.harbors() & processes_of(node), process)
    cluster.network.cable("cut off", "up")


@pytest.mark.long
def test_a_node_without_the_disk_is_cut_off_midway_and_back_and_every_trial_is_there_once(
    lab, cluster, tmp_path_factory, request
) -> None:
    lab.env |= cluster.env
    for task in TASKS:
        write_task(lab.root / "tasks" / task)
    lost = cluster.node(CPUS, hides=tmp_path_factory.getbasetemp(), own=True, machine="cut off")
    profiles = scripted("p", free=2, cost_usd=0.25, files={"log.txt": "hello"}) + SIMULATED
    file = lab.experiment(profiles, tasks=TASKS, run=on(cluster.address, cpus_per_trial=CPUS / 2))
    process = lab.start("run", file)
    wait_for(lambda: len(told(lab, "trial_ended")) == 2 and len(at_work(lab)) == 4, process)
    request.getfixturevalue("apart")
    wait_for(lambda: len(told(lab, "trial_ended")) == 2 + len(TASKS), process)  # the simulated ones, on that node
    before = measured(lab.batch().folder)
    assert before.total() == 2 + len(TASKS), "a trial is there when its end is told"
    assert {file.read_text() for file in at_work(lab)} == {"hello"}, "of those that run, too"
    cut_off(cluster, lost, process, lambda: bool(told(lab, "job_died")))
    wait_for(lambda: let_go(cluster) or process.poll() is not None)
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    folder = lab.batch().folder
    assert measured(folder) == Counter({(profile, task): 1 for profile in ("p", "s") for task in TASKS})
    assert before <= measured(folder)
    assert any(event.kind == "job_died" and "node" in event.error for event in lab.events())
    assert any("its node was lost" in log.read_text() for log in lab.batch().runs.glob("*.log"))
    assert not [name for name in ("arriving", ".place") if (folder / name).exists()]
    assert places(cluster) == []
    local = lab.experiment(SIMULATED, tasks=TASKS, run="seed = 3", name="local.toml")
    assert lab.tbench("run", local).returncode == 0
    assert rows(lab) == rows(lab, 1), "the same experiment gives the same results here"
    assert len(rows(lab)) == len(TASKS)


@pytest.mark.long
def test_kill_acts_on_a_node_without_the_disk(lab, cluster, apart) -> None:
    """Pause and budget cross the same way: tests/runner/test_ray_home.py."""
    lab.env |= cluster.env
    write_task(lab.root / "tasks" / TASKS[0])
    profile = scripted("p", free=0, files={"log.txt": "hello"})
    process = lab.start(
        "run", lab.experiment(profile, tasks=TASKS[:1], run=on(cluster.address, cpus_per_trial=CPUS / 2))
    )
    wait_for(lambda: len(at_work(lab)) == 1, process)
    assert {Path(f"/proc/{pid}/root{lab.root}").exists() for pid in cluster.harbors()} == {False}, "it sees no project"
    if cluster.network is not None:
        networks = {Path(f"/proc/{pid}/ns/net").readlink() for pid in cluster.harbors()}
        assert Path("/proc/self/ns/net").readlink() not in networks, "nor the loopback of this machine"
    assert lab.tbench("kill", lab.batch().folder, "--yes").returncode == 0
    process.communicate(timeout=LIMIT_SEC)
    assert not live_processes(lab.batch())
    assert not cluster.harbors()
    assert len(told(lab, "trial_cancelled")) == 1
    assert places(cluster) == []
