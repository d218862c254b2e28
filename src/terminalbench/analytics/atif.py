"""Reading a trajectory (Harbor's ATIF document, v1.0 to v1.8) leniently: what is there is read, what is wrong is named.

An agent, a converter or a crash may have left anything in the file. Only a file that is no JSON object, or that is
too large, cannot be read; every other oddity is one line in `problems`, and the rest of the document stands.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import read_plain

SIZE_LIMIT = 512 << 20
_ERROR_FLAGS = ("is_error", "isError", "tool_result_is_error", "tool_use_is_error")
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_PROBLEM_LIMIT = 20


class UnreadableTrajectory(Exception):
    """The file holds no trajectory; the message says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a step."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What came back. `failed` and `exit_code` are the protocol's own word, None where it said nothing."""

    call_id: str | None
    text: str
    failed: bool | None
    exit_code: int | None
    media: tuple[str, ...]
    subagents: tuple[str, ...]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one step was billed as; `prompt` includes what came from the cache."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One turn: who spoke, what was said, the calls made and what came back."""

    id: int
    source: str
    text: str
    time: datetime | None
    model: str | None
    reasoning: str
    calls: tuple[Call, ...]
    results: tuple[Result, ...]
    tokens: Tokens
    copied: bool
    media: tuple[str, ...]
    extra: Mapping[str, Any]

    def result_of(self, call: Call) -> Result | None:
        """What came back for `call`: by its id, else the only result of a step with one call."""
        for result in self.results:
            if result.call_id == call.id:
                return result
        alone = len(self.calls) == len(self.results) == 1 and self.results[0].call_id is None
        return self.results[0] if alone else None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A whole document. Steps copied from an earlier context are kept and marked; `subagents` are embedded ones."""

    version: str | None
    agent: str | None
    agent_version: str | None
    model: str | None
    steps: tuple[Step, ...]
    subagents: tuple["Trajectory", ...]
    totals: Tokens
    continued_in: str | None
    id: str | None
    problems: tuple[str, ...]

    def own_steps(self) -> Iterator[Step]:
        """The steps made here, without those copied from an earlier context."""
        return (step for step in self.steps if not step.copied)


def read_trajectory(
    path: Path, limit: int = SIZE_LIMIT, before: Callable[[bytes], bytes] = lambda data: data
) -> Trajectory:
    """The trajectory at `path`; `before` sees the bytes of the file first. Raises UnreadableTrajectory."""
    data = read_plain(path, limit)
    if data is None:
        raise UnreadableTrajectory(f"{path.name} is missing, not a plain file, or larger than {limit >> 20} MB")
    return parse_trajectory(before(data))


def parse_trajectory(data: bytes) -> Trajectory:
    """The trajectory in `data`. Raises UnreadableTrajectory."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _decode_slowly(data)
    if not isinstance(document, dict):
        raise UnreadableTrajectory(f"holds a JSON {type(document).__name__}, not an object")
    if not isinstance(document.get("steps"), list):
        raise UnreadableTrajectory("has no list of steps")
    return _Reader().trajectory(document)


