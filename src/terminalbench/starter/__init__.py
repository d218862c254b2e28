"""The bundled dataset `starter`: small real terminal tasks in Harbor's task format.

tasks/<id>/
  task.toml          [task] name = "starter/<id>", [metadata] family, difficulty; limits
  instruction.md     what the agent is told
  environment/       Dockerfile and what it copies; builds under Docker and, offline, in the local sandbox
  solution/solve.sh  solves it
  tests/             test.sh runs checks.py and writes the reward, 1 or 0
"""

import tomllib
from pathlib import Path

TASKS_DIR = Path(__file__).parent / "tasks"
"""The folder that holds one folder per task."""


def task_ids() -> list[str]:
    """The id of every task, which is the name of its folder, in alphabetical order."""
    return sorted(path.parent.name for path in TASKS_DIR.glob("*/task.toml"))


def families() -> dict[str, str]:
    """The family of every task, by task id."""
    return {task: _family(TASKS_DIR / task / "task.toml") for task in task_ids()}


def _family(path: Path) -> str:
    with path.open("rb") as stream:
        return tomllib.load(stream)["metadata"]["family"]
