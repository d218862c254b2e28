"""Runners of exactly one test file in a repository, and how its result is read.

Python: pytest where the repository has it, else unittest. Go: `go test` in the folder of the test's package, by the
names of its tests. JavaScript and TypeScript: node:test, jest, vitest or mocha, whichever the package of the test uses.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.languages import Language, Repository, Runner, of_file
from terminalbench.workflow.model import CommandRun, Workspace
from terminalbench.workflow.programs import program

MARK = "::report-of-the-tests::"
"""What follows it on stdout was written by a runner, not by the tests."""
OUTPUT_CHARS = 6000


class CaseVerdict(StrEnum):
    """The end of a test. Only `failed` is a failed assertion; `broken` is an import or a compilation that failed."""

    PASSED = "passed"
    FAILED = "failed"
    RAISED = "raised"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Case:
    """One test: what it is called, how it ended, and of what."""

    id: str
    verdict: CaseVerdict
    error: str = ""
    message: str = ""
    where: str = ""


@dataclass(frozen=True)
class CaseReport:
    """The tests of one file. `broken` says why none could be read; `missing` what is not installed here.

    `late`: stopped at the time limit.
    """

    cases: tuple[Case, ...] = ()
    broken: str = ""
    missing: str = ""
    late: bool = False
    output: str = ""

    def of(self, *verdicts: CaseVerdict) -> list[Case]:
        """The tests that ended in one of these ways."""
        return [case for case in self.cases if case.verdict in verdicts]

    @property
    def green(self) -> bool:
        """Return whether at least one test passed and none did anything else but skip."""
        return (
            not self.broken
            and not self.missing
            and not self.late
            and {case.verdict for case in self.cases} - {CaseVerdict.SKIPPED} == {CaseVerdict.PASSED}
        )


def _marked(ran: CommandRun) -> tuple[str, str | None]:
    """Return what a run printed before the mark, and what stands after it; None without a mark."""
    before, mark, after = ran.stdout.rpartition(MARK)
    output = before if mark else ran.stdout
    said = "\n".join(part.strip("\n") for part in (output, ran.stderr) if part.strip())
    return said[-OUTPUT_CHARS:], after.strip() if mark else None


def _broken(output: str, names: Sequence[str] = ()) -> str:
    """The lines of an output that say why nothing ran: the last one that names an error, and those before it."""
    lines = [line for line in output.splitlines() if line.strip()]
    marks = ("Error", "error:", "undefined", "cannot find", "Cannot find", *names)
    last = max((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), default=len(lines) - 1)
    return "\n".join(lines[max(0, last - 7) : last + 4])


async def run_test(
    workspace: Workspace, repository: Repository, path: str, files: Mapping[str, bytes | None], timeout_sec: float
) -> CaseReport:
    """Run the test at `path`, which is one of `files`, on the base tree with `files` written over it."""
    code = (files.get(path) or b"").decode(errors="replace")
    runner = repository.runner(path)
    if runner is None:
        return CaseReport(missing=f"a runner for tests like {path}")
    ran = await workspace.run(command_of(repository, path, code, runner), timeout_sec=timeout_sec, files=files)
    return read_report(ran, runner, path)


def command_of(repository: Repository, path: str, code: str, runner: Runner) -> list[str]:
    """Return the command that runs the tests of the file at `path`, whose text is `code`."""
    match of_file(path):
        case Language.PYTHON:
            return _python_command(path, code, runner)
        case Language.GO:
            return _go_command(path, code)
        case _:
            return _node_command(repository, path, runner)


def read_report(ran: CommandRun, runner: Runner, path: str) -> CaseReport:
    """Return what became of the tests of the file at `path`."""
    if ran.code is None:
        return CaseReport(late=True, output=_marked(ran)[0])
    match of_file(path):
        case Language.PYTHON:
            return _read_python(ran)
        case Language.GO:
            return _read_go(ran, path)
        case _:
            return _read_node(ran, runner, path)


PYTHON = (
    'py=; for one in python python3; do if "$one" -c "import sys; sys.exit(sys.version_info < (3, 6))" 2>/dev/null; '
    'then py=$one; break; fi; done; if [ -z "$py" ]; then echo "no Python 3 is installed" >&2; exit 127; fi\n'
)
"""Shell: `$py` is the Python of the environment."""
# The images of benchmarks set PYTEST_ADDOPTS to run a failed test again and again: not for a red test.
_PYTHON_SCRIPT = (
    PYTHON
    + "d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT\n"
    + 'printf %s "$3" > "$d/tbench_tests.py"; export TBENCH_REPORT="$d/report.json"; unset PYTEST_ADDOPTS; code=0\n'
    + 'if [ "$2" = pytest ] && "$py" -c "import pytest" 2>/dev/null; then\n'
    + '  PYTHONPATH="$d${PYTHONPATH:+:$PYTHONPATH}" "$py" -m pytest -p tbench_tests -o cache_dir="$d/cache" -q '
    + '--tb=short "$1" > "$d/out" 2>&1 || code=$?\n'
    + 'else "$py" "$d/tbench_tests.py" "$1" "$TBENCH_REPORT" > "$d/out" 2>&1 || code=$?; fi\n'
    + f'tail -c 20000 "$d/out"; echo; echo "{MARK}"; cat "$TBENCH_REPORT" 2>/dev/null; exit $code\n'
)
_NEEDS_PYTEST = re.compile(r"^[ \t]*(?:import|from)\s+pytest\b", re.MULTILINE)


class _PythonReport(msgspec.Struct):
    cases: list[dict[str, Any]]
    broken: list[str]


def _python_command(path: str, code: str, runner: Runner) -> list[str]:
    word = "pytest" if runner is Runner.PYTEST or _NEEDS_PYTEST.search(code) else "unittest"
    return ["sh", "-c", _PYTHON_SCRIPT, "sh", path, word, program("python_tests.py")]


def _read_python(ran: CommandRun) -> CaseReport:
    output, told = _marked(ran)
    if ran.code == 127 and told is None:
        return CaseReport(missing="Python 3", output=output)
    try:
        found = decode(told or "", _PythonReport)
        cases = tuple(
            Case(one["id"], CaseVerdict(one["verdict"]), one["error"], one["message"], one["where"])
            for one in found.cases
        )
    except (*NOT_DECODED, KeyError, ValueError):
        return CaseReport(broken=_broken(output) or f"the test run ended with exit code {ran.code}", output=output)
    stopped = [case for case in cases if case.verdict is CaseVerdict.BROKEN]
    why = "\n".join(found.broken) or "\n".join(f"{case.error}: {case.message}" for case in stopped)
    return CaseReport(cases, broken=why or _none(cases), output=output)


_GO_TESTS = re.compile(r"^func\s+(Test\w*)\s*\(", re.MULTILINE)
_GO_SCRIPT = 'cd -- "./$1" && exec go test -json -count=1 -vet=off -run "$2" .'
_GO_NOISE = re.compile(r"\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- (?:FAIL|PASS|SKIP):).*")
_GO_PLACE = re.compile(r"^[ \t]*(?P<file>[\w.-]+\.go):\d+: ?", re.MULTILINE)


class _GoTestEvent(msgspec.Struct):
    Action: str = ""
    Test: str = ""
    Output: str = ""


def test_names(code: str) -> list[str]:
    """The tests that Go code declares."""
    return _GO_TESTS.findall(code)


def _go_command(path: str, code: str) -> list[str]:
    pattern = "^(" + "|".join(test_names(code)) + ")$"
    return ["sh", "-c", _GO_SCRIPT, "sh", path.rpartition("/")[0] or ".", pattern]


def _read_go(ran: CommandRun, path: str) -> CaseReport:
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
    if ran.code == 127:
        return CaseReport(missing="Go", output=output)
    for test in said:
        ended.setdefault(test, "fail")  # its process died in it
    cases = tuple(
        _go_case(test, how, "".join(said[test]), folder)
        for test, how in ended.items()
        if how != "fail" or not any(name.startswith(f"{test}/") and ended[name] == "fail" for name in ended)
    )
    why = "" if cases else _broken(output, ("build failed", ".go:")) or "no test was found in the file"
    return CaseReport(cases, broken=why, output=output)


def _go_case(test: str, how: str, said: str, folder: str) -> Case:
    if how != "fail":
        return Case(test, CaseVerdict.PASSED if how == "pass" else CaseVerdict.SKIPPED)
    text = "\n".join(line for line in said.splitlines() if not _GO_NOISE.fullmatch(line)).strip()
    place = _GO_PLACE.search(text)
    where = f"{folder}/{place['file']}".lstrip("/") if place else ""
    panicked = re.search(r"^panic: (.*)", text, re.MULTILINE)
    if panicked:
        return Case(test, CaseVerdict.RAISED, "panic", panicked[1], where)
    return Case(test, CaseVerdict.FAILED, "failed", _GO_PLACE.sub("", text), where)


_MISSING = 69
_NODE_SCRIPT = f"""root=$(pwd); cd -- "./$1" || exit {_MISSING}
if ! command -v node >/dev/null 2>&1; then echo "Node" >&2; exit {_MISSING}; fi
d=$(mktemp -d) && trap 'rm -rf "$d"' EXIT
name=$2; path=$3; bin=; at=$(pwd); code=0
if [ "$name" = node ]; then
  printf %s "$4" > "$d/reporter.mjs"; shift 4
  case $#$path in
  0*.ts | 0*.mts | 0*.cts)
    if ! node -e 'process.exit(process.features.typescript ? 0 : 1)'; then
      if ! node --experimental-strip-types -e 0 2>/dev/null; then
        echo "a Node that runs TypeScript" >&2; exit {_MISSING}
      fi
      set -- --experimental-strip-types
    fi ;;
  esac
  node "$@" --test --test-reporter="$d/reporter.mjs" --test-reporter-destination="$d/report" "$path" \
    > "$d/out" 2>&1 || code=$?
