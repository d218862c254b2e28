"""A large batch on a Ray cluster that loses a node and its head, and what thousands of trials cost the orchestrator.

    .venv/bin/python tests/scale/scale.py [--nodes 3] [--trials 200] [--simulated-nodes 1000]

Says how far it is, and what was found; exit code 1 when a trial is missing or there twice, or costs do not add up.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


from support.aftermath import cost, measured, results
from support.ray_nodes import Cluster, kill_node
from support.tasks import write_task
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.accounts import Account, LikelyCost
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, read_jsonl
from terminalbench.live.state import replay
from terminalbench.records.event import Event

TASKS = 20
INDEXED = 2000
EXPERIMENT = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
executor = "ray"
attempts = {attempts}
parallel = 2
seed = 1
[run.ray]
address = "{address}"
wave_trials = {wave}
[tasks]
default_dataset = "tasks"
items = [{items}]
[profiles.p]
agent = "simulated"
options = {{ solve_probability = 0.5, delay_sec = [0.2, 0.2], cost_per_mtok_usd = 50.0 }}
"""
_STARTED = time.monotonic()
_TELL_SEC = 15.0


def lossy_cluster(root: Path, nodes: int, trials: int) -> bool:
    """A batch whose cluster loses a node, then its head; whether all is there once, and every cost is counted."""
    names = [f"t{number:02}" for number in range(TASKS)]
    for name in names:
        write_task(root / "tasks" / name)
    attempts = max(1, trials // TASKS)
    wanted = attempts * TASKS
    with Cluster() as cluster:
        head = cluster.head()
        lost = [cluster.node() for _ in range(nodes - 1)][-1]
        say(f"a cluster of {nodes} nodes runs")
        items = ", ".join(f'{{ id = "{name}" }}' for name in names)
        text = EXPERIMENT.format(attempts=attempts, address=cluster.address, items=items, wave=2 * attempts)
        (root / "exp.toml").write_text(text)
        tbench = [str(Path(sys.executable).with_name("tbench")), "run", "exp.toml"]
        env = {**os.environ, **cluster.env, "XDG_STATE_HOME": str(root / "state")}
        with (root / "said.txt").open("wb") as said:
            process = subprocess.Popen(
                tbench, cwd=root, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
            )
        batch = Batch(root / "results" / "s" / "0")
        _wait(process, batch, wanted // 5, wanted)
        say("a node is lost")
        kill_node(lost)
        _wait(process, batch, wanted // 2, wanted)
        say("the head is lost, and started anew with as many nodes; the old ones have to find out")
        kill_node(head)
        cluster.head()
        for _ in range(nodes - 1):
            cluster.node()
        _wait(process, batch, wanted + 1, wanted)
        code = process.wait()
    there = measured(batch.folder)
    once = there == Counter({("p", name): attempts for name in names})
    told = sum(run["cost_usd"] or 0.0 for run in json.loads(batch.index_json.read_text())["runs"])
    tries, total = len(results(batch.folder)), cost(batch.folder)
    died = sum(event.kind == "job_died" for event in read_jsonl(batch.events_jsonl, Event).records)
    say(f"exit code {code}; {sum(there.values())} of {wanted} trials, each once: {'yes' if once else 'NO'}")
    say(f"{died} waves were lost; {tries} tries cost ${total:.4f}, the index says ${told:.4f}")
    if code != 0 or not once:
        print((root / "said.txt").read_text())
    return code == 0 and once and total > 0 and abs(total - told) < 1e-6


def _wait(process: subprocess.Popen[bytes], batch: Batch, trials: int, wanted: int) -> None:
    """Wait until so many trials are measured, or the run is over; say now and then how many there are."""
    told = 0.0
    while process.poll() is None and (there := sum(measured(batch.folder).values())) < trials:
        if time.monotonic() - told >= _TELL_SEC:
            say(f"  {there} of {wanted} trials")
            told = time.monotonic()
        time.sleep(0.5)


def say(text: str) -> None:
    """Print it, with the seconds since the start."""
    print(f"{time.monotonic() - _STARTED:6.0f} s  {text}", flush=True)


def orchestrator(root: Path, nodes: int, trials: int) -> None:
    """What so many trials cost the process that runs the batch: gate, events and live state, without any Harbor."""
    gate = Gate(root / "gate.json")
    sample, held = 500, min(nodes * 4, 4000)
    account = Account(to_start=nodes * trials, running={f"r{n}": 0.1 for n in range(held)}, likely=LikelyCost(0.1))
    gate.create(GateState(budget_usd=1e6, accounts={"p": account}))
    began = time.process_time()
    for number in range(sample):
        gate.enter(f"t{number}", "p")
        gate.leave(f"t{number}", "p", 0.1)
    per_gate = (time.process_time() - began) / sample
    file = root / "events.jsonl"
    began = time.process_time()
    for number in range(sample):
        for kind in ("trial_started", "trial_ended"):
            append_jsonl(file, Event.now(kind, f"j{number % nodes}", profile="p", trial=f"t{number}", task="t"))
    per_write = (time.process_time() - began) / sample
    lines = file.read_bytes()
    copies = nodes * trials // sample
    with file.open("ab") as more:
        for _ in range(copies - 1):
            more.write(lines)
    began = time.process_time()
    records = read_jsonl(file, Event).records
    replay(None, records)
    per_read = (time.process_time() - began) / (copies * sample)
    indexed = import_module("batches").make_batch(root / "indexed", INDEXED, 20)
    began = time.process_time()
    scan_batch(indexed)
    per_scan = (time.process_time() - began) / INDEXED
    print(f"{nodes} nodes x {trials} trials, {held} trials at once, CPU of a trial:")
    costs = {"gate": per_gate, "events written": per_write, "events read and folded": per_read, "indexed": per_scan}
    for name, seconds in costs.items():
        print(f"  {name:<24} {seconds * 1e3:8.3f} ms   {seconds * nodes * trials:8.1f} s in all")


def main() -> int:
    """Do both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--simulated-nodes", type=int, default=1000)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbscale", dir="/tmp"))
    try:
        orchestrator(root, options.simulated_nodes, 100)
        whole = lossy_cluster(root, options.nodes, options.trials) if options.nodes else True
    finally:
        shutil.rmtree(root, ignore_errors=True)
    say("all of it holds" if whole else "it does NOT hold")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
