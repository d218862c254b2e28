"""A trajectory as a flat list of actions: each tool call, what it did, and how it ended.

What a tool is, per agent, is data: tables in `taxonomies/*.toml`, and behind each the names that many agents share.
"""

import hashlib
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.atif import CallResult, Trajectory, TrajectoryCall, TrajectoryStep, says_failed, written
from terminalbench.analytics.findings.shell import (
    CHANGES,
    PLACES,
    TABLES,
    Effects,
    command_effects,
    may,
    patch_effects,
    summary_of_tests,
)

MCP = "mcp__"
_SHARED = "generic"
_KEYS = re.compile(r"(?:[CM]-\S+|Enter|Escape|Tab|Up|Down|Left|Right|q|)\Z")
_STRENGTH = (
    "test", "edit", "write", "delete", "mcp", "delegate", "build", "install", "run", "fetch", "search", "read", "list",
)  # fmt: skip
_QUOTE = 400


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

    def effects(self, call: TrajectoryCall, command: str | None) -> Effects:
        """Return what a call does, a shell call by its `command`; ("other",) when no table knows the tool."""
        if call.name.startswith(MCP):
            return Effects(("mcp",))
        if command is not None:
            return _shell(command)
        kind = self.tools.get(call.name.lower(), "other")
        if kind == "patch":
            return patch_effects(written(self._first(call, ("input", "patch", *self.commands))))
        path = written(self._first(call, self.paths))
        if kind == "editor":
            kind = self.editor.get(written(call.arguments.get("command")), "edit")
        paths = (path,) if path else ()
        place = PLACES.get(kind)
        return Effects((kind,), **{place: paths}) if place else Effects((kind,))

    def command(self, call: TrajectoryCall) -> str | None:
        """The command line of a shell call; None for any other tool."""
        if self.tools.get(call.name.lower()) != "shell":
            return None
        return _command_line(self._first(call, self.commands))

    def target(self, call: TrajectoryCall) -> str:
        """Return what a call is about: its path, else its pattern or question."""
        names = (*self.paths, "pattern", "query", "url", "description", "prompt")
        return written(self._first(call, names))

    def may(self, call: TrajectoryCall, said: str) -> tuple[bool, bool]:
        """Return whether a call that says this may run tests, and change files: true for all that do, without taking it
        apart."""
        kind = self.tools.get(call.name) or self.tools.get(call.name.lower())
        if kind == "shell":
            return may(said)
        return kind == "test", kind in CHANGES or kind in ("patch", "editor")

    def about(self, call: TrajectoryCall) -> tuple[str, ...] | None:
        """Return what is equal for two calls of a tool that touch the same file; None where that is not told."""
        path = written(self._first(call, self.paths))
        is_told = path and self.tools.get(call.name.lower()) not in ("shell", "patch")
        return (call.name, path, written(call.arguments.get("command"))) if is_told else None

    def exit_code_of(self, text: str) -> int | None:
        """The code the text of a result shows, where this agent shows one."""
        for pattern in self.exit_code:
            match = pattern.search(text[:2000]) or pattern.search(text[-2000:])
            if match is not None:
                return int(match.group(1))
        return None

    def is_truncated(self, text: str) -> bool:
        """Return whether the agent was shown only a part of a result."""
        hinted = any(hint in text for hint in self.truncation_hints)
        return hinted and any(pattern.search(text) for pattern in self.truncated)

    def _first(self, call: TrajectoryCall, names: tuple[str, ...]) -> Any:
        for name in names:
            value = call.arguments.get(name)
            if value not in (None, ""):
                return value
        return None


def said_by(call: TrajectoryCall) -> str:
    """Return all that the arguments of a call say."""
    return " ".join(map(written, call.arguments.values()))


def names_any(said: str, files: Iterable[str]) -> bool:
    """Return whether a call that says this may name one of the files: true for all that do, without taking it apart."""
    if "'" in said or '"' in said or "\\" in said:
        said = said.replace("'", "").replace('"', "").replace("\\", "")
    for name in files:  # noqa: SIM110  `any` takes three times as long
        if name in said:
            return True
    return False


class Action(msgspec.Struct, frozen=True, gc=False):
    """One tool call. `kind` is its weightiest part; `failed` and `passed` are None where unknown.

    `changes` says whether it changes files, `changed` which. `passed` is about a test run: what its exit code or its
    own summary says. `same` is equal for identical calls.
    """

    step: int
    time: datetime | None
    tool: str
    kind: str
    effects: Effects
    changes: bool
    changed: tuple[str, ...]
    mcp: bool
    failed: bool | None
    passed: bool | None
    truncated: bool
    same: bytes
    target: str
    command: str | None

    def did(self, kind: str) -> bool:
        """Return whether a part of it is of this kind."""
        return kind in self.effects.kinds

    @property
    def words(self) -> str:
        """Its command, or what it is about, and the files it touches."""
        return " ".join((self.command or self.target, *self.changed, *self.effects.reads))


