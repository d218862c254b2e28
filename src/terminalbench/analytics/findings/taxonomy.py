"""What a tool call is, per agent: tables in `taxonomies/*.toml`, and behind each the names that many agents share."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.atif import Call
from terminalbench.analytics.findings.shell import TABLES, Effects, command_effects, patch_effects

CHANGES = frozenset({"edit", "write", "delete"})
"""Kinds that change files."""
MCP = "mcp__"
_SHARED = "generic"
_KEYS = re.compile(r"(?:[CM]-\S+|Enter|Escape|Tab|Up|Down|Left|Right|q|)\Z")


@dataclass(frozen=True)
class Taxonomy:
    """The tools of one agent: name to kind, where arguments hold paths and commands, how results show their ending."""

    name: str
    tools: Mapping[str, str]
    editor: Mapping[str, str]
    paths: tuple[str, ...]
    commands: tuple[str, ...]
    exit_code: tuple[re.Pattern[str], ...]
    truncated: tuple[re.Pattern[str], ...]
    truncation_hints: tuple[str, ...]

    def effects(self, call: Call) -> Effects:
        """What a call does; ("other",) when no table knows the tool."""
        if call.name.startswith(MCP):
            return Effects(("mcp",))
        kind = self.tools.get(call.name.lower(), "other")
        if kind == "shell":
            return _shell(self._first(call, self.commands))
        if kind == "patch":
            return patch_effects(_text(self._first(call, ("input", "patch", *self.commands))))
        path = _text(self._first(call, self.paths))
        if kind == "editor":
            kind = self.editor.get(_text(call.arguments.get("command")), "edit")
        paths = (path,) if path else ()
        return Effects(
            (kind,),
            reads=paths if kind == "read" else (),
            edits=paths if kind == "edit" else (),
            writes=paths if kind == "write" else (),
            deletes=paths if kind == "delete" else (),
        )

    def command(self, call: Call) -> str | None:
        """The command line of a shell call; None for any other tool."""
        if self.tools.get(call.name.lower()) != "shell":
            return None
        return command_line(self._first(call, self.commands))

    def target(self, call: Call) -> str:
        """What a call is about: its path, else its pattern or question."""
        names = (*self.paths, "pattern", "query", "url", "description", "prompt")
        return _text(self._first(call, names))

    def exit_code_of(self, text: str) -> int | None:
        """The code the text of a result shows, where this agent shows one."""
        for pattern in self.exit_code:
            match = pattern.search(text[:2000]) or pattern.search(text[-2000:])
            if match is not None:
                return int(match.group(1))
        return None

    def is_truncated(self, text: str) -> bool:
        """Whether the agent was shown only a part of a result."""
        if not any(hint in text for hint in self.truncation_hints):
            return False
        return any(pattern.search(text) for pattern in self.truncated)

    def _first(self, call: Call, names: tuple[str, ...]) -> Any:
        return next((call.arguments[name] for name in names if call.arguments.get(name) not in (None, "")), None)


def taxonomy_for(agent: str | None) -> Taxonomy:
    """The table of an agent, or the shared one."""
    return _by_agent().get((agent or "").lower()) or _read(TABLES / f"{_SHARED}.toml")


def known_agents() -> list[str]:
    """Agents with a table of their own."""
    return sorted(_by_agent())


@cache
def _by_agent() -> dict[str, Taxonomy]:
    own = [path for path in sorted(TABLES.glob("*.toml")) if path.stem not in (_SHARED, "shell")]
    return {agent: _read(path) for path in own for agent in tomllib.loads(path.read_text())["agents"]}


@cache
def _read(path: Path) -> Taxonomy:
    shared = tomllib.loads((TABLES / f"{_SHARED}.toml").read_text())
    own = tomllib.loads(path.read_text())
    tools = {name.lower(): kind for kind, names in shared["tools"].items() for name in names}
    tools |= {name.lower(): kind for kind, names in own["tools"].items() for name in names}
    defaults = shared["defaults"]
    patterns = {
        key: tuple(dict.fromkeys([*own.get("results", {}).get(key, []), *shared["results"][key]]))
        for key in ("exit_code", "truncated")
    }
    return Taxonomy(
        name=path.stem,
        tools=tools,
        editor={name: kind for kind, names in shared["editor"].items() for name in names},
        paths=tuple(defaults["path"]),
        commands=tuple(defaults["command"]),
        exit_code=tuple(map(re.compile, patterns["exit_code"])),
        truncated=tuple(map(re.compile, patterns["truncated"])),
        truncation_hints=tuple(shared["results"]["truncation_hints"]),
    )


def command_line(value: Any) -> str:
    """A command argument as one line: text, or a list of words such as ["bash", "-lc", "ls"]."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        if len(value) >= 3 and value[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and value[1].endswith("c"):
            return value[2]
        import shlex

        return shlex.join(value)
    return _text(value)


def _shell(value: Any) -> Effects:
    line = command_line(value)
    if _KEYS.match(line.strip()):
        return Effects(("wait",))
    effects = command_effects(line)
    return effects if effects.kinds else Effects(("run",))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
