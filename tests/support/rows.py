"""Rows of a comparison, written as marks: "+" passed, "x" failed, "E" errored, "T" timed out, "C" cancelled, "." not run."""

from collections.abc import Mapping
from typing import Any

from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Contrast, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.records.trial import TaskRef
from terminalbench.text.outcomes import MARKS

OUTCOMES = {mark: outcome for outcome, mark in MARKS.items()}
type Marks = Mapping[str, Mapping[str, str]]


def rows(marks: Marks, *, families: Mapping[str, str] | None = None, **fields: Any) -> list[Row]:
    """One row a mark: `{"profile": {"task": "++x"}}`. `fields` are set on every row."""
    given: dict[str, Any] = {"batch": "s/0", **fields}
    return [
        Row(
            task=TaskRef(task, "d", (families or {}).get(task)),
            profile=profile,
            attempt=attempt,
            outcome=OUTCOMES[mark],
            **given,
        )
        for profile, tasks in marks.items()
        for task, cells in tasks.items()
        for attempt, mark in enumerate(cells, start=1)
    ]


def table(**profiles: str) -> Marks:
    """Marks of tasks t1, t2, ...: `table(a="++ +x", b="xx ++")`, a word a task."""
    return {name: {f"t{n}": word for n, word in enumerate(text.split(), 1)} for name, text in profiles.items()}


def settings(new: str = "b", old: str = "a", **fields: Any) -> ComparisonSettings:
    """Settings of one contrast."""
    given: dict[str, Any] = {"baseline": old, "contrasts": ((new, old),), **fields}
    return ComparisonSettings(**given)


def contrast(marks: Marks, setup: ComparisonSettings | None = None, **fields) -> Contrast:
    """The first contrast of the comparison of such rows."""
    return compare(rows(marks, **fields), setup or settings()).contrasts[0]
