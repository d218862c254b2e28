"""What a patch changes of how tests are run and reported: flags for a person, never a verdict. Pure.

A verifier that runs the tests of a patched tree believes what they print. A patch can make that up, with a
`conftest.py` that turns reports to passed, or a reporter of its own.
"""

import re
from typing import NamedTuple

from terminalbench.sandbox.engine import traps

_FILES = {
    "conftest": re.compile(rb"(?:^|/)conftest\.py$"),
    "startup": re.compile(rb"(?:^|/)(?:sitecustomize\.py|usercustomize\.py|[^/]+\.pth)$"),
    "test_runner": re.compile(
        rb"(?:^|/)(?:\.?pytest\.ini|tox\.ini|noxfile\.py|runtests\.py|\.mocharc\.\w+|karma\.conf\.\w+|\.testrc"
        rb"|(?:jest|vitest|playwright|ava|mocha)[.-]config\.\w+|(?:jest|vitest|test)[.-]?setup\.\w+|setupTests\.\w+)$",
        re.IGNORECASE,
    ),
    "reporter": re.compile(rb"(?:^|/)[^/]*reporters?[^/]*\.(?:py|go|[cm]?[jt]sx?)$", re.IGNORECASE),
    "dependencies": re.compile(rb"(?:^|/)(?:node_modules|site-packages)/"),
}
_SHARED = re.compile(rb"(?:^|/)(?:pyproject\.toml|setup\.cfg|setup\.py|package\.json)$")
_RUNNER = re.compile(
    rb"pytest|unittest|addopts|testpaths|\"(?:pre|post)?test\w*\"\s*:|jest|mocha|vitest|karma|reporter"
)
_BEGUN = re.compile(rb"^=+ test session starts =+\r?$", re.MULTILINE)
_ENDED = re.compile(rb"^=+ (?:no tests ran|[\d]+ \w+.*) in [\d.]+s.*=+\r?$", re.MULTILINE)
_FAILURES = re.compile(rb"\b\d+ (?:failed|errors?)\b")
_PASSES = re.compile(rb"\b(\d+) (?:passed|xpassed)\b")
_RAN = re.compile(rb"^Ran (\d+) tests? in ", re.MULTILINE)
_COLLECTED = re.compile(rb"^collect(?:ed|ing) (?:.*\rcollected )?(\d+) items?\b", re.MULTILINE)
_TEST_MAIN = re.compile(rb"^\+func TestMain\(")
_HEAD = re.compile(rb'^diff --git (?:"?a/(.*?)"?) (?:"?b/(.*?)"?)$')


class ToldByPytest(NamedTuple):
    """What the output of tests says of its last run of pytest, if there was one."""

    cut_short: bool = False
    failures: bool = False


def tests_of_pytest(output: bytes) -> int | None:
    """Return how many tests pytest or unittest told of: collected, passed or run; None where they told of none."""
    for pattern in (_COLLECTED, _PASSES, _RAN):
        if counts := pattern.findall(output):
            return sum(map(int, counts)) or None
    return None


def told_by_pytest(output: bytes) -> ToldByPytest:
    """Whether pytest began and did not come to its last line, or told there of failures, or of no test that passed."""
    begun = [found.end() for found in _BEGUN.finditer(output)]
    if not begun:
        return ToldByPytest()
    ended = _ENDED.findall(output, begun[-1])
    if not ended:
        return ToldByPytest(cut_short=True)
    return ToldByPytest(failures=_FAILURES.search(ended[-1]) is not None or _PASSES.search(ended[-1]) is None)


def flags(patch: bytes) -> list[str]:
    """What `patch` changes, by kind: conftest, startup, test_runner, reporter, dependencies, test_main, test_hooks."""
    found: set[str] = set()
    shared = go = False
    for line in patch.split(b"\n"):
        head = _HEAD.match(line)
        if head:
            names = head.groups()
            found |= {kind for kind, pattern in _FILES.items() if any(map(pattern.search, names))}
            shared = any(map(_SHARED.search, names))
            go = any(name.endswith(b".go") for name in names)
        elif shared and line[:1] in b"+-" and not line.startswith((b"+++", b"---")) and _RUNNER.search(line):
            found.add("test_runner")
        elif line[:1] == b"+" and not line.startswith(b"+++") and traps.is_hook(line[1:]):
            found.add("test_hooks")
        elif go and _TEST_MAIN.match(line):
            found.add("test_main")
    return sorted(found)
