"""One record per agent: what it takes, what it needs, how it is installed.

Harbor's agents come from harbor.json, made by `terminalbench.harbor.describe`. Every other agent is a class: its record
is the class attribute `AGENT_INFO`, its options those that the class names. Both are read from the source, so that
validating an experiment imports neither Harbor nor the agent. Base classes are followed, also into other modules, as
long as their files can be found on the search path.
"""

import ast
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from terminalbench import registry
from terminalbench.errors import InvalidFile, Problem, UserError, did_you_mean
from terminalbench.frozen import frozen
from terminalbench.strict import Problems, given, is_file, key, table

RECORD = "AGENT_INFO"
"""The class attribute by which an agent declares what it takes."""

_HARBORS = {
    "self", "logs_dir", "model_name", "logger", "mcp_servers", "skills_dir", "extra_env", "load_trajectory",
    "environment_logs_dir",
}  # fmt: skip
"""Parameters that Harbor fills in itself."""
_FLAGS = ("CLI_FLAGS", "ENV_VARS")


@table
class AgentRecord:
    """`AGENT_INFO`: what an agent may declare of itself, a table of plain values in its class."""

    model: bool = key("It calls a model. Without one it costs nothing.", default=True)
    simulated: bool = key("It only pretends to, and takes `run.seed` as option `seed`.", default=False)
    seeded: str | None = key(
        "Its option that takes `run.seed`, unless the profile sets it; no part of the profile's id."
    )
    mcp: bool | None = key("It takes MCP servers. Not declared: perhaps; `no_mcp` is not needed.")
    skills: bool = key("It takes skills.", default=True)
    hooks: bool = key("It takes hooks, and MCP servers with their code.", default=False)
    reasoning: str | None = key("Its option that sets the reasoning effort.")
    system_prompt: str | None = key("Its option that adds to the system prompt. Default: the instruction.")
    version: bool = key("It is installed by version, its option `version`.", default=False)
    options: dict[str, Any] | list[str] | None = key(
        "Options besides those its class names; a table has the choices of each."
    )
    any_options: bool = key("Options are handed over unchecked.", default=False)
    conditions: dict[str, Any] = key(
        "What each of its profiles has unless it says otherwise: tables `env` and `options`.",
        factory=dict,
    )
    asks_from_host: bool = key(
        "Harbor's process asks its model: the sandbox needs no way to it.",
        default=False,
    )
    workflow: bool = key(
        "It runs a guarded workflow, which its profiles must name; its option `workflow` gets the texts.",
        default=False,
    )
    logins: list[str] = key("Variables that stand in for the key of its provider.", factory=list)
    program: str | None = key("The program that its installation puts into the sandbox.")
    installer: str | None = key("The host that its installation starts from.")
    usage: Literal["claude-code", "harbor", "workflow"] | None = key(
        "Where its tokens, cost, calls and errors are told: the stream of the Claude Code session that it runs; what "
        "it reports to Harbor, and its trajectory; of a workflow also its trace. Not declared: as Harbor's agent of "
        "its name, else `harbor`."
    )
    provider: str | None = key("Provider of a model that is named without one.")
    base_url_env: str | None = key("Variable with the address of its provider.")
    key_env: str | None = key("Variable with its key, as `tbench init` suggests it.")
    example_model: str | None = key("A model, as `tbench init` suggests it.")


@table
class AgentInfo(AgentRecord):
    """The record of one agent. `options` are all that it has, with the choices of each; None: any, unchecked."""

    name: str = field(kw_only=True)
    import_path: str | None = field(default=None, kw_only=True)
    options: dict[str, list[str] | None] | None = None

    @property
    def seed_option(self) -> str | None:
        """Its option that takes `run.seed`."""
        return self.seeded or ("seed" if self.simulated else None)

    @property
    def reasoning_levels(self) -> list[str] | None:
        """The levels of its reasoning effort, where they are known."""
        return (self.options or {}).get(self.reasoning or "")


