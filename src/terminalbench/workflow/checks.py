"""Static checks in a workspace, with the tools that are there: does a file parse, and what would a linter object to.

A tool that is not installed checks nothing, and is named: a guard never takes its silence for a good word.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.languages import Language, of_file
from terminalbench.workflow.model import CommandRun, Workspace
from terminalbench.workflow.programs import program
from terminalbench.workflow.runners.python import PYTHON
from terminalbench.workflow.state import normalised

_PYTHON = PYTHON + 'exec "$py" -I -c "$@"'
_NODE = 'command -v node >/dev/null 2>&1 || exit 127; exec node --no-warnings --experimental-vm-modules -e "$@"'
_ESLINT = (
    "[ -e node_modules/.bin/eslint ] || exit 127; "
    'exec node_modules/.bin/eslint --no-color --format json --no-error-on-unmatched-pattern "$@"'
)
_TSC = (
    "[ -e node_modules/.bin/tsc ] && [ -e tsconfig.json ] || exit 127; "
    "exec node_modules/.bin/tsc --noEmit --incremental false --composite false --pretty false -p ."
)
_GOFMT = 'command -v gofmt >/dev/null 2>&1 || exit 127; exec gofmt -e -l "$@"'
_VET = 'command -v go >/dev/null 2>&1 || exit 127; for d do (cd "./$d" && go vet . 2>&1); done; exit 0'
_AT = re.compile(
    r"^(?:vet: )?(?P<path>[^\s:()]+\.\w+)(?::(?P<line>\d+)(?::\d+)?:|\((?P<tsline>\d+),\d+\):)\s*(?P<message>.+)$"
)
_TIMED = "did not finish"
_LINT_SEC = 180


@dataclass(frozen=True)
class FileFlaw:
    """One objection to one file."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class CheckResult:
    """The answers of the tools, and which of them said nothing and why."""

    flaws: tuple[FileFlaw, ...] = ()
    notes: tuple[str, ...] = ()


class _CheckerReport(msgspec.Struct):
    flaws: list[FileFlaw]
    unchecked: list[str] = []


async def syntax(workspace: Workspace, files: Mapping[str, bytes | None], timeout_sec: float = 120) -> CheckResult:
    """Return which of the written files do not parse. One that did not parse before either is beyond the tool."""
    found = await _syntax(workspace, files, list(files), timeout_sec)
    flawed = sorted({flaw.path for flaw in found.flaws})
    if not flawed:
        return found
    before = await _syntax(workspace, {}, flawed, timeout_sec)
    beyond = {flaw.path for flaw in before.flaws}
    notes = tuple(f"the syntax of {path} was not checked: it did not parse before either" for path in sorted(beyond))
    return CheckResult(tuple(flaw for flaw in found.flaws if flaw.path not in beyond), (*found.notes, *notes))


async def new_flaws(workspace: Workspace, files: Mapping[str, bytes | None]) -> CheckResult:
    """Return what linters newly object to with `files` written: by message, as often as there are more of it.

    A message that only moved to another line, or with its file to another name, is not new.
    """
    paths = [path for path in files if of_file(path) is not None]
    if not paths:
        return CheckResult(notes=("no file of a language that can be linted has changed",))
    after = await _lint(workspace, files, paths)
    if not after.flaws:
        return after
    before = await _lint(workspace, {}, paths)
    old = Counter(normalised(flaw.message) for flaw in before.flaws)
    new: list[FileFlaw] = []
    for flaw in after.flaws:
        key = normalised(flaw.message)
        if old[key]:
            old[key] -= 1
        else:
            new.append(flaw)
    return CheckResult(tuple(new), after.notes)


async def _syntax(
    workspace: Workspace, files: Mapping[str, bytes | None], paths: Sequence[str], timeout_sec: float
) -> CheckResult:
    flaws, notes = list(_json_flaws(files)), list[str]()
    by = _by_tool([path for path in paths if files.get(path, b"") is not None])
    if by.python:
        words = ["sh", "-c", _PYTHON, "sh", program("python_check.py"), "syntax", *by.python]
        _take(await workspace.run(words, timeout_sec=timeout_sec, files=files), "Python", flaws, notes)
    if by.web:
        words = ["sh", "-c", _NODE, "sh", program("node_check.cjs"), *by.web]
        _take(await workspace.run(words, timeout_sec=timeout_sec, files=files), "Node", flaws, notes)
    if by.go:
        ran = await workspace.run(["sh", "-c", _GOFMT, "sh", *by.go], timeout_sec=timeout_sec, files=files)
        _take_lines(ran, "gofmt", by.go, flaws, notes)
    return CheckResult(tuple(flaws), tuple(notes))


