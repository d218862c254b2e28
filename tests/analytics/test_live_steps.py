"""The steps of an agent that runs, from the log of its client, and what they have used."""

import json
from pathlib import Path
from typing import Any

import pytest

from terminalbench.analytics.atif import UnreadableTrajectory
from terminalbench.analytics.long_trajectory import log_trajectory, running_trajectory, spent_so_far
from terminalbench.harbor.read.usage import price_table
from terminalbench.secrets.values import Secrets

MODEL = "claude-sonnet-4-5"
USED = {"input_tokens": 1000, "cache_read_input_tokens": 300, "output_tokens": 1}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "system", "subtype": "init", "model": MODEL},
    {"type": "assistant", "message": {"id": "1", "model": MODEL, "usage": USED, "content": [
        {"type": "text", "text": "I look."}]}},
    {"type": "assistant", "message": {"id": "1", "model": MODEL, "usage": USED, "content": [
        {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "ls"}}]}},
    {"type": "user", "message": {"content": [
        {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}]}},
    {"type": "assistant", "message": {"id": "2", "content": [{"type": "thinking", "thinking": "what next?"}]}},
    {"type": "result", "subtype": "success"},
)  # fmt: skip
CODEX = (
    {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "ls"}},
    {
        "type": "item.completed",
        "item": {"id": "i1", "type": "command_execution", "command": "ls", "aggregated_output": "a"},
    },
    {"type": "turn.completed", "usage": {"input_tokens": 30, "cached_input_tokens": 10, "output_tokens": 4}},
)


def lines(events: tuple[dict[str, Any], ...]) -> bytes:
    return b"\n".join(json.dumps(event).encode() for event in events)


def test_a_step_is_a_message_with_its_calls_and_what_came_back() -> None:
    data = b"not an event\n" + lines(EVENTS) + b'\n{"type": "assistant", "mess'
    first, second = log_trajectory("claude-code.txt", data).steps
    assert (first.id, first.text, first.model) == (1, "I look.", MODEL)
    assert [(call.name, call.arguments) for call in first.calls] == [("Bash", {"command": "ls"})]
    assert [(result.text, result.failed) for result in first.results] == [("no", True)]
    assert (first.tokens.prompt, first.tokens.cached, first.tokens.completion) == (1300, 300, None)
    assert (second.reasoning, second.calls) == ("what next?", ())


def test_it_grows_with_the_file_and_a_call_without_an_answer_is_shown() -> None:
    data = lines(EVENTS)
    counts = []
    for size in range(60, len(data) + 1):
        try:
            counts.append(len(log_trajectory("claude-code.txt", data[:size]).steps))
        except UnreadableTrajectory:
            counts.append(0)
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}
    (step,) = log_trajectory("codex.txt", lines(CODEX[:1])).steps
    assert (step.calls[0].arguments, step.results) == ({"command": "ls"}, ())
    (step,) = log_trajectory("codex.txt", lines(CODEX)).steps
    assert [result.text for result in step.results] == ["a"]
    assert (step.tokens.prompt, step.tokens.cached, step.tokens.completion) == (30, 10, 4)
    assert [step.text for step in log_trajectory("stdout.txt", b"I think\nI do\n").steps] == ["I think\nI do\n"]
    with pytest.raises(UnreadableTrajectory, match="no steps yet"):
        log_trajectory("stdout.txt", b"")


def test_what_is_known_of_a_cost_is_said_and_what_is_not_is_not_zero(tmp_path: Path) -> None:
    """While Claude Code runs, nothing tells how much its model wrote: the cost is at least that of what was sent."""
    price = price_table().find(MODEL)
    assert price is not None
    sent = (1000 * price.input + 300 * (price.cache_read or 0)) / 1e6
    found = spent_so_far(log_trajectory("claude-code.txt", lines(EVENTS)), tmp_path)
    assert (found.steps, found.tokens, found.at_least) == (2, 1300, True)
    assert found.cost_usd == pytest.approx(sent)
    assert found.words() == "2 steps, 1,300 tokens, at least $0.0031"
    (tmp_path / "config.json").write_text(json.dumps({"agent": {"name": "codex", "model_name": "gpt-5"}}))
    whole = spent_so_far(log_trajectory("codex.txt", lines(CODEX)), tmp_path)
    assert (whole.tokens, whole.at_least) == (34, False)
    assert whole.cost_usd
    told = spent_so_far(log_trajectory("stdout.txt", b"I think\n"), tmp_path)
    assert (told.words(), told.words(no_model=True)) == ("1 step, cost unknown", "1 step, no model")


def test_the_trajectory_comes_before_the_logs_and_secrets_are_hidden(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    assert running_trajectory(tmp_path, Secrets()) is None
    (agent / "stdout.txt").write_text("the key is hidden-value-1234\n")
    found = running_trajectory(tmp_path, Secrets.of(["hidden-value-1234"]))
    assert found is not None
    assert found[0].name == "stdout.txt"
    assert "hidden-value" not in found[1].steps[0].text
    (agent / "trajectory.json").write_text(json.dumps({"steps": [{"step_id": 1, "source": "agent", "message": "x"}]}))
    found = running_trajectory(tmp_path, Secrets())
    assert found is not None
    assert found[0].name == "trajectory.json"