RESERVED_OPTIONS = ("mcp_config", "mcp_source", "mcp_extras", "hooks")
"""Options of our Claude Code agent that a profile sets by its own keys."""


@cache
def _harbor() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "harbor.json").read_bytes())


def harbor_environments() -> dict[str, dict[str, Any]]:
    """Harbor's environment types, each with what it needs and takes (`experiments.environments` reads it)."""
    return _harbor()["environments"]


def agent_names() -> list[str]:
    """Every agent that has a name here: Harbor's, ours, and installed ones."""
    return sorted({*_harbor()["agents"], *registry.names("agents")})


def calls_model(spec: str | None, root: Path | None = None) -> bool:
    """Whether an agent calls a model, as far as is known: one without costs nothing, which is not unknown."""
    info = recorded(spec, root)
    return info is None or info.model


def recorded(agent: str | None, root: Path | None = None) -> AgentInfo | None:
    """The record of an agent that has run, by its name; None without one that is right: its results stay readable."""
    try:
        return agent_info(agent, root) if agent is not None else None
    except UserError:
        return None


def class_problem(path: str, root: Path | None) -> Problem | None:
    """What is wrong with an agent at `module:Class` whose module is found: it cannot be read, or has no such class."""
    module, _, name = path.partition(":")
    file = _file(module, [*([str(root)] if root is not None else []), *sys.path])
    if file is None:
        return None
    try:
        source = _source(module, file)
    except SyntaxError as error:
        return Problem("agent", f"{file} cannot be read as Python: {error.msg} (line {error.lineno})")
    except (OSError, ValueError, RecursionError):
        return None
    if source.binds(name):
        return None
    hint = did_you_mean(name, list(source.classes)) or f"{file.name} defines no class"
    return Problem("agent", f'{file} has no class "{name}"', hint)


@cache
def agent_info(spec: str, root: Path | None = None) -> AgentInfo | None:
    """The record of the agent called `spec`, None when there is no such agent; `root` holds the project's own modules.

    Raises `InvalidFile` when the record that a class declares is wrong.
    """
    entry: dict[str, Any] | None = _harbor()["agents"].get(spec)
    options: dict[str, list[str] | None] | None = None
    if entry is not None:
        options = entry["options"] or {}  # Harbor ignores options of an agent that declares none
    values = dict(entry or {})
    path = registry.import_path("agents", spec) if entry is None or spec in registry.BUILTIN["agents"] else None
    if path is None and entry is None:
        return None
    found = AgentClass.find(path, [*([str(root)] if root is not None else []), *sys.path]) if path else None
    if found is not None:
        values |= _checked(found.record(), path or spec)
        named = found.options() if entry is None else None
        declared = values.get("options") if entry is None else None
        if named is not None or declared:
            options = dict.fromkeys(named or ())
            options |= dict.fromkeys(declared) if isinstance(declared, list) else declared or {}
        elif options is not None:
            options = {**options, **dict.fromkeys(values.get("conditions", {}).get("options", ()))}
    values["options"] = None if values.get("any_options") else options
    return AgentInfo(name=spec, import_path=path, **values)


def _checked(record: dict[str, Any], path: str) -> dict[str, Any]:
    problems = Problems()
    values = given(AgentRecord, record, RECORD, problems)
    for name, condition in values.get("conditions", {}).items():
        if name not in ("env", "options") or not isinstance(condition, dict):
            problems.add(f"{RECORD}.conditions.{name}", "must be one of the tables env and options")
    if problems.found:
        raise InvalidFile(path, problems.found)
    return values


@frozen
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


@frozen
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


def _source(module: str, file: Path) -> _Source:
    """A module's source; one that several classes are looked up in is read once, as long as its file stays as it is."""
    status = file.stat()
    return _parsed(module, file, status.st_mtime_ns, status.st_size)


@cache
def _parsed(module: str, file: Path, _mtime_ns: int, _size: int) -> _Source:
    return _Source(module, file, ast.parse(file.read_bytes()))


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
