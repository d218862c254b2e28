"""docs/analysis.md says what the code does: every measure, every class, the columns."""

import re
from pathlib import Path

import pytest

from terminalbench.analytics.findings.analyzers import MEASURES
from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.analytics.metrics import IDENTITY, NAMES, SUMMARY_COLUMNS
from terminalbench.analytics.model import (
    Comparison,
    Contrast,
    Estimate,
    Interval,
    MissingTrials,
    ProfileSummary,
    Repeat,
    SequentialPlan,
    TaskDifference,
    TaskSummary,
)
from terminalbench.faults import ErrorClass
from terminalbench.records.trial import TaskRef

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"


def measures() -> str:
    kinds = {"yes_no": " (yes/no)", "label": " (label)", "table": " (table)"}
    return "\n".join(f"- `{m.name}`{kinds.get(m.kind, '')}: {m.meaning}" for m in MEASURES)


def test_measures_are_documented(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    wanted = f"<!-- measures -->\n{measures()}\n<!-- /measures -->"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(re.sub(r"<!-- measures -->.*?<!-- /measures -->", lambda _: wanted, text, flags=re.DOTALL))
        return
    assert wanted in text, "run: .venv/bin/python -m pytest tests/analytics/test_analysis_page.py --update-golden"


RECORDS = {
    Comparison: "the whole",
    ProfileSummary: "one of `profiles`",
    TaskSummary: "one of the `tasks` of a profile",
    Contrast: "one of `contrasts`",
    TaskDifference: "one of the `tasks` of a contrast",
    Estimate: "`estimate`, `other_way`: the declared way of counting, and the other",
    Interval: "every interval",
    MissingTrials: "`missing`: trials that were not measured, and the two ends of what they can have been",
    Repeat: "one of `repeat`: how to run again what was not measured",
    SequentialPlan: "`sequential`: where a plan of looks stands",
    TaskRef: "every task",
}


def records() -> str:
    lines = ["| record | fields |", "|---|---|"]
    for record, what in RECORDS.items():
        lines.append(f"| {what} | {', '.join(f'`{name}`' for name in record.__struct_fields__)} |")
    return "\n".join(lines)


def test_the_fields_of_a_comparison_are_documented(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    wanted = f"<!-- comparison -->\n{records()}\n<!-- /comparison -->"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(re.sub(r"<!-- comparison -->.*?<!-- /comparison -->", lambda _: wanted, text, flags=re.DOTALL))
        return
    assert wanted in text, "a field was added or renamed; rename none. Then run these tests with --update-golden"


def test_columns_are_documented() -> None:
    text = PAGE.read_text()
    first = text.index("`batch`, `task`")
    assert re.findall(r"`(\w+)`", text[first : text.index(". Then the measures")]) == list(IDENTITY)
    assert ", ".join(SUMMARY_COLUMNS[2:]) in text
    assert [*IDENTITY, *NAMES] == [*IDENTITY, *(m.name for m in MEASURES)]


def test_failure_classes_are_documented() -> None:
    rules = re.search(r"<!-- failures -->(.*?)<!-- /failures -->", PAGE.read_text(), re.DOTALL)
    assert rules is not None
    found = re.findall(r"(?m)^- `(\w+)`: ", rules.group(1))
    assert sorted(found) == sorted({*FAILURE_CLASSES} - {*ErrorClass})  # tests/test_faults.py has those of errors
