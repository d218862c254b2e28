"""Reading a trajectory (Harbor's ATIF document, v1.0 to v1.8) leniently: what fits is read, what is wrong is named.

An agent, a converter or a crash may have left anything in the file. Only a file that is no JSON object, or that is
too large, cannot be read; every other oddity is one line in `problems`, and the rest of the document stands.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from terminalbench.decode import NOT_DECODED, convert, decode, decoder
from terminalbench.files import read_plain
from terminalbench.harbor.read.agent_logs import UNTOLD_CALLS

SIZE_LIMIT = 512 << 20
_ERROR_FLAGS = ("is_error", "isError", "tool_result_is_error", "tool_use_is_error")
_EXIT_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_PROBLEM_LIMIT = 20
SOURCES = frozenset({"system", "user", "agent"})
type _Text = Annotated[str, msgspec.Meta(min_length=1)]
type _Count = Annotated[int, msgspec.Meta(ge=0)]


class UnreadableTrajectory(Exception):
    """The file holds no trajectory; the message says why."""


class TrajectoryCall(msgspec.Struct, frozen=True, gc=False):
    """One tool call of a step."""

    id: _Text = msgspec.field(name="tool_call_id")
    name: str = msgspec.field(name="function_name", default="")
    arguments: dict[str, Any] = {}
    extra: dict[str, Any] = {}


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """What came back for a call, or from the environment: `content` is text, or a list of texts and media."""

    call_id: _Text | None = msgspec.field(name="source_call_id", default=None)
    content: Any = None
    extra: dict[str, Any] = {}
    references: Any = msgspec.field(name="subagent_trajectory_ref", default=None)

    @property
    def text(self) -> str:
        """Its words."""
        return _words(self.content)

    @property
    def media(self) -> tuple[str, ...]:
        """The kinds of media in it."""
        return _media(self.content)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command, where the protocol carries one."""
        return _found(self.extra, _EXIT_CODES, int) if self.extra else None

    @property
    def failed(self) -> bool | None:
        """The protocol's own word, by a flag or an exit code; None where it said nothing."""
        return says_failed(self.extra)

    @property
    def subagents(self) -> tuple[str, ...]:
        """The trajectories of subagents that it refers to."""
        found = [_mapping(item) for item in _items(self.references)]
        names = [_text(one.get("trajectory_id")) or _text(one.get("trajectory_path")) for one in found]
        return tuple(name for name in names if name)


class StepTokens(msgspec.Struct, frozen=True, gc=False):
    """What one step was billed as; `prompt` includes what came from the cache."""

    prompt: _Count | None = msgspec.field(name="prompt_tokens", default=None)
    completion: _Count | None = msgspec.field(name="completion_tokens", default=None)
    cached: _Count | None = msgspec.field(name="cached_tokens", default=None)
    cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None


class Observation(msgspec.Struct, frozen=True, gc=False):
    """What came back in one step."""

    results: tuple[CallResult, ...] = ()


class StepHead(msgspec.Struct, frozen=True, gc=False):
    """Of one turn: who spoke when, and what it was billed as."""

    id: int = msgspec.field(name="step_id")
    source: str
    time: Annotated[datetime, msgspec.Meta(tz=True)] | None = msgspec.field(name="timestamp", default=None)
    model: _Text | None = msgspec.field(name="model_name", default=None)
    tokens: StepTokens = msgspec.field(name="metrics", default=StepTokens())
    copied: bool = msgspec.field(name="is_copied_context", default=False)


