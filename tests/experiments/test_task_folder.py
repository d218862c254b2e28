"""A task brings files of its own, and takes no more of this machine's variables than the experiment declares."""

import os
from pathlib import Path

import pytest

from support.experiments import BASE, ORACLE, good, problems
from support.tasks import write_task
from terminalbench.experiments.task_folder import foreign_file, undeclared, variables

TASKS = BASE.replace('{ id = "a" }', '{ id = "a", dataset = "tasks" }')


@pytest.fixture
def task(project) -> Path:
    project.write("secret/id_rsa", "PRIVATE")
    return write_task(project.root / "tasks" / "a")


@pytest.mark.parametrize(
    "place",
    ["instruction.md", "task.toml", "tests", "solution/solve.sh", "environment/Dockerfile", "environment/deep/er/file"],
)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_file_that_leads_out_of_the_folder_is_refused(project, task: Path, place: str, absolute: bool) -> None:
    secret = project.root / "secret" / ("" if place == "tests" else "id_rsa")
    link = task / place
    link.parent.mkdir(parents=True, exist_ok=True)
    if place == "tests":
        link.rename(task / "other")
    link.unlink(missing_ok=True)
    if place == "task.toml":
        secret.write_text('schema_version = "1.4"\n')
    link.symlink_to(secret if absolute else os.path.relpath(secret, link.parent))
    (said,) = problems(project, TASKS + ORACLE)
    assert said == (
        f'task "a" of tasks: {place} leads out of the task\'s folder, to {os.path.realpath(secret)} '
        "(copy it into the folder, or leave out the task)"
    )
    held = '[[task]]\nid = "a"\ndataset = "tasks"\nreason = "it looks around"\n'
    project.write("experiments/exp.quarantine.toml", held)
    assert good(project, TASKS + ORACLE).tasks


def test_links_within_the_folder_are_fine(task: Path) -> None:
    (task / "shared").mkdir()
    (task / "shared" / "data").write_text("x")
    (task / "tests" / "data").symlink_to("../shared/data")
    (task / "tests" / "all").symlink_to(task / "shared")
    (task / "tests" / "loop").symlink_to("../tests")
    (task / "tests" / "nothing").symlink_to("not-there")
    assert foreign_file(task) is None
    (task.parent / "alias").symlink_to(task)
    assert foreign_file(task.parent / "alias") is None
    (task / "shared" / "out").symlink_to("/etc")
    assert foreign_file(task) == "shared/out leads out of the task's folder, to /etc"


def test_a_pipe_or_socket_is_no_file(task: Path) -> None:
    os.mkfifo(task / "tests" / "pipe")
    assert foreign_file(task) == "tests/pipe is neither a file nor a folder"
    (task / "tests" / "pipe").rename(task / "pipe")
    (task / "instruction.md").unlink()
    (task / "instruction.md").symlink_to("pipe")
    assert foreign_file(task) == "pipe is neither a file nor a folder"


TABLES = """
[environment.env]
TOKEN = "${GITHUB_TOKEN}"
WORD = "word"
PART = "x${NOT_TAKEN}"
[verifier.env]
PROXY = "${https_proxy:-}"
[[steps]]
name = "one"
[steps.verifier.environment.env]
KEY = "${OPENAI_API_KEY:-none}"
[[environment.mcp_servers]]
name = "lab"
url = "https://lab.test/?t=${LAB_TOKEN}"
"""


def test_every_reference_of_a_task_is_found(task: Path) -> None:
    (task / "task.toml").write_text(TABLES)
    assert {tuple(found) for found in variables(task)} == {
        ("GITHUB_TOKEN", "environment.env.TOKEN", False),
        ("LAB_TOKEN", "environment.mcp_servers", False),
        ("https_proxy", "verifier.env.PROXY", True),
        ("OPENAI_API_KEY", "steps.verifier.environment.env.KEY", True),
    }


def test_only_declared_variables_reach_a_task(task: Path) -> None:
    (task / "task.toml").write_text('[verifier.env]\nA = "${GITHUB_TOKEN}"\nB = "${https_proxy:-}"\n')
    basics = {"https_proxy": "http://user:pass@proxy"}
    first = undeclared(task, set(), basics)
    assert first is not None
    assert (
        "its task.toml takes GITHUB_TOKEN of this machine (verifier.env.A), which not every profile declares" in first
    )
    assert "add GITHUB_TOKEN to env of [defaults] or to the env file" in first
    unset = undeclared(task, {"GITHUB_TOKEN"}, basics)
    assert unset is not None
    assert "which is not set" in unset
    second = undeclared(task, {"GITHUB_TOKEN"}, {**basics, "GITHUB_TOKEN": "t"})
    assert second is not None
    assert "takes https_proxy" in second
    assert "pass" not in second
    assert undeclared(task, {"GITHUB_TOKEN"}, {"GITHUB_TOKEN": "t"}) is None  # nothing but its own default is left
    assert undeclared(task, {"GITHUB_TOKEN", "https_proxy"}, {**basics, "GITHUB_TOKEN": "t"}) is None


@pytest.mark.parametrize(
    "line",
    [
        "      - PROXY=${HTTPS_PROXY}",
        "      - PROXY=$HTTPS_PROXY",
        "      - PROXY=${HTTPS_PROXY:-none}",
        "      - HTTPS_PROXY",
        '      "HTTPS_PROXY":',
        "    environment: HTTPS_PROXY",
        "      - X=$$$HTTPS_PROXY",
    ],
)
def test_docker_compose_takes_no_more(task: Path, line: str) -> None:
    """It fills in variables of its own process, and passes on those that a file only names."""
    (task / "environment" / "docker-compose.yaml").write_text(
        f"services:\n  main:\n    environment:\n      - OWN=${{CONTEXT_DIR}}\n      - FREE=$$HTTPS_PROXY\n{line}\n"
    )
    said = undeclared(task, set(), {"HTTPS_PROXY": "http://user:pass@proxy"})
    assert said is not None
    assert "its environment/docker-compose.yaml takes HTTPS_PROXY" in said
    assert undeclared(task, {"HTTPS_PROXY"}, {"HTTPS_PROXY": "http://proxy"}) is None
    assert undeclared(task, set(), {"HOME": "/root"}) is None


def test_validate_and_plan_say_what_will_be_refused(project, task: Path) -> None:
    (task / "task.toml").write_text('[verifier.env]\nA = "${GITHUB_TOKEN}"\n')
    (note,) = good(project, TASKS + ORACLE).notes
    assert note.startswith('task "a" of tasks uses ${GITHUB_TOKEN} (verifier.env.A), which not every profile declares')
    assert not good(project, f'{TASKS}{ORACLE}env = ["GITHUB_TOKEN"]\n').notes
    project.write("experiments/.env", "GITHUB_TOKEN=x\n")
    assert not good(project, TASKS + ORACLE).notes
