"""Guards with the real tools of JavaScript and TypeScript; each test is skipped by name where its tool is missing."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from support import tools
from terminalbench.workflow.generators import Edit, WrittenTest
from terminalbench.workflow.runners import CaseVerdict
from workflow.guards import asked, create, patch, run, verdicts
from workflow.workspace import FolderWorkspace, repository

pytestmark = pytest.mark.long  # each starts tools that take seconds to load
NODE_MODULES = tools.WORKFLOW_TOOLS / "node_modules"
CART = "exports.total = (items) => items.length\n"
MODULE_CART = "export const total = (items) => items.length\n"
TYPED_CART = "export function total(items: number[]): number {\n  return items.length\n}\n"
HEADS = {
    "jest": "const { total } = require('../src/cart')\n",
    "vitest": "import { describe, expect, it, test } from 'vitest'\nimport { total } from '../src/cart'\n",
    "mocha": "const assert = require('node:assert')\nconst { total } = require('../src/cart')\nconst test = it\n",
}
ASSERTS = {"jest": "expect(total([5, 5])).toBe(10)", "mocha": "assert.strictEqual(total([5, 5]), 10)"}
ASSERTS["vitest"] = ASSERTS["jest"]


def space_of(root: Path, files: Mapping[str, str], node: tools.Tool = tools.NODE) -> FolderWorkspace:
    """A repository whose node_modules has the real tools, beside a Node."""
    made = repository(root / "repo", {**files, ".gitignore": "node_modules\n"})
    (made / "node_modules").symlink_to(NODE_MODULES.resolve())
    path = f"{node.path().parent}:/usr/bin:/bin"
    return FolderWorkspace(made, root / "keep", {"PATH": path, "HOME": str(root)})


def project(runner: str) -> dict[str, str]:
    """A repository with a package in `web` whose tests this runner runs."""
    module = runner == "vitest"
    manifest = {"name": "shop", "type": "module" if module else "commonjs", "scripts": {"test": runner}}
    return {
        "package.json": "{}",
        "web/package.json": json.dumps(manifest),
        "web/src/cart.js": MODULE_CART if module else CART,
        "web/test/old.test.js": HEADS[runner] + "test('old', () => {})\n",
    }


def written(code: str) -> WrittenTest:
    return WrittenTest(code=code, target="it adds", path="web/test/guarded.test.js")


@pytest.mark.parametrize("runner", ["jest", "vitest", "mocha"])
def test_a_runner_tells_failures_from_errors_and_why_a_file_cannot_be_run(tmp_path: Path, runner: str) -> None:
    """From the package that the test is in, wherever the runner is installed."""
    tools.npm_tool(runner).path()
    space = space_of(tmp_path, project(runner))
    code = HEADS[runner] + (
        f"test('wrong', () => {{ {ASSERTS[runner]} }})\n"
        "test('right', () => {})\n"
        "test('raises', () => { total(null) })\n"
        "test('waits', async () => { await Promise.reject(new RangeError('late')) })\n"
        "test.skip('skipped', () => {})\n"
        f"describe('group', () => {{ it('inner', () => {{ {ASSERTS[runner]} }}) }})\n"
    )
    report = run(space, "web/test/guarded.test.js", code)
    assert not report.broken, report
    assert verdicts(report) == {
        "wrong": CaseVerdict.FAILED,
        "right": CaseVerdict.PASSED,
        "raises": CaseVerdict.RAISED,
        "waits": CaseVerdict.RAISED,
        "skipped": CaseVerdict.SKIPPED,
        "group inner": CaseVerdict.FAILED,
    }
    raised = {case.id: (case.error, case.message) for case in report.cases}
    assert raised["waits"] == ("RangeError", "late")
    assert raised["raises"][0] == "TypeError"
    assert "10" in raised["wrong"][1]
    nowhere = "import './nowhere'\n" if runner == "vitest" else "require('./nowhere')\n"
    none = run(space, "web/test/guarded.test.js", HEADS[runner] + nowhere + "test('x', () => {})\n")
    assert "nowhere" in none.broken
    assert not none.green
    bad = HEADS[runner] + "test('adds', () => {\n  const x = ;\n})\n"
    red = asked(space, "test_red", written(bad))
    assert (red.passed, red.fatal) == (False, False)
    line = bad.splitlines().index("  const x = ;") + 1
    assert re.search(rf"guarded\.test\.js:(?:{line}\b|.*\({line}:)", red.feedback), red.feedback
    assert "    at " not in red.feedback.partition("SyntaxError")[0], "nothing before the error but what leads to it"


def test_a_test_is_red_before_the_patch_and_green_with_it(tmp_path: Path) -> None:
    """By one runner: what each tells of a test is above."""
    runner = "vitest"
    tools.npm_tool(runner).path()
    space = space_of(tmp_path, project(runner))
    test = written(HEADS[runner] + f"test('adds', () => {{ {ASSERTS[runner]} }})\n")
    red = asked(space, "test_red", test)
    assert red.passed, red.feedback
    right, wrong = (
        Edit(action="modify", path="web/src/cart.js", search="items.length", replace=new)
        for new in ("items.reduce((sum, one) => sum + one, 0)", "items.length + 1")
    )
    green = asked(space, "test_green", patch(right), [test])
    assert green.passed, green.feedback
    still = asked(space, "test_green", patch(wrong), [test])
    assert "1 test of" in still.feedback
    assert "10" in still.feedback


CONFIG = """
module.exports = [{ files: ["**/*.js"], languageOptions: { sourceType: "commonjs", globals: { exports: "writable" } },
  rules: { "no-undef": "error", "no-unused-vars": "warn" } }]
