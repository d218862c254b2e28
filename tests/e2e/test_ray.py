"""Batches on a Ray cluster: real nodes on this machine, of which one is lost midway."""

from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from test_run import LIMIT_SEC, scripted, wait_for

from support.aftermath import measured
from support.ray_nodes import Cluster, free_port, kill_node, processes_of
from support.tasks import write_task
from terminalbench.live.processes import live_processes

TASKS = tuple(f"t{number}" for number in range(6))


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    with Cluster() as found:
        found.head()
        yield found


def on(cluster_address: str, **table: object) -> str:
    more = "".join(f", {name} = {value}" for name, value in table.items())
    return f'executor = "ray"\nparallel = 2\nseed = 3\nray = {{ address = "{cluster_address}"{more} }}\n'


def ended(lab) -> int:
    return sum(event.kind == "trial_ended" for event in lab.events()) if lab.batch().events_jsonl.exists() else 0


@pytest.mark.long
def test_a_node_is_lost_midway_and_every_trial_is_there_once(lab, cluster) -> None:
    lab.env |= cluster.env
    for task in TASKS:
        write_task(lab.root / "tasks" / task)
    lost = cluster.node()
    file = lab.experiment(scripted("p", free=2, cost_usd=0.25), tasks=TASKS, run=on(cluster.address, wave_trials=3))
    process = lab.start("run", file, fresh=True)
    begun = lab.root / "begun"
    wait_for(lambda: process.poll() is not None or (begun.exists() and begun.stat().st_size >= 4))
    assert process.poll() is None, process.communicate()
    before = measured(lab.batch().folder)
    children = [pid for pid in processes_of(lost) if "harbor" in _line(pid)]
    assert children, "a wave runs on the node that is lost"
    kill_node(lost)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
    assert measured(lab.batch().folder) == Counter({("p", task): 1 for task in TASKS})
    assert before <= measured(lab.batch().folder)
    assert any(event.kind == "job_died" and "node" in (event.error or "") for event in lab.events())
    assert not live_processes(lab.batch())


@pytest.mark.long
def test_nothing_runs_on_a_node_when_the_run_was_killed(lab, cluster) -> None:
    lab.env |= cluster.env
    file = lab.experiment(scripted("p", free=0), run=on(cluster.address))
    process = lab.start("run", file, fresh=True)
    wait_for(lambda: process.poll() is not None or (lab.root / "begun").exists())
    assert process.poll() is None, process.communicate()
    assert _harbors(cluster), "Harbor runs on the node"
    process.kill()
    process.communicate()
    wait_for(lambda: not _harbors(cluster) and not live_processes(lab.batch()))


def test_a_dead_address_is_one_error_and_no_batch_is_made(lab) -> None:
    ran = lab.process("run", lab.experiment(scripted("p"), run=on(f"127.0.0.1:{free_port()}")))
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "no Ray cluster can be joined at 127.0.0.1:" in ran.stderr
    assert not lab.batch().folder.exists()


def _harbors(cluster: Cluster) -> list[int]:
    return [pid for mark in cluster.marks for pid in processes_of(mark) if "harbor run" in _line(pid)]


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
