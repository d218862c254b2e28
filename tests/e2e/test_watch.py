"""The live view on a real terminal, of real runs."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from test_run import LIMIT_SEC, at_work, scripted

from support.tasks import SOLVE
from support.warm import Forked, fork_tbench
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.locks import start_ticks
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import IterationStatus, NightState
from terminalbench.records.event import Event
from terminalbench.runner.executors.local import OWN_PROCESSES

QUICK = '[profiles.sim]\nagent = "simulated"\nmodel = "simulated/x"\noptions = { solve_probability = 1.0 }\n'
LONG = QUICK.replace("{ ", "{ delay_sec = [600, 600], ")
SLOW = scripted("slow", free=0, files={"agent.log": "begun\n\x1b[2J\x1b]0;owned\x07 at work\n"})
_ALTERNATE, _NORMAL = "\x1b[?1049h", "\x1b[?1049l"


@dataclass
class Screen:
    """A program on a terminal of its own: what it writes, and the keys it gets."""

    process: Forked | subprocess.Popen[Any]
    master: int
    slave: int
    before: list
    written: str = ""
    _open: bool = field(default=True)

    def read(self, seconds: float = 0.1) -> None:
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            try:
                self.written += os.read(self.master, 1 << 16).decode(errors="replace")
            except OSError:
                self._open = False

    def wait_for(self, condition: Callable[[str], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_SEC
        while not condition(self.written):
            assert time.monotonic() < deadline, f"{what}: {self.text[-3000:]}"
            self.read()

    def shows(self, text: str) -> None:
        self.wait_for(lambda _: text in self.text, text)

    @property
    def text(self) -> str:
        """What was written, without escape sequences."""
        return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)", "", self.written)

    def press(self, keys: str) -> None:
        self.written = ""
        os.write(self.master, keys.encode())

    def end(self) -> int:
        deadline = time.monotonic() + LIMIT_SEC
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-3000:]
            self.read()
        while select.select([self.master], [], [], 0.1)[0]:
            self.read(0)
        return self.process.wait()

    def is_as_before(self) -> bool:
        """Whether the terminal is as it was: its settings, the normal screen, the cursor."""
        restored = self.written.rfind(_NORMAL) > self.written.rfind(_ALTERNATE)
        shown = self.written.rfind("\x1b[?25h") > self.written.rfind("\x1b[?25l")
        return restored and shown and termios.tcgetattr(self.slave) == self.before


@pytest.fixture
def screen(lab, tmp_path: Path):
    """Start `tbench ...` on a terminal of 100 columns; with `own` in a Python that is started for it."""
    lab.env["XDG_STATE_HOME"] = str(tmp_path / "state")
    lab.env["TERM"] = "xterm-256color"
    started: list[Screen] = []

    def start(*arguments: str | Path, own: bool = False) -> Screen:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        before = termios.tcgetattr(slave)
        said = [str(argument) for argument in arguments]
        with open(slave, closefd=False) as terminal:
            files: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
            if own:
                take = lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0)  # noqa: E731
                process = subprocess.Popen([*lab.command(), *said], cwd=lab.root, env=lab.env, start_new_session=True, preexec_fn=take, **files)  # fmt: skip
            else:
                process = fork_tbench(said, lab.env, lab.root, **files)
        started.append(Screen(process, master, slave, before))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
            one.end()
        os.close(one.master)
        os.close(one.slave)


@pytest.fixture
def slow(lab):
    """An experiment whose two trials never end by themselves."""
    return lambda run="": lab.experiment(SLOW, run=run)


def view_process(lab) -> int:
    """The process of the view that the run of the first batch started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"terminalbench.watch.attached" in words and str(lab.batch().folder).encode() in words:
            return int(folder.name)
    raise AssertionError("there is no view")


def test_a_run_shows_itself_and_ends_with_its_summary(lab, screen) -> None:
    run = screen("run", lab.experiment(scripted("p", script=SOLVE, free=1), run="parallel = 1"), "--watch", own=True)
    run.shows("Running (1)")
    run.shows("Last finished")
    lab.go()
    assert run.end() == 0
    assert run.is_as_before()
    assert "measured" in run.text[run.text.rindex("q leave") :]
    assert lab.outcomes() == {("p", "a"): ["passed"], ("p", "b"): ["passed"]}


def test_leaving_coming_back_and_stopping(lab, screen, slow) -> None:
    """One slow run: watched from another terminal and left, its own view left, watched again, a log, then stopped."""
    run = screen("run", slow(), "--watch")
    run.shows("Running (2)")
    run.wait_for(lambda _: at_work(lab) == 2, "both are at work")
    other = screen("watch")
    other.shows("Running (2)")
    other.press("j\r")
    other.shows("agent/agent.log")
    other.shows("␛[2J␛]0;owned␇ at work")
    assert "\x1b[2J" not in other.written
    other.press("\x1b")
    other.shows("Running (2)")
    other.press("q")
    assert (other.end(), other.is_as_before()) == (0, True)

    run.press("q")
    run.shows("any other key: back")
    run.press("d")
    run.shows("the run continues here")
    assert run.is_as_before()
    assert run.process.poll() is None

    again = screen("watch", lab.batch().folder)
    again.shows("Running (2)")
    again.process.send_signal(signal.SIGTERM)
    assert (again.end(), again.is_as_before()) == (143, True)

    plain = lab.start("watch", "--json")
    last = screen("watch")
    last.shows("Running (2)")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert "cancelled" in run.text
    assert last.end() == 3
    assert last.is_as_before()
    out, _ = plain.communicate(timeout=LIMIT_SEC)
    assert plain.returncode == 3
    assert out.splitlines()[-1].startswith('{"kind":"summary"')
    assert len(out.splitlines()) == len(read_jsonl(lab.batch().events_jsonl, Event).records) + 1


