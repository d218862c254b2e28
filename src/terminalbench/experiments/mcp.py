"""MCP servers of a profile: one folder each, merged into a single `{"mcpServers": ...}`.

<folder>/.mcp.json     {"mcpServers": {"<server>": {"command": ..., "args": [...], "env": {...}}}}
<folder>/USAGE.md      optional; added to the system prompt of a profile that uses the server
<folder>/hooks.json    optional; used when a profile names it in `hooks`

The folder of a server that brings code goes into the sandbox as a whole, if the agent can take it at all.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench.errors import did_you_mean
from terminalbench.experiments.agents import AgentInfo
from terminalbench.experiments.profiles import McpSetup, TextFile, handed_files, has_code, is_source, source_files
from terminalbench.secrets.patterns import secrets_in
from terminalbench.strict import Problems

if TYPE_CHECKING:
    from terminalbench.experiments.claude_settings import Location

_BRING = "name the server whose folder holds it in mcp_servers, or set mcp_git_source"
_SECRET_FILES = (".env", ".env.*")
_SERVER_KEYS = {
    "command", "args", "env", "type", "transport", "url", "headers", "cwd", "alwaysAllow", "disabled", "timeout"
}  # fmt: skip


def read_mcp(names: list[str], aliases: dict[str, str], root: Path, at: str, problems: Problems) -> McpSetup:
    """Merge the configurations of the named servers, and only of those."""
    servers: dict[str, dict[str, Any]] = {}
    folders: dict[str, Path] = {}
    defined_in: dict[str, Path] = {}
    usage: list[Path] = []
    for name in dict.fromkeys(names):
        try:
            folder = root / Path(aliases.get(name, name)).expanduser()
        except RuntimeError:
            problems.add(at, f'the folder of server "{name}" is not a path')
            continue
        file = folder / ".mcp.json"
        entries = _entries(file, at, problems)
        if entries is None:
            continue
        if name not in entries:
            problems.add(at, f'{file} defines no server "{name}"', did_you_mean(name, sorted(entries)))
            continue
        for other in entries:
            if other in names and defined_in.setdefault(other, file) != file:
                problems.add(at, f'server "{other}" is defined twice: in {defined_in[other]} and in {file}')
        _check_server(name, entries[name], file, at, problems)
        servers[name] = entries[name]
        folders[name] = folder
        if (folder / "USAGE.md").is_file() and folder / "USAGE.md" not in usage:
            usage.append(folder / "USAGE.md")
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        problems.add(at, f"named twice: {', '.join(twice)}")
    return McpSetup(servers, folders, tuple(usage))


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice; plain JSON readers keep the last one without a word."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'"{next(k for k in keys if keys.count(k) > 1)}" is defined twice')
    return found


def _entries(file: Path, at: str, problems: Problems) -> dict[str, Any] | None:
    try:
        data = json.loads(file.read_bytes(), object_pairs_hook=_each_once)
    except FileNotFoundError:
        problems.add(at, f"no MCP configuration at {file}", "create it, or map the server in [mcp.aliases]")
        return None
    except (OSError, ValueError) as error:
        problems.add(at, f"{file} is not readable as JSON: {error}")
        return None
    entries = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        problems.add(at, f'{file} must hold {{"mcpServers": {{"<name>": {{...}}}}}}')
        return None
    return entries


def _check_server(name: str, entry: dict[str, Any], file: Path, at: str, problems: Problems) -> None:
    where = f'{file}: server "{name}"'
    for key in entry:
        if key not in _SERVER_KEYS:
            problems.add(at, f'{where}: unknown key "{key}"', did_you_mean(key, sorted(_SERVER_KEYS)))
    start = entry.get("command", entry.get("url"))
    if not isinstance(start, str) or not start.strip():
        problems.add(at, f'{where}: needs a "command" or a "url"')
    args = entry.get("args", [])
    if not isinstance(args, list) or not all(isinstance(a, str) for a in args):
        problems.add(at, f'{where}: "args" must be a list of strings')
    for table in ("env", "headers"):
        values = entry.get(table, {})
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            problems.add(at, f'{where}: "{table}" must be a table of strings')
    for key in secrets_in({k: v for k, v in entry.items() if k in ("env", "headers", "args", "url")}, name):
        problems.add(at, f"{where}: {key} looks like a secret", "write ${VAR} and put the value in the env file")


def check_code(setup: McpSetup, agent: AgentInfo, private: Mapping[Path, str], at: str, problems: Problems) -> None:
    """Note the servers whose code would not reach the agent, or would bring it what is `private` (and what that is)."""
    for server, folder in setup.folders.items():
        if not has_code(folder):
            continue
        what = f'the folder of server "{server}", {folder},'
        if not agent.hooks:
            if _needs(setup.servers[server], folder):
                hint = "keep only .mcp.json and USAGE.md there, and put the server into the image of the tasks"
                problems.add(
                    at, f"{what} contains code, which agent {agent.name} cannot receive; claude-code can", hint
                )
        elif (held := held_in(folder, private)) is not None:
            hint = "give the server a separate folder"
            problems.add(at, f"{what} holds {held}, which the agent would see", hint)


def check_hooks(hooks: TextFile, setup: McpSetup, root: Path, at: str, problems: Problems) -> None:
    """Note the hooks that could not run in the sandbox: what they run is not there, or may be any server's."""
    from terminalbench.experiments import claude_settings as settings  # only profiles with hooks pay for it

    places = {name: _location(folder) for name, folder in setup.folders.items() if has_code(folder)}
    locations = settings.Locations(by_server=places)
    packages = any(place.bin is not None for place in places.values())
    data = json.loads(hooks.text)
    for command in dict.fromkeys(settings.hook_commands(data.get("hooks", data))):
        what = f"{hooks.path}: {command!r}"
        try:
            rendered = settings.render_hooks({"command": command}, locations)["command"]
        except settings.AmbiguousCommand:
            folders = " or ".join(str(folder) for name, folder in setup.folders.items() if name in places)
            hint = "name a script or module that only one of them has"
            problems.add(at, f"{what} could belong to {folders}", hint)
            continue
        if (left := next((word for word in ("{mcp_dir}", "{mcp_bin}") if word in rendered), None)) is not None:
            problems.add(at, f"{what} uses {left}, which no server of this profile defines", _BRING)
            continue
        for name, is_module in settings.needed_files(command):
            brought = any(name in place.files for place in places.values()) or (is_module and packages)
            here = ((hooks.path.parent / name).is_file() or (is_module and (root / name).is_file())) and not brought
            if here:
                problems.add(at, f"{what} runs {name}, which no server of this profile brings into the sandbox", _BRING)


