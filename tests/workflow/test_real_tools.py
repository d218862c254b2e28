"""Guards with the real tools of JavaScript and TypeScript; each test is skipped by name where its tool is missing."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.guards import asked, create, patch, run, verdicts
from support.workspace import FolderWorkspace, repository
from terminalbench.workflow.generators import Edit, WrittenTest
from terminalbench.workflow.runners.report import CaseVerdict

TOOLS = Path(__file__).parent / "tools" / "node_modules"
SYSTEM = "/usr/local/bin:/usr/bin:/bin"
NODE = str(Path(found).parent) if (found := shutil.which("node", path=SYSTEM)) else ""
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


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skip a test by the name of the tool that is not there."""
    missing = [tool for tool in tools if not (TOOLS / ".bin" / tool).exists()]
    hint = "npm install --prefix tests/workflow/tools --no-package-lock"
    return pytest.mark.skipif(bool(missing) or not NODE, reason=f"{', '.join(missing) or 'node'} is missing: {hint}")


def space_of(root: Path, files: Mapping[str, str], path: str = f"{NODE}:/usr/bin:/bin") -> FolderWorkspace:
    made = repository(root / "repo", {**files, ".gitignore": "node_modules\n"})
    (made / "node_modules").symlink_to(TOOLS.resolve())
    return FolderWorkspace(made, root / "keep", {"PATH": path, "HOME": str(root)})


def project(runner: str) -> dict[str, str]:
    """A repository whose tests this runner runs."""
    module = runner == "vitest"
    manifest = {"name": "shop", "type": "module" if module else "commonjs", "scripts": {"test": runner}}
    return {
        "package.json": json.dumps(manifest),
        "src/cart.js": MODULE_CART if module else CART,
        "test/old.test.js": HEADS[runner] + "test('old', () => {})\n",
    }


RUNNERS = [pytest.param(name, marks=needs(name)) for name in ("jest", "vitest", "mocha")]


@pytest.mark.parametrize("runner", RUNNERS)
def test_runners_tell_assertions_from_other_errors(tmp_path: Path, runner: str) -> None:
    space = space_of(tmp_path, project(runner))
    code = HEADS[runner] + (
        f"test('wrong', () => {{ {ASSERTS[runner]} }})\n"
        "test('right', () => {})\n"
        "test('raises', () => { total(null) })\n"
        "test('waits', async () => { await Promise.reject(new RangeError('late')) })\n"
        "test.skip('skipped', () => {})\n"
        f"describe('group', () => {{ it('inner', () => {{ {ASSERTS[runner]} }}) }})\n"
    )
    report = run(space, "test/guarded.test.js", code)
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


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{head}require('./nowhere')\ntest('x', () => {{}})\n", "nowhere"),
        ("{head}const x = ;\n", "expression expected|unexpected token"),
        ("{head}console.log('none')\n", "no test|at least one test"),
    ],
)
def test_runners_tell_why_a_file_cannot_be_run(tmp_path: Path, runner: str, body: str, told: str) -> None:
    space = space_of(tmp_path, project(runner))
    code = body.format(head=HEADS[runner])
    if runner == "vitest":
        code = code.replace("require('./nowhere')", "import './nowhere'")
    report = run(space, "test/guarded.test.js", code)
    assert re.search(told, report.broken.lower()), report
    assert not report.green
    red = asked(space, "test_red", WrittenTest(code=code, target="x", path="test/guarded.test.js"))
    assert (red.passed, red.fatal) == (False, False)


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_place_of_a_syntax_error_is_told(tmp_path: Path, runner: str) -> None:
    space = space_of(tmp_path, project(runner))
    code = HEADS[runner] + "test('adds', () => {\n  const x = ;\n})\n"
    red = asked(space, "test_red", WrittenTest(code=code, target="x", path="test/guarded.test.js"))
    line = code.splitlines().index("  const x = ;") + 1
    assert re.search(rf"guarded\.test\.js:(?:{line}\b|.*\({line}:)", red.feedback), red.feedback
    assert "    at " not in red.feedback.partition("SyntaxError")[0], "nothing before the error but what leads to it"


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_test_is_red_before_the_patch_and_green_with_it(tmp_path: Path, runner: str) -> None:
    space = space_of(tmp_path, project(runner))
    written = WrittenTest(code=HEADS[runner] + f"test('adds', () => {{ {ASSERTS[runner]} }})\n", target="it adds")
    assert asked(space, "test_syntax", written).passed
    red = asked(space, "test_red", written)
    assert red.passed, red.feedback
    weak = WrittenTest(code=HEADS[runner] + "test('adds', () => {})\n", target="it adds")
    assert "none failed" in asked(space, "test_red", weak).feedback
    fix = Edit(
        action="modify", path="src/cart.js", search="items.length", replace="items.reduce((sum, one) => sum + one, 0)"
    )
    green = asked(space, "test_green", patch(fix), [written])
    assert green.passed, green.feedback
    wrong = Edit(action="modify", path="src/cart.js", search="items.length", replace="items.length + 1")
    still = asked(space, "test_green", patch(wrong), [written])
    assert "1 test of" in still.feedback
    assert "10" in still.feedback


