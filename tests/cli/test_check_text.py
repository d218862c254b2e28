"""What `tbench check` prints: tables within 80 columns, each problem once, the verifier's last lines."""

from pathlib import Path

import pytest

from terminalbench.cli.check import _text
from terminalbench.lab.check import CheckReport, ProfileCheck, TaskCheck
from terminalbench.records.trial import Outcome, TaskRef

LONG = "a-task-whose-name-is-so-long-that-no-terminal-of-eighty-columns-holds-it-and-more"
BROKEN = "its own solution does not pass (failed); if the solution is a running process, set keep_processes = true"


def report(interrupted: bool = False) -> CheckReport:
    said = ("FAILED test_outputs.py::test_x - AssertionError: " + "y" * 90, "1 failed \x1b[31m")
    tasks = [TaskCheck(TaskRef(LONG, "d"), Outcome.PASSED, Outcome.FAILED, None)]
    tasks += [TaskCheck(TaskRef(name, "d"), Outcome.FAILED, Outcome.FAILED, BROKEN, said=said) for name in ("b", "c")]
    profiles = [ProfileCheck(name, "neither A_KEY nor B_KEY is set", None, None) for name in ("p", "q")]
    return CheckReport(tuple(tasks), tuple(profiles), Path("results/.check/s/0"), interrupted, notes=("word " * 40,))


def test_tables_fit_and_each_problem_is_said_once_with_the_verifiers_words() -> None:
    text = _text(report())
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("its own solution does not pass") == 1
    assert "\nb, c: its own solution does not pass (failed)" in text
    assert "  the last words of the verifier\n    FAILED test_outputs.py::test_x" in text
    assert "\np, q: neither A_KEY nor B_KEY is set\n" in text
    assert "interrupted" not in text


def test_an_interrupted_check_says_so_and_blames_no_task() -> None:
    text = _text(report(interrupted=True))
    assert text.startswith("interrupted: ")
    assert text.count("not checked") == 2
    assert "does not pass" not in text


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_reason_may_be_left_out_on_a_terminal_only(tbench, project, monkeypatch, on_terminal: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: on_terminal, raising=False)
    (project.root / "results").mkdir()
    ran = tbench("ctl", "pause", "--in", "s/9")
    assert ran.code == 2
    assert ("Missing option '--reason'" in ran.err) == (not on_terminal)
    assert ("no such batch" in ran.err) == on_terminal
