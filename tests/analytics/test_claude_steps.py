"""The stream of a Claude Code session that runs, as steps."""

import json
from typing import Any

import pytest

from terminalbench.analytics.atif import UnreadableTrajectory
from terminalbench.analytics.claude_steps import stream_trajectory

EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "system", "subtype": "init", "model": "m"},
    {"type": "assistant", "message": {"id": "1", "model": "m", "content": [{"type": "text", "text": "I look."}]}},
    {
        "type": "assistant",
        "message": {
            "id": "1",
            "model": "m",
            "content": [{"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}],
        },
    },
    {
        "type": "user",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]},
    },
    {"type": "assistant", "message": {"id": "2", "content": [{"type": "thinking", "thinking": "what next?"}]}},
    {"type": "result", "subtype": "success"},
)


def test_a_step_is_a_message_with_its_calls_and_what_came_back() -> None:
    lines = [json.dumps(event).encode() for event in EVENTS]
    first, second = stream_trajectory(b"\n".join([b"not an event", *lines, b'{"type": "assistant", "mess'])).steps
    assert (first.id, first.text, first.model) == (1, "I look.", "m")
    assert [(call.name, call.arguments) for call in first.calls] == [("Bash", {"command": "ls"})]
    assert [(result.text, result.failed) for result in first.results] == [("no", True)]
    assert (second.reasoning, second.calls) == ("what next?", ())


def test_it_grows_with_the_file_and_a_call_without_an_answer_is_shown() -> None:
    data = b"\n".join(json.dumps(event).encode() for event in EVENTS)
    with pytest.raises(UnreadableTrajectory, match="no step yet"):
        stream_trajectory(data[:60])
    counts = []
    for size in range(60, len(data) + 1):
        try:
            counts.append(len(stream_trajectory(data[:size]).steps))
        except UnreadableTrajectory:
            counts.append(0)
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}
    (step,) = stream_trajectory(b"\n".join(json.dumps(event).encode() for event in EVENTS[:3])).steps
    assert (step.calls[0].name, step.results) == ("Bash", ())
