"""The first failing check, out of what verifiers print."""

import json

import pytest

from terminalbench.analytics.findings.failed_checks import FailedCheck, first_failed

UNITTEST = """
##.
======================================================================
FAIL: test_a_name (__main__.ArchiveLogs.test_a_name) [['out']]
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/tests/checks.py", line 145, in test_a_name
AssertionError: 'archived 0' != 'archived 1'
- archived 0
?          ^

======================================================================
FAIL: test_second (__main__.ArchiveLogs.test_second)
----------------------------------------------------------------------
AssertionError: 2
"""
PYTEST = """
    def test_answer():
>       assert 1 == 2
E       AssertionError: wrong
E       assert 1 == 2

tests/test_x.py:3: AssertionError
=========================== short test summary info ============================
FAILED tests/test_x.py::test_answer - AssertionError: wrong
FAILED tests/test_x.py::test_other - ValueError: no
"""


@pytest.mark.parametrize(
    ("output", "name", "message"),
    [
        (UNITTEST, "test_a_name [['out']]", "AssertionError: 'archived 0' != 'archived 1'\n- archived 0\n?          ^"),
        (PYTEST, "tests/test_x.py::test_answer", "AssertionError: wrong"),
        ("1..2\nok 1 - a\nnot ok 2 - the port is open\n# refused\n", "the port is open", "# refused"),
        (
            "--- FAIL: TestSum (0.00s)\n    sum_test.go:7: got 3, want 4\n",
            "TestSum",
            "    sum_test.go:7: got 3, want 4",
        ),
        ("Traceback\nValueError: no such file\n", "", "ValueError: no such file"),
        ("one\ntwo\nthree\n\nwanted 142, found nothing\n\n", "", "two\nthree\nwanted 142, found nothing"),
    ],
)
def test_it_is_found_in_the_output(output: str, name: str, message: str) -> None:
    assert first_failed(output) == FailedCheck(name, message)


def test_a_verifier_that_says_nothing_gives_none() -> None:
    assert first_failed("") is None
    assert first_failed("\n \n") is None


def test_the_report_counts_first_and_a_broken_one_not_at_all() -> None:
    tests = [{"name": "a", "status": "passed"}, {"name": "b", "status": "failed", "message": "3 is not 4"}]
    assert first_failed(PYTEST, json.dumps({"results": {"tests": tests}})) == FailedCheck("b", "3 is not 4")
    where = {"name": "b", "status": "failed", "message": "The test failed in the call phase", "trace": PYTEST}
    said = first_failed("", json.dumps({"results": {"tests": [where]}}))
    assert said == FailedCheck("b", "AssertionError: wrong\nassert 1 == 2")
    for broken in ("{", "[]", '{"results": 3}'):
        assert first_failed(PYTEST, broken) == FailedCheck("tests/test_x.py::test_answer", "AssertionError: wrong")
