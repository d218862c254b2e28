"""The equipment that an agent reports when its session starts: tools, model, version, permission mode, MCP servers.

| agent | where |
|---|---|
| claude-code, cursor-cli | the event `system`/`init` of its stream |
| codex | `session_meta` and `turn_context` of its rollout |
| any other | `agent` of its trajectory, as far as that tells |

Written inside the sandbox, by the agent's process: other types, endless lists and control characters are expected.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import open_plain
from terminalbench.text.foreign import cut, printable

CURSOR_FILE = "cursor-cli.txt"
TRAJECTORY_SOURCE = "trajectory"
MOST_NAMES = 400
LONGEST_NAME = 120
_HEAD_LIMIT = 1 << 20
_MOST_ROLLOUTS = 4
_UNKNOWN = ("", "unknown")
_PREFIX = "mcp__"


class SessionStart(msgspec.Struct, frozen=True):
    """The start of one session. None: it did not say. `tools` are all, those of MCP servers too; `left_out` counts
    names that were too many to keep."""

    source: str
    model: str | None = None
    version: str | None = None
    permission_mode: str | None = None
    tools: list[str] | None = None
    mcp_servers: dict[str, str] | None = None
    slash_commands: list[str] | None = None
    skills: list[str] | None = None
    agents: list[str] | None = None
    left_out: int = 0


class _Init(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    model: Any = None
    tools: Any = None
    mcp_servers: Any = None
    permission_mode: Any = msgspec.field(default=None, name="permissionMode")
    claude_code_version: Any = None
    slash_commands: Any = None
    skills: Any = None
    agents: Any = None


class _SessionLine(msgspec.Struct):
    type: Any = None
    payload: Any = None


def from_init(data: bytes, source: str) -> SessionStart:
    """The event `system`/`init` of a stream. Raises `msgspec.DecodeError` when it is no JSON object."""
    return _of_init(decode(data, _Init), source)


def _of_init(event: _Init, source: str) -> SessionStart:
    lists = [_names(value) for value in (event.tools, event.slash_commands, event.skills, event.agents)]
    servers = event.mcp_servers if isinstance(event.mcp_servers, list) else None
    states = None if servers is None else [_state(entry) for entry in servers]
    known = None if states is None else [entry for entry in states if entry is not None]
    tools, slash_commands, skills, agents = (kept for kept, _ in lists)
    return SessionStart(
        source=source,
        model=_text(event.model),
        version=_text(event.claude_code_version),
        permission_mode=_text(event.permission_mode),
        tools=tools,
        mcp_servers=None if known is None else dict(known[:MOST_NAMES]),
        slash_commands=slash_commands,
        skills=skills,
        agents=agents,
        left_out=sum(more for _, more in lists) + max(0, len(known or ()) - MOST_NAMES),
    )


def from_trajectory(model: Any, version: Any, definitions: Any) -> SessionStart | None:
    """Read the `agent` of a trajectory; None when it says nothing. `definitions` are in the shape of OpenAI's."""
    tools, left_out = _names(definitions)
    start = SessionStart(
        source=TRAJECTORY_SOURCE, model=_text(model), version=_text(version), tools=tools, left_out=left_out
    )
    return start if (start.model, start.version, start.tools) != (None, None, None) else None


def cursor_start(folder: Path) -> SessionStart | None:
    """Return what Cursor's CLI says at the start of its stream."""
    for data in _head_lines(folder / CURSOR_FILE):
        event = _decoded(data, _Init)
        if event is not None and (event.type, event.subtype) == ("system", "init"):
            return _of_init(event, "cursor-cli")
    return None