else
  while :; do
    if [ -e "$at/node_modules/.bin/$name" ]; then bin="$at/node_modules/.bin/$name"; break; fi
    if [ "$at" = "$root" ] || [ "$at" = / ]; then break; fi
    at=$(dirname -- "$at")
  done
  if [ -z "$bin" ]; then echo "$name (node_modules/.bin/$name)" >&2; exit {_MISSING}; fi
  case $name in
  jest) set -- --json --outputFile="$d/report" --coverage=false --ci --runTestsByPath "$path" ;;
  vitest) set -- run "$path" --reporter=json --outputFile="$d/report" --coverage.enabled=false ;;
  mocha) set -- --reporter json --reporter-option "output=$d/report" "$path" ;;
  esac
  CI=1 "$bin" "$@" > "$d/out" 2>&1 || code=$?
  if [ "$name" = mocha ] && [ ! -s "$d/report" ]; then cat "$d/out" > "$d/report"; fi
fi
tail -c 20000 "$d/out"; echo; echo "{MARK}"; node -e "$0" "$d/report" 2>/dev/null; exit $code
"""
_NODE_FLAGS = frozenset({"--import", "--loader", "--experimental-loader", "--require", "-r", "--conditions", "-C"})
_JS_ERROR = re.compile(
    r"^\s*(?:Uncaught )?(?P<error>[A-Za-z_$][\w$.]*)(?: \[(?P<code>\w+)\])?: ?(?P<message>.*)", re.DOTALL
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\n\s+at .*", re.DOTALL)


def _node_command(repository: Repository, path: str, runner: Runner) -> list[str]:
    folder = repository.package_of(path)
    inner = path.removeprefix(f"{folder}/") if folder else path
    words = ["sh", "-c", _NODE_SCRIPT, program("node_report.cjs"), folder or "."]
    if runner is not Runner.NODE:
        return [*words, str(runner), inner]
    return [*words, "node", inner, program("node_reporter.mjs"), *_node_flags(repository, folder)]


def _read_node(ran: CommandRun, runner: Runner, path: str) -> CaseReport:
    output, told = _marked(ran)
    if told is None:
        missing = ran.stderr.strip() or str(runner) if ran.code == _MISSING else ""
        return CaseReport(missing=missing, broken=_broken(output), output=output)
    try:
        if runner is Runner.NODE:
            return _node(told, path, output)
        return _mocha(told, path, output) if runner is Runner.MOCHA else _jest(told, output)
    except (*NOT_DECODED, KeyError, TypeError, AttributeError, ValueError):
        return CaseReport(broken=_broken(output) or f"the test run ended with exit code {ran.code}", output=output)


def _node_flags(repository: Repository, folder: str) -> list[str]:
    """Return what the package's own test script gives to Node, to load TypeScript for example."""
    data = repository.manifests.get(f"{folder}/package.json" if folder else "package.json", b"{}")
    try:
        words = shlex.split(decode(data)["scripts"]["test"])
        words = words[words.index("node") + 1 :]
    except (*NOT_DECODED, KeyError, TypeError, ValueError, AttributeError):
        return []
    flags: list[str] = []
    for at, word in enumerate(words):
        if word in _NODE_FLAGS and at + 1 < len(words):
            flags += [word, words[at + 1]]
        elif word.split("=")[0] in _NODE_FLAGS or word.startswith("--experimental-"):
            flags.append(word)
    return flags


