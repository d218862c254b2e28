"""A trajectory as a flat list of actions: each tool call, what it did, and how it ended."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from terminalbench.analytics.atif import Call, Result, Step, Trajectory
from terminalbench.analytics.findings.shell import Effects, summary_of_tests
from terminalbench.analytics.findings.taxonomy import CHANGES, MCP, Taxonomy, taxonomy_for

_STRENGTH = (
    "test",
    "edit",
    "write",
    "delete",
    "mcp",
    "delegate",
    "build",
    "install",
    "run",
    "fetch",
    "search",
    "read",
    "list",
)
_FLAGS = ("tool_result_is_error", "is_error", "tool_use_is_error")
_SPACE = re.compile(r"\s+")
_QUOTE = 400


@dataclass(frozen=True, slots=True)
class Action:
    """One tool call. `kind` is its weightiest part; `failed` and `passed` are None where nobody said.

    `passed` is about a test run: what its exit code or its own summary says. `same` is equal for identical calls.
    """

    step: int
    time: datetime | None
    tool: str
    kind: str
    effects: Effects
    mcp: bool
    failed: bool | None
    passed: bool | None
    truncated: bool
    same: bytes
    target: str
    command: str | None
    subagent: bool

    @property
    def changes(self) -> bool:
        """Whether it changes files."""
        return not CHANGES.isdisjoint(self.effects.kinds)

    @property
    def changed(self) -> tuple[str, ...]:
        """The files it changes."""
        return self.effects.edits + self.effects.writes + self.effects.deletes

    def did(self, kind: str) -> bool:
        """Whether a part of it is of this kind."""
        return kind in self.effects.kinds


def actions_of(trajectory: Trajectory, agent: str | None = None) -> list[Action]:
    """Every call made in the trajectory, in order, those of embedded subagents after it."""
    taxonomy = taxonomy_for(trajectory.agent or agent)
    found = [action for step in trajectory.own_steps() for action in _of_step(step, taxonomy, subagent=False)]
    for part in trajectory.subagents:
        inner = taxonomy_for(part.agent or trajectory.agent or agent)
        found += [action for step in part.own_steps() for action in _of_step(step, inner, subagent=True)]
    return found


def _of_step(step: Step, taxonomy: Taxonomy, *, subagent: bool) -> Iterator[Action]:
    shared = step.results[0] if len(step.results) == 1 and step.results[0].call_id is None else None
    for call in step.calls:
        result = step.result_of(call)
        effects = taxonomy.effects(call)
        seen = result or shared
        text = seen.text if seen is not None else ""
        failed = _failed(step, call, result, taxonomy)
        command = taxonomy.command(call)
        yield Action(
            step=step.id,
            time=step.time,
            tool=call.name,
            kind=_weightiest(effects.kinds),
            effects=effects,
            mcp=call.name.startswith(MCP),
            failed=failed,
            passed=_passed(text, failed) if "test" in effects.kinds else None,
            truncated=result is not None and taxonomy.is_truncated(text),
            same=_same(call),
            target=_target(taxonomy, call, effects, command),
            command=command,
            subagent=subagent or step.extra.get("is_sidechain") is True,
        )


def _weightiest(kinds: tuple[str, ...]) -> str:
    return next((kind for kind in _STRENGTH if kind in kinds), kinds[0] if kinds else "other")


def _passed(text: str, failed: bool | None) -> bool | None:
    """The runner's own summary counts first: `pytest | tail` ends with the code of `tail`."""
    said = summary_of_tests(text)
    return said if said is not None else (None if failed is None else not failed)


def _failed(step: Step, call: Call, result: Result | None, taxonomy: Taxonomy) -> bool | None:
    """Whether the call failed, by the protocol's flag or an exit code; None when neither is there."""
    if result is not None and result.failed is not None:
        return result.failed
    for place in (call.extra, step.extra if len(step.calls) == 1 else {}, _details(step, call)):
        flag = _flag(place)
        if flag is not None:
            return flag
    code = taxonomy.exit_code_of(result.text) if result is not None else None
    return None if code is None else code != 0


def _details(step: Step, call: Call) -> Mapping[str, Any]:
    """Where Codex keeps what belongs to one of several calls of a step."""
    details = step.extra.get("tool_call_details")
    own = details.get(call.id) if isinstance(details, dict) else None
    return own if isinstance(own, dict) else {}


def _flag(extra: Mapping[str, Any]) -> bool | None:
    if not extra:
        return None
    for name in _FLAGS:
        if isinstance(extra.get(name), bool):
            return extra[name]
    for name in ("tool_metadata", "metadata", "tool_result_metadata"):
        inner = extra.get(name)
        code = inner.get("exit_code") if isinstance(inner, dict) else None
        if type(code) is int:
            return code != 0
    return None


def _same(call: Call) -> bytes:
    try:
        data = msgspec.json.encode(call.arguments, order="sorted")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        data = repr(call.arguments).encode(errors="replace")
    return hashlib.blake2b(call.name.encode(errors="replace") + b"\0" + data, digest_size=12).digest()


def _target(taxonomy: Taxonomy, call: Call, effects: Effects, command: str | None) -> str:
    """What the call is about, short and comparable: the file, else the command in one line."""
    files = effects.edits or effects.writes or effects.deletes or effects.reads
    text = files[0] if files else command or taxonomy.target(call)
    return _SPACE.sub(" ", text).strip()[:_QUOTE]