class TrajectoryStep(StepHead, frozen=True, gc=False):
    """One turn: its head, what was said, the calls made and what came back."""

    message: Any = None
    thoughts: Any = msgspec.field(name="reasoning_content", default=None)
    calls: tuple[TrajectoryCall, ...] = msgspec.field(name="tool_calls", default=())
    observation: Observation = Observation()
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """Return what was said."""
        return _words(self.message)

    @property
    def media(self) -> tuple[str, ...]:
        """The kinds of media in what was said: the dashboard names them."""
        return _media(self.message)

    @property
    def reasoning(self) -> str:
        """Return what was thought."""
        return _words(self.thoughts)

    @property
    def results(self) -> tuple[CallResult, ...]:
        """Return what came back."""
        return self.observation.results

    def result_of(self, call: TrajectoryCall) -> CallResult | None:
        """Return what came back for `call`: by its id, else the only result of a step with one call."""
        results = self.observation.results
        for result in results:
            if result.call_id == call.id:
                return result
        alone = len(self.calls) == len(results) == 1 and results[0].call_id is None
        return results[0] if alone else None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A whole document. Steps copied from an earlier context are kept and marked; `subagents` are embedded ones.

    `untold`: it is what a program printed, and does not tell which tools were called. The steps of a long file are
    decoded when they are asked for, and `problems` are those of what was decoded.
    """

    version: str | None
    agent: str | None
    steps: Sequence[TrajectoryStep]
    subagents: tuple["Trajectory", ...]
    continued_in: str | None
    id: str | None
    problems: Sequence[str] = ()
    untold: bool = False

    @property
    def heads(self) -> Sequence[StepHead]:
        """The heads of its steps, for which none is read."""
        return getattr(self.steps, "heads", self.steps)

    def own_steps(self) -> Iterator[TrajectoryStep]:
        """The steps made here, without those copied from an earlier context."""
        return (step for step in self.steps if not step.copied)


class _AtifDocument(msgspec.Struct):
    """A trajectory as Harbor's schema has it. A file that does not fit is read field by field instead."""

    steps: tuple[TrajectoryStep, ...]
    schema_version: Any = None
    agent: Any = None
    subagent_trajectories: tuple["_AtifDocument", ...] = ()
    continued_trajectory_ref: Any = None
    trajectory_id: Any = None
    extra: Any = None

    def trajectory(self) -> Trajectory | None:
        """It, or None when a step's source is none that the schema knows."""
        subagents = [inner.trajectory() for inner in self.subagent_trajectories]
        if None in subagents or any(step.source not in SOURCES for step in self.steps):
            return None
        return _trajectory(msgspec.structs.asdict(self), self.steps, [inner for inner in subagents if inner])


_decoder = decoder(_AtifDocument)


def read_trajectory(
    path: Path,
    before: Callable[[bytes], bytes] = lambda data: data,
    parse: Callable[[bytes], Trajectory] | None = None,
) -> Trajectory:
    """The trajectory at `path`; `before` sees the bytes of the file first. Raises UnreadableTrajectory."""
    data = read_plain(path, SIZE_LIMIT)
    if data is None:
        raise UnreadableTrajectory(f"{path.name} is missing, not a plain file, or larger than {SIZE_LIMIT >> 20} MB")
    return (parse or parse_trajectory)(before(data))


def parse_trajectory(data: bytes, first: int = 1) -> Trajectory:
    """The trajectory in `data`, whose steps are those from `first` on. Raises UnreadableTrajectory."""
    try:
        found = _decoder.decode(data).trajectory()
    except NOT_DECODED:
        found = None
    return found or _parse_leniently(data, first)


def _parse_leniently(data: bytes, first: int) -> Trajectory:
    try:
        document = decode(data)
    except NOT_DECODED:
        document = _decode_slowly(data)
    if not isinstance(document, dict):
        raise UnreadableTrajectory(f"holds a JSON {type(document).__name__}, not an object")
    if not isinstance(document.get("steps"), list):
        raise UnreadableTrajectory("has no list of steps")
    return _AtifReader().trajectory(document, first)


