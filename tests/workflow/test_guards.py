"""The guards, on real tiny repositories: what they let pass, what they reject, and how they say so."""

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import REPO
from terminalbench import registry
from terminalbench.workflow.generators import (
    Analysis,
    Change,
    Edit,
    Issue,
    Localisation,
    Place,
    Plan,
    Review,
    WrittenTest,
)
from terminalbench.workflow.model import Artifact, GuardContext, GuardResult, Kind
from workflow.guards import asked, create, patch
from workflow.workspace import FolderWorkspace, repository

PYTHON = {
    "shop/__init__.py": "",
    "shop/cart.py": "import os\n\n\ndef total(items):\n    return sum(items) - 1\n\n\ndef old():\n    return undefined_before\n",
    "tests/__init__.py": "",
    "tests/test_cart.py": "import unittest\n\n\nclass TestCart(unittest.TestCase):\n    def test_empty(self):\n        self.assertEqual(1, 1)\n",
    ".gitignore": "*.cache\nbuild/\n",
}  # fmt: skip
RED = "import unittest\nfrom shop.cart import total\n\n\nclass T(unittest.TestCase):\n    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n"
FIX = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="sum(items)")
SYSTEM = "/usr/bin:/bin"
if shutil.which("python3", path=SYSTEM) is None:
    SYSTEM = f"{Path(sys.executable).parent}:{SYSTEM}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> FolderWorkspace:
    """A Python repository, shared: no guard leaves anything in it."""
    root = repository(tmp_path_factory.mktemp("shop") / "repo", PYTHON)
    return FolderWorkspace(root, root.parent / "keep", {"PATH": SYSTEM})


def test_every_built_in_guard_is_known_by_its_name() -> None:
    names = {"analysis", "localisation", "plan", "test_syntax", "patch", "lint", "test_red", "test_green"}
    names |= {"review_schema", "review", "composite"}
    assert names <= set(registry.names("guards"))
    for name in names:
        assert registry.resolve("guards", name)().name == name


def test_an_answer_of_another_form_is_rejected_by_every_guard(shop) -> None:
    for guard in (
        "analysis",
        "localisation",
        "plan",
        "test_syntax",
        "test_red",
        "patch",
        "lint",
        "review_schema",
        "review",
    ):
        kind = next(iter(registry.resolve("guards", guard).judges))
        bad = Artifact(id="x", kind=kind, step="s", cycle=1, attempt=1, content='{"no": 1}')
        assert not asked(shop, guard, bad).passed


def test_analysis_names_files_that_exist(shop) -> None:
    good = Analysis(root_cause="off by one", fix_approach="drop it", files=("shop/cart.py",))
    assert asked(shop, "analysis", good).passed
    bad = asked(shop, "analysis", Analysis(root_cause=" ", fix_approach="x", files=("src/cart.py",)))
    assert "`root_cause` is empty" in bad.feedback
    assert "Did you mean `shop/cart.py`" in bad.feedback
    assert "name at least one" in asked(shop, "analysis", Analysis(root_cause="a", fix_approach="b", files=())).feedback


def test_localisation_names_one_to_n_places(shop) -> None:
    places = tuple(Place(path=path) for path in PYTHON)
    assert asked(shop, "localisation", Localisation(places=places[:2])).passed
    assert not asked(shop, "localisation", Localisation(places=())).passed
    assert not asked(shop, "localisation", Localisation(places=places[:2]), options={"most": 1}).passed
    assert not asked(shop, "localisation", Localisation(places=(Place(path="nowhere.py"),))).passed


def test_plan_creates_what_is_new_and_changes_what_is_there(shop) -> None:
    good = (Change(path="shop/cart.py", what="x"), Change(path="shop/new.py", what="x", action="create"))
    assert asked(shop, "plan", Plan(approach="a", changes=good)).passed
    bad = (Change(path="shop/new.py", what="x"), Change(path="shop/cart.py", what="x", action="create"))
    said = asked(shop, "plan", Plan(approach="a", changes=bad)).feedback
    assert "`shop/new.py` is no file" in said
    assert "`shop/cart.py` exists already" in said


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (WrittenTest(code=RED, target="t", path="tests/test_new.py"), None),
        (WrittenTest(code=RED, target="t"), None),
        (WrittenTest(code="def test_x(:\n", target="t"), "does not parse"),
        (WrittenTest(code="x = 1\n", target="t"), "declares no test"),
        (WrittenTest(code="  ", target="t"), "empty"),
        (WrittenTest(code=RED, target="t", path="tests/test_cart.py"), "exists already"),
        (WrittenTest(code=RED, target="t", path="../test_x.py"), "inside the repository"),
        (WrittenTest(code=RED, target="t", path="tests/new.py"), "called test_*.py here. The usual place is `tests/test_guarded.py`"),
    ],
)  # fmt: skip
def test_a_test_is_where_it_is_found_and_parses(shop, test: WrittenTest, told: str | None) -> None:
    result = asked(shop, "test_syntax", test)
    assert result.passed == (told is None)
    assert (told or "") in result.feedback


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ([FIX], None),
        ([create("shop/new.py", "x = 1")], None),
        ([Edit(action="delete", path="shop/cart.py")], None),
        ([], "`edits` is empty"),
        ([Edit(action="modify", path="shop/cart.py", search="nothing", replace="x")], "is not in the file"),
        ([Edit(action="modify", path="shop/cart.py", search="import os", replace="import os")], "changes nothing"),
        ([Edit(action="modify", path="shop/cart.py", search="def total(items):", replace="def total(items:")], "do not parse"),
        ([create("build/x.py", "x = 1\n")], "ignored by git"),
        ([create("package.json", "{")], "not JSON"),
        ([create(".git/hooks/pre-commit", "x")], "git's own folder"),
    ],
)  # fmt: skip
def test_a_patch_applies_and_parses(shop, edits: list[Edit], told: str | None) -> None:
    result = asked(shop, "patch", patch(*edits))
    assert result.passed == (told is None), result.feedback
    assert (told or "") in result.feedback


