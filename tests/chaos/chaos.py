"""Chaos: kill the runner, Harbor, a sandbox or all of them at random moments, again and again, and count what is lost.

    .venv/bin/python tests/chaos/chaos.py [--rounds 200] [--seed 1]        (make chaos)

A round runs a small experiment, is shot at while it runs and while it is resumed, and is then left alone to finish.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.tasks import AGENTS, write_task

TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]
ATTEMPTS, COST = 3, 0.125
EXPERIMENT = f"""
schema_version = 2
slug = "s"
[run]
container_env = "local"
attempts = {ATTEMPTS}
parallel = 2
retries = 1
[tasks]
default_dataset = "tasks"
items = [{{ id = "a" }}, {{ id = "b" }}]
[profiles.p]
agent = "lab_agents:Scripted"
options = {{ sleep_sec = 0.4, cost_usd = {COST} }}
[profiles.q]
agent = "oracle"
"""
TARGETS = ("runner", "harbor", "sandbox", "all")
SHOTS = 3
LIMIT_SEC = 240


@dataclass
class Tally:
    """What happened over some rounds."""

    rounds: int = 0
    shots: Counter[str] = field(default_factory=Counter)
    trials: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shots = ", ".join(f"{count} {name}" for name, count in sorted(self.shots.items()))
        lines = [
            f"{self.rounds} rounds, {self.trials} trials, shots: {shots or 'none'}",
            f"{len(self.problems)} problems",
        ]
        return "\n".join([*lines, *self.problems])


def finished(root: Path) -> set[str]:
    """The finished trials, by path: those with a readable result that was not cancelled."""
    found = set()
    for file in root.glob("results/s/0/runs/*/*/result.json"):
        try:
            result = json.loads(file.read_text())
        except ValueError:
            continue
        kind = (result.get("exception_info") or {}).get("exception_type")
        if result.get("finished_at") and kind != "CancelledError" and (kind or result.get("verifier_result")):
            found.add(str(file))
    return found


def children(pid: int) -> list[int]:
    """Every descendant of a process."""
    try:
        direct = [
            int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return direct + [below for child in direct for below in children(child)]


def shoot(process: subprocess.Popen[bytes], target: str, luck: random.Random) -> None:
    """Kill the target without a warning."""
    below = children(process.pid)
    victims = {
        "runner": [process.pid],
        "harbor": below[:1],
        "sandbox": [luck.choice(below[1:])] if len(below) > 1 else below[:1],
        "all": [process.pid, *below],
    }[target]
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def play(root: Path, seed: int, tally: Tally) -> None:
    """One round in an empty folder."""
    luck = random.Random(seed)
    (root / "pyproject.toml").touch()
    (root / "lab_agents.py").write_text(AGENTS)
    (root / "exp.toml").write_text(EXPERIMENT)
    for task in ("a", "b"):
        write_task(root / "tasks" / task)
    env = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    safe: set[str] = set()
    for shot in range(SHOTS):
        started = (root / "results" / "s" / "0" / "plan.json").exists()
        command = luck.choice(["resume", "resume", "index"]) if started else "run"
        arguments = [command, "exp.toml"] if command != "index" else [command]
        with (root / "log.txt").open("ab") as log:
            process = subprocess.Popen([*TBENCH, *arguments], cwd=root, env=env, stdout=log, stderr=log)
        pause = luck.uniform(0.05, 1.0) if command == "index" else luck.uniform(1.5, 6.0)
        deadline = time.monotonic() + pause
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        target = luck.choice(TARGETS)
        if process.poll() is None:
            shoot(process, target, luck)
            tally.shots[target] += 1
        process.wait(LIMIT_SEC)
        time.sleep(0.5)
        now = finished(root)
        if not safe <= now:
            tally.problems.append(f"seed {seed}, shot {shot}: {len(safe - now)} finished trials lost")
        safe = now
    _finish(root, env, seed, safe, tally)
    tally.rounds += 1


def _finish(root: Path, env: dict[str, str], seed: int, safe: set[str], tally: Tally) -> None:
    """Let it finish, and check that nothing was lost, doubled or forgotten."""
    started = (root / "results" / "s" / "0" / "plan.json").exists()
    command = [*TBENCH, *(["resume", "exp.toml"] if started else ["run", "exp.toml"]), "--json"]
    ran = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT_SEC)
    if ran.returncode != 0:
        tally.problems.append(
            f"seed {seed}: the last resume ended with {ran.returncode}: {ran.stderr[-300:]}{ran.stdout[-300:]}"
        )
        return
    now = finished(root)
    if not safe <= now:
        tally.problems.append(f"seed {seed}: {len(safe - now)} finished trials lost in the end")
    cells = Counter(
        (c["profile"], c["task"]["id"]) for c in json.loads(ran.stdout)["cells"] if c["outcome"] in ("passed", "failed")
    )
    wanted = {(p, t): ATTEMPTS for p in ("p", "q") for t in ("a", "b")}
    if cells != wanted:
        tally.problems.append(f"seed {seed}: cells are {dict(cells)}")
    trials = {c["trial"] for c in json.loads(ran.stdout)["cells"]}
    if len(trials) != sum(wanted.values()):
        tally.problems.append(f"seed {seed}: a trial counts twice")
    tally.trials += len(now)
    _check_costs(root, seed, tally)


def _check_costs(root: Path, seed: int, tally: Tally) -> None:
    """The index knows every attempt on disk, and its costs add up to theirs."""
    entries = json.loads((root / "results/s/0/runs/index.json").read_text())["runs"]
    listed = sum(entry["cost_usd"] or 0 for entry in entries)
    on_disk = 0.0
    for file in [*root.glob("results/s/0/runs/*/*/result.json"), *root.glob("results/s/0/superseded/*/*/result.json")]:
        try:
            on_disk += (json.loads(file.read_text()).get("agent_result") or {}).get("cost_usd") or 0
        except ValueError:
            continue
    if abs(listed - on_disk) > 1e-9:
        tally.problems.append(f"seed {seed}: costs are {listed} in the index and {on_disk} on disk")


def main() -> int:
    """Play rounds and print the tally; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tally = Tally()
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory(prefix="tbench-chaos-") as folder:
            play(Path(folder), seed, tally)
        print(f"round {tally.rounds}: {len(tally.problems)} problems", file=sys.stderr)
    print(tally)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
