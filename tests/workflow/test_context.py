"""The context of a task: what fits its words, within its tokens, the same each time."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from terminalbench.llm.model import count_text
from terminalbench.workflow import context
from terminalbench.workflow.languages import Language
from terminalbench.workflow.model import CommandRun
from workflow.workspace import FolderWorkspace, repository

ISSUE = """Coupons are applied twice

When `apply_coupon()` is called for a cart that has a voucher already, `CartTotal` counts the discount twice; see
shop/pricing.py and the module shop.checkout.flow. The total should be reduced once.
"""
FILLER = "def helper_{n}(value):\n    return value + {n}\n"
FILES = {
    "shop/__init__.py": "",
    "shop/pricing.py": "class CartTotal:\n    def discount(self):\n        return 2\n",
    "shop/checkout/flow.py": "def start():\n    return 1\n",
    "shop/engine/zz.py": "def apply_coupon(cart):\n    return cart\n",
    "shop/unrelated.py": FILLER.format(n=0),
    "tests/test_pricing.py": "from shop.pricing import CartTotal\n\n\ndef test_it():\n    assert CartTotal().discount() == 2\n",
    "conftest.py": "",
    "README.md": "A shop.\n",
    "static/app.min.js": "x",
    "data.bin": b"\0apply_coupon",
} | {f"lib/mod{n}/part{n}.py": FILLER.format(n=n) for n in range(60)}  # fmt: skip


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> FolderWorkspace:
    root = repository(tmp_path_factory.mktemp("context") / "repo", FILES)
    return FolderWorkspace(root, root.parent / "keep")


def built(space, budget: int = 8000, issue: str = ISSUE) -> context.PromptContext:
    return asyncio.run(context.build(space, issue, budget, "py"))


def test_the_files_that_the_task_names_are_shown(space) -> None:
    found = built(space)
    assert set(found.shown[:3]) == {"shop/pricing.py", "shop/checkout/flow.py", "shop/engine/zz.py"}
    for path in found.shown:
        assert f"### {path}\n" in found.text
    assert "def apply_coupon(cart):\n    return cart\n" in found.text, "a file that only holds the symbol"
    assert "shop/: __init__.py pricing.py unrelated.py" in found.text, "the map"
    assert "app.min.js" not in "".join(found.shown)
    assert found.language is Language.PYTHON


def test_writers_of_tests_see_a_test_and_where_theirs_goes(space) -> None:
    notes = built(space).test_notes
    assert "pytest" in notes
    assert "`tests/test_guarded.py`" in notes
    assert "assert CartTotal().discount() == 2" in notes


@pytest.mark.parametrize("budget", [300, 700, 1500, 4000, 20000])
def test_it_is_never_more_than_its_tokens(space, budget: int) -> None:
    found = built(space, budget)
    assert count_text(found.text) + count_text(found.test_notes) <= budget
    assert found.text


def test_the_same_task_gives_the_same_bytes_and_another_does_not(space) -> None:
    one = built(space)
    assert one == built(space)
    other = built(space, issue="helper_33 in lib/mod33/part33.py returns too much")
    assert other.hash != one.hash
    assert other.shown[0] == "lib/mod33/part33.py"


def test_a_file_that_only_holds_the_words_is_found_among_many(tmp_path: Path) -> None:
    files = {f"lib/part{n}.py": FILLER.format(n=n) for n in range(400)}
    files["lib/zz.py"] = "def run(order):\n    # vouchers and discounts of an order\n    return order.discount\n"
    space = FolderWorkspace(repository(tmp_path / "repo", files), tmp_path / "keep")
    assert built(space, 3000, "The discount of a voucher is taken twice.").shown[0] == "lib/zz.py"


def test_code_of_a_small_repository_is_shown_whatever_the_words(tmp_path: Path) -> None:
    files = {"a.py": "x = 1\n", "b/c.py": "y = 2\n", "notes.md": "z\n"}
    space = FolderWorkspace(repository(tmp_path / "repo", files), tmp_path / "keep")
    assert built(space, 3000, "It does not work.").shown == ("a.py", "b/c.py")


def test_a_long_file_is_shown_in_parts_around_the_words(tmp_path: Path) -> None:
    body = "\n".join(f"line_{n} = {n}" for n in range(3000))
    long = f"import os\n{body}\ndef apply_coupon(cart):\n    return cart\n{body}\n"
    space = FolderWorkspace(repository(tmp_path / "repo", {"big.py": long}), tmp_path / "keep")
    found = built(space, 3000)
    assert "def apply_coupon(cart):\n    return cart\n" in found.text
    assert "import os\nline_0 = 0\n" in found.text
    assert "big.py (parts of it; 6004 lines in all" in found.text
    assert found.shown == ()


class Large:
    """A repository of ten thousand files that counts what is read of it."""

    def __init__(self) -> None:
        self.names = [f"src/area{n % 97}/group{n % 13}/module_{n}.py" for n in range(10_000)]
        self.read_paths: list[str] = []

    async def files(self) -> Sequence[str]:
        return self.names

    async def read(self, path: str) -> bytes | None:
        return (await self.read_many([path])).get(path)

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        self.read_paths += [path for path in paths if path in set(self.names)]
        return {path: FILLER.format(n=path).encode() for path in paths if path in set(self.names)}

    async def run(self, command: Sequence[str], *, timeout_sec: float, files=None) -> CommandRun:
        return CommandRun(0, "\n".join(f"{name}:1" for name in self.names[:5000]), "")

    async def diff(self, files) -> str:
        return ""

    async def apply(self, patch: str) -> str | None:
        return None


def test_of_a_large_repository_only_candidates_are_read() -> None:
    large = Large()
    found = asyncio.run(context.build(large, "module_4711 of area55: `helper_it` fails everywhere", 12_000))
    assert found.shown[0] == "src/area55/group5/module_4711.py"
    assert len(set(large.read_paths)) <= context.READ
    assert count_text(found.text) <= 12_000
    assert "## Files of the repository (10000)" in found.text
    assert "src/area96/ (103 files)" in found.text
    assert "src/area55/group5/: module_" in found.text


def test_words_are_split_as_code_is_written() -> None:
    assert context.identifiers("HTTPServer parse_url x self") == [
        "httpserver",
        "http",
        "server",
        "parse_url",
        "parse",
        "url",
    ]
    asked = context.read_query("call `Cart.total()` in shop/cart.py, see a.b.c and snake_case")
    assert {"total", "snake_case"} <= set(asked.symbols)
    assert {"shop/cart.py", "a/b/c"} <= asked.paths
