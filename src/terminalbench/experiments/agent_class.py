"""The class of an agent of one's own, as far as its source tells it without being run: its record, and default files.

Which options it has, of which types, and whether it can be loaded at all, Harbor's own process says before the first
trial (`harbor.preflight`). Base classes are followed, also into other modules that are found on the search path.
"""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
    try:
        source = _read(module, search)
    except SyntaxError as error:
        return Problem("agent", f"{error.filename} cannot be read as Python: {error.msg} (line {error.lineno})")
    except (OSError, ValueError, RecursionError):
        return None
    if source is None or source.may_make(name):
        return None
    hint = did_you_mean(name, list(source.classes)) or f"{source.file.name} defines no class"
    return Problem("agent", f'{source.file} has no class "{name}"', hint)


def find_class(path: str, search: Sequence[str]) -> "AgentClass | None":
    """Return the class at `module:Class`; None when its source cannot be found or read."""
    module, _, name = path.partition(":")
    if not module.startswith("harbor."):  # Harbor's have no record
        with suppress(OSError, SyntaxError, ValueError, RecursionError):
            source = _read(module, search)
            return source.look_up(name) if source is not None else None
    return None


@frozen
class AgentClass:
    """A class in a module whose source was found."""

    module: "_ModuleSource"
    node: ast.ClassDef

    def record(self) -> dict[str, Any]:
        """Return its `AGENT_INFO`, else that of the first base class with one; empty without."""
        for found in self._lineage():
            if (value := found._assigned(RECORD)) is not None:
                return _literal(value, f"{found.module.file}:{value.lineno}")
        return {}

    def defaults(self) -> dict[str, str]:
        """Return the texts that its options have by default, as far as they are written there: some name a file."""
        found: dict[str, str] = {}
        for one in self._lineage():
            described = one.module.look_up(_dotted(one._assigned("options_model")))
            texts = described._field_texts() if described is not None else {}
            for part in one.node.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    texts |= _argument_texts(part.args)
            found = {**texts, **found}
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
            if not isinstance(part, ast.AnnAssign):
                continue
            value = part.value
            if isinstance(value, ast.Call):
                named = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
                value = next(iter([*value.args[:1], *named]), None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[_dotted(part.target)] = value.value
        return found

    def _lineage(self) -> "Iterator[AgentClass]":
        """Return the class, then its bases, depth first, as far as their sources are found."""
        yield self
        for base in self.node.bases:
            found = self.module.look_up(_dotted(base.value if isinstance(base, ast.Subscript) else base))
            if found is not None:
                yield from found._lineage()


@frozen
class _ModuleSource:
    name: str
    file: Path
    tree: ast.Module
    search: tuple[str, ...]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imported(self) -> dict[str, str]:
        """Return what each imported name stands for: `module` or `module.name`."""
        package = self.name.split(".") if self.file.name == "__init__.py" else self.name.split(".")[:-1]
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *filter(None, [node.module])])
                names |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
        return names

    def may_make(self, name: str) -> bool:
        """Return whether the module binds a name by a statement, or may bind any."""
        nodes = list(ast.walk(self.tree))
        made = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        made |= {node.id for node in nodes if isinstance(node, ast.Name)} | self.imported.keys()
        return not made.isdisjoint({name, "__getattr__", "*", "globals", "setattr", "exec"})

    def look_up(self, dotted: str) -> AgentClass | None:
        """Return the class that `dotted` means in this module."""
        if dotted in self.classes:
            return AgentClass(self, self.classes[dotted])
        first, _, rest = dotted.partition(".")
        module, _, name = ".".join(filter(None, [self.imported.get(first), rest])).rpartition(".")
        own = first not in self.imported or module == self.name
        return None if own else find_class(f"{module}:{name}", self.search)


def _read(module: str, search: Sequence[str]) -> _ModuleSource | None:
    """Return the source of a module, looked for as a file: packages are not imported on the way."""
    *packages, name = module.split(".")
    for place in search:
        folder = Path(place).joinpath(*packages)
        for file in (folder / f"{name}.py", folder / name / "__init__.py"):
            if is_file(file):
                status = file.stat()
                return _parsed(module, file, tuple(search), status.st_mtime_ns, status.st_size)
    return None


@cache
def _parsed(module: str, file: Path, search: tuple[str, ...], _mtime_ns: int, _size: int) -> _ModuleSource:
    """Return a source, read once for all classes that are looked up in it, as long as its file stays as it is."""
    return _ModuleSource(module, file, ast.parse(file.read_bytes(), str(file)), search)


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
        what = f"{RECORD} must be a table of plain values, because it is read without running the code"
        raise UserError(what, where=where)
    return found


def _dotted(expression: ast.expr | None) -> str:
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""