async def _lint(workspace: Workspace, files: Mapping[str, bytes | None], paths: Sequence[str]) -> CheckResult:
    flaws, notes = list[FileFlaw](), list[str]()
    by = _by_tool(paths)
    if by.python:
        words = ["sh", "-c", _PYTHON, "sh", program("python_check.py"), "lint", *by.python]
        _take(await workspace.run(words, timeout_sec=_LINT_SEC, files=files), "Python", flaws, notes)
    if by.go:
        folders = sorted({path.rpartition("/")[0] or "." for path in by.go})
        ran = await workspace.run(["sh", "-c", _VET, "sh", *folders], timeout_sec=_LINT_SEC, files=files)
        _take_lines(ran, "go vet", (), flaws, notes)
    if by.web:
        ran = await workspace.run(["sh", "-c", _ESLINT, "sh", *by.web], timeout_sec=_LINT_SEC, files=files)
        _take_eslint(ran, by.web, flaws, notes)
    if any(of_file(path) is Language.TYPESCRIPT for path in by.web):
        ran = await workspace.run(["sh", "-c", _TSC], timeout_sec=_LINT_SEC, files=files)
        _take_lines(ran, "tsc", (), flaws, notes)
    return CheckResult(tuple(flaws), tuple(notes))


@dataclass(frozen=True)
class _Paths:
    python: tuple[str, ...]
    web: tuple[str, ...]
    go: tuple[str, ...]


def _by_tool(paths: Sequence[str]) -> _Paths:
    def of(*languages: Language) -> tuple[str, ...]:
        return tuple(path for path in paths if of_file(path) in languages)

    return _Paths(of(Language.PYTHON), of(Language.JAVASCRIPT, Language.TYPESCRIPT), of(Language.GO))


def _json_flaws(files: Mapping[str, bytes | None]) -> list[FileFlaw]:
    found = []
    for path, data in files.items():
        strict = path.endswith(("package.json", ".ipynb"))  # others may have comments
        if strict and data is not None:
            try:
                json.loads(data)
            except ValueError as error:
                found.append(FileFlaw(path, getattr(error, "lineno", 0), f"not JSON: {getattr(error, 'msg', error)}"))
    return found


def _take(ran: CommandRun, tool: str, flaws: list[FileFlaw], notes: list[str]) -> None:
    """Read what one of our programs said."""
    if _silent(ran, tool, notes):
        return
    try:
        told = decode(ran.stdout.strip().rpartition("\n")[2], _CheckerReport)
    except msgspec.MsgspecError:
        notes.append(f"{tool} could not check: {normalised(ran.stderr)[-200:] or f'exit code {ran.code}'}")
        return
    flaws += told.flaws
    if told.unchecked:
        notes.append(f"no parser is installed for {', '.join(told.unchecked[:5])}")


def _take_lines(ran: CommandRun, tool: str, only: Sequence[str], flaws: list[FileFlaw], notes: list[str]) -> None:
    """Read the lines `file:line:column: message` of a tool, about the files in `only` when it names some."""
    if _silent(ran, tool, notes):
        return
    for line in f"{ran.stdout}\n{ran.stderr}".splitlines():
        found = _AT.match(line.strip())
        if found and (not only or found["path"] in only):
            flaws.append(FileFlaw(found["path"], int(found["line"] or found["tsline"]), found["message"]))


def _take_eslint(ran: CommandRun, paths: Sequence[str], flaws: list[FileFlaw], notes: list[str]) -> None:
    if _silent(ran, "eslint", notes):
        return
    try:
        for file in decode(ran.stdout):
            where = str(file["filePath"])
            path = next((name for name in paths if where.endswith(f"/{name}")), where)
            for one in file["messages"]:
                if one.get("severity") == 2:
                    rule = f" ({one['ruleId']})" if one.get("ruleId") else ""
                    flaws.append(FileFlaw(path, int(one.get("line") or 0), f"{one['message']}{rule}"))
    except (*NOT_DECODED, KeyError, TypeError, ValueError, AttributeError):
        notes.append(f"eslint could not check: {normalised(ran.stderr)[-200:] or f'exit code {ran.code}'}")


def _silent(ran: CommandRun, tool: str, notes: list[str]) -> bool:
    if ran.code is None:
        notes.append(f"{tool} {_TIMED} in time and checked nothing")
    elif ran.code == 127:
        notes.append(f"{tool} is not installed here and checked nothing")
    return ran.code is None or ran.code == 127
