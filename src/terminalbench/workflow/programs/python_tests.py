"""Run one test file and write what became of each test as JSON: a plugin of pytest, or by itself with unittest.

Runs in the workspace, on any Python since 3.6: `python python_tests.py TEST REPORT`, or `-p python_tests` with the
report's path in TBENCH_REPORT.
"""

import importlib
import json
import os
import sys
import traceback
import unittest


def fault(kind, value, trace):
    """Return what an exception says: its type, message, place, and whether it is a failed assertion."""
    root = os.getcwd() + os.sep
    where = ""
    for frame in traceback.extract_tb(trace):
        if os.path.abspath(frame[0]).startswith(root) and "site-packages" not in frame[0]:
            where = f"{os.path.abspath(frame[0])[len(root) :]}:{frame[2]}"
    names = [base.__name__ for base in kind.__mro__]
    asserted = "AssertionError" in names or (kind.__name__ == "Failed" and "OutcomeException" in names)
    try:
        message = str(value)
    except Exception as error:  # the code under test may raise anything there
        message = f"(its message raises {type(error).__name__})"
    broken = any(name in ("ImportError", "SyntaxError", "FixtureLookupError") for name in names)
    verdict = "failed" if asserted else "broken" if broken else "raised"
    return {"verdict": verdict, "error": kind.__name__, "message": message[:4000], "where": where}


CASES = []
BROKEN = []
MOST = 300  # tests that are told of, those that did not pass first
LONGEST = 60000


def write(path):
    """Write the report."""
    cases = sorted(CASES, key=lambda case: case["verdict"] in ("passed", "skipped"))[:MOST]
    room = max(200, LONGEST // max(1, len(cases)))
    cases = [dict(case, message=case["message"][:room]) for case in cases]
    with open(path, "w", encoding="utf-8", errors="replace") as stream:
        json.dump({"cases": cases, "broken": [text[-4000:] for text in BROKEN[:10]]}, stream)


if __name__ != "__main__":
    import pytest

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(item, call):
        """Keep what an exception says with the report, also when another process runs the test."""
        outcome = yield
        report = outcome.get_result()
        if report.failed and call.excinfo is not None:
            info = call.excinfo
            report.tbench_fault = fault(info.type, info.value, info.value.__traceback__)

    def pytest_runtest_logreport(report):
        """Collect each test once: its call, or the phase that kept it from being called."""
        kept = getattr(report, "tbench_fault", None)
        if report.failed:
            found = dict(
                kept or {"verdict": "raised", "error": "Error", "message": str(report.longrepr)[-4000:], "where": ""}
            )
            if report.when != "call" and found["verdict"] == "failed":
                found["verdict"] = "raised"  # an assertion of a fixture is no assertion of the test
            CASES.append(dict(found, id=report.nodeid))
        elif report.skipped:
            CASES.append({"id": report.nodeid, "verdict": "skipped", "error": "", "message": "", "where": ""})
        elif report.when == "call":
            CASES.append({"id": report.nodeid, "verdict": "passed", "error": "", "message": "", "where": ""})

    def pytest_collectreport(report):
        """Return what kept a file from being read as tests."""
        if report.failed:
            BROKEN.append(str(report.longrepr)[-4000:])

    def pytest_sessionfinish(session):
        """Write the report, in the first process only."""
        if not hasattr(session.config, "workerinput"):
            write(os.environ["TBENCH_REPORT"])


class Result(unittest.TestResult):
    """The results of the tests of the file at `path`."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def put(self, test, verdict, error=None):
        found = {"verdict": verdict, "error": "", "message": "", "where": ""}
        if error is not None:
            found = fault(*error)
        if verdict == "unexpected":
            found.update(verdict="failed", error="AssertionError", message="unexpected success")
        name = test.id().split(".", self.path.count("/") + 1)[-1]
        CASES.append(dict(found, id=f"{self.path}::{name}"))

    def addSuccess(self, test):
        self.put(test, "passed")

    def addFailure(self, test, err):
        self.put(test, "failed", err)

    def addError(self, test, err):
        self.put(test, "raised", err)

    def addSkip(self, test, reason):
        self.put(test, "skipped")

    def addExpectedFailure(self, test, err):
        self.put(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.put(test, "unexpected")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.put(subtest, "failed", err)


def run_unittest(path, report):
    """Run the test cases of a file, and its functions called test_* that take nothing."""
    for folder in ("lib", "src", ""):
        if os.path.isdir(os.path.join(os.getcwd(), folder)):
            sys.path.insert(0, os.path.join(os.getcwd(), folder))
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]

    try:
        module = importlib.import_module(path[: -len(".py")].replace("/", "."))
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        for name, value in sorted(vars(module).items()):
            plain = callable(value) and name.startswith("test") and not isinstance(value, type)
            if plain and hasattr(value, "__code__") and not value.__code__.co_argcount:
                suite.addTest(unittest.FunctionTestCase(value, description=name))
    except BaseException as error:
        BROKEN.append("".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:])
    else:
        suite.run(Result(path))
    write(report)
    sys.exit(1 if BROKEN or any(case["verdict"] not in ("passed", "skipped") for case in CASES) else 0)


if __name__ == "__main__":
    run_unittest(sys.argv[1], sys.argv[2])