CONFIG = """
module.exports = [{ files: ["**/*.js"], languageOptions: { sourceType: "commonjs", globals: { exports: "writable" } },
  rules: { "no-undef": "error", "no-unused-vars": "warn" } }]
"""


@needs("eslint")
def test_eslint_reports_new_problems_only(tmp_path: Path) -> None:
    files = {
        "package.json": '{"name": "shop"}',
        "eslint.config.js": CONFIG,
        "src/cart.js": "exports.total = (items) => missing + items.length\n",
    }
    space = space_of(tmp_path, files)
    moved = Edit(action="modify", path="src/cart.js", search="exports.total", replace="// moved\nexports.total")
    assert asked(space, "lint", patch(moved)).passed
    again = Edit(action="modify", path="src/cart.js", search="missing +", replace="missing + missing +")
    found = asked(space, "lint", patch(again))
    assert "'missing' is not defined" in found.feedback
    assert found.feedback.count("'missing' is not defined") == 1
    other = asked(space, "lint", patch(moved, create("src/new.js", "exports.a = other\nconst unused = 1\n")))
    assert "'other' is not defined" in other.feedback
    assert "unused" not in other.feedback


@needs("eslint")
def test_an_eslint_that_cannot_check_objects_to_nothing_and_says_so(tmp_path: Path) -> None:
    space = space_of(tmp_path, {"package.json": '{"name": "shop"}', "src/cart.js": CART})
    found = asked(space, "lint", patch(Edit(action="modify", path="src/cart.js", search="length", replace="size")))
    assert found.passed
    assert "eslint could not check" in found.feedback
    assert "config" in found.feedback


@needs("tsc")
def test_tsc_reports_new_problems_only_and_its_parser_is_used(tmp_path: Path) -> None:
    files = {
        "package.json": '{"name": "shop", "type": "module"}',
        "tsconfig.json": '{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2022", "types": []}, "include": ["src"]}',
        "src/cart.ts": TYPED_CART + "export const old: string = 1\n",
        "src/other.ts": "import { total } from './cart.js'\nexport const many = total([1])\n",
    }
    space = space_of(tmp_path, files)
    moved = Edit(action="modify", path="src/cart.ts", search="export function", replace="// moved\nexport function")
    assert asked(space, "lint", patch(moved)).passed
    breaks = Edit(action="modify", path="src/cart.ts", search="items: number[]", replace="items: string[]")
    found = asked(space, "lint", patch(breaks))
    assert not found.passed
    assert "src/other.ts" in found.feedback
    assert "TS2322: Type 'number' is not assignable to type 'string'" in found.feedback
    odd = Edit(action="modify", path="src/cart.ts", search="items.length", replace="items.")
    assert "src/cart.ts" in asked(space, "patch", patch(odd)).feedback


@needs("node")
@pytest.mark.parametrize("label", ["ts", "js"])
def test_typescript_tests_run_on_a_node_that_strips_types(tmp_path: Path, label: str) -> None:
    files = {
        "package.json": '{"type": "module", "scripts": {"test": "node --test"}}',
        "src/cart.ts": TYPED_CART,
        "test/cart.test.ts": "import test from 'node:test'\ntest('old', () => {})\n",
    }
    space = space_of(tmp_path, files, f"{TOOLS / '.bin'}:/usr/bin:/bin")
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
