"""What each agent can take: MCP servers, skills, a reasoning knob, a system prompt, which options.

Harbor's agents come from harbor.json, made by `terminalbench.harbor.describe`, so that validating an
experiment does not import Harbor.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from terminalbench import registry


@dataclass(frozen=True)
class AgentInfo:
    """One agent. `options` is None when any option is passed on unchecked."""

    name: str
    import_path: str | None
    mcp: bool
    skills: bool
    model: bool
    reasoning: str | None
    reasoning_levels: tuple[str, ...] | None
    system_prompt: str | None
    version: bool
    hooks: bool
    options: dict[str, list[str] | None] | None


RESERVED_OPTIONS = ("mcp_config", "mcp_source", "mcp_extras", "hooks")
"""Options of our Claude Code agent that a profile sets by its own keys."""

_OURS = {
    "simulated": AgentInfo(
        name="simulated",
        import_path=registry.BUILTIN["agents"]["simulated"],
        mcp=False,
        skills=False,
        model=True,
        reasoning=None,
        reasoning_levels=None,
        system_prompt=None,
        version=False,
        hooks=False,
        options=dict.fromkeys(
            (
                "cost_per_mtok_usd",
                "delay_sec",
                "error_probability",
                "seed",
                "solve_probability",
                "steps_mean",
                "tokens_mean",
            )
        ),
    )
}


@cache
def _harbor() -> dict:
    return json.loads((Path(__file__).parent / "harbor.json").read_bytes())


def harbor_environments() -> list[str]:
    """Harbor's environment types."""
    return list(_harbor()["environments"])


def agent_names() -> list[str]:
    """Every agent that has a name here: Harbor's, ours, and installed ones."""
    return sorted({*_harbor()["agents"], *registry.names("agents")})


def agent_info(spec: str) -> AgentInfo | None:
    """What the agent called `spec` can take; None when there is no such agent."""
    if spec in _OURS:
        return _OURS[spec]
    entry = _harbor()["agents"].get(spec)
    if entry is not None:
        knob = entry["reasoning"]
        levels = entry["options"][knob] if knob else None
        return AgentInfo(
            name=spec,
            import_path=registry.BUILTIN["agents"].get(spec),
            mcp=entry["mcp"],
            skills=entry["skills"],
            model=entry["model"],
            reasoning=knob,
            reasoning_levels=tuple(levels) if levels else None,
            system_prompt=entry["system_prompt"],
            version=entry["version"],
            hooks=spec == "claude-code",
            options=entry["options"] or {},  # Harbor ignores options of an agent that declares none
        )
    path = registry.import_path("agents", spec)
    if path is None:
        return None
    return AgentInfo(spec, path, True, True, True, None, None, None, False, False, None)
