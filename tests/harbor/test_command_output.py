"""What a command printed, as steps and tokens; whatever it is, it is kept, and unknown stays unknown."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.harbor.agents.command_output import CommandUsage, read_output, read_usage
from terminalbench.harbor.preparation import profiles_files

CLAUDE = [
    {"type": "system", "subtype": "init"},
    {"type": "assistant", "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 2}, "content": [
        {"type": "text", "text": "look"}, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a b"}]}},
    {"type": "assistant", "message": {"id": "m2", "content": [{"type": "text", "text": "done"}]}},
    {"type": "result", "total_cost_usd": 0.5, "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 1, "output_tokens": 20}},
]  # fmt: skip
CODEX = [
    {"type": "thread.started"},
    {
        "type": "item.completed",
        "item": {"id": "i1", "type": "command_execution", "command": "ls", "aggregated_output": "a b"},
    },
    {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "done"}},
    {"type": "turn.completed", "usage": {"input_tokens": 30, "cached_input_tokens": 10, "output_tokens": 4}},
]
CHAT = [
    {"role": "user", "content": "do it"},
    {"role": "assistant", "content": "look", "tool_calls": [
        {"id": "c1", "function": {"name": "sh", "arguments": "{\"command\": \"ls\"}"}}],
     "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}},
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "done", "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
]  # fmt: skip


def lines(records: list) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.mark.parametrize(
    ("records", "kind", "used"),
    [
        (CLAUDE, "claude-stream-json", CommandUsage(111, 20, 100, 0.5)),
        (CODEX, "codex-json", CommandUsage(30, 4, 10)),
        (CHAT, "openai-messages", CommandUsage(16, 4, 2)),
    ],
)
def test_known_streams_are_found_out_and_read(records: list, kind: str, used: CommandUsage) -> None:
    for wanted in ("auto", kind):
        found = read_output(b"a banner\n" + lines(records), wanted)
        assert found.format == kind
        assert found.usage == used
        assert found.steps[-1]["message"] == "done"
        (acting,) = [step for step in found.steps if step.get("tool_calls")]
        assert acting["tool_calls"][0]["arguments"] == {"command": "ls"}
        assert acting["observation"]["results"][0]["content"] == "a b"


def test_text_is_one_step_and_lines_are_many() -> None:
    assert [step["message"] for step in read_output(b"one\ntwo\n").steps] == ["one\ntwo\n"]
    assert [step["message"] for step in read_output(b"one\n\ntwo\n", "lines").steps] == ["one", "two"]
    assert read_output(b"").steps == []
    assert not read_output(b"one\n").usage, "unknown, not zero"


def test_a_whole_trajectory_is_taken_as_it_is() -> None:
    document = {"steps": [{"step_id": 1}], "final_metrics": {"total_prompt_tokens": 3, "total_cost_usd": 0.1}}
    found = read_output(b"log\n" + json.dumps(document).encode())
    assert (found.format, found.document) == ("atif", document)
    assert found.usage == CommandUsage(3, None, None, 0.1)


def test_tokens_are_where_the_table_says() -> None:
    paths = {"input": "runs.-1.tokens.in", "output": "out", "cost": "cost"}
    data = b'thinking\n{"out": 1}\n{"runs": [{}, {"tokens": {"in": 12}}], "out": 3, "cost": 0.2}\n'
    assert read_output(data, "text", paths).usage == CommandUsage(12, 3, None, 0.2)
    told = b'{"input_tokens": 4, "output_tokens": 0, "cost_usd": -1}'
    assert read_usage(told) == CommandUsage(4, 0)
    assert read_usage(b'{"a": {"n": 4}}', {"input": "a.n"}) == CommandUsage(4)
    assert read_usage(b"{}") is None
    assert read_usage(None) is None


@pytest.mark.parametrize("value", ["true", '"5"', "-3", "1e400", "NaN", "[]", "null", "1e99"])
def test_what_is_no_number_of_tokens_is_unknown(value: str) -> None:
    assert read_usage(f'{{"input_tokens": {value}}}'.encode()) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "item", "message", "content", "usage", "tool_calls", "steps"]), inner
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(JSON, max_size=6), st.sampled_from(["auto", "claude-stream-json", "codex-json", "openai-messages", "atif"])
)
def test_nothing_that_is_printed_breaks_it(records: list, wanted: str) -> None:
    found = read_output(lines(records), wanted, {"input": "usage.a", "cost": "b"})
    assert all(step["source"] in ("agent", "user", "system") for step in found.steps)


def test_which_files_of_a_sandbox_are_the_profiles(tmp_path: Path) -> None:
    """By their contents, so that those which the agent has changed are its work."""
    (tmp_path / "kit" / "deep").mkdir(parents=True)
    for name in ("agent.sh", "kit/deep/a.py", "kit/a.pyc"):
        (tmp_path / name).write_text(name)
    targets = {"agent.sh": "/opt/agent/agent.sh", "kit": "/srv/kit", "gone.sh": "/opt/agent/gone.sh"}
    files = {str(tmp_path / name): {"target": target, "digest": "x"} for name, target in targets.items()}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"agent": {"kwargs": {"command": {"run": ["x"], "files": files}}}}))
    assert profiles_files(config) == {
        place: hashlib.sha256(name.encode()).hexdigest()
        for place, name in {"/opt/agent/agent.sh": "agent.sh", "/srv/kit/deep/a.py": "kit/deep/a.py"}.items()
    }
    config.write_text(json.dumps({"agent": {"name": "codex"}}))
    assert profiles_files(config) == profiles_files(tmp_path / "none.json") == {}
