"""What Harbor's environments need and take, read from their sources: the packages of most are not installed here."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_EXTRA = re.compile(r"^([\w.-]+).*\bextra == '([\w.-]+)'")
_HARBORS = frozenset(
    {
        "self", "environment_dir", "environment_name", "session_id", "trial_paths", "task_env_config", "logger",
        "network_policy", "phase_network_policies", "extra_docker_compose", "mounts", "mounts_json",
    }
)  # fmt: skip
"""What Harbor itself gives to every environment."""
_BORROWED = {"ack": "gke"}
"""Environments that need a package of another one's extra, and have none of their own."""


def describe_environments() -> dict[str, Any]:
    """Each environment type: the extra and packages it needs, the variables its own check names, and its options."""
    from harbor.environments.factory import _ENVIRONMENT_REGISTRY
    from harbor.models.environment_type import EnvironmentType

    found = {}
    for kind in EnvironmentType:
        entry = _ENVIRONMENT_REGISTRY[kind]
        extra = entry.pip_extra or _BORROWED.get(kind.value)
        source = _source(entry.module, entry.class_name)
        told = {
            "extra": extra,
            "packages": sorted(_packages(extra)) if extra else [],
            "variables": sorted(source.variables()),
            "options": sorted(source.options()),
            "required": sorted(source.required()),
        }
        found[kind.value] = {name: value for name, value in told.items() if value}
    return found


def _packages(extra: str) -> Iterator[str]:
    for line in requires("harbor") or ():
        if (one := _EXTRA.match(line)) is not None and one[2] == extra:
            yield one[1]


def _source(module: str, name: str) -> "_EnvironmentSource":
    """The class where it is written: a package may only hand it on."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(module)
    tree = ast.parse(Path(spec.origin).read_text())
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _EnvironmentSource(tree, node)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and name in {alias.name for alias in node.names}:
            return _source(node.module, name)
    raise LookupError(f"{module}:{name}")


class _EnvironmentSource:
    """The class of an environment, as its module is written."""

    def __init__(self, tree: ast.Module, own: ast.ClassDef) -> None:
        self._tree, self._class = tree, own
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

    def variables(self) -> set[str]:
        """The variables that its check before a run names, and the functions of its module that it calls."""
        check = self._method("preflight")
        called = [self._functions.get(n.id) for n in ast.walk(check) if isinstance(n, ast.Name)] if check else []
        texts = [n.value for part in (check, *called) if part for n in ast.walk(part) if isinstance(n, ast.Constant)]
        return {name for text in texts if isinstance(text, str) for name in _VARIABLE.findall(text)}

    def options(self) -> set[str]:
        """The arguments of its constructor that are not Harbor's own, and those that it takes out of the others."""
        made = self._method("__init__")
        named = {one.arg for one in (*made.args.args, *made.args.kwonlyargs)} if made else set()
        return (named | set(self._taken())) - _HARBORS | self._inherited()

    def required(self) -> set[str]:
        """The options without which it is not made."""
        made = self._method("__init__")
        if made is None:
            return set()
        places = made.args.args[: len(made.args.args) - len(made.args.defaults)]
        keys = [
            one for one, default in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True) if default is None
        ]
        return {one.arg for one in (*places, *keys)} - _HARBORS

    def _method(self, name: str) -> ast.FunctionDef | None:
        return next((n for n in self._class.body if isinstance(n, ast.FunctionDef) and n.name == name), None)

    def _taken(self) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                where, first = ast.unparse(node.func), node.args[0]
                if re.search(r"\b_?kwargs\.(get|pop)$", where) and isinstance(first, ast.Constant):
                    yield str(first.value)

    def _inherited(self) -> set[str]:
        bases = {ast.unparse(base) for base in self._class.bases}
        for node in self._tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module != "harbor.environments.base":
                for name in bases & {alias.name for alias in node.names}:
                    return _source(node.module, name).options()
        return set()
