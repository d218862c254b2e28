"""The table of attacks in the documentation names tests that exist."""

import ast
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n ").split(" | ")]
    for line in (REPO / "docs/design/attacks.md")
    .read_text()
    .partition("## Attacks")[2]
    .partition("\n## ")[0]
    .splitlines()
    if line.startswith("| ") and not line.startswith("| attack ")
]


def test_there_is_a_table() -> None:
    assert len(ROWS) >= 20
    assert all(len(row) == 3 and all(row) for row in ROWS), ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_attack_has_its_test(row: list[str]) -> None:
    for test in row[2].split(", "):
        path, _, name = test.strip("`").partition("::")
        tree = ast.parse((REPO / path).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test
