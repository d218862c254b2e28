"""Whether a real night shows a lesson that truly helps and hides one that harms, recounted from the prompts of its agent.

.venv/bin/python tests/simulate/learned_nights.py [--seeds 5]      (part of make simulate; minutes a seed)

`tbench overnight --lessons` runs with the defaults: a program of one's own is the agent, in the local sandbox; it asks
a scripted model server, writes down what it is told, and a verifier decides. The server passes half of the trials, 95 %
of those that were told the lesson that helps where the task is one that it fits (tables, eight of twelve tasks), and
10 % of those that were told the one that harms. Four more lessons do nothing, and the night's own rules may write others.

With `--promoted` a training with the same agent decides whether it is better with its lessons: its nights try it with and
without them in the sandbox, and the gate makes it champion.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, override

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here

import random

from servers.base import Turn
from servers.openai import OpenAIServer
from simulate.learning import BASE, HARMED, HARMS, HELPED, HELPS, LEARNED
from support.tasks import ANSWER, write_task

TASKS, TABLES, ATTEMPTS = 12, 8, 5
_FITS = "a table"
IDLE = (
    "Name a variable after what it holds.",
    "Keep each line shorter than a hundred characters.",
    "Say in one sentence what was done.",
    "Prefer one command to two where both do.",
)
AGENT = """
import json, os, sys, urllib.request
body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": sys.argv[1]}]}).encode()
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"content-type": "application/json"})
answer = json.load(urllib.request.urlopen(asked, timeout=600))
open("/app/answer.txt", "w").write(answer["choices"][0]["message"]["content"])
print(json.dumps({"usage": answer["usage"]}))
"""
SUITE = """
schema_version = 2
slug = "learned"
[run]
container_env = "local"
attempts = {attempts}
parallel = 4
[tasks]
default_dataset = "tasks"
items = [{items}]
[profiles.mine]
agent = "command"
model = "scripted"
env = {{ OPENAI_BASE_URL = "{url}/v1" }}
[profiles.mine.command]
run = ["python3", "{{files}}/agent.py", "{{instruction}}"]
files = ["agent.py"]
usage = {{ input = "usage.prompt_tokens", output = "usage.completion_tokens" }}
"""


PLAN = """
schema_version = 1
slug = "promoted"
environment = "tasks"
nights = 3
[profile]
agent = "command"
model = "scripted"
env = {{ OPENAI_BASE_URL = "{url}/v1" }}
[profile.command]
run = ["python3", "{{files}}/agent.py", "{{instruction}}"]
files = ["agent.py"]
[run]
container_env = "local"
parallel = 4
[split]
train = 0.2
dev = 0.7
holdout = 0.1
[budget]
trials = 70
control = 0.1
[gate]
alpha = 0.1
looks = 1
challengers = 1
[[variants]]
reason = "what was learned helps"
lessons = "masked"
"""


class TableModel(OpenAIServer):
    """Answers right or wrong by what stands in the prompt, and by chance."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self._chance = random.Random(seed)

    @override
    def turn(self, messages: Sequence[Any]) -> Turn:
        prompt = messages[-1]["content"]
        helped = HELPS in prompt and _FITS in prompt
        rate = HARMED if HARMS in prompt else HELPED if helped else BASE
        return Turn(ANSWER if self._chance.random() < rate else "wrong")

    @property
    def prompts(self) -> list[str]:
        """What it was asked, in order."""
        return [request.body["messages"][-1]["content"] for request in self.chats]


@dataclass(frozen=True)
class NightShares:
    """Of the prompts of an iteration with lessons, where a lesson could help or harm: the shares that held it."""

    helps: float
    harms: float
    idle: float
    trials: int


def run_learning_night(folder: Path, seed: int) -> NightShares:
    """Run three iterations, then one more, and return what the agent was told in that one."""
    for number in range(TASKS):
        task = write_task(folder / "tasks" / f"t{number}")
        kind = _FITS if number < TABLES else "a sentence"
        (task / "instruction.md").write_text(f"Here is {kind}. Write the answer to /app/answer.txt.\n")
    (folder / "agent.py").write_text(AGENT)
    for text in (HARMS, HELPS, *IDLE):
        _tbench(folder, "memory", "add", "--by", "ann", "--do", text)
    items = ", ".join(f'{{ id = "t{n}", family = "f{n // 2}" }}' for n in range(TASKS))
    with TableModel(seed) as server:
        suite = folder / "suite.toml"
        suite.write_text(SUITE.format(attempts=ATTEMPTS, items=items, url=server.url))
        asked = ("--lessons", "--seed", seed, "--output", "night", "--iterations", LEARNED)
        _tbench(folder, "overnight", "--suite", suite, *asked)
        began = len(server.prompts)
        _tbench(folder, "overnight", "--resume", "night", "--iterations", LEARNED + 1)
        last = server.prompts[began:]
    runs = [
        json.loads(file.read_text()) for file in (folder / "night").glob(f"batches/night/{LEARNED + 1}/runs/index.json")
    ]
    trials = [one for found in runs for one in found["runs"] if one["agent_key"].endswith("-lessons")]
    fitting = sum(int(one["task_id"][1:]) < TABLES for one in trials)
    every = len(trials)

    def share(text: str, among: int, kind: str = "") -> float:
        return sum(text in prompt and kind in prompt for prompt in last) / among

    idle = sum(share(text, every) for text in IDLE) / len(IDLE)
    return NightShares(share(HELPS, fitting, _FITS), share(HARMS, every), idle, every)


def run_promoted_nights(folder: Path, seed: int) -> str:
    """Run a training from its first night to its last, and return what its gate says of the profile with lessons."""
    for number in range(TASKS):
        task = write_task(folder / "tasks" / f"t{number}", environment=f'[metadata]\nfamily = "f{number}"')
        (task / "instruction.md").write_text(f"Here is {_FITS}. Write the answer to /app/answer.txt.\n")
    (folder / "agent.py").write_text(AGENT)
    _tbench(folder, "memory", "add", "--by", "ann", "--do", HELPS)
    with TableModel(seed) as server:
        (folder / "plan.toml").write_text(PLAN.format(url=server.url))
        _tbench(folder, "trainer", "run", "plan.toml")
    return _tbench(folder, "trainer", "history", "plan.toml")


def _tbench(folder: Path, *arguments: object) -> str:
    command = [sys.executable, "-m", "terminalbench.cli.main", *map(str, arguments)]
    env = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


def measure(seeds: int) -> None:
    """Print what was shown after three iterations, by seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = run_learning_night(Path(folder), seed)
        print(
            f"  seed {seed}: of {found.trials} trials with lessons: helpful shown in {found.helps:.0%} of those it fits, "
            f"harmful in {found.harms:.0%}, an idle one in {found.idle:.0%}",
            flush=True,
        )


def measure_promoted() -> None:
    """Print the history of a training that decides whether lessons help."""
    with tempfile.TemporaryDirectory() as folder:
        print(run_promoted_nights(Path(folder), 0))


def main() -> None:
    """Print what was shown by as many seeds as are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--promoted", action="store_true")
    asked = parser.parse_args()
    if not asked.promoted:
        measure(asked.seeds)
        return
    measure_promoted()


if __name__ == "__main__":
    main()