def _location(folder: Path) -> "Location":
    """Return a server's folder as the source that it will be in the sandbox."""
    from terminalbench.experiments.claude_settings import Location

    files = frozenset(path.relative_to(folder).as_posix() for path in source_files(folder) if path.suffix == ".py")
    package = any((folder / name).is_file() for name in ("pyproject.toml", "setup.py"))
    return Location("python3", str(folder), str(folder / "bin") if package else None, files)


def _needs(server: Mapping[str, Any], folder: Path) -> bool:
    """Return whether a server is started from its folder: by a placeholder, or by a file or module that lies there."""
    args = server.get("args")
    words = [server.get("command"), server.get("cwd"), *(args if isinstance(args, list) else ())]
    for word in words:
        if isinstance(word, str) and word:
            there = [folder / word, folder / f"{word.replace('.', '/')}.py", folder / word.replace(".", "/")]
            if "{mcp_" in word or any(map(os.path.exists, there)):
                return True
    return False


def held_in(folder: Path, private: Mapping[Path, str]) -> str | None:
    """Return which `private` folder lies in `folder`, as far as it goes to the agent; or results of other runs."""
    within = folder.resolve()
    for path, what in private.items():
        inner = path.resolve()
        if inner.is_relative_to(within) and all(map(is_source, inner.relative_to(within).parts)):
            return what
    plans = [file for file in source_files(folder) if file.name == "plan.json" and len(file.parents) > 2]
    earlier = any((file.parents[2] / "index.db").is_file() for file in plans)
    return "results of other runs" if earlier else None


def private_in(path: Path, private: Mapping[Path, str]) -> str | None:
    """Return what a file or folder holds that no agent may see: results, tasks, a file of secrets."""
    files = handed_files(path) if path.is_dir() else [path]
    held = held_in(path, private) if path.is_dir() else None
    return held or next((str(file) for file in files if any(file.match(one) for one in _SECRET_FILES)), None)
