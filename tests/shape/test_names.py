"""Class names of the house are unique nouns, and only the packages that may do so import what is heavy or foreign."""

import ast
import re
import sys
from collections import defaultdict
from functools import cache

import pytest

from shape.test_modules import SRC, every_statement, imported, modules, parsed

pytestmark = pytest.mark.alone("shape")  # every module is parsed once

SHARED = {"Analysis", "Change", "Choice", "Plan", "Task"}
"""Names of more than one class; may only shrink. Those of `workflow.generators` stand in the form that a model is shown."""

VERB_FORMS = {"Interrupted", "Refused"}
"""Errors that users and records of trials name; may only shrink."""

NOUNS = {
    "Crossing", "Family", "Feed", "Finding", "Grouping", "Open", "Reading", "Reply", "Scaling", "Screen", "Sizing",
    "Speed", "Standing", "Tally", "Timing", "Token", "Training",
}  # fmt: skip
"""Nouns that end like a participle or an adverb."""

ANYWHERE = ""
MAY_IMPORT = {
    "msgspec": (ANYWHERE,),
    "click": ("cli", "watch"),
    "pydantic": ("harbor",),
    "typer": ("harbor",),
    "dotenv": ("experiments",),
    "tomlkit": ("experiments", "swebench_pro", "trainer.evolvers"),
    "httpx": ("sandbox", "swebench_pro"),
    "yaml": ("sandbox.compose",),
    "markupsafe": ("dashboard", "overnight", "report"),
    "pytest": ("workflow.programs",),
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
"""Who may import a library. A package that is not named may not, a new one included; nor may anybody a library that is not."""

OURS = {
    "sandbox": ("decode", "errors", "files", "frozen", "json_files", "modes", "records", "secrets"),
    "sandbox.engine": ("sandbox.run_program",),
}
"""What a package that could be a wheel of its own imports of ours; the engine is standard library only."""

FRAGMENT = 60
"""Lines below which a module is part of the one beside it, if that one alone imports it."""

FRAGMENTS: set[str] = set()
"""Fragments that are not merged yet; may only shrink."""


@cache
def trees() -> dict[str, ast.Module]:
    return {name: parsed(file) for name, file in modules(SRC).items()}


@cache
def classes() -> dict[str, list[str]]:
    """The modules of every class, by its name without a leading underscore."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees().items():
        for node in every_statement(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{module}:{node.name}")
    return found


def test_class_names_are_unique() -> None:
    shared = {name: places for name, places in classes().items() if len(places) > 1}
    assert shared.keys() == SHARED, (
        f"give each a different name: { {n: p for n, p in shared.items() if n not in SHARED} }"
    )


def test_class_names_are_nouns() -> None:
    found = {name for name in classes() if re.fullmatch(r"[A-Z][a-z]+(ed|ing|en|ly)", name)}
    assert found <= VERB_FORMS | NOUNS, f"not nouns: {sorted(found - VERB_FORMS - NOUNS)}"


def test_nothing_is_taken_for_a_test() -> None:
    names = [*(name.rpartition(".")[2] for name in trees()), *classes()]
    assert [name for name in names if name.startswith(("test_", "Test"))] == []


def test_a_library_is_imported_only_by_those_who_may() -> None:
    foreign = {
        module: libraries(tree) - sys.stdlib_module_names - {"terminalbench"} for module, tree in trees().items()
    }
    wrong = [
        f"{module} imports {library}"
        for module, found in foreign.items()
        for library in sorted(found)
        if not any(within(module, package) for package in MAY_IMPORT.get(library, ()))
    ]
    assert wrong == []


def test_what_could_be_a_wheel_of_its_own_imports_little_of_ours() -> None:
    files = modules(SRC)
    for package, allowed in OURS.items():
        inside = [file for module, file in files.items() if within(module, package)]
        ours = set().union(*(imported(file, files, typing_only=True) for file in inside))
        assert inside
        assert not [name for name in sorted(ours) if not any(within(name, place) for place in (package, *allowed))]
    engine = [trees()[module] for module in trees() if within(module, "sandbox.engine")]
    assert not set().union(*map(libraries, engine)) - sys.stdlib_module_names - {"terminalbench"}


def test_a_small_module_is_part_of_the_one_that_imports_it() -> None:
    found = {name for name, importer in fragments().items() if importer.rpartition(".")[0] == name.rpartition(".")[0]}
    assert found <= FRAGMENTS, f"merge each with its only importer: { {n: fragments()[n] for n in found - FRAGMENTS} }"
    assert found >= FRAGMENTS, f"no fragments any more, take them off the list: {sorted(FRAGMENTS - found)}"


@cache
def fragments() -> dict[str, str]:
    """Small modules that one module imports and no text of ours names, each with that module."""
    files = modules(SRC)
    importers: dict[str, set[str]] = defaultdict(set)
    for module, file in files.items():
        for name in imported(file, files):
            importers[name].add(module)
    texts = {module: file.read_text() for module, file in files.items()}
    small = [name for name, file in files.items() if texts[name].count("\n") < FRAGMENT and file.stem != "__init__"]
    entries = {name for name in small for text in texts.values() if re.search(rf"{re.escape(name)}[:\"]", text)}
    return {name: min(importers[name]) for name in small if len(importers[name]) == 1 and name not in entries}


STATED = ("experiments", "harbor.limits", "index", "lab", "live", "llm", "records", "runner")
"""Packages whose docstrings are statements; may only grow."""


def test_the_first_line_of_a_docstring_is_a_statement() -> None:
    wrong = [
        f"{module}: {text.splitlines()[0]}"
        for module, tree in trees().items()
        if any(within(module, package) for package in STATED)
        for node in (tree, *every_statement(tree))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node) or "") and re.match(r"(What|Whether|How|Who|Where|Which|When|Why)\b", text)
    ]
    assert wrong == [], 'write "Return ...", "The ...", "True when ..."'


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"terminalbench.{package}." if package else "terminalbench.")


@cache
def libraries(tree: ast.Module) -> set[str]:
    """The top packages that a module imports, at its top or inside a function."""
    found: set[str] = set()
    for node in every_statement(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
