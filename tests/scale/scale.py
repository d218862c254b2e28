"""A large batch on a Ray cluster that loses a node and its head, and what thousands of trials cost the orchestrator.

    .venv/bin/python tests/scale/scale.py [--nodes 4] [--trials 200] [--simulated-nodes 1000]

Prints what was found; exit code 1 when a trial is missing or there twice, or when costs do not add up.
"""

import argparse
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


from support.aftermath import measured, results
from support.ray_nodes import Cluster, kill_node
from support.tasks import write_task
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.accounts import Account, Likely
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
options = {{ solve_probability = 0.5, delay_sec = [0.2, 0.2] }}
"""


def lossy_cluster(root: Path, nodes: int, trials: int) -> bool:
    """A batch whose cluster loses a node, then its head; whether all is there once, and every cost is counted."""
    names = [f"t{number:02}" for number in range(TASKS)]
    for name in names:
        write_task(root / "tasks" / name)
    attempts = max(1, trials // TASKS)
    with Cluster() as cluster:
        cluster.head()
        running = [cluster.node() for _ in range(nodes)]
        items = ", ".join(f'{{ id = "{name}" }}' for name in names)
        text = EXPERIMENT.format(attempts=attempts, address=cluster.address, items=items, wave=2 * attempts)
        (root / "exp.toml").write_text(text)
        tbench = [str(Path(sys.executable).with_name("tbench")), "run", "exp.toml"]
        env = {**os.environ, **cluster.env, "XDG_STATE_HOME": str(root / "state")}
        process = subprocess.Popen(tbench, cwd=root, env=env, start_new_session=True)
        batch = Batch(root / "results" / "s" / "0")
        wanted = attempts * TASKS
        _wait(process, batch, wanted // 5)
        print("a node is lost", flush=True)
        kill_node(running.pop())
        _wait(process, batch, wanted // 2)
        print("the head is lost, with all nodes, and started again", flush=True)
        for mark in cluster.marks:
            kill_node(mark)
        cluster.head()
        for _ in range(nodes):
            cluster.node()
        code = process.wait()
    there = measured(batch.folder)
    once = there == Counter({("p", name): attempts for name in names})
    total = sum((result.get("agent_result") or {}).get("cost_usd") or 0.0 for _, result in results(batch.folder))
    ended = [event for event in read_jsonl(batch.events_jsonl, Event).records if event.kind == "trial_ended"]
    told = sum(event.usage.cost_usd or 0.0 for event in ended if event.usage is not None)
    print(f"exit code {code}; {sum(there.values())} of {wanted} trials, each once: {once}")
    print(f"cost of all results ${total:.4f}, as the events tell it ${told:.4f}")
    return code == 0 and once and abs(total - told) < 1e-6


def _wait(process: subprocess.Popen[bytes], batch: Batch, trials: int) -> None:
    while process.poll() is None and sum(measured(batch.folder).values()) < trials:
        time.sleep(0.5)


def orchestrator(root: Path, nodes: int, trials: int) -> None:
    """What so many trials cost the process that runs the batch: gate, events and live state, without any Harbor."""
    gate = Gate(root / "gate.json")
    sample, held = 500, min(nodes * 4, 4000)
    account = Account(to_start=nodes * trials, running={f"r{n}": 0.1 for n in range(held)}, likely=Likely(0.1))
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
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--simulated-nodes", type=int, default=1000)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="tbscale", dir="/tmp"))
    try:
        orchestrator(root, options.simulated_nodes, 100)
        whole = lossy_cluster(root, options.nodes, options.trials) if options.nodes else True
    finally:
        shutil.rmtree(root)
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
