"""The files that Claude Code is given: MCP servers, hooks, permissions. Pure functions, no I/O.

Commands in `mcp_config` and `hooks` are written for a person's checkout (`uv run python server.py`). In the
sandbox the same server lives in `/opt/tbench-mcp`, so commands are rewritten:

    uv run python X, python X, python3 X    the interpreter the server was installed with
    a relative X that exists in the source  its absolute path in the sandbox
    -m X of a source that is no package     the same, with the source on PYTHONPATH (hooks)
    {mcp_python} {mcp_dir} {mcp_bin}        that interpreter, the source folder, the folder of its commands

`${VAR}` is left alone: Claude Code expands it from its own environment when it starts the server.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

HOOK_SEC = 60
"""The limit of a hook that names none. Claude Code's own default has been 60 and 600 seconds, and may change again."""

PYTHONS = ("python", "python3", "{mcp_python}")
SYSTEM_PYTHON = "python3"

# `{mcp_python}` or `uv run python` anywhere, or `python` where a shell expects a command: at the start or after an
# operator, with assignments before it; then the interpreter's options and the script.
_PYTHON_COMMAND = re.compile(
    r"(?:\{mcp_python\}|(?:\buv\s+run\s+|(?P<head>(?:^|&&|\|\||[;|&(])\s*(?:\w+=\S*\s+)*))python3?(?![\w./-]))"
    r"(?:(?P<flags>(?:\s+-(?:[XW]\s+\S+|[a-zA-Z]+))*)\s+(?P<script>[\w./-]+))?"
)
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
# Interpreter options whose value is the next argument; after -m and -c there is no script.
_TAKES_VALUE = ("-X", "-W")
_NO_SCRIPT = ("-m", "-c")
_CHANGE_FOLDER = 'cd "$0" && exec "$@"'


@dataclass(frozen=True)
class Location:
    """The place of a server's source in the sandbox: its interpreter, folder, commands and Python files."""

    python: str
    folder: str
    bin: str | None
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Locations:
    """The sources in the sandbox: one that all servers share, or one for each of some servers, or none."""

    shared: Location | None = None
    by_server: Mapping[str, Location] = field(default_factory=dict)

    def of(self, server: str) -> Location | None:
        """The source of one server."""
        return self.by_server.get(server, self.shared)

    def every(self) -> list[Location]:
        """All of them, each once."""
        both = [*([self.shared] if self.shared else []), *self.by_server.values()]
        return list(dict.fromkeys(both))


class AmbiguousCommand(ValueError):
    """A hook's command that could belong to more than one source."""


def digest(value: Any) -> str:
    """sha256 of a text, or of any other value as JSON with sorted keys and no spaces."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def render_servers(servers: Mapping[str, Mapping[str, Any]], locations: Locations) -> dict[str, dict[str, Any]]:
    """The servers as Claude Code takes them, with commands and placeholders rewritten for the sandbox."""
    rendered = {}
    for name, server in servers.items():
        location = locations.of(name)
        entry = dict(server)
        if "command" in entry:
            entry = _render_stdio(entry, location)
        else:
            # Without a type Claude Code drops the server, and says nothing.
            kind = entry.get("type") or entry.pop("transport", None) or "http"
            entry = {**entry, "type": "http" if kind == "streamable-http" else kind}
        rendered[name] = _map_strings(entry, lambda text, location=location: _fill(text, location))
    return rendered


def render_hooks(hooks: Mapping[str, Any], locations: Locations) -> dict[str, Any]:
    """The value of a hooks file's `hooks` key with every command rewritten for the sandbox."""

    def render(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: _render_hook(item, locations) if key == "command" and isinstance(item, str) else render(item)
                for key, item in value.items()
            }
        return [render(item) for item in value] if isinstance(value, list) else value

    return render(hooks)


def render_command(command: str, location: Location | None) -> str:
    """A shell command rewritten for the sandbox."""
    if location is not None:
        where = location

        def replace(match: re.Match[str]) -> str:
            text = f"{match['head'] or ''}{where.python}"
            if match["script"] is None:
                return text
            is_script = not match["flags"].endswith(_NO_SCRIPT)
            script = _locate(match["script"], where) if is_script else match["script"]
            if where.bin is None and _is_module(match) and _has(match, where):
                text = f"{match['head'] or ''}env PYTHONPATH={where.folder} {where.python}"
            return f"{text}{match['flags']} {script}"

        command = _PYTHON_COMMAND.sub(replace, command)
    return _fill(command, location)


def merge_settings(base: Mapping[str, Any], hooks: Mapping[str, Any], servers: Sequence[str]) -> dict[str, Any]:
    """Claude Code settings: the user's own, plus these hooks, plus leave to use every tool of these servers."""
    settings = deepcopy(dict(base))
    if hooks:
        merged = settings.setdefault("hooks", {})
        for event, matchers in hooks.items():
            merged[event] = [*merged.get(event, []), *matchers]
    if servers:
        permissions = settings.setdefault("permissions", {})
        wanted = [f"mcp__{re.sub(r'[^A-Za-z0-9_-]', '_', name)}" for name in servers]
        permissions["allow"] = list(dict.fromkeys([*permissions.get("allow", []), *wanted]))
    return settings


