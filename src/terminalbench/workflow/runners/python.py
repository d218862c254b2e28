"""Python: pytest where the repository has it, else unittest; both tell what became of each test through one program."""

import re
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.workflow.languages import Runner
from terminalbench.workflow.model import CommandRun
from terminalbench.workflow.programs import program
from terminalbench.workflow.runners.report import MARK, Case, CaseReport, CaseVerdict, broken, marked

PYTHON = (
    'py=; for one in python python3; do if "$one" -c "import sys; sys.exit(sys.version_info < (3, 6))" 2>/dev/null; '
    'then py=$one; break; fi; done; if [ -z "$py" ]; then echo "no Python 3 is installed" >&2; exit 127; fi\n'
)
"""Shell: `$py` is the Python of the environment."""
# The images of benchmarks set PYTEST_ADDOPTS to run a failed test again and again: not for a red test.
_SCRIPT = (
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


def command(path: str, code: str, runner: Runner) -> list[str]:
    """The command that runs the test file at `path`."""
    word = "pytest" if runner is Runner.PYTEST or _NEEDS_PYTEST.search(code) else "unittest"
    return ["sh", "-c", _SCRIPT, "sh", path, word, program("python_tests.py")]


def read(ran: CommandRun) -> CaseReport:
    """Return what became of the tests."""
    output, told = marked(ran)
    if ran.code is None:
        return CaseReport(late=True, output=output)
    if ran.code == 127 and told is None:
        return CaseReport(missing="Python 3", output=output)
    try:
        found = decode(told or "", _PythonReport)
        cases = tuple(
            Case(one["id"], CaseVerdict(one["verdict"]), one["error"], one["message"], one["where"])
            for one in found.cases
        )
    except (*NOT_DECODED, KeyError, ValueError):
        return CaseReport(broken=broken(output) or f"the test run ended with exit code {ran.code}", output=output)
    stopped = [case for case in cases if case.verdict is CaseVerdict.BROKEN]
    why = "\n".join(found.broken) or "\n".join(f"{case.error}: {case.message}" for case in stopped)
    if not why and not cases:
        why = "no test was found in the file"
    return CaseReport(cases, broken=why, output=output)
