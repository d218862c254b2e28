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
_ENDED = re.compile(rb"^=+ (?:no tests ran|\d{1,9} \w.{0,300}) in [\d.]{1,20}s.{0,60}=+\r?$", re.MULTILINE)
"""Bounded, as all of these: what an agent has the tests print may be one line of 16 MB."""
_FAILURES = re.compile(rb"\b\d+ (?:failed|errors?)\b")
_PASSES = re.compile(rb"\b(\d+) (?:passed|xpassed)\b")
_COUNTS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rb"^Tests:.{0,300} (\d+) total[ \t\r]*$",  # jest
        rb"^[ \t]*Tests .{0,300}\((\d+)\)[ \t\r]*$",  # vitest
        rb"^[ \t]*(\d+) (?:passing|failing)\b",  # mocha
        rb"^(?:#|\xe2\x84\xb9) tests (\d+)[ \t\r]*$",  # node --test
        rb"^test result: .* (\d+) passed; ",  # cargo
        rb"^test result: .* (\d+) failed; ",
    )
)
_NAMED = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rb"^(?P<word>PASSED|FAILED|ERROR) (?:\.\./)+tests/\S*::(?P<name>\w+)",
        rb"^(?:\.\./)+tests/\S*::(?P<name>\w+)(?:\[[^\n]*\])? (?P<word>PASSED|FAILED|ERROR)\b",
        rb"^(?P<word>FAIL|ERROR): (?P<name>\w+) \(",
    )
)
_LEFT_OUT = (("skip", re.compile(rb"\b\d+ skipped\b")), ("xfail", re.compile(rb"\b\d+ (?:xfailed|xpassed)\b")))
_SKIPPED = re.compile(rb"^OK \((?:.*, )?(?:skipped|expected failures)=\d+", re.MULTILINE)  # of unittest
_TEST_MAIN = re.compile(rb"^\+func TestMain\(", re.MULTILINE)
_SECTION = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_HEAD = re.compile(rb'diff --git (?:"?a/(.*?)"?) (?:"?b/(.*?)"?)$', re.MULTILINE)
_ADDED = re.compile(rb"^\+(?!\+\+)(.*)", re.MULTILINE)
_CHANGED = re.compile(rb"^(?:\+(?!\+\+)|-(?!--)).*", re.MULTILINE)


class ToldByPytest(NamedTuple):
    """What the output of tests says of its last run of pytest, and of tests that were `left_out`, by which word."""

    cut_short: bool = False
    failures: bool = False
    left_out: tuple[str, ...] = ()


class NamedResults(NamedTuple):
    """Which tests an output says to have passed, and to have failed, by the names of their functions."""

    passed: frozenset[str]
    failed: frozenset[str]


def count_tests(output: bytes) -> int | None:
    """Return how many tests were run, by what runners print in the end; None where none of them was heard."""
    for pattern in _COUNTS:
        if counts := pattern.findall(output):
            return sum(map(int, counts)) or None
    return None


def named_results(output: bytes) -> NamedResults:
    """Return the tests that pytest, of those in the tests' own folder, and unittest named."""
    found: dict[bytes, set[str]] = {b"PASSED": set(), b"FAILED": set()}
    for pattern in _NAMED:
        for one in pattern.finditer(output):
            word = one["word"]
            found[b"PASSED" if word == b"PASSED" else b"FAILED"].add(one["name"].decode("utf-8", "replace"))
    passed, failed = found.values()
    return NamedResults(frozenset(passed - failed), frozenset(failed))


def told_by_pytest(output: bytes) -> ToldByPytest:
    """Return whether pytest did not come to its last line, and if that tells of failures, of no pass, of tests left
    out."""
    begun = [found.end() for found in _BEGUN.finditer(output)]
    if not begun:
        return ToldByPytest(left_out=("skip",) if _SKIPPED.search(output) else ())
    ended = _ENDED.findall(output, begun[-1])
    if not ended:
        return ToldByPytest(cut_short=True)
    failures = _FAILURES.search(ended[-1]) is not None or _PASSES.search(ended[-1]) is None
    return ToldByPytest(failures=failures, left_out=tuple(word for word, one in _LEFT_OUT if one.search(ended[-1])))


def flags(patch: bytes) -> list[str]:
    """Return what `patch` changes, by kind: conftest, startup, test_runner, reporter, dependencies, test_main,
    test_hooks."""
    found: set[str] = set()
    for section in _SECTION.split(patch):
        head = _HEAD.match(section)
        names = head.groups() if head is not None else ()
        found |= {kind for kind, pattern in _FILES.items() if any(map(pattern.search, names))}
        if any(map(_SHARED.search, names)) and any(map(_RUNNER.search, _CHANGED.findall(section))):
            found.add("test_runner")
        if traps.is_hook(b"\n".join(_ADDED.findall(section))):
            found.add("test_hooks")
        if any(name.endswith(b".go") for name in names) and _TEST_MAIN.search(section):
            found.add("test_main")
    return sorted(found)
