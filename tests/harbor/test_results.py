"""Reading trial folders: complete, unfinished, torn or hostile, and never an exception."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results_kit import at, claude, error, phase, result, rewarded, write_trial

from support.workflows import Script, passes
from terminalbench import registry
from terminalbench.errors import InvalidFile
from terminalbench.experiments.agents import agent_info
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.result_file import from_result
from terminalbench.harbor.read.results import live_ending, read_job, read_trial
from terminalbench.records.trial import AgentStatus, Outcome, Phases, ReadState, Trial


def model_trial(**changes: Any) -> dict[str, Any]:
    """A trial of an agent that uses a model."""
    document = rewarded(0, **changes)
    document["config"]["agent"] = {"name": "claude-code", "model_name": "openai/gpt-x", "kwargs": {}, "mcp_servers": []}
    document["agent_info"] = {"name": "claude-code", "version": "unknown"}
    return document


def read(folder: Path) -> Trial:
    reading = read_trial(folder, profile="p")
    assert reading.state is ReadState.FINISHED
    assert reading.trial is not None
    return reading.trial


def test_everything_of_a_trial(tmp_path: Path) -> None:
    folder = write_trial(tmp_path / "2026__claude", result(), {"trajectory.json": '{"steps": []}'})
    (folder / "lock.json").write_text('{"task": {"digest": "sha256:abc"}}')
    (folder / "planned.json").write_text('{"attempt": 3}')
    trial = read(folder)
    assert (trial.id, trial.name, trial.job) == (result()["id"], "answer__8ggLEby", "2026__claude")
    assert (trial.task, trial.task_name, trial.dataset) == ("answer", "tests/answer", "starter")
    assert (trial.task_digest, trial.task_checksum) == ("sha256:abc", "869faf7a")
    assert (trial.profile, trial.agent, trial.agent_version) == ("p", "scripted", "1.0.0")
    assert (trial.started_at, trial.finished_at) == (at(0), at(30))
    assert trial.phases == Phases(environment_sec=2, agent_setup_sec=2, agent_sec=16, verifier_sec=7.5)
    assert trial.result_path == "answer__8ggLEby/result.json"
    assert trial.trajectory_paths == ["answer__8ggLEby/agent/trajectory.json"]
    assert not trial.simulated


def test_package_task_keeps_its_full_name(tmp_path: Path) -> None:
    folder = write_trial(tmp_path, result(task_id={"org": "acme", "name": "tower", "ref": "sha256:1"}))
    assert read(folder).task == "acme/tower"


@pytest.mark.parametrize(
    "changes",
    [
        {"agent_info": {"name": "simulated", "version": "1"}},
        {"agent_result": {"metadata": {"simulated": True}}},
    ],
)
def test_simulated_trials_say_so_for_ever(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert read(write_trial(tmp_path, result(**changes))).simulated


def test_multi_step_trial(tmp_path: Path) -> None:
    steps = [
        {
            "step_name": name,
            "agent_result": {"n_input_tokens": 10, "n_cache_tokens": 0, "n_output_tokens": 5},
            "verifier_result": {"rewards": {"reward": 1}},
            "agent_execution": phase(4, 10),
            "verifier": phase(10, 12),
        }
        for name in ("one", "two")
    ]
    document = result(agent_result=None, agent_execution=None, verifier=None, step_results=steps)
    folder = write_trial(tmp_path, document)
    for name in ("one", "two"):
        (folder / "steps" / name / "agent").mkdir(parents=True)
        (folder / "steps" / name / "agent/trajectory.json").write_text(
            '{"steps": [{"tool_calls": [{"function_name": "sh"}]}]}'
        )
    trial = read(folder)
    assert (trial.outcome, trial.usage.output_tokens, trial.tool_calls) == (Outcome.PASSED, 10, 2)
    assert trial.phases.agent_sec == 12
    assert trial.trajectory_paths == [f"{folder.name}/steps/{name}/agent/trajectory.json" for name in ("one", "two")]


SOME_TOKENS = {"n_input_tokens": 9, "n_output_tokens": 9}


@pytest.mark.parametrize(
    ("changes", "agent", "expected"),
    [
        ({}, {}, ["no_tokens"]),
        ({}, {"trajectory.json": '{"steps": []}'}, ["no_tool_calls", "no_tokens"]),
        ({"agent_result": SOME_TOKENS}, {}, []),
        ({"agent_result": SOME_TOKENS, "agent_execution": phase(4, 4.5)}, {}, []),  # quick, and it did something
        ({"agent_execution": phase(4, 4.5)}, {}, ["no_tokens", "implausibly_short"]),
        ({}, {"claude-code.txt": claude("denied")}, ["permission_denied"]),
        ({"exception_info": error("AgentTimeoutError", when=20), "agent_execution": phase(4, 4.2)}, {}, ["no_tokens"]),
    ],
)  # fmt: skip
def test_suspicious_zero(tmp_path: Path, changes: dict[str, Any], agent: dict[str, str], expected: list[str]) -> None:
    trial = read(write_trial(tmp_path, model_trial(**changes), agent))
    assert (trial.outcome, trial.suspect) == (Outcome.FAILED, expected)


@pytest.mark.parametrize(
    ("result", "story", "expected"),
    [
        ({}, {"steps": [{"source": "agent"}], "extra": {"tool_calls_unknown": True}}, []),
        ({"n_input_tokens": 9, "n_output_tokens": 0}, {"steps": [{"source": "agent"}]}, ["no_tool_calls", "no_tokens"]),
    ],
)
def test_what_an_agent_does_not_tell_is_unknown_and_no_reason_to_doubt(
    tmp_path: Path, result: dict[str, int], story: dict[str, Any], expected: list[str]
) -> None:
    document = model_trial(agent_result=result)
    document["config"]["agent"]["name"] = document["agent_info"]["name"] = "command"
    trial = read(write_trial(tmp_path, document, {"trajectory.json": json.dumps(story)}))
    assert trial.suspect == expected
    assert trial.tool_calls == (None if not expected else 0)
    document["agent_execution"] = phase(4, 4.5)
    said = {"trajectory.json": json.dumps(story), "stdout.txt": "done"}
    again = read(write_trial(tmp_path / "short", document, said))
    assert again.suspect == [*expected, *(["implausibly_short"] if result else [])]


@pytest.mark.parametrize(
    ("told", "declared", "expected"),
    [
        ({"stdout.txt": "wrote a.txt"}, False, []),  # quick, and it said something
        ({"stdout.txt": "", "stderr.txt": ""}, False, ["implausibly_short"]),
        ({"stdout.txt": "Not logged in."}, True, ["no_tokens", "implausibly_short"]),
    ],
)
def test_a_command_that_ended_at_once_is_judged_by_what_shows_that_it_worked(
    tmp_path: Path, told: dict[str, str], declared: bool, expected: list[str]
) -> None:
    document = model_trial(agent_execution=phase(4, 4.5), agent_result={})
    document["agent_info"]["name"] = "command"
    table = {"run": ["a"]} | ({"usage": {"output": "tokens.out"}} if declared else {})
    document["config"]["agent"] |= {"name": "command", "kwargs": {"command": table}}
    assert read(write_trial(tmp_path / "failed", document, told)).suspect == expected
    document["agent_result"] = {"n_input_tokens": 5, "n_output_tokens": 2}
    assert read(write_trial(tmp_path / "told", document, told)).suspect == []


@pytest.mark.parametrize(("code", "outcome"), [(1, Outcome.FAILED), (126, Outcome.ERRORED), (127, Outcome.ERRORED)])
def test_a_command_that_ran_has_acted_and_one_that_the_shell_could_not_start_has_not(
    tmp_path: Path, code: int, outcome: Outcome
) -> None:
    said = f"Command failed (exit {code}): x\nstdout: None\nstderr: no module named foo"
    document = model_trial(exception_info=error("NonZeroAgentExitCodeError", said, when=6))
    document["config"]["agent"] = {"name": None, "import_path": registry.BUILTIN["agents"]["command"]}
    document["agent_info"]["name"] = "command"
    assert read(write_trial(tmp_path, document)).outcome is outcome


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_agents_without_a_model_are_not_suspected_of_using_none(tmp_path: Path, agent: str) -> None:
    document = rewarded(0, agent_info={"name": agent, "version": "1.0.0"}, agent_execution=phase(4, 4.01))
    document["config"]["agent"]["model_name"] = "some/model"
    assert read(write_trial(tmp_path, document)).suspect == []


def test_errored_trials_need_no_suspicion(tmp_path: Path) -> None:
    document = model_trial(exception_info=error("AgentAuthenticationError", when=20))
    trial = read(write_trial(tmp_path, document))
    assert (trial.outcome, trial.suspect) == (Outcome.ERRORED, [])


def test_claude_code_error_turns_a_zero_into_an_error(tmp_path: Path) -> None:
    trial = read(write_trial(tmp_path, model_trial(), {"claude-code.txt": claude("error_401")}))
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.AUTH)
    assert trial.error_message == "Failed to authenticate. API Error: 401 fake 401"


def test_live_judgement_is_the_same_as_that_of_the_folder(tmp_path: Path) -> None:
    folder = write_trial(tmp_path, model_trial(), {"claude-code.txt": claude("error_429")})
    trial, live = read(folder), live_ending(folder, from_result(model_trial()))
    assert (live.ending.outcome, live.ending.error_class) == (trial.outcome, trial.error_class)
    assert live.usage == trial.usage


def test_unfinished_trial_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "answer__1"
    (folder / "agent").mkdir(parents=True)
    (folder / "config.json").write_text(
        '{"task": {"path": "/tasks/answer", "source": "starter"}, "trial_name": "x", "agent": {"name": "claude-code"}}'
    )
    (folder / "agent/claude-code.txt").write_text("\n".join(claude("mcp_and_hooks").splitlines()[:-1]))
    reading = read_trial(folder)
    assert (reading.state, reading.name, reading.job) == (ReadState.UNFINISHED, "answer__1", "job")
    assert (reading.task, reading.dataset, reading.trial) == ("answer", "starter", None)
    assert (reading.usage.input_tokens, reading.usage.source) == (2000, "claude-code:partial")


@pytest.mark.parametrize(
    ("agent", "script", "used"),
    [
        ("guarded", None, (0, 0, 0.0, "workflow")),  # it never came to a question
        ("guarded", Script().start("patch").attempt("patch").attempt("patch", 2), (200, 20, 0.02, "workflow:partial")),
        ("guarded", passes(), (400, 40, 0.04, "workflow")),
        ("guarded", Script().start("patch").done(), (0, 0, 0.0, "workflow")),  # stopped before the first answer
        ("stranger", passes(), (None, None, None, None)),
    ],
)
def test_a_workflow_that_was_cut_off_has_used_what_its_trace_says(
    tmp_path: Path, agent: str, script: Script | None, used: tuple
) -> None:
    folder = tmp_path / "job" / "answer__1"
    folder.mkdir(parents=True)
    name = "terminalbench.harbor.agents.guarded:GuardedAgent" if agent == "guarded" else "strangers:Agent"
    (folder / "config.json").write_text(json.dumps({"task": {"path": "/t/answer"}, "agent": {"import_path": name}}))
    if script is not None:
        script.write(folder)
    found = read_trial(folder).usage
    known = (found.input_tokens, found.output_tokens, found.cost_usd, found.source)
    assert known == pytest.approx(used)


@pytest.mark.parametrize(
    "content", [b"", b"  \n", b"{", b"null", b"[]", b'{"task_name": 1}', b"\xff\xfe", b"[" * 100_000]
)
def test_unreadable_result_is_a_reading_with_a_reason(tmp_path: Path, content: bytes) -> None:
    folder = write_trial(tmp_path, result())
    (folder / "result.json").write_bytes(content)
    reading = read_trial(folder)
    assert reading.state is ReadState.UNREADABLE
    assert reading.reason is not None
    assert reading.reason.startswith("result.json is")


def test_result_that_is_no_file(tmp_path: Path) -> None:
    for name, make in {"folder": Path.mkdir, "pipe": os.mkfifo}.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / "result.json")
        assert read_trial(folder).state is ReadState.UNREADABLE
    assert read_trial(tmp_path / "nowhere").state is ReadState.UNREADABLE


@given(cut=st.integers(min_value=0, max_value=5000), noise=st.binary(max_size=40))
def test_torn_or_overwritten_result_never_raises(tmp_path: Path, cut: int, noise: bytes) -> None:
    data = json.dumps(result(), indent=4).encode()
    cut = cut % (len(data) + 1)
    folder = tmp_path / "job" / "trial"
    (folder / "agent").mkdir(parents=True, exist_ok=True)
    for content in (data[:cut], data[:cut] + noise, data[:cut] + noise + data[cut + len(noise) :]):
        (folder / "result.json").write_bytes(content)
        reading = read_trial(folder)
        assert (reading.trial is None) is (reading.reason is not None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(field=st.sampled_from(sorted(result())), value=json_values)
def test_any_value_in_any_field_never_raises(tmp_path: Path, field: str, value: Any) -> None:
    folder = tmp_path / "job" / "trial"
    (folder / "agent").mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps({**result(), field: value}))
    reading = read_trial(folder)
    assert reading.state in (ReadState.FINISHED, ReadState.UNREADABLE)
    if reading.trial is not None:
        msgspec.json.encode(reading.trial)


@given(
    stream=st.lists(
        st.binary(max_size=60) | st.sampled_from(claude("mcp_and_hooks").encode().splitlines()), max_size=8
    ),
    trajectory=st.binary(max_size=200) | json_values.map(lambda value: json.dumps({"steps": value}).encode()),
    note=st.binary(max_size=100) | json_values.map(lambda value: json.dumps({"mcp_servers": value}).encode()),
)
def test_anything_in_the_agents_own_files_never_raises(
    tmp_path: Path, stream: list[bytes], trajectory: bytes, note: bytes
) -> None:
    folder = tmp_path / "job" / "trial"
    (folder / "agent").mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result()))
    (folder / "agent/claude-code.txt").write_bytes(b"\n".join(stream))
    (folder / "agent/trajectory.json").write_bytes(trajectory)
    (folder / "agent/delivery.json").write_bytes(note)
    trial = read_trial(folder).trial
    assert trial is not None
    assert trial.outcome is Outcome.PASSED
    assert trial.agent_status in (AgentStatus.COMPLETED, AgentStatus.CRASHED, AgentStatus.LIMIT_REACHED)


def test_deeply_nested_files_of_the_agent(tmp_path: Path) -> None:
    deep = '{"type":"assistant","x":' + "[" * 200_000
    folder = write_trial(tmp_path, result(), {"claude-code.txt": deep, "trajectory.json": deep, "delivery.json": deep})
    assert read(folder).outcome is Outcome.PASSED


def test_job_folder_is_read_in_whole(tmp_path: Path) -> None:
    job = tmp_path / "job"
    for number, (name, start) in enumerate([("answer__c", 1), ("answer__a", 2), ("answer__b", 3)]):
        write_trial(job, rewarded(number % 2, trial_name=name, started_at=at(start)))
    write_trial(job, rewarded(1, trial_name="other__x", task_id={"path": "/tasks/other"}))
    (job / "answer__b/result.json").write_text("{")
    (job / "unfinished__y").mkdir()
    (job / "unfinished__y/config.json").write_text("{}")
    (job / "not-a-trial").mkdir()
    (job / "result.json").write_text("{}")
    (job / "link").symlink_to(job / "answer__a")
    readings = {reading.name: reading for reading in read_job(job, profile="p")}
    assert sorted(readings) == ["answer__a", "answer__b", "answer__c", "other__x", "unfinished__y"]
    assert [name for name, reading in sorted(readings.items()) if reading.trial] == [
        "answer__a",
        "answer__c",
        "other__x",
    ]
    assert readings["answer__b"].state is ReadState.UNREADABLE


def test_missing_job_folder_has_no_trials(tmp_path: Path) -> None:
    assert read_job(tmp_path / "nowhere") == []


def test_a_wrong_record_of_an_agent_does_not_hide_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_record.py").write_text('class A:\n    AGENT_INFO = {"usage": "telepathy"}\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidFile, match="usage"):
        agent_info("own_record:A")
    document = model_trial()
    document["agent_info"] = {"name": "own_record:A", "version": "1"}
    assert read(write_trial(tmp_path / "job", document)).agent == "own_record:A"


METERED = [
    {"source": "user"},
    {"source": "agent", "metrics": {"prompt_tokens": 800, "completion_tokens": 40, "cached_tokens": 100}},
    {"source": "agent", "metrics": {"prompt_tokens": 900, "completion_tokens": 30}},
]
NOTHING = {"total_prompt_tokens": 0, "total_completion_tokens": 0, "total_cached_tokens": 0}


@pytest.mark.parametrize("totals", [None, {}, NOTHING])
def test_a_trial_that_timed_out_keeps_the_tokens_of_its_trajectory(
    tmp_path: Path, totals: dict[str, int] | None
) -> None:
    """Terminus-2 writes its trajectory step by step, and its totals only at the end."""
    late = error("AgentTimeoutError", "Agent execution timed out after 16.0 seconds", when=20)
    document = model_trial(exception_info=late)
    document["agent_result"] = {"n_input_tokens": 0, "n_cache_tokens": 0, "n_output_tokens": 0}
    story = json.dumps({"steps": METERED, "final_metrics": totals})
    folder = write_trial(tmp_path, document, {"trajectory.json": story})
    for used in (read(folder).usage, live_ending(folder, document).usage):
        assert (used.input_tokens, used.cache_read_tokens, used.output_tokens) == (1600, 100, 70)
        assert (used.source, used.cost_usd) == ("trajectory", None), "no price, no cost"
    assert "no_tokens" not in read(folder).suspect
