"""Class names of the house are unique nouns, and only the packages that may do so import what is heavy or foreign."""

import ast
import re
from collections import defaultdict
from functools import cache

from shape.test_modules import SRC, modules

SHARED = {"Analysis", "Change", "Choice", "Plan", "Task"}
"""Names of more than one class; may only shrink. Those of `workflow.generators` stand in the form that a model is shown."""

VERB_FORMS = {"Interrupted", "Refused"}
"""Errors that users and records of trials name; may only shrink."""

NOUNS = {
    "Crossing", "Family", "Feed", "Finding", "Grouping", "Open", "Reading", "Reply", "Scaling", "Screen", "Sizing",
    "Speed", "Standing", "Tally", "Timing", "Token", "Training",
}  # fmt: skip
"""Nouns that end like a participle or an adverb."""

MAY_IMPORT = {
    "numpy": ("analytics", "archivist"),
    "scipy": (),
    "statsmodels": (),
    "harbor": ("harbor", "sandbox"),
    "litellm": ("harbor", "llm"),
    "ray": ("runner.executors",),
    "starlette": ("dashboard",),
    "uvicorn": ("dashboard",),
    "markdown_it": ("dashboard",),
    "jinja2": ("dashboard", "overnight", "report"),
    "rich": ("watch",),
    "gepa": ("trainer.evolvers",),
    "optuna": ("trainer.evolvers",),
    "apprise": ("runner",),
    "tiktoken": ("llm",),
    "xllamacpp": ("llm.local",),
    "huggingface_hub": ("swebench_pro",),
    "pandas": ("index",),
    "polars": ("index",),
    "pyarrow": ("index", "report", "swebench_pro"),
}
"""Who may import a library. A package that is not named may not, a new one included."""


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(file.read_bytes()) for name, file in modules(SRC).items()}


def classes() -> dict[str, list[str]]:
    """The modules of every class, by its name without a leading underscore."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{module}:{node.name}")
    return found


def test_class_names_are_unique() -> None:
    shared = {name: places for name, places in classes().items() if len(places) > 1}
    assert shared.keys() == SHARED, (
        f"give each a name of its own: { {n: p for n, p in shared.items() if n not in SHARED} }"
    )


def test_class_names_are_nouns() -> None:
    found = {name for name in classes() if re.fullmatch(r"[A-Z][a-z]+(ed|ing|en|ly)", name)}
    assert found <= VERB_FORMS | NOUNS, f"not nouns: {sorted(found - VERB_FORMS - NOUNS)}"


def test_nothing_is_taken_for_a_test() -> None:
    names = [*(name.rpartition(".")[2] for name in trees()), *classes()]
    assert [name for name in names if name.startswith(("test_", "Test"))] == []


def test_a_library_is_imported_only_by_those_who_may() -> None:
    wrong = [
        f"{module} imports {library}"
        for module, tree in trees().items()
        for library in sorted(libraries(tree) & MAY_IMPORT.keys())
        if not any(f"{module}.".startswith(f"terminalbench.{package}.") for package in MAY_IMPORT[library])
    ]
    assert wrong == []


def libraries(tree: ast.Module) -> set[str]:
    """The top packages that a module imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
