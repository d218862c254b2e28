"""Chaos in a night: do to it what can happen, at random moments, and count what is lost or doubled.

    .venv/bin/python tests/chaos/nights.py [--iterations 100] [--workers 4] [--seed 1] [--every 4]

A night of small tasks, with an agent that notes its tries and with a simulated one. Workers, the supervisor, Harbor and
the process they are forked from are killed, workers are stopped, the night is interrupted; agents and tests hang, the
model's endpoint goes and comes back, the disk fills up, clocks jump. The night is resumed for as long as it takes. Then
everything on disk is counted: each planned trial has one result, each try that was noted is there. Needs a mount
namespace (root, or user namespaces), for the disk.
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

from support.tasks import AGENTS, write_task

SUITE = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
grace_sec = 8.0
[tasks]
default_dataset = "tasks"
items = [{ id = "a" }, { id = "csv-clean", dataset = "starter" }]
[profiles.p]
agent = "lab_agents:Ledgered"
options = { script = "echo forty-two > /app/answer.txt", cost_usd = 0.125, sleep_sec = 0.3 }
[profiles.sim]
agent = "simulated"
model = "simulated/s"
"""
LEDGER = '''

import datetime as clocks
import time


class Ledgered(Scripted):
    """Notes every try in a book of its own. Does the evil that a file tells, once; fails while the endpoint is down."""

    async def run(self, instruction, environment, context) -> None:
        here = Path("{root}")
        with open(here / "ledger.txt", "a") as book:
            book.write(str(self.logs_dir.parent) + "\\n")
        for evil in ("hang", "tests", "ahead", "back"):
            try:
                os.rename(here / evil, here / f"{evil}.{self.logs_dir.parent.name}")
            except OSError:
                continue
            context.cost_usd = self.options.cost_usd
            await getattr(self, evil)(environment)
        if (here / "down").exists():
            raise ConnectionError("the endpoint is down")
        await super().run(instruction, environment, context)

    async def hang(self, environment) -> None:
        await asyncio.sleep(100_000)

    async def tests(self, environment) -> None:
        await environment.exec("touch /app/hang")

    async def ahead(self, environment, seconds: float = 7200.0) -> None:
        """Everything in this process that asks for the time of day gets another one."""
        import harbor.trial.trial

        import terminalbench.records.event

        real, day = time.time, clocks.datetime

        class Moved(day):
            @classmethod
            def now(cls, tz=None):
                return day.now(tz) + clocks.timedelta(seconds=seconds)

        time.time = lambda: real() + seconds
        harbor.trial.trial.datetime = terminalbench.records.event.datetime = Moved

    async def back(self, environment) -> None:
        await self.ahead(environment, -7200.0)
'''
TRIALS = 4
"""Of an iteration: two tasks, two profiles."""
EVILS = ("hang", "tests", "ahead", "back")
FAULTS = (
    *("worker killed",) * 4, *("harbor killed",) * 4, *("agent",) * 8, *("worker stopped",) * 2, "supervisor killed",
    "all killed", "interrupted", "endpoint down", "disk full", "loaded killed",
)  # fmt: skip
SUPERVISOR = """
import sys
from pathlib import Path
from terminalbench.overnight.begin import Request
from terminalbench.overnight.decisions import Patience
from terminalbench.overnight.loop import run_night
folder, iterations, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
patience = Patience(silent_sec=10.0, drain_sec=40.0, retry_sec=3.0, failures=40)
resume = folder if (folder / "config.json").exists() else None
request = Request() if resume else Request(
    suite=Path("exp.toml"), output=folder, iterations=iterations, workers=workers, seed=11
)
sys.exit(run_night(request, resume, patience=patience).exit_code)
"""


