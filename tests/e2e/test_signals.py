"""Whatever ends a command from outside ends it in one way: 130, no traceback, nothing half done, nothing left running."""

import os
import signal
import subprocess

import pytest
from test_run import LIMIT_SEC, alive, at_work, scripted, wait_for

from support.aftermath import descendants

HIT = """
import os, signal, sys

def hit():
    global hit
    hit = lambda: None
    os.kill(os.getpid(), int(os.environ["HIT_BY"]))

class Finder:
    def find_spec(self, name, *_):
        if name == os.environ["HIT_AT"]:
            hit()

def audit(event, arguments):
    if event in ("os.mkdir", "open") and str(arguments[0]).endswith(os.environ["HIT_AT"]):
        hit()

if "HIT_AT" in os.environ and ("terminalbench" in " ".join(sys.orig_argv) or "/support/tbench.py" in sys.orig_argv[1]):
    sys.meta_path.insert(0, Finder())
    sys.addaudithook(audit)
"""
MOMENTS = {
    "loading the command line": "click",
    "loading the command": "terminalbench.cli.run",
    "reading the experiment": "experiments/exp.toml",
    "planning": "terminalbench.runner.preflight",
    "looking at the tasks": "tasks/a/task.toml",
    "making the batch": "results/s/0",
    "filling the batch": "results/s/0/runs",
}
AFTER_HARBOR = ("making the batch", "filling the batch")
"""When Harbor has been asked about the tasks: it is a forked one there, what a signal does has begun long before."""


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal():
    """A run takes no signal that was ignored when it began: under nohup, or in the background, the tests ignore some."""
    numbers = (signal.SIGHUP, signal.SIGQUIT)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def hit(lab):
    """Runs `tbench run` and sends it a signal at one moment."""
    lab.project.write("hit/sitecustomize.py", HIT)
    file = lab.experiment('[profiles.o]\nagent = "oracle"\n')

    def run(moment: str, number: int) -> subprocess.CompletedProcess[str]:
        lab.env |= {"PYTHONPATH": str(lab.root / "hit"), "HIT_AT": MOMENTS[moment], "HIT_BY": str(int(number))}
        return lab.process("run", file, fresh=moment not in AFTER_HARBOR)

    return run


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_first_moments_of_a_run(lab, hit, moment: str) -> None:
    """Each signal at the last of them, by turns one of two before."""
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    for number in every if moment == "filling the batch" else [every[list(MOMENTS).index(moment) % 2]]:
        ran = hit(moment, number)
        assert (ran.returncode, ran.stdout) == (130, ""), ran.stdout + ran.stderr
        assert ran.stderr.splitlines()[-1] == "interrupted: nothing was started"
        assert "Traceback" not in ran.stderr
        assert not list((lab.root / "results").glob("s/*")), "no half batch"


def test_a_hangup_and_a_quit_end_a_run_as_a_termination_does(lab) -> None:
    file = lab.experiment(scripted("p", free=0), run="parallel = 2")
    for number, command in ((signal.SIGHUP, "run"), (signal.SIGQUIT, "resume")):
        process = lab.start(command, file)
        wait_for(lambda: at_work(lab) == (2 if number is signal.SIGHUP else 4), process)  # noqa: B023
        below = descendants(process.pid)
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=LIMIT_SEC)
        assert process.returncode == 130, out + err
        assert "Traceback" not in err
        wait_for(lambda: not any(alive(pid) for pid in below))  # noqa: B023
        assert lab.outcomes() == {("p", task): ["cancelled"] for task in "ab"}
    lab.go()
    ran = lab.tbench("resume", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert lab.outcomes() == {("p", "a"): ["failed"], ("p", "b"): ["failed"]}


def test_a_run_under_nohup_does_not_end_with_its_terminal(lab) -> None:
    lab.prefix = ["nohup"]
    process = lab.start("run", lab.experiment(scripted("p", free=0), tasks=("a",)))
    wait_for(lambda: at_work(lab) == 1, process)
    os.kill(process.pid, signal.SIGHUP)
    lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    assert process.returncode == 0, out + err
