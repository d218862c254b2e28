"""One record per agent: what it takes, what it needs, how it is installed.

Harbor's agents come from harbor.json, made by `terminalbench.harbor.describe`. Every other agent is a class: its record
is the class attribute `AGENT_INFO`, its options those that the class names. Both are read from the source, so that
validating an experiment imports neither Harbor nor the agent.
"""

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from terminalbench import registry
from terminalbench.errors import InvalidFile
from terminalbench.experiments.agent_class import RECORD, AgentClass
from terminalbench.experiments.strict import Problems, given, key


@dataclass(frozen=True)
class AgentRecord:
    """What an agent may declare of itself, as a table of plain values: `AGENT_INFO = {"mcp": False}` in its class."""

    model: bool = key("It calls a model. Without one it costs nothing.", default=True)
    simulated: bool = key("It only pretends to call its model, and takes `run.seed` as option `seed`.", default=False)
    mcp: bool | None = key("It takes MCP servers. Not declared: perhaps; `no_mcp` is not needed.", default=None)
    skills: bool = key("It takes skills.", default=True)
    hooks: bool = key("It takes hooks, and MCP servers with their code, as our Claude Code does.", default=False)
    reasoning: str | None = key("Its option that sets the reasoning effort.", default=None)
    system_prompt: str | None = key(
        "Its option that adds to the system prompt. Default: the instruction.", default=None
    )
    version: bool = key("It is installed by version, its option `version`.", default=False)
    options: dict[str, Any] | list[str] | None = key(
        "Options besides those its class names: a list, or a table with the choices of each.", default=None
    )
    any_options: bool = key("Options are handed over unchecked.", default=False)
    logins: list[str] = key("Variables that stand in for the key of its provider.", factory=list)
    program: str | None = key("The program that its installation puts into the sandbox.", default=None)
    installer: str | None = key("The host that its installation starts from.", default=None)
    usage: Literal["claude-code", "harbor"] | None = key(
        "Where its tokens, cost and errors are told: the stream of a Claude Code session, or only what it reports to "
        "Harbor and its trajectory. Not declared: the best that a trial leaves behind.",
        default=None,
    )
    provider: str | None = key("Provider of a model that is named without one.", default=None)
    base_url_env: str | None = key("Variable with the address of its provider.", default=None)
    key_env: str | None = key("Variable with its key, as `tbench init` suggests it.", default=None)
    example_model: str | None = key("A model, as `tbench init` suggests it.", default=None)


@dataclass(frozen=True, kw_only=True)
class AgentInfo(AgentRecord):
    """The record of one agent. `options` are all that it has, with the choices of each; None: any, unchecked."""

    name: str
    import_path: str | None = None
    options: dict[str, list[str] | None] | None = None

    @property
    def reasoning_levels(self) -> list[str] | None:
        """The levels of its reasoning effort, where they are known."""
        return (self.options or {}).get(self.reasoning or "")


RESERVED_OPTIONS = ("mcp_config", "mcp_source", "mcp_extras", "hooks")
"""Options of our Claude Code agent that a profile sets by its own keys."""


@cache
def _harbor() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "harbor.json").read_bytes())


def harbor_environments() -> list[str]:
    """Harbor's environment types."""
    return list(_harbor()["environments"])


def agent_names() -> list[str]:
    """Every agent that has a name here: Harbor's, ours, and installed ones."""
    return sorted({*_harbor()["agents"], *registry.names("agents")})


def calls_model(spec: str | None, root: Path | None = None) -> bool:
    """Whether an agent calls a model, as far as is known: one without costs nothing, which is not unknown."""
    info = agent_info(spec, root) if spec is not None else None
    return info is None or info.model


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
    values["options"] = None if values.get("any_options") else options
    return AgentInfo(name=spec, import_path=path, **values)


def _checked(record: dict[str, Any], path: str) -> dict[str, Any]:
    problems = Problems()
    values = given(AgentRecord, record, RECORD, problems)
    if problems.found:
        raise InvalidFile(path, problems.found)
    return values