@dataclass
class Chaos:
    """A night that is shot at."""

    root: Path
    iterations: int
    workers: int
    luck: random.Random
    hits: Counter[str] = field(default_factory=Counter)
    process: subprocess.Popen[bytes] | None = None
    resumes: int = -1
    ends: Counter[int] = field(default_factory=Counter)

    @property
    def night(self) -> Path:
        """Its folder, on a disk of its own."""
        return self.root / "disk" / "night"

    def set_up(self) -> None:
        """Write the project, and mount the disk."""
        (self.root / "pyproject.toml").touch()
        (self.root / "lab_agents.py").write_text(AGENTS + LEDGER.replace("{root}", str(self.root)))
        (self.root / "exp.toml").write_text(SUITE)
        for task in ("a",):
            folder = write_task(self.root / "tasks" / task, agent_sec=6.0)
            toml = folder / "task.toml"
            toml.write_text(toml.read_text().replace("timeout_sec = 60.0", "timeout_sec = 5.0"))
            test = folder / "tests" / "test.sh"
            test.write_text(test.read_text().replace("#!/bin/bash\n", "#!/bin/bash\n[ -e /app/hang ] && sleep 10000\n"))
        (self.root / "disk").mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3g", "tbench", str(self.root / "disk")], check=True, timeout=600
        )

    def start(self) -> None:
        """Start the night, or continue the night."""
        self.resumes += 1
        env = {**os.environ, "XDG_STATE_HOME": str(self.root / "state")}
        command = [sys.executable, "-c", SUPERVISOR, str(self.night), str(self.iterations), str(self.workers)]
        with (self.root / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.root, env=env, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self.process is not None and self.process.poll() is None

    def state(self) -> dict:
        """What the night says of itself."""
        with suppress(OSError, ValueError):
            return json.loads((self.night / "state.json").read_text())
        return {}

    def pids(self, what: str) -> list[int]:
        """The living processes of a kind."""
        files = {
            "worker": self.night.glob("workers/*.json"),
            "harbor": self.night.glob("batches/night/*/workers/*.json"),
        }[what]
        found = []
        for file in files:
            with suppress(OSError, ValueError, KeyError):
                told = json.loads(file.read_text())
                if _ticks(told["pid"]) == told["start_ticks"]:
                    found.append(told["pid"])
        return found

    def shot(self) -> None:
        """One fault."""
        what = self.luck.choice(FAULTS)
        if what == "agent":
            what = self.luck.choice(EVILS)
            (self.root / what).touch()
        elif what in ("worker killed", "harbor killed", "worker stopped"):
            pids = self.pids(what.split()[0])
            if not pids:
                return
            _send(self.luck.choice(pids), signal.SIGSTOP if what.endswith("stopped") else signal.SIGKILL)
        elif what == "loaded killed":
            pids = [
                pid for pid in _children(self.process.pid if self.process else 0) if "executors.loaded" in _line(pid)
            ]
            if not pids:
                return
            _send(pids[0], signal.SIGKILL)
        elif what == "all killed":
            for pid in [self.process.pid if self.process else 0, *self.pids("worker"), *self.pids("harbor")]:
                _send(pid, signal.SIGKILL)
        elif what in ("supervisor killed", "interrupted") and self.process is not None:
            _send(self.process.pid, signal.SIGKILL if what.endswith("killed") else signal.SIGINT)
        elif what == "endpoint down":
            (self.root / "down").touch()
            time.sleep(self.luck.uniform(1.0, 4.0))
            (self.root / "down").unlink()
        elif what == "disk full":
            self._fill()
        self.hits[what] += 1

    def _fill(self) -> None:
        disk = self.root / "disk"
        status = os.statvfs(disk)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={used + 30 * 2**20}", str(disk)], check=False, timeout=600)
        time.sleep(self.luck.uniform(1.0, 5.0))
        subprocess.run(["mount", "-o", "remount,size=3g", str(disk)], check=True, timeout=600)

    def run(self, every: float, limit_sec: float) -> None:
        """Shoot until nearly all iterations are over; then let the night end in peace."""
        end = time.monotonic() + limit_sec
        while time.monotonic() < end:
            if not self.alive:
                if self.process is not None:
                    self.ends[self.process.returncode] += 1
                state = self.state()
                over = [
                    work for work in state.get("work", []) if work.get("status") in ("done", "incomplete", "given_up")
                ]
                done = all(work["status"] == "done" for work in over) or self.ends[3] > 5
                if state.get("status") == "finished" and len(over) >= self.iterations and done:
                    return
                self.start()
            time.sleep(self.luck.uniform(0.3, 2 * every))
            done = sum(work.get("status") == "done" for work in self.state().get("work", []))
            if done < self.iterations * 0.95 and self.alive:
                self.shot()

    def report(self) -> list[str]:
        """Count everything on disk; the problems."""
        from terminalbench.index.results import open_view
        from terminalbench.overnight.folder import NightFolder

        folder, problems = NightFolder(self.night), []
        numbers, cells, tries = Counter(), Counter(), set()
        for batch in folder.batches():
            view = open_view(batch, folder.results_root)
            numbers[view.plan.labels["iteration"]] += 1
            for cell in view.cells:
                cells[str(cell.outcome)] += 1
            counted = Counter((cell.profile, cell.task.id, cell.attempt) for cell in view.cells)
            if len(view.cells) != TRIALS or max(counted.values()) > 1:
                problems.append(f"{batch.folder}: {len(view.cells)} cells")
            tries |= {Path(batch.folder, row.folder).name for row in view.rows()}
        problems += [f"iteration {n} has {count} batches" for n, count in numbers.items() if count > 1]
        if len(numbers) != self.iterations:
            problems.append(f"{len(numbers)} of {self.iterations} iterations have a batch")
        book = self.root / "ledger.txt"
        noted = {Path(line).name for line in book.read_text().split()} if book.exists() else set()
        lost = noted - tries
        left = [pid for pid in _pids() if str(self.root) in _line(pid) and pid != os.getpid()]
        state = self.state()
        print(
            f"iterations {len(numbers)}, statuses {dict(Counter(work.get('status', 'waiting') for work in state['work']))}"
        )
        print(f"planned trials {cells.total()}: {dict(cells)}")
        print(f"tries noted by the agent {len(noted)}, without a trace {len(lost)}; processes left {len(left)}")
        print(f"hits {self.hits.total()}: {dict(self.hits)}; resumes {self.resumes}; exits {dict(self.ends)}")
        print(
            f"workers started {sum(work['starts'] for work in state['work'])}, left out {state.get('quarantine', [])}"
        )
        problems += [f"a try without a trace: {name}" for name in sorted(lost)[:5]]
        problems += [f"left running: {pid} {_line(pid)[:100]}" for pid in left]
        return problems


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _ticks(pid: int) -> int | None:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return None


def _line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _children(parent: int) -> list[int]:
    found = []
    for pid in _pids():
        with suppress(OSError, IndexError, ValueError):
            if int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(pid)
    return found


def main() -> int:
    """Run it, and say what it came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=4.0, help="mean seconds between faults")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which it is ended")
    asked = parser.parse_args()
    if os.environ.get("TBENCH_CHAOS_INSIDE") != "1":
        how = ["-m"] if os.getuid() == 0 else ["-U", "-r", "-m"]
        command = ["unshare", *how, sys.executable, *sys.argv]
        return subprocess.run(command, env={**os.environ, "TBENCH_CHAOS_INSIDE": "1"}, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="tbench-nights-") as folder:
        chaos = Chaos(Path(folder).resolve(), asked.iterations, asked.workers, random.Random(asked.seed))
        chaos.set_up()
        began = time.monotonic()
        try:
            chaos.run(asked.every, asked.limit)
            problems = chaos.report()
        finally:
            if chaos.alive and chaos.process is not None:
                chaos.process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    chaos.process.wait(120)
            if os.environ.get("TBENCH_CHAOS_KEEP"):
                subprocess.run(["cp", "-a", folder, os.environ["TBENCH_CHAOS_KEEP"]], check=False)
            subprocess.run(["umount", "-l", str(chaos.root / "disk")], check=False, timeout=600)
        print(f"{time.monotonic() - began:.0f} s; problems: {len(problems)}", *problems, sep="\n")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
