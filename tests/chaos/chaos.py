"""Chaos: kill the runner, Harbor, a sandbox or all of them at random moments, again and again, and count what is lost.

    .venv/bin/python tests/chaos/chaos.py [--rounds 200] [--seed 1]        (make chaos)

A round runs a small experiment and is shot at while it is run and resumed, and while the index, the mirror and `tbench
kill` work on it. Then it is left alone to finish, and everything on disk is counted without the product's help.
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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.aftermath import (
    Orphanage,
    command_line,
    cost,
    descendants,
    finished,
    folders_of,
    measured,
    orphanage,
)
from support.tasks import AGENTS, write_task

TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]
COST = 0.125
EXPERIMENT = f"""
schema_version = 2
slug = "s"
[run]
container_env = "local"
attempts = 2
parallel = 2
retries = 1
[artifacts]
targets = ["sess"]
[tasks]
default_dataset = "tasks"
items = [{{ id = "a" }}, {{ id = "b" }}]
[profiles.p]
agent = "lab_agents:Ledgered"
options = {{ sleep_sec = 0.4, cost_usd = {COST}, files = {{ "sessions/sess/note.txt" = "said" }} }}
[profiles.q]
agent = "oracle"
"""
LEDGER = '''

class Ledgered(Scripted):
    """Notes every try in a book of its own, which nobody else writes."""

    async def run(self, instruction, environment, context) -> None:
        with open(os.path.join(os.path.dirname(__file__), "ledger.txt"), "a") as book:
            book.write(self.logs_dir.parent.name + "\\n")
        await super().run(instruction, environment, context)
'''
PROFILES, TASKS = ("p", "q"), ("a", "b")
SHOTS = 3
BESIDE = ("index", "mirror", "kill")
LIMIT_SEC = 240.0
GONE_SEC = 90.0
_WEIGHTS = {"harbor": 2, "sandbox": 3}
_GOOD_ENDS = {"index": (0, 3), "mirror": (0, 2, 3), "kill": (0,)}


@dataclass
class Tally:
    """What happened over some rounds. `kills` are by (what, when)."""

    rounds: int = 0
    trials: int = 0
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    unfinished: int = 0
    wrong_costs: int = 0
    left_behind: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        whens = ("run", "resume", *BESIDE)
        whats = sorted({what for what, _ in self.kills})
        rows = [["killed", *whens], *([what, *(str(self.kills[what, when]) for when in whens)] for what in whats)]
        table = ["".join(f"{cell:>10}" for cell in row) for row in rows]
        counts = [
            f"{self.rounds} rounds, {self.trials} finished trials, {self.kills.total()} kills",
            f"finished trials lost: {self.lost}",
            f"trials doubled: {self.doubled}",
            f"resumes that did not complete: {self.unfinished}",
            f"cost totals that are not the sum of all attempts: {self.wrong_costs}",
            f"processes left behind: {self.left_behind}",
            f"problems: {len(self.problems)}",
        ]
        return "\n".join([*table, *counts, *self.problems])


class Round:
    """One project, shot at."""

    def __init__(self, root: Path, seed: int, tally: Tally, home: Orphanage) -> None:
        self.root, self.seed, self.tally, self.home = root, seed, tally, home
        self.luck = random.Random(seed)
        self.attempts = 2
        self.safe: dict[str, str] = {}
        self.env = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
        (root / "pyproject.toml").touch()
        (root / "lab_agents.py").write_text(AGENTS + LEDGER)
        (root / "exp.toml").write_text(EXPERIMENT)
        for task in TASKS:
            write_task(root / "tasks" / task)

    @property
    def batch(self) -> Path | None:
        """The newest batch with a plan."""
        plans = sorted(self.root.glob("results/s/*/plan.json"), key=lambda file: int(file.parent.name))
        return plans[-1].parent if plans else None

    def problem(self, text: str) -> None:
        """Note what went wrong."""
        self.tally.problems.append(f"seed {self.seed}: {text}")

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command whose words go to the round's log."""
        with (self.root / "log.txt").open("ab") as log:
            log.write(f"== {arguments}\n".encode())
            log.flush()
            return subprocess.Popen([*TBENCH, *arguments], cwd=self.root, env=self.env, stdout=log, stderr=log)

    def shot(self) -> None:
        """Start something, perhaps a second command beside it, and kill a part of it without a warning."""
        when = self._going()
        runner = self.start(*when)
        name = "run" if when[0] == "run" else "resume"
        self._pause(runner, self.luck.uniform(0.8, 7.5))
        beside = None
        if self.batch is not None and self.luck.random() < 0.6:
            name = self.luck.choice(BESIDE)
            arguments = {"index": [], "mirror": ["exp.toml"], "kill": ["exp.toml", "--yes"]}[name]
            beside = self.start(name, *arguments)
            self._pause(beside, self.luck.uniform(0.1, 1.5))
        what = self._kill(runner, beside)
        if what is not None:
            self.tally.kills[what, name] += 1
        if beside is not None:
            self._ended_well(beside, name, shot=what in ("command", "all"))
        self._wait(runner)
        if self.luck.random() < 0.5:
            self._nothing_left()
        self.check_safe()

    def _ended_well(self, beside: subprocess.Popen[bytes], name: str, *, shot: bool) -> None:
        self._wait(beside)
        if beside.returncode not in _GOOD_ENDS[name] and not shot:
            self.problem(f"tbench {name} ended with {beside.returncode}: {self._last_words()}")

    def _going(self) -> list[str]:
        if self.batch is None:
            return ["run", "exp.toml"]
        counts = measured(self.batch)
        if all(counts[p, t] >= self.attempts for p in PROFILES for t in TASKS):
            self.attempts += 1
        return ["resume", "exp.toml", "--attempts", str(self.attempts)]

    def _pause(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def _kill(self, runner: subprocess.Popen[bytes], beside: subprocess.Popen[bytes] | None) -> str | None:
        """Choose among what there is to hit, and hit it; None when everything is over already."""
        if runner.poll() is not None and (beside is None or beside.poll() is not None):
            return None
        below = descendants(runner.pid) if runner.poll() is None else []
        harbors = [pid for pid in below if ".job.json" in command_line(pid)]
        sandboxes = [pid for harbor in harbors for pid in descendants(harbor)]
        there = {
            "runner": [runner.pid] if runner.poll() is None else [],
            "harbor": [self.luck.choice(harbors)] if harbors else [],
            "sandbox": [self.luck.choice(sandboxes)] if sandboxes else [],
            "command": [beside.pid] if beside is not None and beside.poll() is None else [],
        }
        there["all"] = [runner.pid, *below, *there["command"]] if there["runner"] else []
        what = self.luck.choice([name for name, pids in there.items() if pids for _ in range(_WEIGHTS.get(name, 1))])
        for pid in there[what]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return what

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(LIMIT_SEC)
        except subprocess.TimeoutExpired:
            self.problem(f"did not end in {LIMIT_SEC:.0f} s: {process.args}")
            self.tally.unfinished += 1
            process.kill()
            process.wait()

    def _last_words(self) -> str:
        return (self.root / "log.txt").read_text(errors="replace")[-400:]

    def _nothing_left(self) -> None:
        left = self.home.wait_empty(set(), GONE_SEC)
        self.tally.left_behind += len(left)
        for name in left:
            self.problem(f"left behind: {name}")

    def check_safe(self) -> None:
        """What was finished before must still be there, unchanged."""
        now = finished(self.batch) if self.batch is not None else {}
        lost = self.safe.items() - now.items()
        if lost:
            self.tally.lost += len(lost)
            self.problem(f"finished trials are gone or changed: {sorted(i for i, _ in lost)}")
        self.safe = now

    def finish(self) -> None:
        """Let it finish, and count."""
        going = ["run", "exp.toml"]
        if self.batch is not None:
            going = ["resume", "exp.toml", "--attempts", str(self.attempts), "--retry-errors"]
        ran = subprocess.run(
            [*TBENCH, *going, "--json"], cwd=self.root, env=self.env, capture_output=True, text=True, timeout=LIMIT_SEC
        )
        self._nothing_left()
        self.check_safe()
        batch = self.batch
        if ran.returncode != 0 or batch is None:
            self.tally.unfinished += 1
            self.problem(f"the last {going[0]} ended with {ran.returncode}: {ran.stderr[-600:]}{ran.stdout[-600:]}")
            return
        self.tally.trials += len(self.safe)
        self._check_cells(batch, json.loads(ran.stdout)["cells"])
        self._check_costs(batch)
        self._check_evidence(batch)

    def _check_cells(self, batch: Path, cells: list[dict]) -> None:
        wanted = {(p, t): self.attempts for p in PROFILES for t in TASKS}
        counted = Counter((c["profile"], c["task"]["id"]) for c in cells if c["outcome"] in ("passed", "failed"))
        if counted != wanted:
            self.tally.unfinished += 1
            self.problem(f"cells are {dict(counted)}")
        extra = measured(batch) - Counter(wanted)
        twice = len(cells) - len({c["trial"] for c in cells})
        if extra or twice:
            self.tally.doubled += extra.total() + twice
            self.problem(f"measured more often than planned: {dict(extra)}; trials that count twice: {twice}")

    def _check_costs(self, batch: Path) -> None:
        """Every total that the product shows is the sum over all attempts on disk."""
        listed = sum(e["cost_usd"] or 0 for e in json.loads((batch / "runs" / "index.json").read_text())["runs"])
        ran = subprocess.run(
            [*TBENCH, "list", "--json"], cwd=self.root, env=self.env, capture_output=True, text=True, timeout=LIMIT_SEC
        )
        name = batch.relative_to(self.root / "results").as_posix()
        shown = next(b["cost_usd"] for b in json.loads(ran.stdout) if b["batch"] == name)
        on_disk = cost(batch)
        if max(abs(listed - on_disk), abs(shown - on_disk)) > 1e-9:
            self.tally.wrong_costs += 1
            self.problem(f"costs are {listed} in index.json, {shown} in the list, {on_disk} on disk")

    def _check_evidence(self, batch: Path) -> None:
        """Every try that the agent noted has left its folder, and every measured trial its session files."""
        tries = Counter((self.root / "ledger.txt").read_text().split())
        started = {name for name in tries if any(batch.glob(f"*/*/{name}*"))}
        gone = {name: count for name, count in tries.items() if name in started and folders_of(batch, name) < count}
        others = [b for b in self.root.glob("results/s/*") if b != batch]
        missing = [n for n in tries if n not in started and not any(folders_of(b, n) for b in others)]
        if gone or missing:
            self.tally.lost += len(gone) + len(missing)
            self.problem(f"tries without a folder: {gone} {missing}")
        for note in batch.glob("runs/*/*/agent/sessions/sess/note.txt"):
            trial = note.parents[3].name
            copy = batch / "artifacts" / "sess" / trial / "note.txt"
            if not copy.is_file() or copy.read_text() != "said":
                self.problem(f"session files of {trial} were not mirrored")
        litter = [str(folder) for folder in batch.glob("artifacts/**/.mirror-*")]
        if litter:
            self.problem(f"half a copy was left: {litter}")


def play(root: Path, seed: int, tally: Tally, shots: int = SHOTS) -> None:
    """One round in an empty folder."""
    with orphanage() as home:
        this = Round(root, seed, tally, home)
        for _ in range(shots):
            this.shot()
        this.finish()
    tally.rounds += 1


def main() -> int:
    """Play rounds and print the tally, also after Ctrl-C; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tally = Tally()
    with suppress(KeyboardInterrupt):
        for seed in range(options.seed, options.seed + options.rounds):
            _play_and_tell(seed, tally)
    print(tally)
    return 1 if tally.problems else 0


def _play_and_tell(seed: int, tally: Tally) -> None:
    before = len(tally.problems)
    with tempfile.TemporaryDirectory(prefix="tbench-chaos-", ignore_cleanup_errors=True) as folder:
        play(Path(folder), seed, tally)
    print(f"round {tally.rounds}: {tally.kills.total()} kills, {len(tally.problems)} problems", file=sys.stderr)
    for text in tally.problems[before:]:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