def test_a_patch_leaves_tests_alone_where_the_workflow_says_so(shop) -> None:
    edit = create("tests/helper.py", "x = 1\n")
    assert asked(shop, "patch", patch(FIX, edit)).passed
    assert "belongs to the tests" in asked(shop, "patch", patch(FIX, edit), options={"keep_tests": True}).feedback
    own = WrittenTest(code=RED, target="t", path="tests/test_new.py")
    spoiled = asked(shop, "patch", patch(FIX, create("tests/test_new.py", "x = 1\n")), inputs=[own])
    assert "is the test that the patch has to pass" in spoiled.feedback


def test_lint_tells_new_problems_only(shop) -> None:
    moved = Edit(action="modify", path="shop/cart.py", search="import os\n", replace="import os\n\n# more\n# lines\n")
    assert asked(shop, "lint", patch(FIX, moved)).passed
    new = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="summ(items)")
    result = asked(shop, "lint", patch(new))
    assert "undefined name 'summ', at `return summ(items)`" in result.feedback
    assert "undefined_before" not in result.feedback
    again = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="undefined_before")
    assert "undefined_before" in asked(shop, "lint", patch(again)).feedback, "one more of an old message is new"
    elsewhere = Edit(
        action="modify",
        path="shop/cart.py",
        search="    return sum(items) - 1",
        replace="    # here\n    return summ(items)",
    )
    assert asked(shop, "lint", patch(elsewhere)).signature == result.signature


def test_lint_without_a_tool_passes_and_says_so(shop) -> None:
    result = asked(shop, "lint", patch(create("a.ts", "const x: number = 1\n")))
    assert result.passed
    assert "eslint is not installed" in result.feedback
    assert "no file of a language" in asked(shop, "lint", patch(create("a.md", "x"))).feedback


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (RED, None),
        (RED.replace("), 3)", "), 2)"), "none failed"),
        (RED.replace("import total", "import missing"), "could not be run"),
        (RED.replace("total([1, 2])", "total(None)"), "ends by another error"),
        (RED.replace("self.assertEqual(total", "from shop import nothing; (total"), "could not be run"),
        (RED.replace("self.assertEqual(total([1, 2]), 3)", "import time, os; open('m.cache', 'a').write('x'); assert os.path.getsize('m.cache') > 1"), "not stable"),
    ],
)  # fmt: skip
def test_red_is_an_assertion_that_fails_twice(shop, code: str, told: str | None) -> None:
    result = asked(shop, "test_red", WrittenTest(code=code, target="t"))
    (shop.root / "m.cache").unlink(missing_ok=True)
    assert result.passed == (told is None), result.feedback
    assert (told or "") in result.feedback


def test_a_test_over_its_time_is_stopped(shop) -> None:
    slow = WrittenTest(code=RED.replace("total([1, 2])", "__import__('time').sleep(30)"), target="t")
    assert "did not end within 0.5 seconds" in asked(shop, "test_red", slow, options={"timeout_sec": 0.5}).feedback


def test_green_is_the_own_test_with_the_patch(shop) -> None:
    own = WrittenTest(code=RED, target="t")
    assert asked(shop, "test_green", patch(FIX), inputs=[own]).passed
    wrong = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="sum(items) + 1")
    first = asked(shop, "test_green", patch(wrong), inputs=[own])
    assert "4 != 3" in first.feedback
    assert "still failed" in first.feedback
    comment = Edit(action="modify", path="shop/cart.py", search="import os\n", replace="import os\n\n\n# a comment\n")
    assert asked(shop, "test_green", patch(wrong, comment), inputs=[own]).signature == first.signature
    other = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="sum(items) + 2")
    assert asked(shop, "test_green", patch(other), inputs=[own]).signature != first.signature
    crash = Edit(action="modify", path="shop/cart.py", search="sum(items) - 1", replace="items.total")
    assert "AttributeError" in asked(shop, "test_green", patch(crash), inputs=[own]).feedback


