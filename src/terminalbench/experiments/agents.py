"""One record per agent: what it takes, what it needs, how it is installed.

Harbor's agents and ours come from harbor.json, made by scripts/harbor_table.py. Every other agent is a class: its
record is the class attribute `AGENT_INFO`, read from the source (`agent_class`), so that validating an experiment
imports neither Harbor nor the agent. Options that this does not declare are checked by the class itself, when a run
asks it before its first trial (`harbor.preflight`).
"""

import json
import sys
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

from terminalbench import registry
from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.agent_class import RECORD, find_class
from terminalbench.llm.local.spec import is_local, parse_local
from terminalbench.strict import Problems, given, key, shown, table


@table
class AgentRecord:
    """`AGENT_INFO`: what an agent may declare of itself, a table of plain values in its class."""

    model: bool = key("It calls a model. Without one it costs nothing.", default=True)
    simulated: bool = key("It only simulates a model, and takes `run.seed` as option `seed`.", default=False)
    seeded: str | None = key(
        "Its option that takes `run.seed`, unless the profile sets it; not part of the profile's id."
    )
    mcp: bool | None = key("It takes MCP servers. If not declared: unknown, and `no_mcp` is not needed.")
    skills: bool = key("It takes skills.", default=True)
    hooks: bool = key("It takes hooks, and MCP servers with their code.", default=False)
    reasoning: str | None = key("Its option that sets the reasoning effort.")
    system_prompt: str | None = key("Its option that adds to the system prompt. Default: the instruction.")
    version: bool = key("It is installed by version, its option `version`.", default=False)
    options: dict[str, Any] | list[str] | None = key(
        "Options in addition to those of its class; a table lists the choices of each."
    )
    any_options: bool = key("Options are passed on unchecked.", default=False)
    conditions: dict[str, Any] = key(
        "Defaults of its profiles: tables `env` and `options`.",
        factory=dict,
    )
    asks_from_host: bool = key(
        "Harbor's process calls its model, so the sandbox needs no access to it.",
        default=False,
    )
    workflow: bool = key(
        "It runs a guarded workflow, which its profiles must name; its option `workflow` gets the texts.",
        default=False,
    )
    command: bool = key(
        "It runs the command of its profiles' table `command`, which its option `command` gets.",
        default=False,
    )
    logins: list[str] = key("Variables that can replace the key of its provider.", factory=list)
    program: str | None = key("The program that its installation puts into the sandbox.")
    installer: str | None = key("The host that its installation downloads from.")
    usage: Literal["claude-code", "harbor", "workflow"] | None = key(
        "Where its tokens, cost, calls and errors are recorded: in the stream of its Claude Code session; in its "
        "report to Harbor and its trajectory; for a workflow also in the trace. If not declared: as for Harbor's "
        "agent of the same name, else `harbor`."
    )
    provider: str | None = key("Provider of a model that is named without one.")
    base_url_env: str | None = key("Variable with the address of its provider.")
    key_env: str | None = key("Variable with its key, as `tbench init` suggests it.")
    example_model: str | None = key("A model, as `tbench init` suggests it.")


class SetupNeed(TypedDict):
    """One of these hosts must be reached by the set-up of an agent, unless it finds one of what `unless` names.

    That is a program (`uv`), one of at least a version (`node>=22`), a path, a variable (`$NAME`), or an option of its
    profile (`option:name`).
    """

    hosts: list[str]
    unless: list[str]


@table
class AgentInfo(AgentRecord):
    """The record of one agent. `options` are those known, with the choices of each: all, unless it has `any_options`.

    `kinds` has the plain types of those options that take nothing else, as a JSON Schema calls them, `defaults` texts
    that a class of one's own has in place of options. `needs_model`: it is not even made without one. `needs` is what
    its set-up needs, `package` a command that installs its program from npm or PyPI: both are known of Harbor's agents.
    """

    name: str = field(kw_only=True)
    import_path: str | None = field(default=None, kw_only=True)
    options: dict[str, list[str] | None] = field(default_factory=dict)
    kinds: dict[str, list[str]] = field(default_factory=dict, kw_only=True)
    defaults: dict[str, str] = field(default_factory=dict, kw_only=True)
    needs_model: bool = field(default=False, kw_only=True)
    needs: list[SetupNeed] = field(default_factory=list, kw_only=True)
    package: str | None = field(default=None, kw_only=True)

    @property
    def seed_option(self) -> str | None:
        """Its option that takes `run.seed`."""
        return self.seeded or ("seed" if self.simulated else None)

    @property
    def reasoning_levels(self) -> list[str] | None:
        """The levels of its reasoning effort, where they are known."""
        return self.options.get(self.reasoning or "")

    def wrong_kind(self, option: str, value: Any) -> str | None:
        """Return what a value of an option must be where Harbor would refuse this one; it takes texts that read so."""
        kinds = self.kinds.get(option, ())
        if not kinds or any(_takes(kind, value) for kind in kinds):
            return None
        return f"must be {' or '.join(_KINDS[kind] for kind in kinds)}, not {shown(value)}"


