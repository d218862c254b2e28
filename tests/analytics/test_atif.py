"""Trajectories of every version, and of none, are read; what is odd is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.analytics.atif import UnreadableTrajectory, parse_trajectory

VERSIONS = [f"ATIF-v1.{minor}" for minor in range(9)]


def document(*steps: Any, **fields: Any) -> bytes:
    return json.dumps(
        {"schema_version": "ATIF-v1.8", "agent": {"name": "a", "version": "1"}, "steps": list(steps), **fields}
    ).encode()


def agent_step(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"step_id": number, "source": "agent", "message": "m", **fields}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(version: str) -> None:
    call = {"tool_call_id": "c1", "function_name": "Bash", "arguments": {"command": "ls"}}
    results = {"results": [{"source_call_id": "c1", "content": "out", "extra": {"exit_code": 2}}]}
    step = agent_step(tool_calls=[call], observation=results, timestamp="2026-01-02T03:04:05Z")
    read = parse_trajectory(document(step, schema_version=version))
    assert (read.version, read.agent, read.problems) == (version, "a", ())
    only = read.steps[0]
    result = only.result_of(only.calls[0])
    assert result is not None
    assert (result.text, result.exit_code, result.failed) == ("out", 2, True)
    assert only.time is not None
    assert only.time.isoformat() == "2026-01-02T03:04:05+00:00"


def test_text_of_multimodal_content_and_its_media() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "text", "text": "b"}]
    step = parse_trajectory(document(agent_step(message=parts, observation={"results": [{"content": parts}]}))).steps[0]
    assert step.text == "a\nb"
    assert (step.results[0].text, step.results[0].media) == ("a\nb", ("image",))


@pytest.mark.parametrize(
    ("extra", "failed"),
    [
        ({}, None),
        ({"tool_result_is_error": True}, True),
        ({"tool_result_is_error": False}, False),
        ({"tool_result_metadata": {"is_error": True}}, True),
        ({"tool_result_metadata": {"tool_use_result": {"exitCode": 0}}}, False),
        ({"exit_code": 1}, True),
        ({"note": "error error error"}, None),
    ],
)
def test_an_error_is_what_the_protocol_calls_one(extra: dict[str, Any], failed: bool | None) -> None:
    step = agent_step(observation={"results": [{"content": "error: no such file", "extra": extra}]})
    assert parse_trajectory(document(step)).steps[0].results[0].failed is failed


def test_copied_steps_are_marked_and_subagents_read() -> None:
    sub = {"trajectory_id": "s1", "agent": {"name": "sub"}, "steps": [agent_step()]}
    read = parse_trajectory(document(agent_step(is_copied_context=True), agent_step(2), subagent_trajectories=[sub]))
    assert [step.id for step in read.own_steps()] == [2]
    assert [(s.agent, s.id, len(s.steps)) for s in read.subagents] == [("sub", "s1", 1)]


def test_null_and_wrong_fields_are_named_and_the_rest_is_read() -> None:
    nulls = dict.fromkeys(("message", "tool_calls", "observation", "metrics", "timestamp", "extra", "model_name"))
    odd = {"step_id": "x", "source": 3, "timestamp": "yesterday", "tool_calls": [None, {"arguments": "ls"}]}
    read = parse_trajectory(document({**agent_step(), **nulls}, odd, "what", agent_step(4)))
    assert [step.id for step in read.steps] == [1, 2, 4]
    assert read.steps[1].calls[0].arguments == {"input": "ls"}
    assert len(read.problems) == 5


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"steps": 3}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_trajectory_says_so(data: bytes) -> None:
    with pytest.raises(UnreadableTrajectory):
        parse_trajectory(data)


def test_numbers_and_characters_that_are_no_json() -> None:
    data = b'{"steps": [{"step_id": 1, "source": "agent", "message": "a\\ud800b", "metrics": {"cost_usd": NaN}}]}'
    step = parse_trajectory(data).steps[0]
    assert (step.text, step.tokens.cost_usd) == ("a?b", None)


def test_broken_utf8_is_read_with_marks() -> None:
    data = document(agent_step(message="caf#")).replace(b"#", b"\xe9")
    assert parse_trajectory(data).steps[0].text == "caf\N{REPLACEMENT CHARACTER}"


FIELDS = ["content", "extra", "metrics", "arguments", "steps", "text", "type"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["step_id", "source", "message", "tool_calls", "observation", "results", *FIELDS]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(json_values, max_size=5), json_values)
def test_any_json_is_read_or_refused(steps: list[Any], other: Any) -> None:
    parse_trajectory(document(*steps, agent=other, final_metrics=other, subagent_trajectories=[other]))


small = st.integers(0, 5)
odd_values = json_values | st.sampled_from(
    [1.0, 2.5, -1, 2**70, "", "2026-01-02 03:04:05Z", "2026-01-02T03:04:05.1234567Z"]
)
MOMENT = "2026-01-02T03:04:05"
times = st.sampled_from([f"{MOMENT}Z", f"{MOMENT}.25+02:00", f"{MOMENT}.1234567Z", MOMENT, "yesterday"])
contents = st.text(max_size=4) | st.just([{"type": "text", "text": "a"}, {"type": "image"}])
calls = st.fixed_dictionaries(
    {"tool_call_id": st.sampled_from(["c1", "c2"]), "function_name": st.just("Bash")},
    optional={"arguments": st.just({"command": "ls"}), "extra": st.just({"is_error": True})},
)
results = st.fixed_dictionaries(
    {},
    optional={"source_call_id": st.just("c1"), "content": contents, "extra": st.just({"exit_code": 1})},
)
metrics = st.fixed_dictionaries(
    {},
    optional={"prompt_tokens": small, "cached_tokens": small, "completion_tokens": small, "cost_usd": st.floats(0, 1)},
)
valid_steps = st.fixed_dictionaries(
    {"step_id": small, "source": st.sampled_from(["system", "user", "agent"])},
    optional={
        "message": contents,
        "timestamp": times,
        "model_name": st.just("m"),
        "reasoning_content": contents,
        "tool_calls": st.lists(calls, max_size=2),
        "observation": st.fixed_dictionaries({"results": st.lists(results, max_size=2)}),
        "metrics": metrics,
        "is_copied_context": st.booleans(),
        "extra": st.just({"is_sidechain": True}),
    },
)


def damaged(value: Any, data: st.DataObject) -> Any:
    """The same with one value in it replaced by another, at a place of any depth."""
    if not isinstance(value, dict | list) or not value or not data.draw(st.integers(0, 3)):
        return data.draw(odd_values)
    place = data.draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    copy: Any = value.copy()
    copy[place] = damaged(value[place], data)
    return copy


@given(st.lists(valid_steps, min_size=1, max_size=3), st.lists(valid_steps, max_size=1), st.booleans(), st.data())
def test_the_fast_and_the_lenient_reader_read_the_same(
    steps: list[Any], inner: list[Any], damage: bool, data: st.DataObject
) -> None:
    if damage:
        steps = [*steps[:-1], damaged(steps[-1], data)]
    subagents: list[Any] = [{"trajectory_id": "s", "steps": inner}]
    fast = parse_trajectory(document(*steps, subagent_trajectories=subagents))
    # What is no document there is left out, and makes the fast reader give up the whole file.
    lenient = parse_trajectory(document(*steps, subagent_trajectories=[*subagents, None]))
    assert fast == lenient
