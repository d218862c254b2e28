"""One table of error classes, and every place that uses it."""

import re
from pathlib import Path

import pytest

from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.experiments.tables import RunTable
from terminalbench.faults import ERRORS, Again, ErrorClass, Fault

PAGE = Path(__file__).parent.parent / "docs" / "results.md"


def test_every_class_has_a_row() -> None:
    assert list(ERRORS) == list(ErrorClass)


def test_the_page_has_the_table_as_it_is() -> None:
    found = re.search(r"<!-- errors -->\n(.*?)<!-- /errors -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    rows = [f"| `{kind}` | {info.fault} | {info.again} | {info.meaning} |" for kind, info in ERRORS.items()]
    head = ["| class | whose fault | run again | meaning |", "|---|---|---|---|"]
    assert found[1].splitlines() == [*head, *rows]


@pytest.mark.parametrize("kind", ErrorClass)
def test_what_a_profile_does_is_run_again_by_name_only(kind: ErrorClass) -> None:
    assert (kind.info.fault is Fault.PROFILE) == (kind.info.again is Again.BY_NAME)
    assert kind.info.stops is None or hasattr(RunTable(), kind.info.stops)


def test_credit_stops_as_a_wrong_key_does() -> None:
    assert ErrorClass.CREDIT.info.stops == ErrorClass.AUTH.info.stops == "on_auth_failure"


def test_errors_are_called_alike_in_the_analysis() -> None:
    assert {kind.value for kind in ErrorClass} <= set(FAILURE_CLASSES)
