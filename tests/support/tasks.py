"""Small real Harbor tasks, written on the spot."""

from pathlib import Path

BOTH = '[profiles.oracle]\nagent = "oracle"\n[profiles.nop]\nagent = "nop"\n'
"""The profiles that pass and fail every task."""

ANSWER = "forty-two"
SOLVE = f"echo {ANSWER} > /app/answer.txt"
TEST_SH = f"""#!/bin/bash
if [ "$(cat /app/answer.txt 2>/dev/null)" = {ANSWER} ]; then echo 1 > /logs/verifier/reward.txt
else echo 0 > /logs/verifier/reward.txt; fi
"""


def on_host(toml: str) -> str:
    """A task.toml that says that the host's own system does for the images of its task."""
    if "[metadata]\n" in toml:
        return toml.replace("[metadata]\n", "[metadata]\nhost_base = true\n", 1)
    return toml.replace("[task]\n", "[metadata]\nhost_base = true\n[task]\n", 1)


def write_task(folder: Path, *, environment: str = "", agent_sec: float = 3600.0, solve: str = SOLVE) -> Path:
    """A task that wants one word in /app/answer.txt. `environment` is added to its [environment] table.

    Its agent has longer than any test: where one waits for the test, the machine may be as slow as it likes.
    """
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    toml = (
        f'schema_version = "1.4"\n[task]\nname = "tests/{folder.name}"\n[agent]\ntimeout_sec = {agent_sec}\n'
        f"[verifier]\ntimeout_sec = 60.0\n[environment]\nbuild_timeout_sec = 120.0\n{environment}\n"
    )
    (folder / "task.toml").write_text(on_host(toml))
    (folder / "instruction.md").write_text("Write the answer to /app/answer.txt.\n")
    (folder / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    (folder / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
    (folder / "tests" / "test.sh").write_text(TEST_SH)
    (folder / "tests" / "test.sh").chmod(0o755)
    return folder


def write_small_gym(folder: Path) -> None:
    """Six tasks without a family: two of them to train on, three on dev, the fewest that decide; see `SMALL_GYM`."""
    for number in range(6):
        write_task(folder / f"task-{number}")


SMALL_GYM = """
[run]
container_env = "local"
[split]
train = 0.333
dev = 0.5
holdout = 0.167
[budget]
trials = 8
control = 0.125
[gate]
alpha = 0.3
looks = 1
challengers = 1
"""
"""Tables of the plan of a training on such tasks."""

AGENTS = '''
"""Agents for tests: importable from the project root, as a user's own would be."""

import asyncio
import os
from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions


class Options(AgentOptions):
    script: str = "true"
    sleep_sec: float = 0.0
    files: dict[str, str] = {}
    cost_usd: float | None = None
    tokens: list[int] = []
    crash: str | None = None
    outage: str | None = None
    free: int | None = None


def begun() -> int:
    """Note that a run has begun; how many there are now, of all profiles together."""
    with open(Path(__file__).with_name("begun"), "ab", buffering=0) as book:
        book.write(b".")
        return book.tell()


class Scripted(BaseAgent):
    """Runs a script, writes files to its log folder, sleeps, crashes, finds no provider: as told.

    With `free`, only so many runs of the project go ahead; every later one waits until the file `go` is there.
    """

    options_model = Options

    @staticmethod
    def name() -> str:
        return "scripted"

    def version(self) -> str:
        return "1"

    async def setup(self, environment) -> None:
        pass

    async def run(self, instruction, environment, context) -> None:
        for name, text in self.options.files.items():
            path = self.logs_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{env}", repr(sorted(os.environ))))
        context.cost_usd = self.options.cost_usd
        if self.options.tokens:
            context.n_input_tokens, context.n_output_tokens = self.options.tokens
        await environment.exec(self.options.script)
        await asyncio.sleep(self.options.sleep_sec)
        if self.options.free is not None and begun() > self.options.free:
            while not Path(__file__).with_name("go").exists():
                await asyncio.sleep(0.02)
        if self.options.crash:
            raise RuntimeError(self.options.crash)
        if self.options.outage:
            raise ConnectionError(self.options.outage)
'''
"""A module `lab_agents.py` for a project root: `lab_agents:Scripted`."""

CLOCK = '''

import datetime as clocks
import time


def move_clock(seconds: float) -> None:
    """Everything in this process that asks for the time of day gets another one from here on."""
    import harbor.trial.trial

    import terminalbench.records.event

    real, day = time.time, clocks.datetime

    class Moved(day):
        @classmethod
        def now(cls, tz=None):
            return day.now(tz) + clocks.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    harbor.trial.trial.datetime = terminalbench.records.event.datetime = Moved
'''
"""Behind `AGENTS`: `move_clock`, for an agent that sets the time of day."""

CALC = "def add(a, b):\n    return a - b\n"
"""A program with a bug, in the repository of `write_repository_task`."""
FIXED = "def add(a, b):\n    return a + b\n"
FIX = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


def write_repository_task(folder: Path, *, agent_sec: float = 3600.0) -> Path:
    """A task whose /app is a git repository with one bug, and a folder `deps` that git ignores."""
    write_task(folder, agent_sec=agent_sec)
    toml = folder / "task.toml"
    toml.write_text(toml.read_text().replace("[metadata]\n", '[metadata]\nlanguage = "python"\nworkdir = "/app"\n'))
    (folder / "instruction.md").write_text("`add(2, 3)` of calc.py returns -1; it should return 5.\n")
    (folder / "environment" / "calc.py").write_text(CALC)
    (folder / "environment" / "Dockerfile").write_text(
        "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY calc.py /app/calc.py\n"
        "RUN echo deps/ > .gitignore && mkdir deps && echo kept > deps/kept && git init -q && git add -A"
        " && git -c user.name=t -c user.email=t@t commit -qm base\n"
    )
    (folder / "tests" / "test.sh").write_text(
        "#!/bin/bash\ncd /app && cat deps/kept && git status --porcelain --ignored\n"
        "python3 -c 'import calc; assert calc.add(2, 3) == 5' && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    )
    return folder