def _decode_slowly(data: bytes) -> Any:
    """Decode JSON as Python reads it: with NaN, Infinity and half surrogate pairs, which strict readers refuse."""
    try:
        return _clean(json.loads(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise UnreadableTrajectory(f"is not JSON: {error}") from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class _AtifReader:
    """Builds one document and collects what was odd about it."""

    problems: list[str] = field(default_factory=list)

    def odd(self, where: str, what: str) -> None:
        if len(self.problems) < _PROBLEM_LIMIT:
            self.problems.append(f"{where}: {what}")

    def trajectory(self, raw: Mapping[str, Any], first: int = 1) -> Trajectory:
        steps: list[TrajectoryStep] = []
        for position, step in enumerate(raw["steps"], start=first):
            if isinstance(step, dict):
                steps.append(self._step(step, position))
            else:
                self.odd(f"steps[{position - 1}]", f"is a {type(step).__name__}, not an object")
        subagents = [
            _AtifReader().trajectory(sub)
            for sub in _items(raw.get("subagent_trajectories"))
            if isinstance(sub, dict) and isinstance(sub.get("steps"), list)
        ]
        return _trajectory(raw, steps, subagents, self.problems)

    def _step(self, raw: Mapping[str, Any], position: int) -> TrajectoryStep:
        with suppress(msgspec.ValidationError):
            step = convert(raw, TrajectoryStep)
            if step.source in SOURCES:
                return step
        where = f"step {position}"
        step_id = raw.get("step_id")
        if not isinstance(step_id, int) or isinstance(step_id, bool):
            self.odd(where, "has no step_id; counted by position")
            step_id = position
        source = raw.get("source")
        if not isinstance(source, str) or source not in SOURCES:
            self.odd(where, f"source is {source!r}")
        return TrajectoryStep(
            id=step_id,
            source=source if isinstance(source, str) else "unknown",
            message=raw.get("message"),
            time=self._time(raw.get("timestamp"), where),
            model=_text(raw.get("model_name")),
            thoughts=raw.get("reasoning_content"),
            calls=tuple(self._calls(raw.get("tool_calls"), where)),
            observation=Observation(tuple(self._results(raw.get("observation"), where))),
            tokens=_tokens(_mapping(raw.get("metrics"))),
            copied=raw.get("is_copied_context") is True,
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

    def _calls(self, raw: Any, where: str) -> Iterator[TrajectoryCall]:
        for number, call in enumerate(_items(raw)):
            if not isinstance(call, dict):
                self.odd(where, f"tool call {number + 1} is a {type(call).__name__}")
                continue
            arguments = call.get("arguments")
            if not isinstance(arguments, dict):
                arguments = {} if arguments is None else {"input": arguments}
            yield TrajectoryCall(
                _text(call.get("tool_call_id")) or f"{where}/{number}",
                _text(call.get("function_name")) or "",
                arguments,
                _mapping(call.get("extra")),
            )

    def _results(self, raw: Any, where: str) -> Iterator[CallResult]:
        if isinstance(raw, str):  # some converters write the text alone
            raw = {"results": [{"content": raw}]}
        for result in _items(_mapping(raw).get("results")):
            if not isinstance(result, dict):
                self.odd(where, f"an observation is a {type(result).__name__}")
                continue
            yield CallResult(
                call_id=_text(result.get("source_call_id")),
                content=result.get("content"),
                extra=_mapping(result.get("extra")),
                references=result.get("subagent_trajectory_ref"),
            )


def _trajectory(
    raw: Mapping[str, Any],
    steps: Sequence[TrajectoryStep],
    subagents: Sequence[Trajectory],
    problems: Sequence[str] = (),
) -> Trajectory:
    return Trajectory(
        version=_text(raw.get("schema_version")),
        agent=_text(_mapping(raw.get("agent")).get("name")),
        steps=tuple(steps),
        subagents=tuple(subagents),
        continued_in=_text(raw.get("continued_trajectory_ref")),
        id=_text(raw.get("trajectory_id")),
        problems=tuple(problems),
        untold=_mapping(raw.get("extra")).get(UNTOLD_CALLS) is True,
    )


def says_failed(extra: Mapping[str, Any]) -> bool | None:
    """Return whether a call failed, by a flag or an exit code in what goes with it; None where neither is there."""
    if not extra:
        return None
    flag, code = _found(extra, _ERROR_FLAGS, bool), _found(extra, _EXIT_CODES, int)
    return flag if flag is not None else None if code is None else code != 0


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


def written(value: Any) -> str:
    """A value as text: a text as it is, anything else as JSON, None as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _words(raw: Any) -> str:
    """The text of a message or an observation."""
    if not isinstance(raw, list):
        return written(raw)
    texts = [part.get("text") if isinstance(part, dict) else part for part in raw]
    return "\n".join(text for text in texts if isinstance(text, str))


def _media(raw: Any) -> tuple[str, ...]:
    """The kinds of media in a message or an observation."""
    parts = [part for part in _items(raw) if isinstance(part, dict) and not isinstance(part.get("text"), str)]
    return tuple(part["type"] for part in parts if part.get("type") in ("image", "audio"))


def _tokens(raw: Mapping[str, Any]) -> StepTokens:
    def count(name: str) -> int | None:
        value = raw.get(name)
        return value if type(value) is int and value >= 0 else None

    cost = raw.get("cost_usd")
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < float("inf")
    return StepTokens(
        count("prompt_tokens"), count("completion_tokens"), count("cached_tokens"), float(cost) if known else None
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
