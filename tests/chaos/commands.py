"""Chaos of commands: an import, an image pull, a night are killed at random moments; the same command always goes on.

    .venv/bin/python tests/chaos/commands.py [--kills 60] [--seed 1]        (part of make chaos)

Each round begins anew. The command is killed, with all that it started, up to three times within the time that it takes
alone, at most its first 30 s, then left to its end. The systemd unit of the documentation is stopped or killed 20 times
in one night, and started again as systemd does. What is on disk is counted: every row and every file once, and nothing
that runs.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.aftermath import descendants, orphanage
from support.registry import RegistryServer, layer_of
from support.tasks import write_task

TBENCH = [sys.executable, "-m", "terminalbench.cli.main"]
ROWS, FILES, MOST_KILLS = 3000, 600, 3
WINDOW_SEC, LIMIT_SEC, GONE_SEC = 30.0, 1800.0, 20.0
RESTARTS = 20
PAGE = Path(__file__).parents[2] / "docs/tbench/overnight-runs.md"


@dataclass
class CommandTally:
    """What happened over some rounds, by kind."""

    kills: Counter[str] = field(default_factory=Counter)
    rounds: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{kind}: {self.rounds[kind]} rounds, {self.kills[kind]} kills" for kind in sorted(self.rounds)]
        return "\n".join([*lines, f"problems: {len(self.problems)}", *self.problems])


@dataclass(frozen=True)
class KilledCommand:
    """A command that is killed: what it says when it is through is judged by `wrong`, which returns what is not right.

    As a `unit` it is ended as systemd does: asked to stop or not, then all that is left of it is killed.
    """

    kind: str
    arguments: tuple[str, ...]
    root: Path
    wrong: Callable[[], str | None]
    unit: bool = False

    def kill(self, process: subprocess.Popen[bytes], luck: random.Random) -> None:
        """End it without a warning, or as a unit."""
        if not self.unit:
            os.killpg(process.pid, signal.SIGKILL)
            return
        process.send_signal(luck.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        process.wait(LIMIT_SEC)
        while left := descendants(os.getpid()):  # KillMode=mixed
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `tbench` in a home of its own."""
        home = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "HOME": "home"}
        env = {**os.environ, **{name: str(self.root / folder) for name, folder in home.items()}}
        return subprocess.Popen(
            [*TBENCH, *(arguments or self.arguments)], cwd=self.root, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def said(self, *arguments: str) -> str:
        """Run a command to its end; what it printed."""
        process = self.start(*arguments)
        out = process.communicate(timeout=LIMIT_SEC)[0].decode()
        if process.returncode:
            raise RuntimeError(f"{self.kind}: exit code {process.returncode}: {out[-500:]}")
        return out


def importing(root: Path) -> KilledCommand:
    """The import of a table."""
    rows = (f"task-{number // 2},p{number % 2},{number % 3 == 0}\n" for number in range(ROWS))
    (root / "mine.csv").write_text("task,profile,passed\n" + "".join(rows).lower())

    def wrong() -> str | None:
        batches = json.loads(command.said("list", "--json"))
        found = [(one["batch"], one["trials"]) for one in batches]
        return None if found == [("mine/0", ROWS)] else f"imported: {found}"

    command = KilledCommand("import", ("import", "mine.csv"), root, wrong)
    return command


SUITE = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
[tasks]
default_dataset = "tasks"
items = [{ id = "a" }, { id = "b" }]
[profiles.oracle]
agent = "oracle"
"""


def sleeping_over(root: Path, more: str = "--iterations 2 --workers 1", *, unit: bool = False) -> KilledCommand:
    """A night of two iterations, from its first moment on."""
    for name in ("a", "b"):
        write_task(root / "tasks" / name)
    (root / "exp.toml").write_text(SUITE)
    words = shlex.split(more)
    iterations = int(words[words.index("--iterations") + 1])

    def wrong() -> str | None:
        again = command.said()
        batches = json.loads(command.said("list", "--json", "--results", "night/batches"))
        found = Counter((one["planned"], one["passed"] + one["failed"]) for one in batches)
        return None if found == {(2, 2): iterations} and "is complete" in again else f"{found}: {again[-300:]}"

    arguments = ("overnight", "--suite", "exp.toml", "--output", "night", *words)
    command = KilledCommand("unit" if unit else "night", arguments, root, wrong, unit)
    return command


def as_unit(root: Path) -> KilledCommand:
    """The night of the systemd unit in the documentation, on a small suite."""
    [line] = re.findall(
        r"^    ExecStart=\S+/tbench overnight --suite starter (.*) --output \S+$", PAGE.read_text(), re.M
    )
    return sleeping_over(root, line, unit=True)


def pulling(root: Path, server: RegistryServer) -> KilledCommand:
    """The pull of an image of two layers."""
    name = f"{server.host}/big:1"

    def wrong() -> str | None:
        images = json.loads(command.said("images", "list", "--json"))
        files = sum(path.name.startswith("chaos-") for path in (root / "cache").rglob("chaos-*"))
        return None if len(images) == 1 and files == FILES else f"pulled: {len(images)} images, {files} files"

    command = KilledCommand("pull", ("images", "pull", name), root, wrong)
    return command


def play(command: KilledCommand, luck: random.Random, alone_sec: float, tally: CommandTally) -> None:
    """Kill it up to `MOST_KILLS` times, a unit `RESTARTS` times, let it go on, and count."""
    for _ in range(RESTARTS if command.unit else luck.randint(1, MOST_KILLS)):
        process = command.start()
        try:
            process.wait(luck.uniform(0.0, min(alone_sec, WINDOW_SEC)))
        except subprocess.TimeoutExpired:
            command.kill(process, luck)
            tally.kills[command.kind] += 1
        process.communicate(timeout=LIMIT_SEC)
    tally.rounds[command.kind] += 1
    try:
        command.said()
        if (found := command.wrong()) is not None:
            tally.problems.append(f"{command.kind}: {found}")
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        tally.problems.append(str(error))


def session(kills: int, seed: int, kinds: tuple[str, ...] = ()) -> CommandTally:
    """Rounds of these kinds, or of all, until each was killed so often."""
    tally, luck = CommandTally(), random.Random(seed)
    with RegistryServer() as server, orphanage() as orphans:
        layers = [
            layer_of({f"d/chaos-{n}": os.urandom(9000) for n in part})
            for part in (range(FILES // 2), range(FILES // 2, FILES))
        ]
        server.images.image("big:1", layers)
        makers = {
            "night": sleeping_over, "unit": as_unit, "import": importing, "pull": lambda root: pulling(root, server)
        }  # fmt: skip
        for kind, make in ((kind, make) for kind, make in makers.items() if not kinds or kind in kinds):
            alone_sec = WINDOW_SEC if kind == "unit" else 0.0
            while tally.kills[kind] < kills and tally.rounds[kind] < 3 * kills:
                with tempfile.TemporaryDirectory(prefix="tbench-chaos-", ignore_cleanup_errors=True) as folder:
                    (Path(folder) / "pyproject.toml").touch()
                    command = make(Path(folder).resolve())
                    if not alone_sec:
                        began = time.monotonic()
                        command.said()
                        alone_sec = time.monotonic() - began
                        continue
                    before = len(tally.problems)
                    play(command, luck, alone_sec, tally)
                    told = f"{kind} {tally.rounds[kind]}: {tally.kills[kind]} kills, {len(tally.problems)} problems"
                    print(told, *tally.problems[before:], sep="\n", flush=True)
        if left := orphans.wait_empty(set(), GONE_SEC):
            tally.problems.append(f"left behind: {left}")
    return tally


def main() -> int:
    """Play, and print the tally; exit code 1 when anything went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=60, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", nargs="*", default=(), help="only these: night, unit, import, pull")
    options = parser.parse_args()
    tally = session(options.kills, options.seed, tuple(options.kind))
    print(tally)
    return bool(tally.problems)


if __name__ == "__main__":
    sys.exit(main())
