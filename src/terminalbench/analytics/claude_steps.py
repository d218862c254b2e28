"""The steps of a Claude Code session that runs, from the stream it writes as it goes; its trajectory comes last."""

from typing import Any

import msgspec

from terminalbench.analytics.atif import (
    CallResult,
    Observation,
    Trajectory,
    TrajectoryCall,
    TrajectoryStep,
    UnreadableTrajectory,
)
from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.harbor.read.claude_stream import SOURCE


class _ContentBlock(msgspec.Struct):
    type: str | None = None
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None


class _ClaudeMessage(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: list[_ContentBlock] | str = []


class _ClaudeEvent(msgspec.Struct):
    type: str | None = None
    message: _ClaudeMessage | None = None


_event = decoder(_ClaudeEvent)


def stream_trajectory(data: bytes) -> Trajectory:
    """What the stream tells of so far, a step for each message of the model. Raises UnreadableTrajectory without any.

    Lines that are no such event are passed over, and the last one while it is being written.
    """
    messages: dict[str, list[_ContentBlock]] = {}
    models: dict[str, str | None] = {}
    results: dict[str, CallResult] = {}
    for place, line in enumerate(data.splitlines()):
        try:
            event = _event.decode(line)
        except NOT_DECODED:
            continue
        said = event.message
        if said is None or isinstance(said.content, str):
            continue
        if event.type == "assistant":
            key = said.id or f"line {place}"
            messages.setdefault(key, []).extend(said.content)
            models[key] = said.model
        elif event.type == "user":
            for block in said.content:
                extra = {"is_error": block.is_error} if block.is_error is not None else {}
                results[block.tool_use_id] = CallResult(block.tool_use_id, block.content, extra)
    if not messages:
        raise UnreadableTrajectory("the stream tells of no step yet")
    steps = [
        _step(number, models[key], blocks, results) for number, (key, blocks) in enumerate(messages.items(), start=1)
    ]
    return Trajectory(None, SOURCE, tuple(steps), (), None, None)


def _step(
    number: int, model: str | None, blocks: list[_ContentBlock], results: dict[str, CallResult]
) -> TrajectoryStep:
    calls = tuple(TrajectoryCall(block.id, block.name, block.input) for block in blocks if block.type == "tool_use")
    return TrajectoryStep(
        id=number,
        source="agent",
        message="\n\n".join(block.text for block in blocks if block.text) or None,
        model=model,
        thoughts="\n\n".join(block.thinking for block in blocks if block.thinking) or None,
        calls=calls,
        observation=Observation(tuple(results[call.id] for call in calls if call.id in results)),
    )
