"""MCP servers that bring code: their folder goes into the sandbox as a whole, if the agent can take it at all."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from terminalbench.experiments.agents import AgentInfo
from terminalbench.experiments.mcp import McpSetup
from terminalbench.experiments.profiles import has_code, is_source, source_files
from terminalbench.experiments.strict import Problems


def check_code(setup: McpSetup, agent: AgentInfo, private: Mapping[Path, str], at: str, problems: Problems) -> None:
    """Note the servers whose code would not reach the agent, or would bring it what is `private` (and what that is)."""
    for server, folder in setup.folders.items():
        if not has_code(folder):
            continue
        what = f'the folder of server "{server}", {folder},'
        if not agent.hooks:
            if _needs(setup.servers[server], folder):
                hint = "keep only .mcp.json and USAGE.md there, and have the server in the tasks' image"
                problems.add(at, f"{what} holds code, which agent {agent.name} cannot be given; claude-code can", hint)
        elif (held := held_in(folder, private)) is not None:
            hint = "give the server a folder of its own"
            problems.add(at, f"{what} holds {held}, which the agent would see", hint)


def _needs(server: Mapping[str, Any], folder: Path) -> bool:
    """Whether a server is started from its folder: by a placeholder, or by a file or module that lies there."""
    args = server.get("args")
    words = [server.get("command"), server.get("cwd"), *(args if isinstance(args, list) else ())]
    for word in words:
        if isinstance(word, str) and word:
            there = [folder / word, folder / f"{word.replace('.', '/')}.py", folder / word.replace(".", "/")]
            if "{mcp_" in word or any(map(os.path.exists, there)):
                return True
    return False


def held_in(folder: Path, private: Mapping[Path, str]) -> str | None:
    """What of the `private` folders lies in `folder`, as far as it goes to the agent; or results of other runs."""
    within = folder.resolve()
    for path, what in private.items():
        inner = path.resolve()
        if inner.is_relative_to(within) and all(map(is_source, inner.relative_to(within).parts)):
            return what
    plans = [file for file in source_files(folder) if file.name == "plan.json" and len(file.parents) > 2]
    earlier = any((file.parents[2] / "index.db").is_file() for file in plans)
    return "results of other runs" if earlier else None