def bound_hooks(hooks: Mapping[str, Any], limit_sec: float) -> dict[str, Any]:
    """The hooks of a settings file, each with a limit: its own, else this one. A hook that hangs is given up then."""

    def bound(entry: Any) -> Any:
        return {**entry, "timeout": entry.get("timeout") or limit_sec} if isinstance(entry, Mapping) else entry

    def bound_all(matcher: Any) -> Any:
        if not isinstance(matcher, Mapping) or not isinstance(matcher.get("hooks"), list):
            return matcher
        return {**matcher, "hooks": [bound(entry) for entry in matcher["hooks"]]}

    return {
        event: [bound_all(m) for m in found] if isinstance(found, list) else found for event, found in hooks.items()
    }


def required_variables(servers: Mapping[str, Any]) -> list[str]:
    """Names of the `${VAR}` without a default that the servers use, sorted."""
    return sorted({m[1] for text in strings(servers) for m in _TEMPLATE.finditer(text) if m[2] is None})


def strings(value: Any) -> list[str]:
    """Every text inside a JSON value, keys excluded."""
    found: list[str] = []
    _map_strings(value, found.append)
    return found


def _render_hook(command: str, locations: Locations) -> str:
    """A hook belongs to no server: with several sources, its script or module must tell which one is meant."""
    candidates = {location: render_command(command, location) for location in locations.every()}
    if len(set(candidates.values())) < 2:
        return next(iter(candidates.values()), render_command(command, None))
    runs = list(_PYTHON_COMMAND.finditer(command))
    owners = [text for location, text in candidates.items() if any(_has(run, location) for run in runs)]
    if len(owners) != 1:
        folders = ", ".join(location.folder for location in candidates)
        raise AmbiguousCommand(f"hook command {command!r} could belong to any of {folders}; write the full path")
    return owners[0]


def hook_commands(hooks: Any) -> list[str]:
    """Return the commands of hooks, in order."""
    if isinstance(hooks, Mapping):
        own = [hooks["command"]] if isinstance(hooks.get("command"), str) else []
        return [*own, *(text for value in hooks.values() for text in hook_commands(value))]
    return [text for value in hooks for text in hook_commands(value)] if isinstance(hooks, list) else []


def needed_files(command: str) -> list[tuple[str, bool]]:
    """Return the relative files that a command runs by Python, and whether each is one that a module may be."""
    runs = (match for match in _PYTHON_COMMAND.finditer(command) if match["script"] is not None)
    return [(name, _is_module(match)) for match in runs for name in _files(match) if not name.startswith("/")]


def _is_module(match: re.Match[str]) -> bool:
    return (match["flags"] or "").endswith("-m")


def _files(match: re.Match[str]) -> tuple[str, ...]:
    """The file that a Python command runs, or those that the module it names may be."""
    if _is_module(match):
        module = match["script"].replace(".", "/")
        return f"{module}.py", f"{module}/__main__.py"
    return () if (match["flags"] or "").endswith("-c") else (match["script"].removeprefix("./"),)


def _has(match: re.Match[str], location: Location) -> bool:
    """Return whether a source has the script or module of a Python command; those of a package may lie below `src`."""
    names = _files(match) if match["script"] is not None else ()
    below = ("", "src/") if location.bin is not None and _is_module(match) else ("",)
    return any(f"{folder}{name}" in location.files for folder in below for name in names)


def _render_stdio(entry: dict[str, Any], location: Location | None) -> dict[str, Any]:
    command, args = entry["command"], list(entry.get("args", []))
    if location is not None:
        command, args = _render_argv(command, args, location)
    folder = entry.pop("cwd", None)
    if folder is not None:
        # Claude Code knows no working folder for a server.
        where = f"{location.folder}/{folder}" if location is not None and not folder.startswith(("/", "{")) else folder
        command, args = "sh", ["-c", _CHANGE_FOLDER, where, command, *args]
    entry.pop("transport", None)
    return {**entry, "command": command, "args": args}


def _render_argv(command: str, args: Sequence[str], location: Location) -> tuple[str, list[str]]:
    if command == "uv" and len(args) >= 2 and args[0] == "run" and args[1] in PYTHONS:
        args = args[2:]
    elif command not in PYTHONS:
        return command, list(args)
    rest = list(args)
    position = 0
    while position < len(rest) and rest[position].startswith("-"):
        if rest[position] in _NO_SCRIPT:
            return location.python, rest
        position += 2 if rest[position] in _TAKES_VALUE else 1
    if position < len(rest):
        rest[position] = _locate(rest[position], location)
    return location.python, rest


def _locate(script: str, location: Location) -> str:
    relative = script.removeprefix("./")
    return f"{location.folder}/{relative}" if relative in location.files else script


def _fill(text: str, location: Location | None) -> str:
    text = text.replace("{mcp_python}", location.python if location else SYSTEM_PYTHON)
    if location is not None:
        text = text.replace("{mcp_dir}", location.folder)
        if location.bin is not None:
            text = text.replace("{mcp_bin}", location.bin)
    return text


def _map_strings(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