_KINDS = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a string"}
_SWITCHES = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0")


def _takes(kind: str, value: Any) -> bool:
    """Return whether Harbor takes a value for an option of this kind."""
    if kind == "string":
        return isinstance(value, str | int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return str(value).lower() in _SWITCHES
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return kind == "number" or number.is_integer()


NO_MODEL, NO_MODEL_HINT = "needs a model", 'set model = "provider/name" in its profile'
RESERVED_OPTIONS = ("mcp_config", "mcp_source", "mcp_extras", "hooks")
"""Options of our Claude Code agent that a profile sets by its own keys."""


TERMINUS = "terminus-2"
"""Harbor's agent that asks its model from the host."""
_TERMINUS_CLASS = "terminalbench.harbor.agents.local_terminus:LocalTerminus"
_IN_SANDBOX = "claude-code"


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
    """Return whether an agent calls a model, as far as is known: one without costs nothing, which is not unknown."""
    info = recorded(spec, root)
    return info is None or info.model


def recorded(agent: str | None, root: Path | None = None) -> AgentInfo | None:
    """The record of an agent that has run, by its name; None without one that is right: its results stay readable."""
    try:
        return agent_info(agent, root) if agent is not None else None
    except UserError:
        return None


@cache
def agent_info(spec: str, root: Path | None = None) -> AgentInfo | None:
    """Return the record of the agent `spec`, None when there is no such agent; `root` holds the project's own modules.

    Raises `InvalidFile` when the record that a class declares is wrong.
    """
    entry: dict[str, Any] | None = _harbor()["agents"].get(spec)
    if entry is not None:
        return AgentInfo(name=spec, import_path=registry.BUILTIN["agents"].get(spec), **entry)
    path = registry.import_path("agents", spec)
    if path is None:
        return None
    found = find_class(path, [*([str(root)] if root is not None else []), *sys.path])
    if found is None:
        return AgentInfo(name=spec, import_path=path, any_options=True)
    values = _checked(found.record(), path)
    declared = values.get("options") or ()
    values["options"] = declared if isinstance(declared, dict) else dict.fromkeys(declared)
    values["any_options"] = True
    return AgentInfo(name=spec, import_path=path, defaults=found.defaults(), **values)


def _checked(record: dict[str, Any], path: str) -> dict[str, Any]:
    problems = Problems()
    values = given(AgentRecord, record, RECORD, problems)
    for name, condition in values.get("conditions", {}).items():
        if name not in ("env", "options") or not isinstance(condition, dict):
            problems.add(f"{RECORD}.conditions.{name}", "must be a table: env or options")
    if problems.found:
        raise InvalidFile(path, problems.found)
    return values


def whole_model(model: str | None, agent: AgentInfo, root: Path, where: str, problems: Problems) -> str | None:
    """The model, one that is a file by its whole path. What is wrong with it is noted at the key that names it."""
    if not is_local(model):
        return model
    try:
        found = parse_local(model, root)
    except UserError as error:
        problems.add(where, error.what, error.hint)
        return None
    if found.path.is_dir():
        problems.add(where, f"{found.path} is a folder", "name the .gguf file in it")
        return None
    if not found.path.is_file():
        problems.add(where, f"there is no model file {found.path}", "name a .gguf file: local:FILE.gguf")
        return None
    if agent.name != TERMINUS and (agent.import_path is None or agent.name == _IN_SANDBOX):
        problems.add(where, f"agent {agent.name} cannot use a local: model", "guarded, ollama and terminus-2 do")
        return None
    return str(found)


def agent_class(agent: AgentInfo, model: str | None) -> str | None:
    """The import path of an agent; None for one that Harbor knows by name."""
    return _TERMINUS_CLASS if agent.name == TERMINUS and is_local(model) else agent.import_path
