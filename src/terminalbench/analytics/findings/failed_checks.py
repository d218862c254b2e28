"""The first check that failed and what it said, from the verifier's report or its output.

The ends of what programs printed are concealed, and made fit to be shown, for an agent can write anything.
"""

import os
import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import is_plain, open_plain, read_plain
from terminalbench.secrets.values import Secrets
from terminalbench.text.foreign import flat, printable

REPORT_BYTES = 4 << 20
_MESSAGE_LINES = 6
_LAST_LINES = 3
_UNITTEST = re.compile(r"^(?:FAIL|ERROR): (?P<name>\S+)(?P<rest>.*)$")
_RULE = re.compile(r"^(?:={10,}|-{10,})$")
_PYTEST = re.compile(r"^(?:FAILED|ERROR) (?P<name>\S+)(?: - (?P<message>.*))?$")
_NOT_OK = re.compile(r"^not ok \d+ (?:- )?(?P<name>.+)$")
_GO = re.compile(r"^\s*--- FAIL: (?P<name>\S+)")
ERROR_LINE = re.compile(r"^(?:E\s+)?(?:[\w.]+\.)?\w*(?:Error|Exception|Failure)\b.*\S")


@dataclass(frozen=True)
class FailedCheck:
    """A check that failed; either part is "" where it is not known."""

    name: str
    message: str


class CtrfTest(msgspec.Struct, frozen=True):
    """One test of the verifier's CTRF report."""

    name: str = "?"
    status: str = "other"
    message: str | None = None
    trace: str | None = None


class _CtrfTests(msgspec.Struct):
    tests: list[CtrfTest] = []


class _CtrfReport(msgspec.Struct):
    results: _CtrfTests


def ctrf_tests(report: str | bytes) -> list[CtrfTest]:
    """The tests in a CTRF report. Raises one of NOT_DECODED."""
    return decode(report, _CtrfReport).results.tests


def failed_check(folder: Path, secrets: Secrets) -> FailedCheck | None:
    """The first check that failed in the trial of a folder that failed; None when its verifier left no word."""
    lines, _ = last_lines(folder / "verifier" / "test-stdout.txt", secrets)
    report = read_plain(folder / "verifier" / "ctrf.json", REPORT_BYTES)
    return first_failed("\n".join(lines), secrets.conceal(report.decode(errors="replace")) if report else None)


def first_failed(output: str, report: str | None = None) -> FailedCheck | None:
    """The first check that failed: by the CTRF `report` if there is one that can be read, else by the output.

    Where neither names one or an error, the last words of the verifier are the reason.
    """
    return (_of_report(report) if report else None) or _of_output(output)


def _of_report(text: str) -> FailedCheck | None:
    try:
        tests = ctrf_tests(text)
    except NOT_DECODED:
        return None
    failed = next((test for test in tests if test.status == "failed"), None)
    if failed is None:
        return None
    # pytest's plugin writes where it failed in the place of a message
    says = failed.message is not None and not failed.message.startswith("The test failed in the")
    said = failed.message if says else _error_of(str(failed.trace or "").splitlines())
    return FailedCheck(failed.name, _first_lines(said or failed.message or ""))


def _of_output(output: str) -> FailedCheck | None:
    lines = output.splitlines()
    for number, line in enumerate(lines):
        if match := _UNITTEST.match(line):
            return FailedCheck(
                match["name"] + _subtest(match["rest"]),
                _error_of(list(takewhile(lambda one: not _RULE.match(one), lines[number + 2 :]))),
            )
        if match := _GO.match(line) or _NOT_OK.match(line):
            return FailedCheck(match["name"].strip(), _first_lines("\n".join(lines[number + 1 : number + 4])))
    for line in lines:
        if match := _PYTEST.match(line):
            return FailedCheck(match["name"], match["message"] or _error_of(lines))
    last = [line for line in lines if line.strip()][-_LAST_LINES:]
    said = _error_of(lines) or _first_lines("\n".join(last))
    return FailedCheck("", said) if said else None


def _subtest(rest: str) -> str:
    """The arguments of a subtest, as unittest writes them behind the test's place."""
    found = re.search(r"\s(\[.*\]|\(\w+=.*\))$", rest)
    return f" {found[1]}" if found else ""


def _error_of(lines: list[str]) -> str:
    """The first error that stands at the start of a line, with the lines that follow it."""
    start = next((n for n, line in enumerate(lines) if ERROR_LINE.match(line)), None)
    if start is None:
        return ""
    following = []
    for line in lines[start + 1 :]:
        if not line.strip() or _RULE.match(line):
            break
        following.append(line)
    return _first_lines("\n".join(re.sub(r"^E {1,7}", "", line) for line in [lines[start], *following]))


def _first_lines(text: str) -> str:
    return "\n".join(text.strip("\n").splitlines()[:_MESSAGE_LINES])[:2000]


_TAIL_BYTES = 64 * 1024
_MOST_OUTPUTS = 6
_LETTERS = 160


def agent_outputs(folder: Path) -> list[Path]:
    """Return the texts that the agent of a trial left in its log folders, whatever it calls them."""
    runs = [folder, *sorted(path for path in folder.glob("steps/*") if not path.is_symlink())]
    found = [sorted([*(run / "agent").glob("*.txt"), *(run / "agent").glob("*.log")])[:_MOST_OUTPUTS] for run in runs]
    return [path for paths in found for path in paths if is_plain(path)]


def last_said(folder: Path, secrets: Secrets) -> dict[str, str]:
    """Return the last line of each output of the agent that has one, by the name of its file."""
    found = {file.name: last_lines(file, secrets)[0] for file in agent_outputs(folder)}
    last = {name: next((line for line in reversed(lines) if line.strip()), "") for name, lines in found.items()}
    return {name: flat(line, _LETTERS) for name, line in last.items() if line}


def last_lines(file: Path, secrets: Secrets) -> tuple[list[str], bool]:
    """The last lines of a file of a trial, fit to be printed; and whether they are all. None without the file."""
    with open_plain(file) as stream:
        if stream is None:
            return [], True
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - _TAIL_BYTES))
        text = stream.read(_TAIL_BYTES).decode(errors="replace")
    lines = secrets.conceal(text).splitlines()[1 if size > _TAIL_BYTES else 0 :]
    return [printable(line) for line in lines], size <= _TAIL_BYTES
