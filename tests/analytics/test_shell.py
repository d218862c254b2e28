"""What shell commands do, by their words."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terminalbench.analytics.findings.shell import CHANGES, TABLES, command_effects, may, summary_of_tests


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("cat a.py", ("read",)),
        ("sed -n '1,50p' src/a.py", ("read",)),
        ("sed -i 's/a/b/' src/a.py", ("edit",)),
        ("sed -E -i.bak 's/a/b/' src/a.py", ("edit",)),
        ("perl -pi -e 's/x/y/' f.txt", ("edit",)),
        ("grep -rn foo . | head -20", ("search", "read")),
        ("git grep foo", ("search",)),
        ("git show HEAD", ("read",)),
        ("rg foo && fd bar", ("search",)),
        ("find . -name '*.py' -exec sed -i s/a/b/ {} +", ("search", "edit")),
        ("echo x > out.txt", ("write",)),
        ("echo x >> out.txt", ("edit",)),
        ("echo x > /dev/null 2>&1", ("say",)),
        ("make 2> errors.log", ("build",)),
        ("tee out.txt", ("write",)),
        ("tee -a out.txt", ("edit",)),
        ("pytest -q 2>&1 | tail -5", ("test", "read")),
        ("cd /app && FOO=1 timeout 60 uv run pytest", ("move", "test")),
        ("python3 -m pytest tests", ("test",)),
        ("cargo test --all", ("test",)),
        ("cargo build", ("build",)),
        ("npm run test", ("test",)),
        ("npm install", ("install",)),
        ("make test", ("test",)),
        ("go test ./...", ("test",)),
        ("./run_tests.sh", ("test",)),
        ("bash tests/test.sh", ("test",)),
        ("bash -lc 'cargo test'", ("test",)),
        ("sudo -E env A=1 cat x", ("read",)),
        ("rm -rf build", ("delete",)),
        ("./a.out", ("run",)),
        ("python solve.py", ("run",)),
        ("sleep 5", ("wait",)),
        ("", ()),
        ("open src/a.java 12", ("read",)),
        ('search_dir "rm -rf" src', ("search",)),
        ("edit 12:13\nrm -rf x; return 1;\nend_of_edit", ("edit",)),
        ("str_replace_editor view /app/a.py", ("read",)),
        ("str_replace_editor str_replace /app/a.py --old_str 'a' --new_str 'b'", ("edit",)),
        ("submit", ("finish",)),
    ],
)
def test_kinds(command: str, kinds: tuple[str, ...]) -> None:
    assert command_effects(command).kinds == kinds


def test_a_here_document_is_no_command() -> None:
    effects = command_effects("cat > x.py <<'EOF'\nrm -rf /\ngrep foo\nEOF\npython x.py")
    assert (effects.kinds, effects.writes, effects.deletes) == (("write", "run"), ("x.py",), ())


def test_files() -> None:
    assert command_effects("head -n 20 ./README.md").reads == ("README.md",)
    assert command_effects("sed -i 's/a/b/' a.py b.py").edits == ("a.py", "b.py")
    assert command_effects("cp a b && mv c 'd e'").writes == ("b", "d e")
    patch = command_effects("apply_patch <<'E'\n*** Begin Patch\n*** Update File: a/b.py\n@@\n*** Add File: c.py\nE")
    assert (patch.edits, patch.writes) == (("a/b.py",), ("c.py",))


@pytest.mark.parametrize(
    ("output", "passed"),
    [
        ("===== 3 passed in 0.10s =====", True),
        ("===== 1 failed, 2 passed in 0.10s =====", False),
        ("Ran 3 tests in 0.1s\n\nOK", True),
        ("Ran 3 tests in 0.1s\n\nFAILED (failures=1)", False),
        ("test result: ok. 4 passed; 0 failed", True),
        ("test result: FAILED. 3 passed; 1 failed", False),
        ("ok  \texample.com/x\t0.01s", True),
        ("--- FAIL: TestX (0.00s)", False),
        ("Tests:       1 failed, 3 passed, 4 total", False),
        ("  3 passing (10ms)", True),
        ("100% tests passed, 0 tests failed out of 3", True),
        ("no error here, all fine", None),
        ("error: something", None),
    ],
)
def test_the_summary_of_a_test_run(output: str, passed: bool | None) -> None:
    assert summary_of_tests(output) is passed


@given(st.text(max_size=300))
def test_any_text_is_taken_apart(text: str) -> None:
    command_effects(text)


NAMES = [name for names in tomllib.loads((TABLES / "shell.toml").read_text())["kinds"].values() for name in names]
BETWEEN = (
    " ",
    " > ",
    " >> ",
    "; ",
    " | ",
    "/",
    " 2>&1 ",
    " 2> ",
    " 12>",
    "\n",
    "'",
    '"',
    "\\",
    " -i ",
    " -n ",
    " -delete ",
    " sh -c ",
    "é",
)


@settings(max_examples=300)
@given(st.lists(st.sampled_from((*NAMES, *BETWEEN, "test_x.py", "a.txt")), max_size=12))
def test_what_may_test_or_change_files_is_known_without_taking_it_apart(parts: list[str]) -> None:
    for command in ("".join(parts), " ".join(parts)):
        kinds = command_effects(command).kinds
        assert may(command)[0] >= ("test" in kinds), command
        assert may(command)[1] >= (not CHANGES.isdisjoint(kinds)), command
