"""The rules that decide a trial carry a version, so that the index knows by which of them it was decided."""

import ast
import hashlib
import json
from pathlib import Path

import pytest

from terminalbench.harbor.read import READER

REPO = Path(__file__).parents[2]
GOLDEN = REPO / "tests" / "golden" / "reader.json"
SOURCES = REPO / "src" / "terminalbench"


def rules(text: str) -> str:
    """The code of a module without what no rule depends on: comments, docstrings and layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                part
                for part in node.body
                if not (
                    isinstance(part, ast.Expr)
                    and isinstance(part.value, ast.Constant)
                    and isinstance(part.value.value, str)
                )
            ] or [ast.Pass()]
    return ast.unparse(tree)


def digest(folder: Path) -> str:
    """The digest of all that decides a trial: `harbor/read`, and whose fault an error is."""
    found = hashlib.sha256()
    own = folder / "harbor" / "read" / "__init__.py"
    for file in [*sorted((folder / "harbor" / "read").rglob("*")), folder / "faults.py"]:
        if file.suffix in {".py", ".json"} and file != own:
            text = file.read_text(encoding="utf-8")
            content = rules(text) if file.suffix == ".py" else json.dumps(json.loads(text), sort_keys=True)
            found.update(f"{file.name}\0{content}\0".encode())
    return found.hexdigest()[:16]


def test_a_change_of_the_rules_raises_their_version(request: pytest.FixtureRequest) -> None:
    now = {"version": READER, "digest": digest(SOURCES)}
    known = json.loads(GOLDEN.read_text())
    if request.config.getoption("--update-golden") and known["version"] < READER:
        GOLDEN.write_text(json.dumps(now) + "\n")
        known = now
    assert now == known, (
        "the rules of harbor/read are others than those of their version: raise READER in harbor/read/__init__.py, "
        "so that the index reads its trials again, and run this test with --update-golden"
    )


def test_only_a_rule_changes_the_digest(tmp_path: Path) -> None:
    read = tmp_path / "harbor" / "read"
    read.mkdir(parents=True)
    (tmp_path / "faults.py").write_text("A = 1\n")

    def of(text: str) -> str:
        (read / "outcome.py").write_text(text)
        return digest(tmp_path)

    first = of('def passed(reward: float) -> bool:\n    """One."""\n    return reward >= 1.0\n')
    assert (
        of('def passed(\n    reward: float,\n) -> bool:\n    """Two."""\n    return reward >= 1.0  # three\n') == first
    )
    assert of("def passed(reward: float) -> bool:\n    return reward > 0.5\n") != first