class _NodeTestEnd(msgspec.Struct):
    name: str = ""
    file: str = ""
    suite: bool = False
    passed: bool = False
    skipped: bool = False
    failure: str = ""
    error: str = ""
    code: str | int | None = ""
    message: str = ""
    where: str = ""
    printed: str = ""


def _node(told: str, path: str, output: str) -> CaseReport:
    events = [decode(line, _NodeTestEnd) for line in told.splitlines() if line.strip()]
    printed = "".join(event.printed for event in events)
    output = "\n".join(filter(None, (output, printed)))[-6000:]
    cases, whole = [], []
    for event in events:
        if not event.name or event.suite or event.failure == "subtestsFailed":
            continue
        if event.name.endswith(path) or (event.file and event.file == event.name):
            whole.append(event)
            continue
        verdict = _verdict(event.error, str(event.code or ""), event.message)
        verdict = CaseVerdict.SKIPPED if event.skipped else CaseVerdict.PASSED if event.passed else verdict
        cases.append(Case(f"{path}::{event.name}", verdict, event.error, event.message.strip(), event.where))
    stopped = any(not event.passed for event in whole) and not any(
        case.verdict is not CaseVerdict.PASSED for case in cases
    )
    why = _broken(output) or "the test file could not be run" if stopped else ""
    return CaseReport(tuple(cases), broken=why or _none(cases), output=output)


