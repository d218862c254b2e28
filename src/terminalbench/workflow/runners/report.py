"""The results of the tests of one file, whichever runner ran them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from terminalbench.workflow.model import CommandRun

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


def marked(ran: CommandRun) -> tuple[str, str | None]:
    """Return what a run printed before the mark, and what stands after it; None without a mark."""
    before, mark, after = ran.stdout.rpartition(MARK)
    output = before if mark else ran.stdout
    said = "\n".join(part.strip("\n") for part in (output, ran.stderr) if part.strip())
    return said[-OUTPUT_CHARS:], after.strip() if mark else None


def broken(output: str, names: Sequence[str] = ()) -> str:
    """The lines of an output that say why nothing ran: the last one that names an error, and those before it."""
    lines = [line for line in output.splitlines() if line.strip()]
    marks = ("Error", "error:", "undefined", "cannot find", "Cannot find", *names)
    last = max((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), default=len(lines) - 1)
    return "\n".join(lines[max(0, last - 7) : last + 4])
