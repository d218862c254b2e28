"""docs/ci.md: the commands of its workflow fail a pull request whose agent is worse, or of which that is undecided."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_run import LIMIT_SEC

from conftest import REPO
from support.experiments import Project
from support.tasks import SOLVE, write_task
from support.warm import Warm

PAGE = (REPO / "docs" / "ci.md").read_text()
FAMILIES = 6
AGENT = """
from harbor.agents.base import BaseAgent


class Mine(BaseAgent):
    AGENT_INFO = {{"model": False, "mcp": False}}

    @staticmethod
    def name():
        return "mine"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        await environment.exec("{command}")
"""
EXPERIMENT = """
schema_version = 2
slug = "ci"
[run]
container_env = "local"
[tasks]
default_dataset = "tasks"
items = "all"
[profiles.mine]
agent = "mine:Mine"
"""


def steps() -> dict[str, str]:
    """The scripts of the workflow's named steps."""
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^      - name: (.+)\n        run: (\|\n(?:          .*\n)+|.+\n)", workflow, re.MULTILINE)
    return {name: re.sub(r"^ {10}", "", script.removeprefix("|\n"), flags=re.MULTILINE) for name, script in found}


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, timeout=600)


@pytest.fixture
def repository(project: Project) -> Path:
    """An agent's repository with its first commit on main, checked out as a pull request is."""
    root = project.root
    for number in range(FAMILIES):
        write_task(root / "tasks" / f"t{number}")
    project.write("experiments/ci.toml", EXPERIMENT)
    project.write("mine.py", AGENT.format(command=SOLVE))
    Warm().write_tbench(root.parent)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "an agent")
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    return root


def follow(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A step as the runner of GitHub runs it: in bash that ends at the first failure."""
    env = {**os.environ, "GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(root / "summary.md")}
    env["PATH"] = f"{root.parent}:{env['PATH']}"
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    ran = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT_SEC, check=False)
    print(script, ran.returncode, ran.stdout, ran.stderr)
    return ran


@pytest.mark.long
def test_a_worse_agent_is_refused_and_an_unchanged_one_is_not(repository: Path) -> None:
    found = steps()
    assert list(found) == ["install", "target branch", "pull request", "verdict"]
    first, second, verdict = (found[name] for name in ("target branch", "pull request", "verdict"))
    assert follow(repository, first).returncode == 0
    assert follow(repository, second).returncode == 0
    assert follow(repository, verdict).returncode == 0
    assert "mine has the same content in ci/0, ci/1: unchanged" in (repository / "summary.md").read_text()
    shutil.rmtree(repository / "results" / "ci" / "1")
    (repository / "mine.py").write_text(AGENT.format(command="true"))
    assert follow(repository, second).returncode == 0
    assert (repository / "junit.xml").read_text().count("<failure") == FAMILIES
    assert follow(repository, verdict).returncode == 100
    assert "mine@1 vs mine@0: -100.0 pt" in (said := (repository / "summary.md").read_text())
    assert ": worse" in said
    shutil.rmtree(repository / "results" / "ci" / "1")
    (repository / "mine.py").write_text(AGENT.format(command=f"true; {SOLVE}"))
    assert follow(repository, second).returncode == 0
    assert follow(repository, verdict).returncode == 3, "undecided is not green"
    assert "--fail-if worse is undecided" in (repository / "summary.md").read_text()
    allowed = verdict.replace("--fail-if worse", "--fail-if worse --allow-undecided")
    assert follow(repository, allowed).returncode == 0
    assert "--allow-undecided" in PAGE
    shutil.rmtree(repository / "results" / "ci" / "1")
    for number in range(1, FAMILIES):
        shutil.rmtree(repository / "tasks" / f"t{number}")
    (repository / "mine.py").write_text(AGENT.replace("await", "raise RuntimeError; await").format(command=SOLVE))
    assert follow(repository, second).returncode == 1, "an agent that never starts is not green"
