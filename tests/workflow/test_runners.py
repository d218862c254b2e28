"""Running one test file: an assertion that fails is not an import that fails. JavaScript here, others by what they say."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import tools
from terminalbench.workflow import checks, programs
from terminalbench.workflow.languages import Language, Repository, Runner
from terminalbench.workflow.model import CommandRun
from terminalbench.workflow.runners import MARK, CaseReport, CaseVerdict, command_of, read_report
from workflow.guards import run, verdicts
from workflow.workspace import FolderWorkspace, repository

NODE = {
    "package.json": '{"name": "shop", "scripts": {"test": "node --test"}}',
    "src/cart.js": "exports.total = (items) => items.length\n",
    "test/cart.test.js": "const test = require('node:test')\ntest('old', () => {})\n",
    "esm/a.mjs": "export const a = 1\n",
    "flow/odd.js": "type A = number\nconst x: A = 1\n",
}
HEAD = "const test = require('node:test')\nconst assert = require('node:assert')\nconst { total } = require('../src/cart')\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> FolderWorkspace:
    tools.NODE.path()
    root = repository(tmp_path_factory.mktemp("node") / "repo", NODE)
    return FolderWorkspace(root, root.parent / "keep", {"PATH": "/usr/bin:/bin"})


def test_node_tells_assertions_from_other_errors(shop) -> None:
    code = HEAD + (
        "test('wrong', () => assert.strictEqual(total([5, 5]), 10))\n"
        "test('right', () => assert.ok(total))\n"
        "test('raises', () => total(null))\n"
        "test.skip('skipped', () => {})\n"
        "test.describe('group', () => { test.it('inner', () => { assert.deepStrictEqual([1], [2]) }) })\n"
    )
    report = run(shop, "test/guarded.test.js", code)
    assert verdicts(report) == {
        "wrong": CaseVerdict.FAILED,
        "right": CaseVerdict.PASSED,
        "raises": CaseVerdict.RAISED,
        "skipped": CaseVerdict.SKIPPED,
        "inner": CaseVerdict.FAILED,
    }
    assert not report.broken
    wrong = next(case for case in report.cases if case.id.endswith("wrong"))
    assert (wrong.error, wrong.where) == ("AssertionError", "test/guarded.test.js")
    assert "2 !== 10" in wrong.message
    raises = next(case for case in report.cases if case.id.endswith("raises"))
    assert (raises.error, raises.where) == ("TypeError", "src/cart.js")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("require('./nowhere')\nrequire('node:test')('x', () => {})\n", "Cannot find module './nowhere'"),
        ("const x = ;\n", "SyntaxError"),
        ("console.log('no test')\n", "no test was found"),
    ],
)
def test_node_tells_why_a_file_cannot_be_run(shop, code: str, told: str) -> None:
    report = run(shop, "test/guarded.test.js", code)
    assert told in report.broken
    assert not report.green


def test_the_syntax_of_scripts_and_modules(shop) -> None:
    files: dict[str, bytes | None] = {
        "src/ok.js": b"#!/usr/bin/env node\nconst a = 1\nreturn\n",
        "src/module.js": b"import a from 'a'\nexport default await a\n",
        "esm/a.mjs": b"export const a = ;\n",
        "src/bad.cjs": b"function (\n",
        "flow/odd.js": b"type A = string\nconst x: A = 2\n",
        "src/typed.ts": b"const x: number = 1\n",
        "src/cart.js": None,
    }
    found = asyncio.run(checks.syntax(shop, files))
    assert sorted(flaw.path for flaw in found.flaws) == ["esm/a.mjs", "src/bad.cjs"]
    assert any("flow/odd.js" in note and "before either" in note for note in found.notes)
    if "typed.ts" in " ".join(found.notes):
        assert any("no parser is installed for src/typed.ts" in note for note in found.notes)


def test_typescript_runs_where_node_can(tmp_path: Path) -> None:
    tools.NODE.path()
    files = {"package.json": '{"type": "module"}', "src/a.ts": "export const one: number = 2\n"}
    space = FolderWorkspace(repository(tmp_path / "repo", files), tmp_path / "keep", {"PATH": "/usr/bin:/bin"})
    code = "import test from 'node:test'\nimport assert from 'node:assert'\nimport { one } from '../src/a.ts'\ntest('one', () => assert.equal(one, 1))\n"
    report = run(space, "test/guarded.test.ts", code)
    if report.missing:
        assert report.missing == "a Node that runs TypeScript"
    else:
        assert verdicts(report) == {"one": CaseVerdict.FAILED}


def test_a_runner_that_is_not_installed_is_missing(shop, tmp_path: Path) -> None:
    files = {"package.json": '{"scripts": {"test": "jest"}}', "a.js": ""}
    space = FolderWorkspace(repository(tmp_path / "repo", files), tmp_path / "keep", {"PATH": "/usr/bin:/bin"})
    assert "jest" in run(space, "a.test.js", "test('x', () => {})").missing


def pythons() -> list[str]:
    """The Pythons that can be started here by their version, from the oldest to the newest."""
    found = [found for minor in range(6, 20) if (found := shutil.which(f"python3.{minor}")) is not None]
    return [one for one in found if subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode == 0]


@pytest.mark.parametrize("which", ["oldest", "newest", "own"])
def test_our_programs_run_on_the_python_that_is_there(tmp_path: Path, which: str) -> None:
    found = pythons() if which != "own" else []
    if which != "own" and not found:
        pytest.skip("no Python is found by its version")
    python = {"oldest": found[:1], "newest": found[-1:], "own": [sys.executable]}[which][0]
    code = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 2)\n\ndef test_b():\n    import nothing\n"
    (tmp_path / "test_a.py").write_text(code)
    run_it = [python, "-", "test_a.py", "out.json"]
    driver = programs.program("python_tests.py").replace("os.path.abspath(__file__)", "'/none/x'")
    ran = subprocess.run(run_it, cwd=tmp_path, input=driver, text=True, capture_output=True, check=False)
    assert ran.returncode == 1, ran.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    assert {case["id"]: case["verdict"] for case in told["cases"]} == {
        "test_a.py::T.test_a": "failed",
        "test_a.py::test_b": "broken",
    }
    names = "def f(a):\n    global G\n    G = [x for x in a if y]\n    class A:\n        z = 1\n        def m(self): return __class__\n    try:\n        unicode\n    except NameError:\n        pass\n    return w\n"
    (tmp_path / "names.py").write_text(f"# -*- coding: latin-1 -*-\n{names}# \xe9\n", encoding="latin-1")
    (tmp_path / "bad.py").write_text("def f(:\n")
    checker = [python, "-I", "-c", programs.program("python_check.py"), "lint", "names.py", "bad.py", "gone.py"]
    checked = subprocess.run(checker, cwd=tmp_path, text=True, capture_output=True, check=True).stdout
    flaws = json.loads(checked)["flaws"]
    assert {flaw["message"] for flaw in flaws if flaw["path"] == "names.py"} == {
        "undefined name 'w'",
        "undefined name 'y'",
    }
    assert [flaw["path"] for flaw in flaws if flaw["path"] != "names.py"] == ["bad.py"]


JEST = {
    "numFailedTests": 2,
    "testResults": [
        {
            "name": "/app/web/src/x.test.ts",
            "status": "failed",
            "message": "…",
            "assertionResults": [
                {"fullName": "cart adds", "status": "failed", "failureMessages": ["Error: \x1b[2mexpect(\x1b[22mreceived).toBe(expected)\n\nExpected: 3\nReceived: 2\n    at Object.<anonymous> (/app/web/src/x.test.ts:4:5)"]},
                {"fullName": "cart crashes", "status": "failed", "failureMessages": ["TypeError: x is not a function\n    at y (/app/a.ts:1:2)"]},
                {"fullName": "chai", "status": "failed", "failureMessages": ["AssertionError: expected 2 to equal 3\n    at z"]},
                {"fullName": "fine", "status": "passed", "failureMessages": []},
                {"fullName": "later", "status": "pending", "failureMessages": []},
            ],
        }
    ],
}  # fmt: skip
BROKEN = {"testResults": [{"status": "failed", "message": "\x1b[1mTest suite failed to run\n Cannot find module './x'", "assertionResults": []}]}  # fmt: skip
MOCHA = {
    "stats": {"tests": 3},
    "tests": [
        {"title": "adds", "fullTitle": "cart adds", "file": "/app/web/src/x.test.ts", "err": {"name": "AssertionError", "code": "ERR_ASSERTION", "message": "2 == 3", "stack": "…"}},
        {"title": "other", "fullTitle": "elsewhere", "file": "/app/web/src/other.js", "err": {"message": "no"}},
        {"title": "later", "fullTitle": "cart later", "file": "/app/web/src/x.test.ts", "err": {}},
        {"title": "ok", "fullTitle": "cart ok", "file": "/app/web/src/x.test.ts", "err": {}},
    ],
    "pending": [{"fullTitle": "cart later"}],
    "failures": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("runner", "told", "expected"),
    [
        (Runner.JEST, JEST, {"cart adds": "failed", "cart crashes": "raised", "chai": "failed", "fine": "passed", "later": "skipped"}),
        (Runner.MOCHA, MOCHA, {"cart adds": "failed", "cart later": "skipped", "cart ok": "passed"}),
    ],
)  # fmt: skip
def test_reports_of_other_versions_are_read(runner: Runner, told: object, expected: dict[str, str]) -> None:
    """Beside those that the real ones write: see test_real_tools.py."""
    report = read_report(CommandRun(1, f"{MARK}\n{json.dumps(told, indent=2)}", ""), runner, "web/src/x.test.ts")
    assert verdicts(report) == expected
    assert not report.broken


def test_reports_that_say_nothing_are_broken() -> None:
    def read(text: object, runner: Runner) -> CaseReport:
        said = text if isinstance(text, str) else json.dumps(text)
        return read_report(CommandRun(1, f"SyntaxError: odd\n{MARK}\n{said}", ""), runner, "x.test.js")

    assert "Cannot find module" in read(BROKEN, Runner.JEST).broken
    for runner in (Runner.JEST, Runner.MOCHA, Runner.NODE):
        for junk in ("", "{", "[]", "null", '{"testResults": 1, "tests": [1]}'):
            assert read(junk, runner).broken
    assert read_report(CommandRun(4, f"ImportError: conftest\n{MARK}\n", ""), Runner.PYTEST, "test_x.py").broken
    assert (
        "ImportError"
        in read_report(CommandRun(4, f"E   ImportError: no x\n{MARK}\nnot json", ""), Runner.PYTEST, "test_x.py").broken
    )
    assert read_report(CommandRun(None, "", ""), Runner.JEST, "x").late


def test_the_loader_of_a_packages_test_script_is_used() -> None:
    script = json.dumps(
        {"scripts": {"test": "NODE_ENV=test node --import tsx --no-warnings --experimental-x --test 'a/*.ts'"}}
    )
    repository = Repository(Language.TYPESCRIPT, ("package.json",), {"package.json": script.encode()})
    assert command_of(repository, "a.test.ts", "", Runner.NODE)[-3:] == ["--import", "tsx", "--experimental-x"]


def events(*found: dict) -> CommandRun:
    return CommandRun(1, "\n".join(json.dumps({"Package": "x", **event}) for event in found), "")


def test_go_tells_failures_panics_and_compilation_apart() -> None:
    ran = events(
        {"Action": "run", "Test": "TestTotal"},
        {"Action": "output", "Test": "TestTotal", "Output": "=== RUN   TestTotal\n"},
        {"Action": "output", "Test": "TestTotal/empty", "Output": "    cart_test.go:12: got 1, want 0\n"},
        {"Action": "output", "Test": "TestTotal/empty", "Output": "    --- FAIL: TestTotal/empty (0.00s)\n"},
        {"Action": "fail", "Test": "TestTotal/empty"},
        {"Action": "fail", "Test": "TestTotal"},
        {"Action": "pass", "Test": "TestFine"},
        {"Action": "output", "Test": "TestDies", "Output": "panic: runtime error: index out of range [1]\n"},
    )
    report = read_report(ran, Runner.GO, "shop/guarded_test.go")
    assert verdicts(report) == {
        "TestTotal/empty": CaseVerdict.FAILED,
        "TestFine": CaseVerdict.PASSED,
        "TestDies": CaseVerdict.RAISED,
    }
    assert (report.cases[0].message, report.cases[0].where) == ("got 1, want 0", "shop/cart_test.go")
    old = CommandRun(
        1,
        json.dumps({"Action": "fail", "Package": "x"}),
        "# x\nshop/guarded_test.go:5:2: undefined: Total\nFAIL x [build failed]",
    )
    assert "undefined: Total" in read_report(old, Runner.GO, "shop/guarded_test.go").broken
    new = events(
        {"Action": "build-output", "Output": "./guarded_test.go:5:2: undefined: Total\n"},
        {"Action": "build-fail"},
        {"Action": "fail"},
    )
    assert "undefined: Total" in read_report(new, Runner.GO, "shop/guarded_test.go").broken
    assert read_report(CommandRun(127, "", "go: not found"), Runner.GO, "a_test.go").missing == "Go"
    assert command_of(
        Repository(Language.GO, (), {}),
        "shop/x_test.go",
        "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) {}",
        Runner.GO,
    )[-2:] == [
        "shop",
        "^(TestA|TestB)$",
    ]


def test_go_itself(tmp_path: Path) -> None:
    tools.GO.path()
    files = {
        "go.mod": "module shop\n\ngo 1.18\n",
        "cart/cart.go": "package cart\n\nfunc Total(n int) int { return n - 1 }\n",
    }
    space = FolderWorkspace(repository(tmp_path / "repo", files), tmp_path / "keep", {"GOFLAGS": "-mod=mod", "HOME": str(tmp_path), "GOCACHE": str(tmp_path / "cache")})  # fmt: skip
    code = 'package cart\n\nimport "testing"\n\nfunc TestTotal(t *testing.T) {\n\tif Total(2) != 2 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'
    assert verdicts(run(space, "cart/guarded_test.go", code)) == {"TestTotal": CaseVerdict.FAILED}
    assert "undefined" in run(space, "cart/guarded_test.go", code.replace("Total(2)", "Sum(2)")).broken
