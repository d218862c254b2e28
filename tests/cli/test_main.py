import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cli.pipes import unread
from conftest import REPO
from support.experiments import BASE, ORACLE
from terminalbench.cli import main as cli
from terminalbench.cli.app import _split_debug
from terminalbench.cli.commands import GROUPS, SECTIONS

COMMANDS = [name for commands in SECTIONS.values() for name in commands]
COMMANDS += [f"{group} {name}" for group, table in GROUPS.items() for commands in table.values() for name in commands]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_as_documented(tbench, golden, name: str) -> None:
    ran = tbench(*name.split(), "--help")
    assert ran.code == 0
    golden(REPO / "tests" / "golden" / "help" / f"{name.replace(' ', '-') or 'tbench'}.txt", ran.out)


def test_the_help_line_of_a_command_agrees_with_its_own_help(tbench) -> None:
    for commands in SECTIONS.values():
        for name, line in commands.items():
            assert line.endswith(".")
            assert tbench(name, "--help").code == 0


def test_version_names_ours_harbors_and_pythons(tbench) -> None:
    out = tbench("--version").out
    assert out.startswith("terminalbench 0.")
    assert "harbor 0.24" in out
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["vaildate"], 'no command is called "vaildate"; did you mean "validate"?'),
        (["plan"], "Missing argument"),
        (["plan", "x.toml", "--jsn"], "No such option"),
        (["plan", "none.toml"], "error: none.toml: no such file (tbench init makes one)"),
    ],
)
def test_wrong_usage_is_one_message_and_exit_code_two(project, tbench, arguments: list[str], expected: str) -> None:
    ran = tbench(*arguments)
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_debug_shows_the_place_of_an_error_from_any_position(project, tbench) -> None:
    assert "Traceback" in tbench("--debug", "plan", "none.toml").err
    ran = tbench("plan", "none.toml", "--debug")
    assert "Traceback" in ran.err
    assert ran.code == 2


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (RuntimeError("boom"), 1, "error: unexpected RuntimeError: boom (run again with --debug"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/r/x"),
            1,
            "error: /r/x: No space left on device (free some space",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/r"), 1, "choose another results_root"),
        (click.Abort(), 130, "interrupted"),
    ],
)
def test_every_other_ending_has_its_code(
    project, tbench, monkeypatch, error: BaseException, code: int, expected: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("terminalbench.experiments.config.load", fail)
    ran = tbench("validate", "x.toml")
    assert ran.code == code
    assert expected in ran.err
    assert "Traceback" not in ran.err


def test_an_interrupt_before_a_batch_says_that_nothing_was_started(tbench, monkeypatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("terminalbench.experiments.config.load", interrupt)
    ran = tbench("run", "x.toml")
    assert (ran.code, ran.err.strip()) == (130, "interrupted: nothing was started")


def run(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=240, env=env)


def test_the_old_spelling_reaches_the_same_commands(project) -> None:
    project.experiment(BASE + ORACLE)
    old = run(sys.executable, "-m", "terminalbench.experiments", "plan", "experiments/exp.toml", cwd=project.root)
    assert old.returncode == 0
    assert "harbor run -c results/s/0/runs/" in old.stdout
    wrong = run(sys.executable, "-m", "terminalbench.experiments", "plna", cwd=project.root)
    assert wrong.returncode == 2
    assert 'did you mean "plan"?' in wrong.stderr


def test_the_console_script_is_installed(project) -> None:
    script = Path(sys.executable).parent / "tbench"
    assert run(str(script), "--version", cwd=project.root).returncode == 0


def test_messages_that_nobody_reads_change_no_exit_code(project) -> None:
    project.experiment(BASE + ORACLE)
    project.write("bad.toml", "schema_version = 2\n")
    for files, code in ((["bad.toml"], 2), (["experiments/exp.toml", "bad.toml"], 2), (["experiments/exp.toml"], 0)):
        assert unread("validate", *files, cwd=project.root, messages=True).returncode == code, files


def test_output_without_a_file_is_left_alone(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert cli.main(["--version"]) == 0


@pytest.mark.parametrize("arguments", ["plan experiments/exp.toml", "--help", "plan --help", "--version"])
def test_a_closed_pipe_is_no_error(project, arguments: str) -> None:
    project.experiment(BASE + ORACLE)
    ran = unread(*arguments.split(), cwd=project.root)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(tbench, shell: str) -> None:
    assert "_TBENCH_COMPLETE" in tbench("completion", shell).out


def test_commands_and_profile_keys_complete(project) -> None:
    file = project.experiment(BASE + ORACLE + '[profiles.other]\nagent = "nop"\n')

    def complete(words: str, cword: int) -> list[str]:
        env = {**os.environ, "_TBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(cword)}
        script = Path(sys.executable).parent / "tbench"
        out = run(str(script), cwd=project.root, env=env).stdout
        return [line.split(",")[-1] for line in out.splitlines()]

    assert "plan" in complete("tbench p", 1)
    assert complete(f"tbench plan {file} --profiles o", 4) == ["oracle", "other"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tasks", "a", "b"],
        ["--tasks", "a,b"],
        ["--tasks=a,b"],
        ["--tasks", "a", "--tasks", "b"],
    ],
)
def test_list_options_take_several_values(project, tbench, arguments: list[str]) -> None:
    text = BASE.replace('{ id = "a" }', '{ id = "b" }, { id = "x" }, { id = "a" }') + ORACLE
    file = project.experiment(text)
    for ordered in ([file, *arguments], [*arguments, file]):
        ran = tbench("plan", *ordered)
        assert ran.code == 0, ran.err
        assert "2 tasks x 1 profile" in ran.out


def test_debug_after_a_double_dash_is_an_argument() -> None:
    assert _split_debug(["plan", "--", "--debug"]) == (["plan", "--", "--debug"], False)


@pytest.mark.parametrize("arguments", [["--tasks"], ["--tasks", ""], ["--tasks="], ["--profiles", "", "--json"]])
def test_an_empty_list_is_not_everything(project, tbench, arguments: list[str]) -> None:
    ran = tbench("plan", project.experiment(BASE + ORACLE), *arguments)
    assert ran.code == 2
    assert "is empty: give it at least one name" in ran.err


def test_a_command_ends_as_python_does_without_taking_everything_apart() -> None:
    """Threads that are to end have ended, what waits for the end has run, and nothing that was written is lost."""
    code = """
import atexit, sys, threading, time
from terminalbench.cli import main
class Left:
    def __del__(self):
        print("taken apart")
left = Left()
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
sys.stdout.write("first\\n")
main.main = lambda *_: 3
main.entry()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "first\nthread\nat exit\n", "")
