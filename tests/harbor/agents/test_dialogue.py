"""The conversation of an agent with its model: the transcript, the window, the ends. No server, no environment."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.harbor.agents.dialogue import (
    GIVEN_UP,
    NUDGES,
    Dialogue,
    DialogueEnding,
    DialogueLimits,
    written_calls,
)
from terminalbench.harbor.agents.ollama import TOOLS
from terminalbench.llm.ollama import ChatReply, ToolCall
from terminalbench.records.trial import Usage

NAMES = [tool.name for tool in TOOLS]


def _dialogue(window: int = 4000, *, native: bool = True, **limits: Any) -> Dialogue:
    made = DialogueLimits(window, limits.pop("turns", 50), **limits)
    return Dialogue("Be useful.", "Do it.", TOOLS, made, lambda text: len(text) // 4, native)


def _run(command: str, call_id: str | None = None) -> ChatReply:
    return ChatReply("", (ToolCall("bash", {"command": command}, call_id),))


def test_an_answer_is_in_the_transcript_once_with_its_calls_and_their_results() -> None:
    dialogue = _dialogue()
    both = (ToolCall("bash", {"command": "ls"}, "a"), ToolCall("bash", {"command": "pwd"}, "b"))
    for call, output in zip(dialogue.heard(ChatReply("I look.", both)), ("one", "two"), strict=True):
        dialogue.answered(call, output)
    sent = dialogue.request() or []
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[2]["content"] == "I look."
    assert [call["id"] for call in sent[2]["tool_calls"]] == ["a", "b"]
    assert [(m["tool_name"], m["tool_call_id"], m["content"]) for m in sent[3:]] == [
        ("bash", "a", "one"),
        ("bash", "b", "two"),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("bash", '{"command": ', "its arguments cannot be read"),
        ("bash", ["ls"], "the arguments must be an object"),
        ("bash", None, "the arguments must be an object"),
        ("bash", {}, 'bash needs "command"'),
        ("bash", {"command": 3}, '"command" must be a string'),
        ("bash", {"command": "ls", "cwd": "/"}, 'has no parameter "cwd"; it has command'),
        ("shell", {"command": "ls"}, 'there is no tool "shell"; there are bash, write_file, finish'),
    ],
)
def test_a_call_that_cannot_be_run_is_answered_with_what_is_wrong(name: str, arguments: Any, said: str) -> None:
    (call,) = _dialogue().heard(ChatReply("", (ToolCall(name, arguments),)))
    assert said in (call.problem or "")


def test_arguments_that_come_as_text_are_read() -> None:
    (call,) = _dialogue().heard(ChatReply("", (ToolCall("bash", '{"command": "ls"}'),)))
    assert (call.problem, call.arguments) == (None, {"command": "ls"})


def test_a_model_that_does_not_act_is_told_so_and_then_taken_to_have_stopped() -> None:
    dialogue = _dialogue()
    for number in range(1, NUDGES + 1):
        assert dialogue.heard(ChatReply("Thinking about it.")) == []
        asked = dialogue.request()
        assert (asked is None) == (number == NUDGES)
    assert dialogue.ending is DialogueEnding.STALLED
    acting = _dialogue()
    for _ in range(10):
        acting.heard(ChatReply("Thinking about it."))
        (call,) = acting.heard(_run("ls"))
        acting.answered(call, str(acting.turns))
    assert acting.ending is None


def test_what_was_cut_off_is_said_to_be() -> None:
    dialogue = _dialogue()
    dialogue.heard(ChatReply("word " * 50, cut_off=True))
    assert "cut off" in (dialogue.request() or [])[-1]["content"]


def test_the_same_call_with_the_same_result_is_told_and_then_ended() -> None:
    dialogue = _dialogue()
    outputs = []
    for _ in range(GIVEN_UP):
        assert dialogue.request() is not None
        (call,) = dialogue.heard(_run("make"))
        outputs.append(dialogue.answered(call, "error"))
    assert [("exactly this call" in output) for output in outputs] == [False, False, True, False, False]
    assert (dialogue.request(), dialogue.ending) == (None, DialogueEnding.REPEATING)
    polling = _dialogue()
    for number in range(12):
        (call,) = polling.heard(_run("date"))
        polling.answered(call, str(number))
    assert polling.ending is None, "another result each time is no circle"


def test_calls_before_the_end_are_run_and_count() -> None:
    dialogue = _dialogue()
    calls = dialogue.heard(ChatReply("", (ToolCall("bash", {"command": "ls"}), ToolCall("finish", {"summary": "ok"}))))
    assert [call.name for call in calls] == ["bash", "finish"]
    dialogue.answered(calls[0], "x")
    assert dialogue.ending is None
    dialogue.answered(calls[1], "")
    assert (dialogue.ending, dialogue.request()) == (DialogueEnding.FINISHED, None)


@pytest.mark.parametrize(
    ("limits", "ending"),
    [
        ({"turns": 2}, DialogueEnding.TURNS),
        ({"tokens": 150}, DialogueEnding.TOKENS),
        ({"seconds": 5.0}, DialogueEnding.TIME),
    ],
)
def test_a_conversation_ends_at_its_limits(limits: dict[str, Any], ending: DialogueEnding) -> None:
    dialogue = _dialogue(**limits)
    for number in range(2):
        assert dialogue.request(elapsed_sec=1.0) is not None
        reply = _run(f"echo {number}")
        (call,) = dialogue.heard(ChatReply("", reply.tool_calls, usage=Usage(input_tokens=70, output_tokens=10)))
        dialogue.answered(call, "x")
    assert (dialogue.request(elapsed_sec=6.0), dialogue.ending) == (None, ending)


@given(st.lists(st.integers(0, 6000), min_size=1, max_size=25), st.booleans())
def test_what_is_sent_fits_the_window_and_no_result_is_without_its_call(sizes: list[int], native: bool) -> None:
    dialogue = _dialogue(2500, native=native)
    for number, size in enumerate(sizes):
        sent = dialogue.request()
        if sent is None:
            break
        whole = sum(len(json.dumps(m)) // 4 for m in sent)
        assert whole <= 2500
        assert [m["role"] for m in sent[:2]] == ["system", "user"]
        waiting: list[str] = []
        for message in sent:
            if message["role"] == "assistant":
                assert waiting == []
                waiting = [call["id"] for call in message.get("tool_calls", [])]
            elif message["role"] == "tool":
                waiting.remove(message["tool_call_id"])
        assert waiting == []
        text = (
            "" if native else f'<tool_call>{{"name": "bash", "arguments": {{"command": "echo {number}"}}}}</tool_call>'
        )
        reply = _run(f"echo {number}", f"id{number}") if native else ChatReply(text)
        (call,) = dialogue.heard(reply)
        dialogue.answered(call, f"{number}" + "x" * size)
    assert dialogue.ending in (None, DialogueEnding.CONTEXT)


def test_left_out_steps_are_said_to_be() -> None:
    dialogue = _dialogue(1200)
    for number in range(40):
        assert dialogue.request() is not None
        (call,) = dialogue.heard(_run(f"echo {number}"))
        dialogue.answered(call, "x" * 600 + str(number))
    sent = dialogue.request() or []
    assert dialogue.left_out > 20
    assert sent[2]["content"] == f"[{dialogue.left_out} earlier steps are left out here]"


def test_the_window_is_that_of_the_models_own_tokens() -> None:
    shown = []
    for served in (100, 900):
        dialogue = _dialogue(2000)
        dialogue.request()
        used = Usage(input_tokens=served, output_tokens=5)
        (call,) = dialogue.heard(ChatReply("", _run("ls").tool_calls, usage=used))
        dialogue.answered(call, "x" * 4000)
        shown.append(len((dialogue.request() or [])[-1]["content"]))
    assert shown[0] == 4000
    assert shown[1] < 4000, "by our own count it would have fitted"


def test_a_model_without_tools_is_told_of_them_in_words() -> None:
    dialogue = _dialogue()
    dialogue.without_tools()
    assert dialogue.schemas() == []
    sent = dialogue.request() or []
    assert "<tool_call>" in sent[0]["content"]
    (call,) = dialogue.heard(ChatReply('<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'))
    dialogue.answered(call, "one")
    assert (dialogue.request() or [])[-1] == {"role": "user", "content": "Result of bash:\none"}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>',
        'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}',
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}',
        '```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```',
        'First:\n```\n{"tool": "bash", "parameters": {"command": "ls"}}\n```\nThen more.',
        '{"name": "bash", "arguments": {"command": "ls"}}',
        '{"tool_call": {"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}}',
        '{"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}',
        '{"name": "bash", "command": "ls"}',
        '<think>{"name": "bash", "arguments": {"command": "rm"}}</think>{"name": "bash", "arguments": {"command": "ls"}}',
    ],
)
def test_calls_are_read_as_weak_models_write_them(text: str) -> None:
    (call,) = written_calls(text, NAMES)
    assert (call.name, call.arguments, call.problem) == ("bash", {"command": "ls"}, None)


def test_escapes_that_json_does_not_know_stay_what_they_are() -> None:
    (call,) = written_calls(r'<tool_call>{"name": "bash", "arguments": {"command": "grep \d+ \"a b\""}}', NAMES)
    assert call.arguments == {"command": r'grep \d+ "a b"'}


def test_a_line_break_in_a_text_is_kept() -> None:
    (call,) = written_calls('{"name": "bash", "arguments": {"command": "echo a\necho b"}}', NAMES)
    assert call.arguments == {"command": "echo a\necho b"}


@pytest.mark.parametrize(
    "text", ["I am done.", '```json\n{"a": 1}\n```', '{"name": "Bob", "arguments": {}}', "", "{", "```\nls\n```"]
)
def test_a_text_that_only_speaks_calls_nothing(text: str) -> None:
    assert written_calls(text, NAMES) == []


@pytest.mark.parametrize(
    "text", ["<tool_call>ls</tool_call>", '<tool_call>{"name": "bash", "arguments": {"command": "ls', "<tool_call>{}"]
)
def test_a_command_is_never_guessed_from_a_part_of_it(text: str) -> None:
    (call,) = written_calls(text, NAMES)
    assert call.problem is not None