def _jest(told: str, output: str) -> CaseReport:
    """The report of jest, which vitest writes too."""
    document = decode(told)
    cases, why = [], []
    for file in document["testResults"]:
        tests = file.get("assertionResults") or []
        if file.get("status") == "failed" and not any(test.get("status") == "failed" for test in tests):
            said = _COLOUR.sub("", str(file.get("message") or "the test file could not be run"))
            why.append(_FRAME.sub("", said))
        for test in tests:
            messages = [_COLOUR.sub("", str(one)) for one in test.get("failureMessages") or []]
            said = messages[0] if messages else ""
            error, code, message = _parsed(said)
            verdict = {
                "passed": CaseVerdict.PASSED,
                "failed": _verdict(error, code, message),
            }.get(str(test.get("status")), CaseVerdict.SKIPPED)
            name = test.get("fullName") or test.get("title") or ""
            cases.append(Case(str(name), verdict, error, message if said else ""))
    return CaseReport(tuple(cases), broken="\n".join(why) or _none(cases), output=output)


def _mocha(told: str, path: str, output: str) -> CaseReport:
    document = decode(told)
    pending = {one.get("fullTitle") for one in document.get("pending") or []}
    cases = []
    for test in document["tests"]:
        if path not in str(test.get("file") or path):
            continue  # the configuration of mocha may name more files
        title = str(test.get("fullTitle") or test.get("title"))
        fault = test.get("err") or {}
        said = _COLOUR.sub("", str(fault.get("message") or ""))
        error, code = str(fault.get("name") or _parsed(str(fault.get("stack") or ""))[0]), str(fault.get("code") or "")
        verdict = (
            _verdict(error, code, said) if fault else CaseVerdict.SKIPPED if title in pending else CaseVerdict.PASSED
        )
        cases.append(Case(title, verdict, error if fault else "", said))
    hooks = [one for one in document.get("failures") or [] if "hook" in str(one.get("title"))]
    why = "\n".join(f"{one['fullTitle']}: {(one.get('err') or {}).get('message')}" for one in hooks)
    return CaseReport(tuple(cases), broken=why or _none(cases), output=output)


def _none(cases: Sequence[Case]) -> str:
    return "" if cases else "no test was found in the file"


def _parsed(said: str) -> tuple[str, str, str]:
    """The error's name, its code and its message, of a text that ends with a stack."""
    text = _FRAME.sub("", said)
    found = _JS_ERROR.match(text)
    return (found["error"], found["code"] or "", found["message"].strip()) if found else ("Error", "", text.strip())


def _verdict(error: str, code: str, message: str) -> CaseVerdict:
    if (
        "AssertionError" in error
        or code == "ERR_ASSERTION"
        or (error in ("Error", "JestAssertionError") and "expect(" in message)
    ):
        return CaseVerdict.FAILED
    if code in ("MODULE_NOT_FOUND", "ERR_MODULE_NOT_FOUND") or error == "SyntaxError":
        return CaseVerdict.BROKEN
    return CaseVerdict.RAISED
