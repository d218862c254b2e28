"""The class of an agent, read from its source: neither Harbor nor the agent is imported.

Base classes are followed, also into other modules, as long as their files can be found on the search path.
"""

import ast
import builtins
import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from terminalbench.errors import Problem, UserError, did_you_mean
from terminalbench.frozen import frozen
from terminalbench.strict import is_file

RECORD = "AGENT_INFO"
"""The class attribute by which an agent declares what it takes."""

_HARBORS = {
    "self", "logs_dir", "model_name", "logger", "mcp_servers", "skills_dir", "extra_env", "load_trajectory",
    "environment_logs_dir",
}  # fmt: skip
"""Parameters that Harbor fills in itself."""
_FLAGS = ("CLI_FLAGS", "ENV_VARS")
_ANNOTATED = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}


def class_problem(path: str, root: Path | None, *, thorough: bool = False) -> Problem | None:
    """What is wrong with an agent at `module:Class` whose module is found: it cannot be read, or has no such class.

    `thorough`: a class of which the source shows that it is no agent is a problem too.
    """
    module, _, name = path.partition(":")
    search = [*([str(root)] if root is not None else []), *sys.path]
    file = _file(module, search)
    if file is None:
        return None
    try:
        source = _source(module, file)
    except SyntaxError as error:
        return Problem("agent", f"{file} cannot be read as Python: {error.msg} (line {error.lineno})")
    except (OSError, ValueError, RecursionError):
        return None
    if source.binds(name):
        found = source.look_up(name, tuple(search)) if thorough else None
        if found is None or found.may_be_agent():
            return None
        return Problem(
            "agent",
            f"{name} is no Harbor agent (BaseAgent)",
            f"in {file}: class {name}(BaseAgent), as tbench init --agent NAME writes one",
        )
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
                named |= fields.keys()
            named |= {name for flags in _FLAGS for name in _flag_names(_assigned(found.node, flags))}
            init = _constructor(found.node)
            if init is not None:
                arguments = init.args
                named |= {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
                if arguments.kwarg is None:
                    break
        return named - _HARBORS

    def defaults(self) -> dict[str, str]:
        """The texts that its options have by default, as far as they are written there: some name a file."""
        found: dict[str, str] = {}
        for one in self._lineage():
            model = _assigned(one.node, "options_model") if one is not None else None
            described = one._resolve(model) if one is not None and model is not None else None
            texts = _field_texts(described.node) if described is not None else {}
            init = _constructor(one.node) if one is not None else None
            found = {**texts, **(_argument_texts(init.args) if init is not None else {}), **found}
        return found

    def kinds(self) -> dict[str, list[str]]:
        """The plain types that the fields of its options model are annotated with, of those that have no others."""
        found = ((c, _assigned(c.node, "options_model")) for c in self._lineage() if c is not None)
        owner, model = next(((c, model) for c, model in found if model is not None), (None, None))
        fields = owner._fields(model) if owner is not None and model is not None else None
        kinds = {name: _plain_kinds(annotation) for name, annotation in (fields or {}).items()}
        return {name: sorted(of - {"null"}) for name, of in kinds.items() if of and of != {"null"}}

    def may_be_agent(self) -> bool:
        """Whether it comes from Harbor's `BaseAgent`, or could: of a base, or of what a decorator makes of it."""
        builtin = vars(builtins).keys()
        for found in self._lineage(builtin):
            if found is None or found.node.name == "BaseAgent" or found.node.decorator_list or found.node.keywords:
                return True
        return False

    def _fields(self, model: ast.expr) -> dict[str, ast.expr | None] | None:
        """The fields of an options model with their annotations; empty for `options_model = None`.

        One that the model itself may convert has none.
        """
        if isinstance(model, ast.Constant):
            return {}
        found = self._resolve(model)
        if found is None:
            return None
        converts = any(isinstance(part, ast.FunctionDef) and part.decorator_list for part in found.node.body)
        fields = {
            _dotted(part.target): None if converts else part.annotation
            for part in found.node.body
            if isinstance(part, ast.AnnAssign) and _dotted(part.target) != "model_config"
        }
        for base in found.node.bases:
            inherited = {} if _dotted(base).endswith("BaseModel") else found._fields(base)
            if inherited is None:
                return None
            fields = inherited | fields
        return dict.fromkeys(fields) if converts else fields

    def _lineage(self, without: Container[str] = ()) -> "Iterator[AgentClass | None]":
        """The class, then its bases, depth first; None stands for one whose source cannot be found."""
        yield self
        for base in self.node.bases:
            found = self._resolve(base)
            if found is not None:
                yield from found._lineage(without)
            elif _dotted(base) not in without:
                yield None

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
        """What each imported name stands for: `module` or `module.name`."""
        package = self.module if self.file.name == "__init__.py" else self.module.rpartition(".")[0]
        names: dict[str, str] = {}
        for node in _statements(self.tree.body):
            if isinstance(node, ast.Import):
                names |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                          for a in node.names}  # fmt: skip
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
        return names

    def binds(self, name: str) -> bool:
        """Whether the module may hold something of this name, however it is made."""
        made = {node.name for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        made |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
        hidden = {"globals", "setattr", "exec"} & {node.id for node in names}
        return bool(hidden) or not made.union(self.imported).isdisjoint({name, "__getattr__", "*"})

    def look_up(self, dotted: str, search: tuple[str, ...]) -> AgentClass | None:
        """The class that `dotted` means in this module."""
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


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a block and of the blocks within; expressions, nearly all of a tree, hold no statement."""
    waiting = deque(body)
    while waiting:
        node = waiting.popleft()
        yield node
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(node, name, ()))


def _class(module: str, name: str, search: tuple[str, ...]) -> AgentClass | None:
    file = _file(module, search)
    try:
        source = _source(module, file) if file is not None else None
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


def _field_texts(node: ast.ClassDef) -> dict[str, str]:
    """The texts that fields of an options model are set to, or to `Field(default=...)`."""
    found = {}
    for part in node.body:
        value = part.value if isinstance(part, ast.AnnAssign) else None
        if isinstance(value, ast.Call):
            named = [keyword.value for keyword in value.keywords if keyword.arg == "default"]
            value = next(iter([*value.args[:1], *named]), None)
        if isinstance(part, ast.AnnAssign) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[_dotted(part.target)] = value.value
    return found


def _argument_texts(arguments: ast.arguments) -> dict[str, str]:
    """The texts that arguments have by default."""
    placed = [*arguments.posonlyargs, *arguments.args]
    pairs = [*zip(placed[len(placed) - len(arguments.defaults) :], arguments.defaults, strict=True)]
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    texts = {name.arg: value.value for name, value in pairs if isinstance(value, ast.Constant)}
    return {name: value for name, value in texts.items() if isinstance(value, str)}


def _plain_kinds(annotation: ast.expr | None) -> set[str] | None:
    """The plain types in an annotation, as a JSON Schema calls them; None where it holds another."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            return None
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return {"null"}
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        parts = [annotation.left, annotation.right]
    elif isinstance(annotation, ast.Subscript) and _dotted(annotation.value).endswith("Optional"):
        parts = [annotation.slice]
    else:
        known = _ANNOTATED.get(_dotted(annotation)) if annotation is not None else None
        return {known} if known is not None else None
    kinds = [_plain_kinds(part) for part in parts]
    return set().union(*(of or () for of in kinds)) if None not in kinds else None


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
