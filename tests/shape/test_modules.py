"""No module of ours reaches itself by its imports, whether they stand at the top or inside a function."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from conftest import REPO

pytestmark = pytest.mark.alone("shape")  # every module is parsed once

SRC = REPO / "src"
PACKAGE = "terminalbench"


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def modules(src: Path) -> dict[str, Path]:
    return {
        ".".join(file.relative_to(src).with_suffix("").parts).removesuffix(".__init__"): file
        for file in src.glob(f"{PACKAGE}/**/*.py")
        if "starter/tasks" not in file.as_posix()
    }


def imports(node: ast.AST, *, typing_only: bool) -> Iterator[tuple[str, str]]:
    """(module, name) of every import in a tree; `if TYPE_CHECKING` counts only where it is asked for."""
    for child in statements(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, "") for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from ((child.module or "", alias.name) for alias in child.names)
        elif typing_only or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from imports(child, typing_only=typing_only)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in the blocks of a statement; no import stands in an expression."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        yield from getattr(node, block, ())


@cache
def every_statement(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All statements of a module, inner ones included: far fewer than its nodes."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        inner = list(statements(waiting.pop()))
        found += inner
        waiting += inner
    return tuple(found)


def import_graph(src: Path) -> dict[str, set[str]]:
    found = modules(src)
    graph: dict[str, set[str]] = {}
    for module, file in found.items():
        # The package root imports by name what it lists for type checkers.
        graph[module] = imported(file, found, typing_only=module == PACKAGE)
    return graph


def imported(file: Path, known: Collection[str], *, typing_only: bool = False) -> set[str]:
    """The modules among those known that a file imports."""
    pairs = imports(parsed(file), typing_only=typing_only)
    named = [f"{source}.{name}" if f"{source}.{name}" in known else source for source, name in pairs]
    return {name for name in named if name in known}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = import_graph(SRC)
    assert len(graph) > 100
    assert not cycle(graph), f"a cycle of imports: {' <- '.join(cycle(graph))}"


def test_the_layers_are_documented_as_they_are_checked() -> None:
    """CONTRIBUTING.md has the layers of pyproject.toml, and AGENTS.md a line on each package."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"\w+", line) for line in contracts[0]["layers"]]
    said = (REPO / "CONTRIBUTING.md").read_text().split("import-linter checks that:")[1].split("\n- ")[0]
    assert [re.findall(r"\w+", part) for part in said.split(">")] == layers
    names = set(re.findall(r"\w+", (REPO / "AGENTS.md").read_text()))
    assert {name for layer in layers for name in layer} <= names


def test_what_only_one_folder_of_tests_uses_stands_in_it() -> None:
    users: dict[str, set[str]] = defaultdict(set)
    for file in (*REPO.glob("tests/**/*.py"), *REPO.glob("benchmarks/*.py")):
        for names in re.findall(r"^ *from support(?:\.| import )([\w, ]+)", file.read_text(), re.MULTILINE):
            place = "/".join(file.relative_to(REPO).parts[:-1][:2])
            for name in names.partition(" import ")[0].split(", "):
                users[name].add(place)
    assert len(users) > 20
    alone = {
        name: places for name, places in users.items() if len(places) == 1 and not places & {"tests", "tests/support"}
    }
    assert alone == {}


@pytest.mark.parametrize(
    ("second", "cyclic"),
    [
        ("def lazy():\n    from terminalbench.a import x\n", True),
        ("from terminalbench import a\n", True),
        ("import terminalbench.a\n", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from terminalbench.a import x\n", False),
        ("from terminalbench.c import x\n", False),
    ],
)
def test_a_cycle_is_found_and_named(tmp_path: Path, second: str, cyclic: bool) -> None:
    package = tmp_path / PACKAGE
    package.mkdir()
    texts = {"__init__": "", "a": "from terminalbench.b import y\n", "b": second, "c": ""}
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    assert set(cycle(import_graph(tmp_path))) == ({"terminalbench.a", "terminalbench.b"} if cyclic else set())
