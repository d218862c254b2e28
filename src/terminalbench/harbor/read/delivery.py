"""Whether the treatment reached the agent: MCP servers connected and used, hooks fired, prompt delivered.

A profile whose MCP server never came up measures the profile without it. So the evidence is kept for each
trial: what was configured, what the session reported, what was called.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import decode_plain
from terminalbench.harbor.read.claude_stream import Stream
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
    told = [entry.get("delivery") for entry in metadata if entry]
    found = [note for note in map(_note, told) if note is not None]
    if found:
        return found
    written = (decode_plain(folder / FILE_NAME, Any, _SIZE_LIMIT) for folder in folders)
    return [note for note in map(_note, written) if note is not None]


def _note(told: Any) -> DeliveryNote | None:
    if not isinstance(told, dict):
        return None
    source = told.get("mcp_source")
    record = source if isinstance(source, dict) else {}
    commit = told.get("source_commit") or record.get("commit") or record.get("sha256")
    servers = told.get("mcp_servers")
    names = [
        entry.get("name") if isinstance(entry, dict) else entry
        for entry in (servers if isinstance(servers, list) else ())
    ]
    return DeliveryNote(
        mcp_servers=[name for name in names if isinstance(name, str)],
        source_commit=_text(commit),
        hooks_digest=_text(told.get("hooks_digest") or told.get("hooks_sha256")),
        prompt_digest=_text(told.get("prompt_digest") or told.get("system_prompt_sha256")),
        cli_version=_text(told.get("cli_version")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


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
    """The evidence of delivery. `calls` counts every tool call of the trial, None when nobody counted."""
    note = notes[-1] if notes else None
    configured = _configured(config, notes, streams)
    used = None if calls is None else {name: count for name, count in sorted(calls.items()) if server_of(name)}
    return Delivery(
        mcp_configured=configured,
        mcp_connected=_connected(configured, streams, used),
        mcp_calls=used if used or configured else None,
        hooks_fired=_hooks(streams, note),
        prompt_delivered=_prompt(config, note),
        prompt_digest=note.prompt_digest if note else None,
        hooks_digest=note.hooks_digest if note else None,
        source_commit=note.source_commit if note else None,
        cli_version=_cli_version(note, streams),
    )


def not_connected(delivery: Delivery) -> list[str]:
    """The servers that were configured and are known not to have come up."""
    if delivery.mcp_configured is None or delivery.mcp_connected is None:
        return []
    return [name for name in delivery.mcp_configured if name not in delivery.mcp_connected]


def _configured(config: AgentConfig, notes: Sequence[DeliveryNote], streams: Sequence[Stream]) -> list[str] | None:
    names = [server.name for server in config.mcp_servers]
    given = config.kwargs.get("mcp_config")
    servers = given.get("mcpServers") if isinstance(given, dict) else None
    names += list(servers) if isinstance(servers, dict) else []
    names += [name for note in notes for name in note.mcp_servers]
    names += [server.name for stream in streams if stream.init for server in stream.init.mcp_servers]
    return list(dict.fromkeys(names)) or None


def _connected(
    configured: list[str] | None, streams: Sequence[Stream], used: dict[str, int] | None
) -> list[str] | None:
    """Servers the session reported as connected, offered tools of, or called. None when nothing tells.

    The start of a session may still say "pending" of a server that works a moment later.
    """
    if configured is None:
        return None
    told = [stream.init for stream in streams if stream.init is not None]
    tools = [tool for init in told for tool in init.tools]
    up = {server.name for init in told for server in init.mcp_servers if server.status == "connected"}
    up |= {_canonical(name, configured) for name in _servers([*tools, *(used or {})])}
    if not told and not up:
        return None
    return [name for name in configured if name in up]


def _servers(tools: Iterable[str]) -> list[str]:
    return [server for server in map(server_of, tools) if server]


def _canonical(server: str, configured: list[str]) -> str:
    """The configured name of a server as it appears in a tool name, where odd characters become `_`."""
    spelled = {"".join(c if c.isalnum() or c in "-_" else "_" for c in name): name for name in configured}
    return spelled.get(server, server)


def _hooks(streams: Sequence[Stream], note: DeliveryNote | None) -> dict[str, int] | None:
    fired: Counter[str] = Counter()
    for stream in streams:
        fired.update(stream.hooks)
    # Only our agent asks the CLI to stream hook events; without it, silence proves nothing.
    watched = bool(streams) and note is not None and note.hooks_digest is not None
    return dict(sorted(fired.items())) if fired or watched else None


def _prompt(config: AgentConfig, note: DeliveryNote | None) -> bool | None:
    if note is None:
        return None
    if note.prompt_digest is not None:
        return True
    return False if config.kwargs.get("append_system_prompt") else None


def _cli_version(note: DeliveryNote | None, streams: Sequence[Stream]) -> str | None:
    if note is not None and note.cli_version is not None:
        return note.cli_version
    versions = [stream.init.claude_code_version for stream in streams if stream.init is not None]
    return versions[-1] if versions else None
