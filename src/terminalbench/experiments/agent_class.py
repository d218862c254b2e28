"""The class of an agent of one's own, as far as its source tells it without being run: its record, and default files.

Which options it has, of which types, and whether it can be loaded at all, Harbor's own process says before the first
trial (`harbor.preflight`). Base classes are followed, also into other modules that are found on the search path.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from terminalbench.errors import Problem, UserError, did_you_mean
from terminalbench.frozen import frozen
from terminalbench.strict import is_file

RECORD = "AGENT_INFO"
"""The class attribute by which an agent declares what it takes."""


def class_problem(path: str, search: Sequence[str]) -> Problem | None:
    """Return what is wrong with an agent at `module:Class` whose module is found: no Python, or no such class."""
    module, _, name = path.partition(":")
    file = _file(module, search)
    if file is None:
        return None
    try:
        source = _source(module, file)
    except SyntaxError as error:
        return Problem("agent", f"{file} cannot be read as Python: {error.msg} (line {error.lineno})")
    except (OSError, ValueError, RecursionError):
        return None
    if name in source.imported or source.may_make(name):
        return None
    hint = did_you_mean(name, list(source.classes)) or f"{file.name} defines no class"
    return Problem("agent", f'{file} has no class "{name}"', hint)


@frozen
class AgentClass:
    """A class in a module whose source was found."""

    source: "_ClassSource"
    node: ast.ClassDef
    search: tuple[str, ...]

    @classmethod
    def find(cls, path: str, search: Sequence[str]) -> "AgentClass | None":
        """Return the class at `module:Class`; None when its source cannot be found or read."""
        module, _, name = path.partition(":")
        return _class(module, name, tuple(search))

    def record(self) -> dict[str, Any]:
        """Return its `AGENT_INFO`, else that of the first base class with one; empty without."""
        for found in self._lineage():
            value = found._assigned(RECORD)
            if value is not None:
                return _literal(value, f"{found.source.file}:{value.lineno}")
        return {}

    def defaults(self) -> dict[str, str]:
        """Return the texts that its options have by default, as far as they are written there: some name a file."""
        found: dict[str, str] = {}
        for one in self._lineage():
            model = one._assigned("options_model")
            described = one._resolve(model) if model is not None else None
            texts = described._field_texts() if described is not None else {}
            inits = (part for part in one.node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__")
            found = {**texts, **(_argument_texts(init.args) if (init := next(inits, None)) else {}), **found}
        return found

    def _assigned(self, name: str) -> ast.expr | None:
        """Return what its body assigns to a name."""
        for part in self.node.body:
            targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
            if isinstance(part, ast.Assign | ast.AnnAssign) and name in map(_dotted, targets):
                return part.value
        return None

    def _field_texts(self) -> dict[str, str]:
        """Return the texts that fields of an options model are set to, or to `Field(default=...)`."""
        found = {}
        for part in self.node.body:
            value = part.value if isinstance(part, ast.AnnAssign) else None
            if isinstance(value, ast.Call):
                named = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
                value = next(iter([*value.args[:1], *named]), None)
            if isinstance(part, ast.AnnAssign) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[_dotted(part.target)] = value.value
        return found

    def _lineage(self) -> "Iterator[AgentClass]":
        """Return the class, then its bases, depth first, as far as their sources are found."""
        yield self
        for base in self.node.bases:
            if (found := self._resolve(base)) is not None:
                yield from found._lineage()

    def _resolve(self, expression: ast.expr) -> "AgentClass | None":
        dotted = _dotted(expression.value if isinstance(expression, ast.Subscript) else expression)
        return self.source.look_up(dotted, self.search)


@frozen
class _ClassSource:
    module: str
    file: Path
    tree: ast.Module

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imported(self) -> dict[str, str]:
        """Return what each imported name stands for: `module` or `module.name`."""
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

    def may_make(self, name: str) -> bool:
        """Return whether the module binds a name by a statement, or may bind any."""
        made = {node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        made |= {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)} - {""}
        return not (made | self.imported.keys()).isdisjoint({name, "__getattr__", "*", "globals", "setattr", "exec"})

    def look_up(self, dotted: str, search: tuple[str, ...]) -> AgentClass | None:
        """Return the class that `dotted` means in this module."""
        if dotted in self.classes:
            return AgentClass(self, self.classes[dotted], search)
        first, _, rest = dotted.partition(".")
        target = ".".join(filter(None, [self.imported.get(first), rest]))
        module, _, name = target.rpartition(".")
        return _class(module, name, search) if first in self.imported and module != self.module else None


def _source(module: str, file: Path) -> _ClassSource:
    """A module's source; one that several classes are looked up in is read once, as long as its file stays as it is."""
    status = file.stat()
    return _parsed(module, file, status.st_mtime_ns, status.st_size)


@cache
def _parsed(module: str, file: Path, _mtime_ns: int, _size: int) -> _ClassSource:
    return _ClassSource(module, file, ast.parse(file.read_bytes()))


def _class(module: str, name: str, search: tuple[str, ...]) -> AgentClass | None:
    file = _file(module, search) if not module.startswith("harbor.") else None  # Harbor's have no record
    try:
        source = _source(module, file) if file is not None else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return source.look_up(name, search) if source is not None else None


def _file(module: str, search: Sequence[str]) -> Path | None:
    """Return where the source of a module is, looked for as a file: packages are not imported on the way."""
    *packages, name = module.split(".")
    for place in search:
        folder = Path(place).joinpath(*packages)
        for file in (folder / f"{name}.py", folder / name / "__init__.py"):
            if is_file(file):
                return file
    return None


def _argument_texts(arguments: ast.arguments) -> dict[str, str]:
    """The texts that arguments have by default."""
    placed = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(placed[len(placed) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    texts = {name.arg: value.value for name, value in pairs if isinstance(value, ast.Constant)}
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def _literal(value: ast.expr, where: str) -> dict[str, Any]:
    try:
        if isinstance(value, ast.Call) and _dotted(value.func) == "dict" and not value.args:
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in value.keywords}
        found = ast.literal_eval(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(
            f"{RECORD} must be a table of plain values, because it is read without running the code", where=where
        )
    return found


def _dotted(expression: ast.expr | None) -> str:
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""
