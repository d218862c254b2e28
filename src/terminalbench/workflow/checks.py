"""Static checks in a workspace, with the tools that are there: does a file parse, and what would a linter object to.

A tool that is not installed checks nothing, and is named: a guard never takes its silence for a good word.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.languages import WEB, Language, of_file
from terminalbench.workflow.model import CommandRun, Workspace
from terminalbench.workflow.programs import program
from terminalbench.workflow.runners import PYTHON
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


@dataclass(frozen=True)
class _CheckTool:
    """A tool that checks files: how it is called, the files it is for, and who reads what it says."""

    name: str
    words: Sequence[str]
    paths: Sequence[str]
    read: Callable[["_CheckTool", CommandRun], CheckResult]

    def failed(self, ran: CommandRun) -> CheckResult:
        """Return the result of a run whose words cannot be read."""
        said = normalised(ran.stderr)[-200:] or f"exit code {ran.code}"
        return CheckResult(notes=(f"{self.name} could not check: {said}",))


async def _checked(
    workspace: Workspace, files: Mapping[str, bytes | None], tools: Sequence[_CheckTool], timeout_sec: float
) -> CheckResult:
    """Run the tools that have files to check, one after the other."""
    flaws, notes = list[FileFlaw](), list[str]()
    for tool in tools:
        if not tool.paths:
            continue
        ran = await workspace.run(["sh", "-c", *tool.words], timeout_sec=timeout_sec, files=files)
        if ran.code is None:
            notes.append(f"{tool.name} did not finish in time and checked nothing")
        elif ran.code == 127:
            notes.append(f"{tool.name} is not installed here and checked nothing")
        else:
            found = tool.read(tool, ran)
            flaws += found.flaws
            notes += found.notes
    return CheckResult(tuple(flaws), tuple(notes))


async def _syntax(
    workspace: Workspace, files: Mapping[str, bytes | None], paths: Sequence[str], timeout_sec: float
) -> CheckResult:
    there = [path for path in paths if files.get(path, b"") is not None]
    python, web, go = _of(there, Language.PYTHON), _of(there, *WEB), _of(there, Language.GO)
    tools = (
        _CheckTool("Python", (_PYTHON, "sh", program("python_check.py"), "syntax", *python), python, _ours),
        _CheckTool("Node", (_NODE, "sh", program("node_check.cjs"), *web), web, _ours),
        _CheckTool("gofmt", (_GOFMT, "sh", *go), go, _lines_of_its_files),
    )
    found = await _checked(workspace, files, tools, timeout_sec)
    return CheckResult((*_json_flaws(files), *found.flaws), found.notes)


async def _lint(workspace: Workspace, files: Mapping[str, bytes | None], paths: Sequence[str]) -> CheckResult:
    python, web, go = _of(paths, Language.PYTHON), _of(paths, *WEB), _of(paths, Language.GO)
    folders = sorted({path.rpartition("/")[0] or "." for path in go})
    tools = (
        _CheckTool("Python", (_PYTHON, "sh", program("python_check.py"), "lint", *python), python, _ours),
        _CheckTool("go vet", (_VET, "sh", *folders), go, _lines),
        _CheckTool("eslint", (_ESLINT, "sh", *web), web, _eslint),
        _CheckTool("tsc", (_TSC,), _of(paths, Language.TYPESCRIPT), _lines),
    )
    return await _checked(workspace, files, tools, _LINT_SEC)


def _of(paths: Sequence[str], *languages: Language) -> list[str]:
    return [path for path in paths if of_file(path) in languages]


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


def _ours(tool: _CheckTool, ran: CommandRun) -> CheckResult:
    """Read what one of our programs said."""
    try:
        told = decode(ran.stdout.strip().rpartition("\n")[2], _CheckerReport)
    except msgspec.MsgspecError:
        return tool.failed(ran)
    notes = (f"no parser is installed for {', '.join(told.unchecked[:5])}",) if told.unchecked else ()
    return CheckResult(tuple(told.flaws), notes)


def _lines(_tool: _CheckTool, ran: CommandRun) -> CheckResult:
    """Read the lines `file:line:column: message` of a tool."""
    matches = (_AT.match(line.strip()) for line in f"{ran.stdout}\n{ran.stderr}".splitlines())
    return CheckResult(
        tuple(FileFlaw(one["path"], int(one["line"] or one["tsline"]), one["message"]) for one in matches if one)
    )


def _lines_of_its_files(tool: _CheckTool, ran: CommandRun) -> CheckResult:
    return CheckResult(tuple(flaw for flaw in _lines(tool, ran).flaws if flaw.path in tool.paths))


def _eslint(tool: _CheckTool, ran: CommandRun) -> CheckResult:
    flaws = []
    try:
        for file in decode(ran.stdout):
            where = str(file["filePath"])
            path = next((name for name in tool.paths if where.endswith(f"/{name}")), where)
            for one in file["messages"]:
                if one.get("severity") == 2:
                    rule = f" ({one['ruleId']})" if one.get("ruleId") else ""
                    flaws.append(FileFlaw(path, int(one.get("line") or 0), f"{one['message']}{rule}"))
    except (*NOT_DECODED, KeyError, TypeError, ValueError, AttributeError):
        return tool.failed(ran)
    return CheckResult(tuple(flaws))
