"""Whether the treatment reached the agent: MCP servers connected and used, hooks fired, prompt delivered.

A profile whose MCP server never came up measures the profile without it. So the evidence is kept for each
trial: what was configured, what the session reported, what was called.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import decode_plain
from terminalbench.harbor.read.claude_stream import InitEvent, Stream
from terminalbench.harbor.read.result_file import AgentConfig
from terminalbench.records import Delivery

FILE_NAME = "delivery.json"
_SIZE_LIMIT = 1 << 20
_PREFIX = "mcp__"


class DeliveryNote(msgspec.Struct, frozen=True):
    """What our Claude Code agent says it put into the environment."""

    mcp_servers: list[str] = []
    source_commit: str | None = None
    hooks_digest: str | None = None
    prompt_digest: str | None = None
    cli_version: str | None = None


def read_notes(metadata: Sequence[dict[str, Any] | None], folders: Sequence[Path]) -> list[DeliveryNote]:
    """The agent's notes, one for each of its runs: from Harbor's result, else from `delivery.json` in its logs."""
    told = [_note(entry.get("delivery")) for entry in metadata if entry]
    if not any(told):
        told = [_note(decode_plain(folder / FILE_NAME, Any, _SIZE_LIMIT)) for folder in folders]
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


def server_of(tool: str) -> str | None:
    """The MCP server behind a tool called `mcp__<server>__<tool>`; None for any other tool."""
    if not tool.startswith(_PREFIX):
        return None
    server, separator, _ = tool.removeprefix(_PREFIX).partition("__")
    return server if server and separator else None


def deliver(
    config: AgentConfig,
    notes: Sequence[DeliveryNote],
    streams: Sequence[Stream],
    calls: Counter[str] | None,
) -> Delivery:
    """The evidence of delivery. `calls` counts every tool call of the trial, None when they were not counted."""
    note = notes[-1] if notes else DeliveryNote()
    inits = [stream.init for stream in streams if stream.init is not None]
    configured = _configured(config, notes, inits)
    used = None if calls is None else {name: count for name, count in sorted(calls.items()) if server_of(name)}
    fired = sum((stream.hooks for stream in streams), Counter())
    # Only our agent asks the CLI to stream hook events; without it, silence proves nothing.
    watched = bool(streams) and note.hooks_digest is not None
    asked = bool(notes) and bool(config.kwargs.get("append_system_prompt"))
    return Delivery(
        mcp_configured=configured,
        mcp_connected=_connected(configured, inits, used),
        mcp_calls=used if used or configured else None,
        hooks_fired=dict(sorted(fired.items())) if fired or watched else None,
        prompt_delivered=True if note.prompt_digest is not None else False if asked else None,
        prompt_digest=note.prompt_digest,
        hooks_digest=note.hooks_digest,
        source_commit=note.source_commit,
        cli_version=note.cli_version or (inits[-1].claude_code_version if inits else None),
    )


def not_connected(delivery: Delivery) -> list[str]:
    """The servers that were configured and are known not to have come up."""
    if delivery.mcp_configured is None or delivery.mcp_connected is None:
        return []
    return [name for name in delivery.mcp_configured if name not in delivery.mcp_connected]


def _configured(config: AgentConfig, notes: Sequence[DeliveryNote], inits: Sequence[InitEvent]) -> list[str] | None:
    names = [server.name for server in config.mcp_servers]
    given = config.kwargs.get("mcp_config")
    servers = given.get("mcpServers") if isinstance(given, dict) else None
    names += list(servers) if isinstance(servers, dict) else []
    names += [name for note in notes for name in note.mcp_servers]
    names += [server.name for init in inits for server in init.mcp_servers]
    return list(dict.fromkeys(names)) or None


def _connected(
    configured: list[str] | None, inits: Sequence[InitEvent], used: dict[str, int] | None
) -> list[str] | None:
    """Servers the session reported as connected, offered tools of, or called. None when nothing tells.

    The start of a session may still say "pending" of a server that works a moment later. In a tool's name the odd
    characters of a server's name become `_`.
    """
    if configured is None:
        return None
    up = {server.name for init in inits for server in init.mcp_servers if server.status == "connected"}
    spelled = {"".join(c if c.isalnum() or c in "-_" else "_" for c in name): name for name in configured}
    seen = {server_of(tool) for tool in (*(tool for init in inits for tool in init.tools), *(used or {}))}
    up |= {spelled.get(server, server) for server in seen if server}
    return [name for name in configured if name in up] if inits or up else None
