"""What the installed Harbor offers, as plain data for the parts that must not import it.

`python -m terminalbench.harbor.describe` prints the table kept in experiments/harbor.json; a test
fails when that file and the installed Harbor differ.
"""

from importlib.metadata import version
from typing import Any

PROMPT_ONLY_MCP = {"terminus-2", "mini-swe-agent", "swe-agent"}
"""Agents that only mention MCP servers in their prompt: they have no MCP client."""

REASONING_KNOBS = ("reasoning_effort", "thinking", "variant")
"""Options that set the reasoning effort, the first that an agent has."""

NO_MODEL = {"oracle", "nop"}
"""Agents that call no model at all."""


def describe() -> dict[str, Any]:
    """Agents with their options and abilities, and environment types, of the installed Harbor."""
    from harbor.agents.factory import AgentFactory
    from harbor.models.agent.name import AgentName
    from harbor.models.environment_type import EnvironmentType

    agents = {
        name: _agent(name, AgentFactory.get_agent_class(AgentName(name)))
        for name in sorted(AgentFactory.registered_names())
    }
    return {
        "harbor": version("harbor"),
        "agents": agents,
        "environments": sorted(member.value for member in EnvironmentType),
    }


def _agent(name: str, agent: Any) -> dict[str, Any]:
    model = agent.options_model
    properties = model.model_json_schema().get("properties", {}) if model is not None else {}
    options = {key: _choices(schema) for key, schema in sorted(properties.items())} if model is not None else None
    knob = next((key for key in REASONING_KNOBS if key in properties and _is_text(properties[key])), None)
    abilities = agent.capabilities
    return {
        "mcp": bool(abilities.mcp_servers) and name not in PROMPT_ONLY_MCP,
        "skills": bool(abilities.skills),
        "model": name not in NO_MODEL,
        "reasoning": knob,
        "system_prompt": "append_system_prompt" if options and "append_system_prompt" in options else None,
        "version": bool(options and "version" in options),
        "options": options,
    }


def _choices(schema: dict[str, Any]) -> list[str] | None:
    """The allowed values of an option, when the schema lists them."""
    for part in (schema, *schema.get("anyOf", ())):
        if "enum" in part:
            return part["enum"]
    return None


def _is_text(schema: dict[str, Any]) -> bool:
    return any(part.get("type") == "string" for part in (schema, *schema.get("anyOf", ())))


if __name__ == "__main__":
    import json

    print(json.dumps(describe(), indent=1, sort_keys=True))
