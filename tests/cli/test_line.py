"""The line that tells how far a command is: on a terminal, after two seconds, with the time left; else nothing."""

import os
import pty
import sys
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.cli import output as line
from terminalbench.cli.main import main as run_tbench
from terminalbench.cli.output import ProgressLine
from terminalbench.experiments.batch import allocate
from terminalbench.index.store import FILE_NAME


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is put on the line, without the escapes."""
    found: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(line, "drive", lambda text: found.append(text.removeprefix("\r\x1b[K")))
    return found


def test_work_that_takes_long_tells_how_far_it_is_and_how_long_it_takes(shown: list[str]) -> None:
    clock = Clock()
    progress = ProgressLine(quiet=False, clock=clock)
    progress.refresh_sec = 0.0
    progress.tell("reading", 0, 400)
    clock.now += 1.9
    progress.tell("reading", 50, 400)
    assert shown == []  # short work says nothing
    clock.now += 8.1
    progress.tell("reading", 100, 400)
    assert shown == ["reading 100/400, about 30 s left"]
    progress.tell("reading", 400, 400)
    assert shown[-1] == ""  # the line is left before anything is printed
    progress.tell("writing", 0, 2)
    clock.now += 3
    progress.tell("writing", 0, 2)
    assert shown[-1] == "writing 0/2"


@pytest.mark.parametrize(
    ("width", "kept"), [(80, "about 2 min left"), (65, "$0.31…"), (40, "1 errored…"), (12, "12 s  3/8…")]
)
def test_the_line_ends_where_a_part_or_a_word_does(
    shown: list[str], monkeypatch: pytest.MonkeyPatch, width: int, kept: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ProgressLine(quiet=False).say("12 s  3/8 trials, 2 passed, 1 errored, 1 running, $0.31, about 2 min left")
    assert shown[-1].endswith(kept)
    assert len(shown[-1]) < width


def test_json_and_pipes_get_no_line(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for quiet, terminal in ((True, True), (False, False)):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal, raising=False)
        progress = ProgressLine(quiet=quiet, clock=Clock())
        progress.after_sec = 0.0
        progress.tell("reading", 1, 2)
        progress.done()
    assert shown == []


@pytest.mark.parametrize("command", [["index"], ["report", "s/0"]])
def test_commands_that_may_take_long_tell_it_on_a_terminal(tmp_path: Path, command: list[str]) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p",), "ab", 1)
    for task in "ab":
        make_trial(batch, f"{task}__1")
    typed = [*command, "--results", str(tmp_path / "results")]
    main, other = pty.openpty()
    code = typed_at_once(typed, tmp_path, other)
    os.close(other)
    said = os.read(main, 65536).decode()
    os.close(main)
    assert code == 0, said
    assert "s/0: reading trials " in said
    assert "\x1b[K" in said.rpartition("reading trials")[2]  # the line is left
    (tmp_path / "results" / FILE_NAME).unlink()  # all trials are read again
    with (tmp_path / "piped").open("wb") as piped:
        assert typed_at_once(typed, tmp_path, piped.fileno()) == 0
    assert b"reading" not in (tmp_path / "piped").read_bytes()


def typed_at_once(arguments: list[str], folder: Path, stderr: int) -> int:
    """The exit code of a command in a forked process that tells at once how far it is."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            line.ProgressLine.after_sec = 0.0
            line.StatusLine.is_time = lambda self: self.live
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(stderr, 2)
            kept = os.fdopen(1, "w"), os.fdopen(2, "w")
            sys.stdout, sys.stderr = kept
            code = run_tbench(arguments)
            for stream in kept:
                stream.flush()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