"""


def test_eslint_reports_new_problems_only(tmp_path: Path) -> None:
    tools.npm_tool("eslint").path()
    files = {
        "package.json": '{"name": "shop"}',
        "eslint.config.js": CONFIG,
        "src/cart.js": "exports.total = (items) => missing + items.length\n",
    }
    space = space_of(tmp_path, files)
    edit = Edit(action="modify", path="src/cart.js", search="exports.total", replace="// moved\nexports.total")
    found = asked(space, "lint", patch(edit, create("src/new.js", "exports.a = other\nconst unused = 1\n")))
    assert "'other' is not defined" in found.feedback
    assert "'missing' is not defined" not in found.feedback, "it was there before, on another line"
    assert "unused" not in found.feedback, "a warning"


def test_an_eslint_that_cannot_check_objects_to_nothing_and_says_so(tmp_path: Path) -> None:
    tools.npm_tool("eslint").path()
    space = space_of(tmp_path, {"package.json": '{"name": "shop"}', "src/cart.js": CART})
    found = asked(space, "lint", patch(Edit(action="modify", path="src/cart.js", search="length", replace="size")))
    assert found.passed
    assert "eslint could not check" in found.feedback
    assert "config" in found.feedback


def test_tsc_reports_new_problems_only_and_its_parser_is_used(tmp_path: Path) -> None:
    tools.npm_tool("tsc").path()
    files = {
        "package.json": '{"name": "shop", "type": "module"}',
        "tsconfig.json": '{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2022", "lib": ["es5"], "types": []}, "include": ["src"]}',
        "src/cart.ts": TYPED_CART + "export const old: string = 1\n",
        "src/other.ts": "import { total } from './cart.js'\nexport const many = total([1])\n",
    }
    space = space_of(tmp_path, files)
    breaks = Edit(action="modify", path="src/cart.ts", search="items: number[]", replace="items: string[]")
    found = asked(space, "lint", patch(breaks))
    assert not found.passed
    assert "src/other.ts" in found.feedback
    assert found.feedback.count("TS2322: Type 'number' is not assignable to type 'string'") == 1, "not that of `old`"
    odd = Edit(action="modify", path="src/cart.ts", search="items.length", replace="items.")
    assert "src/cart.ts" in asked(space, "patch", patch(odd)).feedback


@pytest.mark.parametrize("label", ["ts", "js"])
def test_typescript_tests_run_on_a_node_that_strips_types(tmp_path: Path, label: str) -> None:
    files = {
        "package.json": '{"type": "module", "scripts": {"test": "node --test"}}',
        "src/cart.ts": TYPED_CART,
        "test/cart.test.ts": "import test from 'node:test'\ntest('old', () => {})\n",
    }
    space = space_of(tmp_path, files, tools.NODE_OF_TYPES)
    code = (
        "import test from 'node:test'\nimport assert from 'node:assert'\nimport { total } from '../src/cart.ts'\n"
        "test('adds', () => assert.equal(total([5, 5]), 10))\n"
    )
    written = WrittenTest(code=code, target="it adds")
    syntax = asked(space, "test_syntax", written, language=label)
    assert (syntax.passed, syntax.feedback) == (True, "")
    bad = WrittenTest(code=code.replace("10))", "10)"), target="it adds")
    assert "does not parse" in asked(space, "test_syntax", bad, language=label).feedback
    red = asked(space, "test_red", written, language=label)
    assert red.passed, red.feedback
    fix = Edit(action="modify", path="src/cart.ts", search="items.length", replace="items.reduce((a, b) => a + b, 0)")
    green = asked(space, "test_green", patch(fix), [written], language=label)
    assert green.passed, green.feedback
