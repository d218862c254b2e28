"""What a patch changes of how tests run is named."""

import pytest

from terminalbench.harbor.test_config import flags


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
