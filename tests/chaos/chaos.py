"""Chaos: do to a run what can happen to it, at random moments, again and again, and count what is lost.

    .venv/bin/python tests/chaos/chaos.py [--rounds 200] [--seed 1] [--fresh]        (make chaos)

A round runs a small experiment. Its agent may swallow every cancellation, block Harbor's event loop or move the clock;
its streams may be closed; the runner, Harbor, a process of a sandbox or all of them are killed, stopped, interrupted,
while it is run and resumed and while the index, the mirror and `tbench kill` work on it. Then it is left alone to
finish, and everything on disk is counted without the product's help. `tbench` and Harbor are forked from processes that have
loaded them (see `support.warm`), but for every fourth round and with `--fresh`.
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
from typing import Any

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
from support.tasks import AGENTS, CLOCK, write_task
from support.warm import Forked, fork_tbench, load, session

TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]
COST = 0.125
EXPERIMENT = f"""
schema_version = 2
slug = "s"
[run]
container_env = "local"
parallel = 2
retries = 1
grace_sec = 8.0
[artifacts]
targets = ["sess"]
[tasks]
default_dataset = "tasks"
items = [{{ id = "a" }}, {{ id = "b" }}]
[profiles.p]
agent = "lab_agents:Ledgered"
options = {{ sleep_sec = 0.4, cost_usd = {COST}, files = {{ "sessions/sess/note.txt" = "said" }} }}
"""
LEDGER = '''

class Ledgered(Scripted):
    """Notes every try in a book of its own, which nobody else writes. Does the evil that a file tells, once."""

    async def run(self, instruction, environment, context) -> None:
        here = Path(__file__).parent
        with open(here / "ledger.txt", "a") as book:
            book.write(self.logs_dir.parent.name + "\\n")
        for evil in ("swallow", "block", "ahead", "back"):
            try:
                os.rename(here / evil, here / f"{evil}.{self.logs_dir.parent.name}")
            except OSError:
                continue
            context.cost_usd = self.options.cost_usd
            await getattr(self, evil)()
        await super().run(instruction, environment, context)

    async def swallow(self) -> None:
        while True:
            try:
                await asyncio.sleep(1000)
            except BaseException:
                continue

    async def block(self) -> None:
        time.sleep(100_000)

    async def ahead(self) -> None:
        move_clock(7200.0)

    async def back(self) -> None:
        move_clock(-7200.0)
'''
type Process = subprocess.Popen[bytes] | Forked
PROFILES, TASKS = ("p",), ("a", "b")
SHOTS = 1
EVILS = ("swallow", "block", "ahead", "back")
BESIDE = ("index", "mirror", "kill", "requeue")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
LIMIT_SEC = 600.0
GONE_SEC = 60.0
_WEIGHTS = {"harbor": 2, "sandbox": 3, "harbor stopped": 3}
_GOOD_ENDS = {"index": (0, 3), "mirror": (0, 2, 3), "kill": (0,), "requeue": (0, 2)}


@dataclass
class Tally:
    """What happened over some rounds. `kills` are by (what, when)."""

    rounds: int = 0
    trials: int = 0
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    evils: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    unfinished: int = 0
    wrong_costs: int = 0
    left_behind: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        whens = ("run", "resume", *BESIDE)
        whats = sorted({what for what, _ in self.kills})
        rows = [["hit", *whens], *([what, *(str(self.kills[what, when]) for when in whens)] for what in whats)]
        table = ["".join(f"{cell:>{16 if place == 0 else 9}}" for place, cell in enumerate(row)) for row in rows]
        counts = [
            f"{self.rounds} rounds, {self.trials} finished trials, {self.kills.total()} hits",
            "met by a trial: " + ", ".join(f"{evil} {count}" for evil, count in sorted(self.evils.items())),
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

    def __init__(self, root: Path, seed: int, tally: Tally, home: Orphanage, fresh: bool) -> None:
        self.root, self.seed, self.tally, self.home, self.fresh = root, seed, tally, home, fresh
        self.luck = random.Random(seed)
        self.attempts = 1
        self.safe: dict[str, str] = {}
        self.env = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
        self.batches = root / "results" / "s"
        (root / "pyproject.toml").touch()
        self.write_project()

    def write_project(self) -> None:
        """What is run."""
        (self.root / "lab_agents.py").write_text(AGENTS + CLOCK + LEDGER)
        (self.root / "exp.toml").write_text(EXPERIMENT)
        for task in TASKS:
            write_task(self.root / "tasks" / task)

    @property
    def batch(self) -> Path | None:
        """The newest batch with a plan."""
        plans = sorted(self.batches.glob("*/plan.json"), key=lambda file: int(file.parent.name))
        return plans[-1].parent if plans else None

    def problem(self, text: str) -> None:
        """Note what went wrong."""
        self.tally.problems.append(f"seed {self.seed}: {text}")

    def start(self, *arguments: str, closed: bool = False) -> Process:
        """Start a command whose words go to the round's log; or to pipes that are not read any more."""
        if closed:
            read, write = os.pipe()
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                return self._begin(arguments, pipe)
        with (self.root / "log.txt").open("ab") as log:
            log.write(f"== {arguments}\n".encode())
            log.flush()
            return self._begin(arguments, log)

    def _begin(self, arguments: tuple[str, ...], output: Any) -> Process:
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        if self.fresh:
            return subprocess.Popen[bytes]([*TBENCH, *arguments], cwd=self.root, env=self.env, **files)
        return fork_tbench(arguments, self.env, self.root, **files)

    def ended(self, *arguments: str, seconds: float = LIMIT_SEC) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, and what it said to both streams."""
        process = self._begin(arguments, subprocess.PIPE)
        out, err = process.communicate(timeout=seconds)
        return process.wait(), out.decode(), err.decode()

    def shot(self) -> None:
        """Start something, perhaps a second command beside it, and hit a part of it without a warning."""
        if self.luck.random() < 0.5:
            (self.root / self.luck.choice(EVILS)).touch()
        when = self._going()
        closed = self.luck.random() < 0.2
        runner = self.start(*when, closed=closed)
        if closed:
            self.tally.kills["streams", "run" if when[0] == "run" else "resume"] += 1
        name = "run" if when[0] == "run" else "resume"
        self._pause(runner, self.luck.uniform(0.1, 5.0))
        if self.luck.random() < 0.5:
            self._until_at_work(runner)
        beside = None
        if self.batch is not None and self.luck.random() < 0.4:
            name = self.luck.choice(BESIDE)
            beside = self._beside(name)
            self._pause(beside, self.luck.uniform(0.1, 1.5))
        what = self._hit(runner, beside)
        if what is not None:
            self.tally.kills[what, name] += 1
        if beside is not None:
            self._ended_well(beside, name, shot=what in ("command", "all"))
        self._wait_or_requeue(runner)
        self._nothing_left()
        self.check_safe()

    def _beside(self, name: str) -> Process:
        if name == "requeue":
            return self.start("ctl", "requeue", "p", "--reason", "chaos", "--in", str(self.batch))
        return self.start(name, *{"index": [], "mirror": ["exp.toml"], "kill": ["exp.toml", "--yes"]}[name])

    def _until_at_work(self, runner: Process) -> None:
        """The moment at which an agent works: most of what can be hit is there."""
        book, deadline = self.root / "ledger.txt", time.monotonic() + 10.0
        before = book.stat().st_size if book.exists() else 0
        while runner.poll() is None and time.monotonic() < deadline:
            if (book.stat().st_size if book.exists() else 0) != before:
                break
            time.sleep(0.02)
        self._pause(runner, self.luck.uniform(0.0, 0.6))

    def _wait_or_requeue(self, runner: Process) -> None:
        """A run that nothing has ended ends by itself, but for a trial that cannot be ended: a person would step in."""
        self._pause(runner, 20.0)
        for _ in range(3):
            if runner.poll() is None and self.batch is not None:
                self._wait(self._beside("requeue"))
                self._pause(runner, 20.0)
        self._wait(runner)

    def _ended_well(self, beside: Process, name: str, *, shot: bool) -> None:
        self._wait(beside)
        if beside.returncode not in _GOOD_ENDS[name] and not shot and beside.returncode != 130:
            self.problem(f"tbench {name} ended with {beside.returncode}: {self._last_words()}")

    def _going(self) -> list[str]:
        if self.batch is None:
            return ["run", "exp.toml"]
        counts = measured(self.batch)
        if all(counts[p, t] >= self.attempts for p in PROFILES for t in TASKS):
            self.attempts += 1
        return ["resume", "exp.toml", "--attempts", str(self.attempts)]

    def _pause(self, process: Process, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def _hit(self, runner: Process, beside: Process | None) -> str | None:
        """Choose among what there is to hit, and hit it; None when everything is over already."""
        if runner.poll() is not None and (beside is None or beside.poll() is not None):
            return None
        alive = runner.poll() is None
        below = self._below(runner.pid) if alive else []
        harbors = self._harbors() if alive else []
        sandboxes = [pid for harbor in harbors for pid in descendants(harbor)]
        there = {
            "runner": [runner.pid] if alive else [],
            "runner stopped": [runner.pid] if alive else [],
            "signal": [runner.pid] if alive else [],
            "harbor": [self.luck.choice(harbors)] if harbors else [],
            "harbor stopped": [self.luck.choice(harbors)] if harbors else [],
            "sandbox": [self.luck.choice(sandboxes)] if sandboxes else [],
            "command": [beside.pid] if beside is not None and beside.poll() is None else [],
        }
        there["all"] = [runner.pid, *below, *there["command"]] if there["runner"] else []
        what = self.luck.choice([name for name, pids in there.items() if pids for _ in range(_WEIGHTS.get(name, 1))])
        if what.endswith("stopped"):
            self._stop_for_a_while(there[what][0], runner)
            return what
        number = self.luck.choice(SIGNALS) if what == "signal" else signal.SIGKILL
        for pid in there[what]:
            _send(pid, number)
        return what

    def _stop_for_a_while(self, pid: int, runner: Process) -> None:
        """Stop a process; then it goes on, is killed, or its runner is killed and it stays stopped."""
        _send(pid, signal.SIGSTOP)
        time.sleep(self.luck.uniform(0.2, 3.0))
        then = self.luck.choice(("goes on", "goes on", "killed", "orphaned"))
        if then == "orphaned":
            _send(runner.pid, signal.SIGKILL)
        else:
            _send(pid, signal.SIGCONT if then == "goes on" else signal.SIGKILL)

    def _below(self, runner: int) -> list[int]:
        """What belongs to a runner: its descendants, and the Harbor processes that were forked for it."""
        harbors = self._harbors()
        both = [*descendants(runner), *harbors, *(below for pid in harbors for below in descendants(pid))]
        return list(dict.fromkeys(both))

    def _harbors(self) -> list[int]:
        found = []
        for file in self.batches.glob("*/workers/*.json"):
            with suppress(OSError, ValueError):
                found.append(json.loads(file.read_text())["pid"])
        return [pid for pid in found if place(pid) == str(self.root)]

    def _wait(self, process: Process) -> None:
        try:
            process.wait(LIMIT_SEC)
        except subprocess.TimeoutExpired:
            self.problem(f"did not end in {LIMIT_SEC:.0f} s: {command_line(process.pid)}")
            self.tally.unfinished += 1
            process.kill()
            process.wait()

    def _last_words(self) -> str:
        return (self.root / "log.txt").read_text(errors="replace")[-400:]

    def _nothing_left(self) -> None:
        left = self.home.wait_empty(set(), GONE_SEC)
        left += self._forked_left()
        self.tally.left_behind += len(left)
        for name in left:
            self.problem(f"left behind: {name}")

    def _forked_left(self) -> list[str]:
        """What was forked for this round, in a process that is not ours to end, and is still there after its time."""
        deadline = time.monotonic() + GONE_SEC
        while left := [pid for pid in every_process() if place(pid) == str(self.root)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for pid in left:
            _send(pid, signal.SIGKILL)
        return [f"{pid}: {command_line(pid)[:200]}" for pid in left]

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
        for evil in EVILS:
            (self.root / evil).unlink(missing_ok=True)
            self.tally.evils[evil] += len(list(self.root.glob(f"{evil}.*")))
        going = ["run", "exp.toml"]
        if self.batch is not None:
            going = ["resume", "exp.toml", "--attempts", str(self.attempts), "--retry-errors"]
        code, out, err = self.ended(*going, "--json")
        self._nothing_left()
        self.check_safe()
        batch = self.batch
        if code != 0 or batch is None:
            self.tally.unfinished += 1
            self.problem(f"the last {going[0]} ended with {code}: {err[-600:]}{out[-600:]}")
            return
        self.tally.trials += len(self.safe)
        self._check_cells(batch, json.loads(out)["cells"])
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
        runs = json.loads((batch / "runs" / "index.json").read_text())["runs"]
        listed = sum(e["cost_usd"] or 0 for e in runs)
        if any((e.get("elapsed_sec") or 0.0) > 3600.0 for e in runs):
            self.problem("a trial is said to have taken hours: the clock was set")
        _, out, _ = self.ended("list", "--json")
        name = batch.relative_to(self.root / "results").as_posix()
        shown = next(b["cost_usd"] for b in json.loads(out) if b["batch"] == name)
        on_disk = cost(batch)
        if max(abs(listed - on_disk), abs(shown - on_disk)) > 1e-9:
            self.tally.wrong_costs += 1
            self.problem(f"costs are {listed} in index.json, {shown} in the list, {on_disk} on disk")

    def _check_evidence(self, batch: Path) -> None:
        """Every try that the agent noted has left its folder, and every measured trial its session files."""
        book = self.root / "ledger.txt"
        tries = Counter(book.read_text().split() if book.exists() else ())
        started = {name for name in tries if any(batch.glob(f"*/*/{name}*"))}
        gone = {name: count for name, count in tries.items() if name in started and folders_of(batch, name) < count}
        others = [b for b in self.batches.iterdir() if b != batch]
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


def play(root: Path, seed: int, tally: Tally, *, fresh: bool = False, shots: int = SHOTS) -> None:
    """One round in an empty folder."""
    if not fresh:
        load()
    with orphanage() as home:
        this = Round(root, seed, tally, home, fresh)
        for _ in range(shots):
            this.shot()
        this.finish()
    tally.rounds += 1


def every_process() -> list[int]:
    """All of this machine."""
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def place(pid: int) -> str:
    """The folder that a process works in; empty when it is gone."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def main() -> int:
    """Play rounds and print the tally, also after Ctrl-C; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="start every Harbor process anew")
    options = parser.parse_args()
    tally = Tally()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background of a script
    with suppress(KeyboardInterrupt), session():
        for seed in range(options.seed, options.seed + options.rounds):
            _play_and_tell(seed, tally, fresh=options.fresh or seed % 4 == 0)
    print(tally)
    return 1 if tally.problems else 0


def _play_and_tell(seed: int, tally: Tally, *, fresh: bool) -> None:
    before, began = len(tally.problems), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tbench-chaos-", ignore_cleanup_errors=True) as folder:
        play(Path(folder), seed, tally, fresh=fresh)
    took = time.monotonic() - began
    told = f"{tally.kills.total()} hits, {len(tally.problems)} problems, {took:.0f} s"
    print(f"round {tally.rounds} (seed {seed}): {told}", file=sys.stderr, flush=True)
    for text in tally.problems[before:]:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
