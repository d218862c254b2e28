"""One table of error classes, and every place that uses it."""

import re
from pathlib import Path

import pytest

from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.experiments.tables import RunTable
from terminalbench.faults import ErrorClass, Fault, RetryRule

PAGE = Path(__file__).parent.parent / "docs" / "results.md"


def test_a_class_is_its_name() -> None:
    assert ErrorClass("setup") is ErrorClass.SETUP
    assert (str(ErrorClass.SETUP), ErrorClass.SETUP.value, "setup" in ErrorClass) == ("setup", "setup", True)


def test_the_page_lists_every_class_as_it_is() -> None:
    found = re.search(r"<!-- errors -->\n(.*?)<!-- /errors -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    parts = re.findall(r"\*\*(\w+), run again (.*?)\*\*.*?\n\n((?:- .*\n)+)", found[1])
    listed = [(fault.lower(), again, line) for fault, again, lines in parts for line in lines.splitlines()]
    rows = [(str(kind.fault), str(kind.again), f"- `{kind}`: {kind.meaning}") for kind in ErrorClass]
    assert sorted(listed) == sorted(rows)


@pytest.mark.parametrize("kind", ErrorClass)
def test_what_a_profile_does_is_run_again_by_name_only(kind: ErrorClass) -> None:
    assert (kind.fault is Fault.PROFILE) == (kind.again is RetryRule.BY_NAME)
    assert kind.stops is None or hasattr(RunTable(), kind.stops)


def test_credit_stops_as_a_wrong_key_does() -> None:
    assert ErrorClass.CREDIT.stops == ErrorClass.AUTH.stops == "on_auth_failure"


def test_errors_are_called_alike_in_the_analysis() -> None:
    assert {kind.value for kind in ErrorClass} <= set(FAILURE_CLASSES)