def test_a_view_that_is_killed_does_not_harm_the_run(lab, screen) -> None:
    run = screen("run", lab.experiment(scripted("p", script=SOLVE, free=0)), "--watch")
    run.shows("Running (2)")
    os.kill(view_process(lab), signal.SIGKILL)
    run.shows("the run continues here")
    assert run.is_as_before()
    lab.go()
    assert run.end() == 0
    assert "+ passed  a #1  p" in run.text
    assert lab.outcomes() == {("p", "a"): ["passed"], ("p", "b"): ["passed"]}


def test_stopping_from_the_view_cancels_the_trials(lab, screen, slow) -> None:
    run = screen("run", slow("parallel = 1"), "--watch")
    run.shows("Running (1)")
    run.wait_for(lambda _: at_work(lab) == 1, "it is at work")
    run.press("q")
    run.shows("s  stop the run")
    run.press("s")
    assert run.end() == 130
    assert run.is_as_before()
    assert lab.outcomes()["slow", "a"] == ["cancelled"]


def test_a_view_whose_run_was_killed_says_so_and_leaves_the_terminal_alone(lab, screen, slow) -> None:
    run = screen("run", slow(), "--watch")
    run.shows("Running (2)")
    view = view_process(lab)
    run.process.kill()
    run.wait_for(lambda _: start_ticks(view) is None, "the view ends")
    run.end()
    assert run.is_as_before()
    assert "the run was killed" in run.text


def test_a_night_shows_itself_and_is_stopped_from_its_view_and_by_ctrl_c(lab, screen) -> None:
    lab.env[OWN_PROCESSES] = "1"
    night = NightFolder(lab.root / "night")

    def state() -> NightState:
        return read_json(night.state_json, NightState)

    one = screen("iterate", "--suite", lab.experiment(LONG), "--iterations", "1", "--output", night.folder, "--watch")
    one.shows("1 of 1 worker")
    one.shows("a agent")
    one.press("q")
    one.shows("s  stop the night")
    one.press("s")
    assert (one.end(), one.is_as_before(), state().status) == (130, True, "interrupted")
    assert "--resume night" in one.text

    two = screen("overnight", "--resume", night.folder, "--watch")
    two.shows("1 of 1 worker")
    two.shows("a agent")
    two.press("\x03")
    assert (two.end(), two.is_as_before(), state().status) == (130, True, "interrupted")
    assert [(work.number, work.starts, work.status) for work in state().work] == [(1, 2, IterationStatus.WAITING)]


def test_what_an_agent_says_does_not_drive_the_terminal(lab, screen) -> None:
    """Its error on the lines of a run, of a resume and of a watch that is not the view; as the bytes of a terminal."""
    said = "\x1b]52;c;b3duZWQ=\x07\x1b]8;;http://x\x07\x1b[2J\x9b31m\u202e[red]\rFORGED\nFORGED"
    file = lab.experiment(scripted("p", outage=said), tasks=("a",), run="retries = 0")
    run = screen("run", file)
    assert run.end() == 1
    again = screen("resume", "--retry-errors", "all", lab.batch().folder)
    assert again.end() == 1
    watched = screen("run", file, "--watch")
    assert watched.end() == 1
    for one in (run, again, watched):
        assert "␛]52;c;b3duZWQ=␇" in one.text
        ours = re.sub(r"\r\x1b\[K|\x1b\[[0-9;?]*[hlmHJ]|\r\n", "\n", one.written)
        assert ours.replace("\n", "").isprintable(), ours
        assert "\nFORGED" not in ours
    assert not re.search(r"\x1b(?!\[K)", run.written + again.written)


def test_json_of_a_watched_run_is_one_object_a_line(lab) -> None:
    ran = lab.tbench("run", lab.experiment(QUICK, tasks=("a",)), "--watch", "--json")
    kinds = [json.loads(line)["kind"] for line in ran.stdout.splitlines()]
    kinds = [kind for kind in kinds if kind != "alert"]  # this machine may be short of something
    assert (ran.returncode, kinds[0], kinds[-2:]) == (0, "job_started", ["job_ended", "summary"])
    assert kinds.count("trial_ended") == 1


def test_without_a_terminal_a_line_a_trial_and_a_reader_that_goes_away_does_not_end_the_run(lab) -> None:
    process = lab.start("run", lab.experiment(scripted("p", script=SOLVE, free=1), run="parallel = 1"), "--watch")
    assert process.stdout is not None
    line = next(line for line in process.stdout if "passed" in line)
    assert line.split("  ")[1:4] == ["1/2", "+ passed", "a #1"]
    assert "\x1b" not in line
    process.stdout.close()
    lab.go()
    assert process.wait(timeout=LIMIT_SEC) == 0
    assert lab.outcomes() == {("p", "a"): ["passed"], ("p", "b"): ["passed"]}


def test_the_end_names_a_results_folder_that_is_elsewhere(done) -> None:
    (done.lab.root / "results").rename(done.lab.root / "moved")
    ran = done.lab.tbench("watch", "moved/s/0")
    assert "tbench list moved/s/0\n" in ran.stdout
    assert "in a browser: tbench view moved\n" in ran.stdout