def test_a_review_is_read_and_its_verdict_acts(shop) -> None:
    approve = Review(verdict="approve", reasoning="fine")
    revise = Review(verdict="revise", reasoning="no", issues=(Issue(what="forgets None", path="shop/cart.py"),))
    back = Review(verdict="backtrack", reasoning="no", issues=(Issue(what="tests nothing"),), target="test")
    for good in (approve, revise, back):
        assert asked(shop, "review_schema", good).passed
    assert asked(shop, "review", approve).passed
    told = asked(shop, "review", revise)
    assert (told.passed, told.back) == (False, Kind.PATCH)
    assert "shop/cart.py: forgets None" in told.feedback
    assert asked(shop, "review", back).back is Kind.TEST
    for bad in (
        Review(verdict="revise", reasoning="no"),
        Review(verdict="backtrack", reasoning="no", issues=(Issue(what="x"),)),
        Review(verdict="approve", reasoning=" "),
        Review(verdict="approve", reasoning="yes", issues=(Issue(what="x", severity="major"),)),
    ):
        assert not asked(shop, "review_schema", bad).passed
        assert asked(shop, "review", bad).back is None


class Grumpy:
    """A guard of another package."""

    name = "grumpy"

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        return GuardResult(
            passed=False, guard=self.name, feedback="no", signature="no", fatal=context.options.get("fatal", False)
        )


def test_composite_asks_all_its_parts_of_any_package(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grumpy_package", type(sys)("grumpy_package"))
    monkeypatch.setattr(sys.modules["grumpy_package"], "Grumpy", Grumpy, raising=False)
    spec = "grumpy_package:Grumpy"
    assert asked(shop, "composite", patch(FIX), options={"parts": ["patch", "lint"]}).passed
    result = asked(shop, "composite", patch(FIX), options={"parts": [spec, "patch"]})
    assert [(part.guard, part.passed) for part in result.parts] == [("grumpy", False), ("patch", True)]
    assert "grumpy: no" in result.feedback
    assert all(part.duration_sec > 0 for part in result.parts)
    fatal = asked(shop, "composite", patch(FIX), options={"parts": [spec, "patch"], "options": {spec: {"fatal": True}}})
    assert fatal.fatal
    assert len(fatal.parts) == 1


def test_a_guard_of_an_installed_package_is_known_by_its_name(
    shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "grumpy-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: grumpy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[terminalbench.guards]\ngrumpy = grumpy_package:Grumpy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "grumpy_package", type(sys)("grumpy_package"))
    monkeypatch.setattr(sys.modules["grumpy_package"], "Grumpy", Grumpy, raising=False)
    assert asked(shop, "grumpy", patch(FIX)).feedback == "no"


def test_guards_leave_the_tree_as_it_was(shop) -> None:
    asyncio.run(shop.run(["true"], timeout_sec=60))
    for name, text in PYTHON.items():
        assert (shop.root / name).read_text() == text


PYTEST = {**PYTHON, "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef three():\n    return 3\n"}
RERUNS = "-p no:cacheprovider --maxfail=99 --this-option-does-not-exist"


def test_pytest_runs_with_its_fixtures_and_without_the_options_of_an_image(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", PYTEST)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "PYTEST_ADDOPTS": RERUNS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    space = FolderWorkspace(root, tmp_path / "keep", env)
    code = (
        "import pytest\nfrom shop.cart import total\n\n\n"
        "def test_total(three):\n    assert total([1, 2]) == three\n\n\n"
        "def test_did_not_raise_is_an_assertion():\n    with pytest.raises(ValueError):\n        total([])\n"
    )
    assert asked(space, "test_red", WrittenTest(code=code, target="t")).passed
    fixture = asked(space, "test_red", WrittenTest(code="def test_x(no_such_fixture):\n    assert False\n", target="t"))
    assert not fixture.passed
    assert "no_such_fixture" in fixture.feedback


def test_without_an_interpreter_tests_are_a_fatal_matter(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", PYTHON)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "git", "env", "rm", "mkdir", "chmod", "cat", "xargs", "mktemp", "tail", "rmdir"):
        (tools / name).symlink_to(str(shutil.which(name)))
    space = FolderWorkspace(root, tmp_path / "keep", {"PATH": str(tools)})
    result = asked(space, "test_red", WrittenTest(code=RED, target="t"))
    assert result.fatal
    assert "Python 3 is not there" in result.feedback
    unchecked = asked(space, "patch", patch(FIX))
    assert unchecked.passed
    assert "Python is not installed here" in unchecked.feedback


def test_the_page_on_guards_names_every_guard_and_its_options() -> None:
    page = (REPO / "docs/guards.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", page, re.MULTILINE))
    assert set(rows) == set(registry.BUILTIN["guards"])
    for name, row in rows.items():
        assert set(re.findall(r"`(\w+)`(?: \(|,|(?= \|$))", row.rsplit("|", 2)[-2] + "|")) == set(
            getattr(registry.resolve("guards", name), "options", {})
        )
