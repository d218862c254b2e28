"""Go: `go test` in the folder of the test's package, by the names of its tests."""

import re
from collections import defaultdict

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.model import CommandRun
from terminalbench.workflow.runners.report import OUTPUT_CHARS, Case, CaseReport, CaseVerdict, broken

_TESTS = re.compile(r"^func\s+(Test\w*)\s*\(", re.MULTILINE)
_SCRIPT = 'cd -- "./$1" && exec go test -json -count=1 -vet=off -run "$2" .'
_NOISE = re.compile(r"\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- (?:FAIL|PASS|SKIP):).*")
_PLACE = re.compile(r"^[ \t]*(?P<file>[\w.-]+\.go):\d+: ?", re.MULTILINE)


class _GoTestEvent(msgspec.Struct):
    Action: str = ""
    Test: str = ""
    Output: str = ""


def test_names(code: str) -> list[str]:
    """The tests that Go code declares."""
    return _TESTS.findall(code)


def command(path: str, code: str) -> list[str]:
    """The command that runs the tests of the file at `path`, whose text is `code`."""
    pattern = "^(" + "|".join(test_names(code)) + ")$"
    return ["sh", "-c", _SCRIPT, "sh", path.rpartition("/")[0] or ".", pattern]


def read(ran: CommandRun, path: str) -> CaseReport:
    """Return what became of the tests."""
    folder = path.rpartition("/")[0]
    said, ended, other = defaultdict(list), dict[str, str](), [ran.stderr]
    for line in ran.stdout.splitlines():
        try:
            event = decode(line, _GoTestEvent)
        except NOT_DECODED:
            other.append(line)
            continue
        if event.Test and event.Action == "output":
            said[event.Test].append(event.Output)
        elif event.Test and event.Action in ("pass", "fail", "skip"):
            ended[event.Test] = event.Action
        elif event.Output:
            other.append(event.Output.rstrip("\n"))
    output = "\n".join(filter(None, (*other, *("".join(lines) for lines in said.values()))))[-OUTPUT_CHARS:]
    if ran.code is None:
        return CaseReport(late=True, output=output)
    if ran.code == 127:
        return CaseReport(missing="Go", output=output)
    for test in said:
        ended.setdefault(test, "fail")  # its process died in it
    cases = tuple(
        _case(test, how, "".join(said[test]), folder)
        for test, how in ended.items()
        if how != "fail" or not any(name.startswith(f"{test}/") and ended[name] == "fail" for name in ended)
    )
    why = "" if cases else broken(output, ("build failed", ".go:")) or "no test was found in the file"
    return CaseReport(cases, broken=why, output=output)


def _case(test: str, how: str, said: str, folder: str) -> Case:
    if how != "fail":
        return Case(test, CaseVerdict.PASSED if how == "pass" else CaseVerdict.SKIPPED)
    text = "\n".join(line for line in said.splitlines() if not _NOISE.fullmatch(line)).strip()
    place = _PLACE.search(text)
    where = f"{folder}/{place['file']}".lstrip("/") if place else ""
    panicked = re.search(r"^panic: (.*)", text, re.MULTILINE)
    if panicked:
        return Case(test, CaseVerdict.RAISED, "panic", panicked[1], where)
    return Case(test, CaseVerdict.FAILED, "failed", _PLACE.sub("", text), where)