def codex_start(folder: Path) -> SessionStart | None:
    """Read the start of the newest rollout of Codex: the CLI, and the settings of its first turn."""
    day = folder / "sessions"
    for _ in range(3):  # year, month, day
        day /= next(_newest(day, folders=True), "")
    for name in islice(_newest(day, folders=False), _MOST_ROLLOUTS):
        told: dict[str, dict[str, Any]] = {}
        for data in _head_lines(day / name):
            event = _decoded(data, _SessionLine)
            if event is not None and isinstance(event.type, str) and isinstance(event.payload, dict):
                told.setdefault(event.type, event.payload)
        meta, turn = told.get("session_meta", {}), told.get("turn_context", {})
        sandbox = turn.get("sandbox_policy")
        if isinstance(sandbox, dict):
            sandbox = sandbox.get("type") or sandbox.get("mode")
        modes = [mode for mode in (_text(turn.get("approval_policy")), _text(sandbox)) if mode is not None]
        if meta or turn:
            return SessionStart(
                source="codex",
                model=_text(turn.get("model")),
                version=_text(meta.get("cli_version")),
                permission_mode=", ".join(modes) or None,
            )
    return None


def builtin_tools(starts: Sequence[SessionStart]) -> list[str] | None:
    """Tools that no MCP server offers, by name."""
    told = merged(start.tools for start in starts)
    return None if told is None else sorted(tool for tool in told if server_of(tool) is None)


def server_tools(starts: Sequence[SessionStart]) -> dict[str, list[str]] | None:
    """Tools of MCP servers by server, both as tools spell them."""
    told = merged(start.tools for start in starts)
    if told is None:
        return None
    found: dict[str, list[str]] = {}
    for tool in sorted(told):
        if (server := server_of(tool)) is not None:
            found.setdefault(server, []).append(tool.removeprefix(f"{_PREFIX}{server}__"))
    return found


def merged(lists: Iterable[list[str] | None]) -> list[str] | None:
    """The names of several lists, each once; None when none is known."""
    known = [names for names in lists if names is not None]
    return list(dict.fromkeys(name for names in known for name in names)) if known else None


def one_of(values: Iterable[str | None]) -> str | None:
    """The value that sessions have; those of several, where they differ; None when none is known."""
    return " and ".join(dict.fromkeys(value for value in values if value is not None)) or None


def server_of(tool: str) -> str | None:
    """The MCP server behind a tool called `mcp__<server>__<tool>`; None for any other tool."""
    if not tool.startswith(_PREFIX):
        return None
    server, separator, _ = tool.removeprefix(_PREFIX).partition("__")
    return server if server and separator else None


def spelled(server: str) -> str:
    """A server's name as the names of its tools have it."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in server)


def _names(value: Any) -> tuple[list[str] | None, int]:
    """The names of a list, of texts or of tables with a name, and how many more there were."""
    if not isinstance(value, list):
        return None, 0
    names = list(dict.fromkeys(name for entry in value if (name := _name(entry)) is not None))
    return names[:MOST_NAMES], max(0, len(names) - MOST_NAMES)


def _name(entry: Any) -> str | None:
    if isinstance(entry, dict):
        inner = entry.get("function")
        entry = inner.get("name") if isinstance(inner, dict) else entry.get("name")
    return _text(entry)


def _state(entry: Any) -> tuple[str, str] | None:
    name = _name(entry)
    return (
        None if name is None else (name, _text(entry.get("status") if isinstance(entry, dict) else None) or "unknown")
    )


def _text(value: Any) -> str | None:
    """A short text that can be shown; None for anything else, and for what means unknown."""
    if not isinstance(value, str) or value in _UNKNOWN:
        return None
    return cut(printable(value[: 4 * LONGEST_NAME]), LONGEST_NAME)


def _newest(folder: Path, *, folders: bool) -> Iterator[str]:
    """The folders or the rollouts in a folder, the last name first; links that the agent may have made are none."""
    try:
        with os.scandir(folder) as entries:
            found = [e.name for e in entries if (e.is_dir if folders else e.is_file)(follow_symlinks=False)]
    except OSError:
        return
    yield from sorted((name for name in found if folders or name.startswith("rollout-")), reverse=True)


def _head_lines(path: Path) -> Iterator[bytes]:
    """The lines at the start of a plain file that may be JSON objects."""
    with open_plain(path) as stream:
        try:
            data = stream.read(_HEAD_LIMIT) if stream is not None else None
        except OSError:
            data = None
    return (line for line in (data or b"").splitlines() if line.startswith(b"{"))


def _decoded[T](data: bytes, kind: type[T]) -> T | None:
    try:
        return decode(data, kind)
    except NOT_DECODED:
        return None
