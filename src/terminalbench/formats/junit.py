"""JUnit XML: a test case is a task. A failure is a failure, an error broke, and a skipped one did not run.

CTRF is read alike, of a file that is named: beside results of agents it holds the tests of one trial.

What pytest calls an expected failure (`<skipped type="pytest.xfail">`) did run, and ended as it should: it is passed,
as pytest's exit code and the graders of SWE-bench have it; the note says how many are.

A file is a profile, unless its suites hold the same cases: then each suite is one. No document type is read, so that no
entity can grow or fetch anything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from terminalbench.errors import UserError
from terminalbench.formats.row import RowReader, identifier, message, number, table_of
from terminalbench.formats.source import SourceFile
from terminalbench.text.numbers import noun

DATASET = "junit"
_DEEPEST = 50
_MOST_TEXT = 4000


@dataclass
class _JUnitCase:
    suite: str
    name: str
    seconds: str | None
    failed: str | None = None
    broke: str | None = None
    skipped: bool = False
    xfailed: bool = False
    text: list[str] = field(default_factory=list)


class JUnitFormat:
    """Test results as most runners can write them."""

    def recognises(self, file: SourceFile) -> bool:
        """Recognise the format by its first element."""
        if file.alone and _ctrf(file):
            return True
        head = file.head.replace(b"\0", b"")[:4096]
        return head.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")[:1] == b"<" and (b"<testsuite" in head)

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each case of each suite."""
        for file in files:
            cases = [_ctrf_case(test) for test in _ctrf(file)] or _Parser(file).cases
            suites = {case.suite for case in cases}
            shared = Counter(name for name, _ in {(case.name, case.suite) for case in cases})
            by_suite = len(suites) > 1 and max(shared.values()) > 1
            reader.guessed = reader.guessed or not by_suite
            if by_suite:
                reader.notes.append(f"{file.path.name}: its suites contain the same cases, so each is a profile")
            if expected := sum(case.xfailed for case in cases):
                counts = noun(expected, "expected failure counts", "expected failures count")
                reader.notes.append(f"{file.path.name}: {expected} {counts} as passed (pytest's xfail)")
            for case in cases:
                _add(case, case.suite if by_suite else file.label, reader)


def _ctrf(file: SourceFile) -> list[Mapping[str, Any]]:
    """The tests of a CTRF report; none of any other file."""
    results = table_of(table_of(file.json).get("results"))
    tests = results.get("tests")
    return [table_of(test) for test in tests] if "tool" in results and isinstance(tests, list) else []


def _ctrf_case(test: Mapping[str, Any]) -> _JUnitCase:
    """A test of a CTRF report, whose times are milliseconds; `other` is no verdict."""
    status, took = test.get("status"), number(test.get("duration"))
    case = _JUnitCase("ctrf", identifier(test.get("name")) or "", None if took is None else str(took / 1000))
    case.failed = "" if status == "failed" else None
    case.broke = f"the status is {status}" if status not in ("passed", "failed", "skipped", "pending") else None
    case.skipped = status in ("skipped", "pending")
    return case


def _add(case: _JUnitCase, profile: str, reader: RowReader) -> None:
    broke = None if case.broke is None else message(case.broke) or message("".join(case.text)) or "an error"
    reader.add(
        case.name,
        profile,
        DATASET,
        passed=None if case.skipped or broke else case.failed is None,
        not_run=(case.skipped and not broke) or None,
        seconds=reader.amount((case.seconds or "").replace(",", "") or None, "time"),
        error=broke,
    )


class _Parser:
    """Reads one file by expat; a document type is refused before anything in it is used."""

    def __init__(self, file: SourceFile) -> None:
        self.cases: list[_JUnitCase] = []
        self._suites: list[str] = []
        self._open: list[str] = []
        self._case: _JUnitCase | None = None
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        self._where = str(file.path)
        try:
            parser.Parse(file.data, True)
        except (expat.ExpatError, ValueError, LookupError) as error:  # the latter two of an encoding
            raise UserError(f"is not XML: {error}", where=self._where) from None

    def _refuse(self, *_: object) -> None:
        raise UserError("declares a document type, which is not accepted", where=self._where, hint="remove the DOCTYPE")

    def _start(self, tag: str, told: dict[str, str]) -> None:
        tag = tag.rpartition("}")[2].rpartition(":")[2]
        self._open.append(tag)
        if len(self._open) > _DEEPEST:
            raise UserError(f"is nested more than {_DEEPEST} elements deep", where=self._where)
        if tag == "testsuite":
            self._suites.append(identifier(told.get("name")) or "unnamed")
        elif tag == "testcase":
            name = "::".join(part for part in (told.get("classname"), told.get("name")) if part)
            self._case = _JUnitCase(
                self._suites[-1] if self._suites else "unnamed", identifier(name) or "", told.get("time")
            )
        elif self._case is not None:
            said = told.get("message") or told.get("type") or ""
            if tag == "failure":
                self._case.failed = said
            elif tag == "error":
                self._case.broke = said
            elif tag == "skipped":
                ran = not said.startswith("[NOTRUN]")
                self._case.xfailed = told.get("type") == "pytest.xfail" and ran
                self._case.skipped = not self._case.xfailed

    def _end(self, _: str) -> None:
        closed = self._open.pop()
        if closed == "testsuite":
            self._suites.pop()
        elif closed == "testcase" and self._case is not None:
            self.cases.append(self._case)
            self._case = None

    def _text(self, text: str) -> None:
        if self._case is not None and self._open[-1] == "error" and sum(map(len, self._case.text)) < _MOST_TEXT:
            self._case.text.append(text)
