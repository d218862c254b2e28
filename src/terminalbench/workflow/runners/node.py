"""JavaScript and TypeScript: node:test, jest, vitest or mocha, whichever the package of the test uses."""

import re
import shlex

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.languages import Repository, Runner
from terminalbench.workflow.model import CommandRun
from terminalbench.workflow.programs import program
from terminalbench.workflow.runners.report import MARK, Case, CaseReport, CaseVerdict, broken, marked

_MISSING = 69
_SCRIPT = f"""root=$(pwd); cd -- "./$1" || exit {_MISSING}
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
_FLAGS = frozenset({"--import", "--loader", "--experimental-loader", "--require", "-r", "--conditions", "-C"})
_ERROR = re.compile(
    r"^\s*(?:Uncaught )?(?P<error>[A-Za-z_$][\w$.]*)(?: \[(?P<code>\w+)\])?: ?(?P<message>.*)", re.DOTALL
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\n\s+at .*", re.DOTALL)


def command(repository: Repository, path: str, runner: Runner) -> list[str]:
    """The command that runs the test file at `path`, from the folder of its package."""
    folder = repository.package_of(path)
    inner = path.removeprefix(f"{folder}/") if folder else path
    words = ["sh", "-c", _SCRIPT, program("node_report.cjs"), folder or "."]
    if runner is not Runner.NODE:
        return [*words, str(runner), inner]
    return [*words, "node", inner, program("node_reporter.mjs"), *_node_flags(repository, folder)]


def read(ran: CommandRun, runner: Runner, path: str) -> CaseReport:
    """Return what became of the tests."""
    output, told = marked(ran)
    if ran.code is None:
        return CaseReport(late=True, output=output)
    if told is None:
        missing = ran.stderr.strip() or str(runner) if ran.code == _MISSING else ""
        return CaseReport(missing=missing, broken=broken(output), output=output)
    try:
        if runner is Runner.NODE:
            return _node(told, path, output)
        return _mocha(told, path, output) if runner is Runner.MOCHA else _jest(told, output)
    except (*NOT_DECODED, KeyError, TypeError, AttributeError, ValueError):
        return CaseReport(broken=broken(output) or f"the test run ended with exit code {ran.code}", output=output)


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
        if word in _FLAGS and at + 1 < len(words):
            flags += [word, words[at + 1]]
        elif word.split("=")[0] in _FLAGS or word.startswith("--experimental-"):
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
    why = broken(output) or "the test file could not be run" if stopped else ""
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


def _none(cases: list[Case]) -> str:
    return "" if cases else "no test was found in the file"


def _parsed(said: str) -> tuple[str, str, str]:
    """The error's name, its code and its message, of a text that ends with a stack."""
    text = _FRAME.sub("", said)
    found = _ERROR.match(text)
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
