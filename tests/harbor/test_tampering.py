"""What a patch changes of how tests run is named."""

import pytest

from terminalbench.harbor.tampering import flags, told_by_pytest


def patch(name: str, *lines: str) -> bytes:
    body = "".join(f"{line}\n" for line in lines or ("+x",))
    return f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n{body}".encode()


@pytest.mark.parametrize(
    ("name", "lines", "found"),
    [
        ("lib/tool.py", (), []),
        ("tests/conftest.py", (), ["conftest"]),
        ("sitecustomize.py", (), ["startup"]),
        ("x/evil.pth", (), ["startup"]),
        ("pytest.ini", (), ["test_runner"]),
        ("jest.config.ts", (), ["test_runner"]),
        ("src/setupTests.js", (), ["test_runner"]),
        ("test/tap-reporter.js", (), ["reporter"]),
        ("docs/reporters.md", (), []),
        ("node_modules/mocha/lib/x.js", (), ["dependencies"]),
        ("package.json", ('+    "lodash": "^4"',), []),
        ("package.json", ('+    "test": "true"',), ["test_runner"]),
        ("pyproject.toml", ('-dependencies = ["a"]', " [tool.pytest]"), []),
        ("pyproject.toml", ('+addopts = "-p evil"',), ["test_runner"]),
        ("main_test.go", ("+func TestMain(m *testing.M) { os.Exit(0) }",), ["test_main"]),
        ("main_test.go", (" func TestMain(m *testing.M) {",), []),
        ("README.md", ("+pytest", "+func TestMain("), []),
    ],
)
def test_files_that_decide_about_tests_are_flagged(name: str, lines: tuple[str, ...], found: list[str]) -> None:
    assert flags(patch(name, *lines)) == found


def test_each_kind_is_named_once_also_of_moved_and_quoted_files() -> None:
    moved = b"diff --git a/conftest.py b/other.py\nsimilarity index 100%\n"
    quoted = b'diff --git "a/\\303\\274/conftest.py" "b/\\303\\274/conftest.py"\n'
    assert flags(moved + quoted + patch("a/b/pytest.ini") + b"\xff\x00") == ["conftest", "test_runner"]
    assert flags(b"") == []


START, END = "=== test session starts ===\n", "=== {} in 0.02s ===\n"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("PASS\n", (False, False)),
        (START + "x ....\n" + END.format("4 passed, 1 warning"), (False, False)),
        (START + "x ....FF", (True, False)),
        (START + "x ..FF\n" + END.format("2 failed, 2 passed"), (False, True)),
        (START + "x E\n" + END.format("1 error"), (False, True)),
        (START + END.format("1 failed") + START + END.format("2 passed"), (False, False)),
        (START + END.format("2 passed") + START + "x ..", (True, False)),
        (START + END.format("no tests ran"), (False, True)),
        (START + END.format("5 tests collected"), (False, True)),
        (START + END.format("3 skipped"), (False, True)),
        (f"inner: {START}", (False, False)),
    ],
)
def test_what_pytest_told_in_the_end(output: str, told: tuple[bool, bool]) -> None:
    assert told_by_pytest(output.encode()) == told


def test_a_patch_that_changes_a_runner_from_within_is_flagged() -> None:
    patch = b"diff --git a/src/x.py b/src/x.py\n--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1,2 @@\n x\n"
    assert flags(patch + b"+unittest.TestCase.run = lambda *_: None\n") == ["test_hooks"]
    assert flags(patch + b"-unittest.TestCase.run = lambda *_: None\n") == []