def actions_of(trajectory: Trajectory, agent: str | None = None) -> list[Action]:
    """Every call made in the trajectory, in order, those of embedded subagents after it."""
    found: list[Action] = []
    for part in (trajectory, *trajectory.subagents):
        taxonomy = taxonomy_for(part.agent or trajectory.agent or agent)
        found += [action for step in part.own_steps() for action in actions_of_step(step, taxonomy)]
    return found


def actions_of_step(step: TrajectoryStep, taxonomy: Taxonomy) -> Iterator[Action]:
    """The calls of one step."""
    shared = step.results[0] if len(step.results) == 1 and step.results[0].call_id is None else None
    for call in step.calls:
        result = step.result_of(call)
        seen = result or shared
        text = seen.text if seen is not None else ""
        command = taxonomy.command(call)
        effects = taxonomy.effects(call, command)
        failed = _failed(step, call, result, taxonomy)
        yield Action(
            step=step.id,
            time=step.time,
            tool=call.name,
            kind=_weightiest(effects.kinds),
            effects=effects,
            changes=not CHANGES.isdisjoint(effects.kinds),
            changed=effects.edits + effects.writes + effects.deletes,
            mcp=call.name.startswith(MCP),
            failed=failed,
            passed=_passed(text, failed) if "test" in effects.kinds else None,
            truncated=result is not None and taxonomy.is_truncated(text),
            same=_same(call),
            target=_target(taxonomy, call, effects, command),
            command=command,
        )


def _weightiest(kinds: tuple[str, ...]) -> str:
    if len(kinds) == 1:
        return kinds[0]
    return next((kind for kind in _STRENGTH if kind in kinds), kinds[0] if kinds else "other")


def _passed(text: str, failed: bool | None) -> bool | None:
    """The runner's own summary counts first: `pytest | tail` ends with the code of `tail`."""
    said = summary_of_tests(text)
    return said if said is not None else (None if failed is None else not failed)


def _failed(step: TrajectoryStep, call: TrajectoryCall, result: CallResult | None, taxonomy: Taxonomy) -> bool | None:
    """Return whether the call failed, by the protocol's flag or an exit code; None when neither is there."""
    if result is not None and result.failed is not None:
        return result.failed
    if call.extra or step.extra:
        for place in (call.extra, step.extra if len(step.calls) == 1 else {}, _details(step, call)):
            failed = says_failed(place)
            if failed is not None:
                return failed
    code = taxonomy.exit_code_of(result.text) if result is not None else None
    return None if code is None else code != 0


def _details(step: TrajectoryStep, call: TrajectoryCall) -> Mapping[str, Any]:
    """Return where Codex keeps what belongs to one of several calls of a step."""
    details = step.extra.get("tool_call_details")
    own = details.get(call.id) if isinstance(details, dict) else None
    return own if isinstance(own, dict) else {}


def _same(call: TrajectoryCall) -> bytes:
    try:
        data = msgspec.json.encode(call.arguments, order="sorted")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        data = repr(call.arguments).encode(errors="replace")
    return hashlib.blake2b(call.name.encode(errors="replace") + b"\0" + data, digest_size=12).digest()


def _target(taxonomy: Taxonomy, call: TrajectoryCall, effects: Effects, command: str | None) -> str:
    """Return what the call is about, short and comparable: the file, else the command in one line."""
    files = effects.edits or effects.writes or effects.deletes or effects.reads
    text = files[0] if files else command or taxonomy.target(call)
    return " ".join(text.split())[:_QUOTE]


def taxonomy_for(agent: str | None) -> Taxonomy:
    """The table of an agent, or the shared one."""
    return _by_agent().get((agent or "").lower()) or _read(TABLES / f"{_SHARED}.toml")


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
        for key in ("exit_code", "truncated", "truncation_hints")
    }
    return Taxonomy(
        name=path.stem,
        tools=tools,
        editor={name: kind for kind, names in shared["editor"].items() for name in names},
        paths=tuple(defaults["path"]),
        commands=tuple(defaults["command"]),
        exit_code=tuple(map(re.compile, patterns["exit_code"])),
        truncated=tuple(map(re.compile, patterns["truncated"])),
        truncation_hints=patterns["truncation_hints"],
    )


def _command_line(value: Any) -> str:
    """A command argument as one line: text, or a list of words such as ["bash", "-lc", "ls"]."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        if len(value) >= 3 and value[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and value[1].endswith("c"):
            return value[2]
        return shlex.join(value)
    return written(value)


def _shell(line: str) -> Effects:
    if _KEYS.match(line.strip()):
        return Effects(("wait",))
    effects = command_effects(line)
    return effects if effects.kinds else Effects(("run",))
