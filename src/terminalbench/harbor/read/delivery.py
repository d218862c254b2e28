"""Evidence that the treatment reached the agent: MCP servers connected and used, hooks fired, prompt delivered.

A profile whose MCP server never came up measures the profile without it. So the evidence is kept for each
trial: what was configured, what the session reported, what was called.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.harbor.read.claude_stream import ClaudeStream
from terminalbench.harbor.read.result_file import AgentConfig
from terminalbench.harbor.read.session_start import (
    SessionStart,
    builtin_tools,
    merged,
    one_of,
    server_of,
    server_tools,
    spelled,
)
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import Delivery, LessonsDelivery

FILE_NAME = "delivery.json"
LESSONS = "lessons.json"
"""Beside the result, where no agent in a sandbox reaches it: what the trial was shown of a memory."""
_SIZE_LIMIT = 1 << 20


class DeliveryNote(msgspec.Struct, frozen=True):
    """The record of our Claude Code agent on what it put into the environment."""

    mcp_servers: list[str] = []
    source_commit: str | None = None
    hooks_digest: str | None = None
    prompt_digest: str | None = None
    cli_version: str | None = None


def read_notes(metadata: Sequence[dict[str, Any] | None], folders: Sequence[Path]) -> list[DeliveryNote]:
    """The agent's notes, one for each of its runs: from Harbor's result, else from `delivery.json` in its logs."""
    told = [_note(entry.get("delivery")) for entry in metadata if entry]
    if not any(told):
        told = [_note(decode_plain(f"{folder}/{FILE_NAME}", Any, _SIZE_LIMIT)) for folder in folders]
    return [note for note in told if note is not None]


def _note(told: Any) -> DeliveryNote | None:
    """A note in its present or its first spelling."""
    if not isinstance(told, dict):
        return None
    source, servers = told.get("mcp_source"), told.get("mcp_servers")
    record = source if isinstance(source, dict) else {}
    entries = servers if isinstance(servers, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]

    def text(*values: Any) -> str | None:
        return next((value for value in values if isinstance(value, str) and value), None)

    return DeliveryNote(
        mcp_servers=[name for name in names if isinstance(name, str)],
        source_commit=text(told.get("source_commit"), record.get("commit"), record.get("sha256")),
        hooks_digest=text(told.get("hooks_digest"), told.get("hooks_sha256")),
        prompt_digest=text(told.get("prompt_digest"), told.get("system_prompt_sha256")),
        cli_version=text(told.get("cli_version")),
    )


def read_lessons(trial_dir: Path) -> LessonsDelivery | None:
    """Return what a trial was shown of a memory; None: nothing was to be shown, or the agent never started."""
    return decode_plain(f"{trial_dir}/{LESSONS}", LessonsDelivery, _SIZE_LIMIT)


def deliver(
    config: AgentConfig,
    notes: Sequence[DeliveryNote],
    streams: Sequence[ClaudeStream],
    starts: Sequence[SessionStart],
    calls: Counter[str] | None,
    lessons: LessonsDelivery | None = None,
) -> Delivery:
    """The evidence of delivery. `calls` counts every tool call of the trial, None when they were not counted."""
    note = notes[-1] if notes else DeliveryNote()
    declared = _declared(config, notes)
    states = _states(starts)
    configured = list(dict.fromkeys([*declared, *(states or ())])) or None
    used = None if calls is None else {name: count for name, count in sorted(calls.items()) if server_of(name)}
    fired = sum((stream.hooks for stream in streams), Counter())
    # Only our agent asks the CLI to stream hook events; without it, silence proves nothing.
    watched = bool(streams) and note.hooks_digest is not None
    asked = bool(notes) and bool(config.kwargs.get("append_system_prompt"))
    return Delivery(
        mcp_configured=configured,
        mcp_connected=_connected(configured, starts, states, used),
        mcp_calls=used if used or configured else None,
        hooks_fired=dict(sorted(fired.items())) if fired or watched else None,
        prompt_delivered=True if note.prompt_digest is not None else False if asked else None,
        prompt_digest=note.prompt_digest,
        hooks_digest=note.hooks_digest,
        source_commit=note.source_commit,
        cli_version=one_of(start.version for start in starts) or note.cli_version,
        lessons=lessons,
        told_by=one_of(start.source for start in starts),
        model=one_of(start.model for start in starts),
        permission_mode=one_of(start.permission_mode for start in starts),
        tools=builtin_tools(starts),
        mcp_tools=server_tools(starts) or None,
        mcp_state=states,
        mcp_undeclared=None if states is None else sorted(states.keys() - declared),
        slash_commands=merged(start.slash_commands for start in starts),
        skills=merged(start.skills for start in starts),
        agents=merged(start.agents for start in starts),
        left_out=sum(start.left_out for start in starts),
    )


def not_connected(delivery: Delivery) -> list[str]:
    """The servers that were configured and are known not to have come up."""
    if delivery.mcp_configured is None or delivery.mcp_connected is None:
        return []
    return [name for name in delivery.mcp_configured if name not in delivery.mcp_connected]


def _declared(config: AgentConfig, notes: Sequence[DeliveryNote]) -> list[str]:
    """The servers that the configuration names, and those that our agent was given, which are the task's too."""
    names = [server.name for server in config.mcp_servers]
    given = config.kwargs.get("mcp_config")
    servers = given.get("mcpServers") if isinstance(given, dict) else None
    names += list(servers) if isinstance(servers, dict) else []
    names += [name for note in notes for name in note.mcp_servers]
    return list(dict.fromkeys(names))


def _states(starts: Sequence[SessionStart]) -> dict[str, str] | None:
    """Return how the sessions found each server, the last one's word; None when none tells."""
    told = [start.mcp_servers for start in starts if start.mcp_servers is not None]
    return {name: state for servers in told for name, state in servers.items()} if told else None


def _connected(
    configured: list[str] | None,
    starts: Sequence[SessionStart],
    states: dict[str, str] | None,
    used: dict[str, int] | None,
) -> list[str] | None:
    """Servers the session reported as connected, offered tools of, or called. None when nothing tells.

    The start of a session may still say "pending" of a server that works a moment later. In a tool's name the odd
    characters of a server's name become `_`.
    """
    if configured is None:
        return None
    up = {name for name, state in (states or {}).items() if state == "connected"}
    by_spelling = {spelled(name): name for name in configured}
    seen = {server_of(tool) for tool in (*(tool for start in starts for tool in start.tools or ()), *(used or {}))}
    up |= {by_spelling.get(server, server) for server in seen if server}
    return [name for name in configured if name in up] if states is not None or up else None