def _decode_slowly(data: bytes) -> Any:
    """As Python reads JSON: with NaN, Infinity and half surrogate pairs, which strict readers refuse."""
    try:
        return _clean(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise UnreadableTrajectory(f"is no JSON: {error}") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class _Reader:
    """Builds one document and collects what was odd about it."""

    problems: list[str] = field(default_factory=list)

    def odd(self, where: str, what: str) -> None:
        if len(self.problems) < _PROBLEM_LIMIT:
            self.problems.append(f"{where}: {what}")

    def trajectory(self, raw: Mapping[str, Any]) -> Trajectory:
        agent = _mapping(raw.get("agent"))
        steps: list[Step] = []
        for position, step in enumerate(raw["steps"], start=1):
            if isinstance(step, dict):
                steps.append(self._step(step, position))
            else:
                self.odd(f"steps[{position - 1}]", f"is a {type(step).__name__}, not an object")
        subagents = [
            _Reader().trajectory(sub)
            for sub in _items(raw.get("subagent_trajectories"))
            if isinstance(sub, dict) and isinstance(sub.get("steps"), list)
        ]
        final = _mapping(raw.get("final_metrics"))
        return Trajectory(
            version=_text(raw.get("schema_version")),
            agent=_text(agent.get("name")),
            agent_version=_text(agent.get("version")),
            model=_text(agent.get("model_name")),
            steps=tuple(steps),
            subagents=tuple(subagents),
            totals=_tokens(final, "total_"),
            continued_in=_text(raw.get("continued_trajectory_ref")),
            id=_text(raw.get("trajectory_id")),
            problems=tuple(self.problems),
        )

    def _step(self, raw: Mapping[str, Any], position: int) -> Step:
        where = f"step {position}"
        step_id = raw.get("step_id")
        if not isinstance(step_id, int) or isinstance(step_id, bool):
            self.odd(where, "has no step_id; counted by position")
            step_id = position
        source = raw.get("source")
        if source not in ("system", "user", "agent"):
            self.odd(where, f"source is {source!r}")
        text, media = _content(raw.get("message"))
        reasoning, _ = _content(raw.get("reasoning_content"))
        return Step(
            id=step_id,
            source=source if isinstance(source, str) else "unknown",
            text=text,
            time=self._time(raw.get("timestamp"), where),
            model=_text(raw.get("model_name")),
            reasoning=reasoning,
            calls=tuple(self._calls(raw.get("tool_calls"), where)),
            results=tuple(self._results(raw.get("observation"), where)),
            tokens=_tokens(_mapping(raw.get("metrics")), ""),
            copied=raw.get("is_copied_context") is True,
            media=media,
            extra=_mapping(raw.get("extra")),
        )

    def _time(self, value: Any, where: str) -> datetime | None:
        if value is None:
            return None
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            self.odd(where, f"timestamp {str(value)[:40]!r} is not ISO 8601")
            return None
        return moment if moment.tzinfo else moment.astimezone()

    def _calls(self, raw: Any, where: str) -> Iterator[Call]:
        for number, call in enumerate(_items(raw)):
            if not isinstance(call, dict):
                self.odd(where, f"tool call {number + 1} is a {type(call).__name__}")
                continue
            arguments = call.get("arguments")
            if not isinstance(arguments, dict):
                arguments = {} if arguments is None else {"input": arguments}
            yield Call(
                _text(call.get("tool_call_id")) or f"{where}/{number}",
                _text(call.get("function_name")) or "",
                arguments,
                _mapping(call.get("extra")),
            )

    def _results(self, raw: Any, where: str) -> Iterator[Result]:
        if isinstance(raw, str):  # some converters write the text alone
            raw = {"results": [{"content": raw}]}
        for result in _items(_mapping(raw).get("results")):
            if not isinstance(result, dict):
                self.odd(where, f"an observation is a {type(result).__name__}")
                continue
            text, media = _content(result.get("content"))
            extra = _mapping(result.get("extra"))
            references = [_mapping(item) for item in _items(result.get("subagent_trajectory_ref"))]
            names = [_text(r.get("trajectory_id")) or _text(r.get("trajectory_path")) for r in references]
            code = _found(extra, _EXIT_CODES, int)
            yield Result(
                call_id=_text(result.get("source_call_id")),
                text=text,
                failed=_failed(_found(extra, _ERROR_FLAGS, bool), code),
                exit_code=code,
                media=media,
                subagents=tuple(name for name in names if name),
                extra=extra,
            )


def _failed(flag: bool | None, exit_code: int | None) -> bool | None:
    if flag is not None:
        return flag
    return None if exit_code is None else exit_code != 0


def _found[T](extra: Mapping[str, Any], names: tuple[str, ...], kind: type[T], depth: int = 3) -> T | None:
    """The first value of that kind under one of the names, looking into nested tables a few levels down."""
    for name in names:
        value = extra.get(name)
        if type(value) is kind:
            return value
    if depth:
        for value in extra.values():
            found = _found(value, names, kind, depth - 1) if isinstance(value, dict) else None
            if found is not None:
                return found
    return None


def _content(raw: Any) -> tuple[str, tuple[str, ...]]:
    """The text of a message or observation, and the kinds of media in it."""
    if raw is None:
        return "", ()
    if isinstance(raw, str):
        return raw, ()
    if isinstance(raw, list):
        texts: list[str] = []
        media: list[str] = []
        for part in raw:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif isinstance(part, dict) and part.get("type") in ("image", "audio"):
                media.append(part["type"])
        return "\n".join(texts), tuple(media)
    return msgspec.json.encode(raw).decode(), ()


def _tokens(raw: Mapping[str, Any], prefix: str) -> Tokens:
    def count(name: str) -> int | None:
        value = raw.get(f"{prefix}{name}")
        return value if type(value) is int and value >= 0 else None

    cost = raw.get(f"{prefix}cost_usd")
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf")
    return Tokens(
        count("prompt_tokens"), count("completion_tokens"), count("cached_tokens"), float(cost) if known else None
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
