"""`tbench validate`: what a run would leave out is found before it, with the line of the file."""

import ast
import re
import shutil
from pathlib import Path

import click
import pytest

from terminalbench.cli.app import app

REPO = Path(__file__).parents[2]
HEAD = 'schema_version = 2\nslug = "s"\n[run]\ncontainer_env = "local"\n[tasks]\ndefault_dataset = "tasks"\nitems = "all"\n'


@pytest.fixture
def tasks(project) -> Path:
    (project.root / ".tbench").touch()
    for name in ("good", "other"):
        project.task("tasks", name)
    return project.root / "tasks"


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda folder: (folder / "task.toml").write_text("a = 1\nb = [\n"),
            "task.toml is not valid TOML: Invalid value",
        ),
        (lambda folder: (folder / "task.toml").write_bytes(b"\xff"), "task.toml is not valid TOML: 'utf-8' codec"),
        (lambda folder: shutil.rmtree(folder / "tests"), "has no tests/test.sh"),
        (lambda folder: (folder / "instruction.md").unlink(), "has no instruction.md"),
        (lambda folder: shutil.rmtree(folder / "environment"), "has no environment"),
        (
            lambda folder: (folder / "task.toml").write_text('[[steps]]\nname = "one"'),
            "has no steps/one/instruction.md",
        ),
    ],
)
def test_a_broken_task_folder_is_found(tbench, project, tasks: Path, harm, said: str) -> None:
    file = project.write("e.toml", HEAD + '[profiles.p]\nagent = "nop"\n')
    assert tbench("validate", file).code == 0
    harm(tasks / "good")
    ran = tbench("validate", file)
    assert ran.code == 2
    assert f'e.toml: task "good" of tasks: {said}' in ran.err
    assert "(fix tasks/good, or leave out the task)" in ran.err
    assert '"other"' not in ran.err
    planned = tbench("plan", file)
    assert planned.code == 0
    assert "2 tasks x 1 profile x 1 attempt = 2, 1 of them left out" in planned.out
    assert f"good: {said}" in " ".join(planned.out.partition("Left out")[2].split())


def test_tests_that_the_verifiers_own_environment_brings_are_not_missed(tbench, project, tasks: Path) -> None:
    file = project.write("e.toml", HEAD + '[profiles.p]\nagent = "nop"\n')
    shutil.rmtree(tasks / "good" / "tests")
    (tasks / "good" / "task.toml").write_text('[verifier.environment]\ndocker_image = "x"\n')
    assert tbench("validate", file).code == 0


def test_every_problem_has_the_line_of_its_key(tbench, project, tasks: Path) -> None:
    profiles = '[profiles.a]\nagent = "mien:Mine"\n[profiles.b]\nagent = "claude-code"\noptions = { max_turn = 3 }\nno_mcp = true\n'
    file = project.write("e.toml", f'{HEAD}{profiles}[analysis]\nbaseline = "c"\n')
    ran = tbench("validate", file)
    assert [line.removeprefix(f"{project.root}/").split(": ")[:2] for line in ran.err.splitlines()] == [
        ["e.toml:9", "profiles.a.agent"],
        ["e.toml:12", "profiles.b.options.max_turn"],
        ["e.toml:15", "analysis.baseline"],
    ]
    assert f"module mien is neither in {project.root} nor installed" in ran.err
    assert 'did you mean "max_turns"?' in ran.err


def test_the_commands_that_messages_name_exist_with_their_options() -> None:
    """`tbench x --y` in a text of the source: such a command has such an option."""
    wrong = []
    for file in sorted((REPO / "src").rglob("*.py")):
        if "tbench " not in (source := file.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for words in re.findall(r"tbench ((?:[a-z-]+ )?[a-z-]+)((?: [^\n`;,.()]*)?)", node.value):
                wrong += [f"{file.relative_to(REPO)}:{node.lineno}: {one}" for one in _unknown(*words)]
    assert not wrong, "\n".join(wrong)


def _unknown(name: str, rest: str) -> list[str]:
    context = click.Context(app, **app.context_settings)
    first, _, second = name.partition(" ")
    command = app.get_command(context, first) if first in app.list_commands(context) else None
    if command is None:
        return []  # prose
    if isinstance(command, click.Group) and second in command.list_commands(context):
        command = command.get_command(context, second)
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--debug", "--version"}
    return [f"tbench {name}{rest}: {option}" for option in re.findall(r"(?<!\S)--[a-z-]+", rest) if option not in known]


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("first", "did you mean experiments/first.toml?"),
        ("first.toml", "did you mean experiments/first.toml?"),
        ("experiments/first.tml", "did you mean experiments/first.toml?"),
        ("other.toml", "tbench init makes one"),
    ],
)
def test_a_file_that_is_not_there_is_guessed(project, tbench, monkeypatch, typed: str, hint: str) -> None:
    monkeypatch.chdir(project.root)
    project.experiment("", "first.toml")
    ran = tbench("plan", typed)
    assert (ran.code, ran.err) == (2, f"error: {typed}: no such file ({hint})\n")


def test_profiles_that_a_run_would_leave_out_here_are_told_before_it(
    tbench, project, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is that of the run; a default, and a variable that is set, need nothing."""
    profiles = """
[profiles.one]
agent = "nop"
env = ["A_FIRST_KEY", "A_SECOND_KEY"]
[profiles.two]
agent = "nop"
env = ["A_FIRST_KEY"]
[profiles.three]
agent = "nop"
env = { MODE = "${A_MODE:-fast}" }
"""
    file = project.write("e.toml", HEAD + profiles)
    monkeypatch.setenv("A_FIRST_KEY", "x1")
    said = "one: A_SECOND_KEY is not set (put it into "
    ran = tbench("validate", file)
    assert ran.code == 0
    assert "a run here would leave out 1 of 3 profiles:" in ran.out
    assert f"a run leaves out {said}" in ran.out
    assert ran.out.count("a run leaves out ") == 1
    planned = tbench("plan", file)
    assert f"a run on this machine leaves out {said}" in " ".join(planned.out.split())
    monkeypatch.setenv("A_SECOND_KEY", "x2")
    assert "leave out" not in tbench("validate", file).out
    assert "left out" not in tbench("plan", file).out
