"""MCP servers that bring code: their folder goes into the sandbox as a whole, if the agent can take it at all."""

from collections.abc import Mapping
from pathlib import Path

from terminalbench.experiments.agents import AgentInfo
from terminalbench.experiments.mcp import McpSetup
from terminalbench.experiments.profiles import has_code, source_files
from terminalbench.experiments.strict import Problems


def check_code(setup: McpSetup, agent: AgentInfo, private: Mapping[Path, str], at: str, problems: Problems) -> None:
    """Note the servers whose code would not reach the agent, or would bring it what is `private` (and what that is)."""
    for server, folder in setup.folders.items():
        if not has_code(folder):
            continue
        what = f'the folder of server "{server}", {folder},'
        if not agent.hooks:
            hint = "keep only .mcp.json and USAGE.md there, and have the server in the tasks' image"
            problems.add(at, f"{what} holds code, which agent {agent.name} cannot be given; claude-code can", hint)
        elif (held := _held_in(folder, private)) is not None:
            hint = "give the server a folder of its own"
            problems.add(at, f"{what} holds {held}, which the agent would see", hint)


def _held_in(folder: Path, private: Mapping[Path, str]) -> str | None:
    within = folder.resolve()
    for path, what in private.items():
        if path.resolve().is_relative_to(within):
            return what
    plans = (file for file in source_files(folder) if file.name == "plan.json")
    earlier = any((file.parents[2] / "index.db").is_file() for file in plans)
    return "results of other runs" if earlier else None
