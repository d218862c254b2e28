"""What the class of an agent says of itself, read from its source: neither it nor Harbor is imported.

Base classes are followed, also into other modules, as long as their files can be found on the search path.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from terminalbench.errors import UserError
from terminalbench.experiments.strict import is_file

RECORD = "AGENT_INFO"
"""The class attribute by which an agent declares what it takes."""

_HARBORS = {
    "self", "logs_dir", "model_name", "logger", "mcp_servers", "skills_dir", "extra_env", "load_trajectory",
    "environment_logs_dir",
}  # fmt: skip
"""Parameters that Harbor fills in itself."""
_FLAGS = ("CLI_FLAGS", "ENV_VARS")


@dataclass(frozen=True)
class AgentClass:
    """A class in a module whose source was found."""

    source: "_Source"
    node: ast.ClassDef
    search: tuple[str, ...]

    @classmethod
    def find(cls, path: str, search: Sequence[str]) -> "AgentClass | None":
        """The class at `module:Class`; None when its source cannot be found or read."""
        module, _, name = path.partition(":")
        return _class(module, name, tuple(search))

    def record(self) -> dict[str, Any]:
        """Its `AGENT_INFO`, else that of the first base class with one; empty without."""
        for found in self._lineage():
            value = _assigned(found.node, RECORD) if found is not None else None
            if value is not None and found is not None:
                return _literal(value, f"{found.source.file}:{value.lineno}")
        return {}

    def options(self) -> set[str] | None:
        """The options that it names: in its constructors, its options model, its flags. None: it cannot be told."""
        named: set[str] = set()
        model: ast.expr | None = None
        for found in self._lineage():
            if found is None:
                return None
            if model is None and (model := _assigned(found.node, "options_model")) is not None:
                fields = found._fields(model)
                if fields is None:
                    return None
                named |= fields
            named |= {name for flags in _FLAGS for name in _flag_names(_assigned(found.node, flags))}
            init = _constructor(found.node)
            if init is not None:
                arguments = init.args
                named |= {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
                if arguments.kwarg is None:
                    break
        return named - _HARBORS

    def _fields(self, model: ast.expr) -> set[str] | None:
        """The fields of an options model; empty for `options_model = None`."""
        if isinstance(model, ast.Constant):
            return set()
        found = self._resolve(model)
        if found is None:
            return None
        names = {_dotted(part.target) for part in found.node.body if isinstance(part, ast.AnnAssign)} - {"model_config"}
        for base in found.node.bases:
            inherited = set() if _dotted(base).endswith("BaseModel") else found._fields(base)
            if inherited is None:
                return None
            names |= inherited
        return names

    def _lineage(self) -> "Iterator[AgentClass | None]":
        """The class, then its bases, depth first; None stands for one whose source cannot be found."""
        yield self
        for base in self.node.bases:
            found = self._resolve(base)
            if found is None:
                yield None
            else:
                yield from found._lineage()

    def _resolve(self, expression: ast.expr) -> "AgentClass | None":
        dotted = _dotted(expression.value if isinstance(expression, ast.Subscript) else expression)
        return self.source.look_up(dotted, self.search)


@dataclass(frozen=True)
class _Source:
    module: str
    file: Path
    tree: ast.Module

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imported(self) -> dict[str, str]:
        """What each imported name stands for: `module` or `module.name`."""
        package = self.module if self.file.name == "__init__.py" else self.module.rpartition(".")[0]
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                          for a in node.names}  # fmt: skip
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
        return names

    def look_up(self, dotted: str, search: tuple[str, ...]) -> AgentClass | None:
        """The class that `dotted` means in this module."""
        if dotted in self.classes:
            return AgentClass(self, self.classes[dotted], search)
        first, _, rest = dotted.partition(".")
        target = ".".join(filter(None, [self.imported.get(first), rest]))
        module, _, name = target.rpartition(".")
        return _class(module, name, search) if first in self.imported and module != self.module else None


def _class(module: str, name: str, search: tuple[str, ...]) -> AgentClass | None:
    file = _file(module, search)
    try:
        source = _Source(module, file, ast.parse(file.read_bytes())) if file is not None else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return source.look_up(name, search) if source is not None else None


def _file(module: str, search: Sequence[str]) -> Path | None:
    """Where the source of a module is, looked for as a file: packages are not imported on the way."""
    *packages, name = module.split(".")
    for place in search:
        folder = Path(place).joinpath(*packages)
        for file in (folder / f"{name}.py", folder / name / "__init__.py"):
            if is_file(file):
                return file
    return None


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)


def _assigned(node: ast.ClassDef, name: str) -> ast.expr | None:
    """What the body of a class assigns to a name."""
    for part in node.body:
        targets = part.targets if isinstance(part, ast.Assign) else []
        if isinstance(part, ast.AnnAssign):
            targets = [part.target]
        if isinstance(part, ast.Assign | ast.AnnAssign) and name in map(_dotted, targets):
            return part.value
    return None


def _flag_names(flags: ast.expr | None) -> Iterator[str]:
    """The options of Harbor's older flag lists: the first argument of each entry."""
    for call in ast.walk(flags) if flags is not None else ():
        if isinstance(call, ast.Call):
            first = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "kwarg")]
            yield from (
                value.value for value in first if isinstance(value, ast.Constant) and isinstance(value.value, str)
            )


def _literal(value: ast.expr, where: str) -> dict[str, Any]:
    try:
        if isinstance(value, ast.Call) and _dotted(value.func) == "dict" and not value.args:
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in value.keywords}
        found = ast.literal_eval(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{RECORD} must be a table of plain values: it is read without running the code", where=where)
    return found


def _dotted(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""
