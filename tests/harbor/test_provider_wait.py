"""How agents wait for their provider, as their clients tell it: counted once, and never from what a tool printed."""

import json
from pathlib import Path
from typing import Any

import pytest
from results_kit import claude, error, rewarded, write_trial

from terminalbench.faults import ErrorClass
from terminalbench.harbor.limits.ratelimit import count_hits
from terminalbench.harbor.read.notes import HostActivity
from terminalbench.harbor.read.results import live_ending, read_trial
from terminalbench.json_files import write_json
from terminalbench.records.trial import Outcome, ProviderWait, Trial
from terminalbench.sandbox import activity

LATE = error("AgentTimeoutError", "Agent execution timed out after 16.0 seconds", when=20)
INIT = {"type": "system", "subtype": "init", "tools": ["Bash"], "claude_code_version": "2.1.325"}


def retry(status: int | None, delay_ms: float = 500) -> dict[str, Any]:
    return {"type": "system", "subtype": "api_retry", "error_status": status, "retry_delay_ms": delay_ms, "error": "x"}


def says(*blocks: dict[str, Any], model: str = "claude-sonnet-4-5") -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m", "model": model, "content": list(blocks)}}


def calls(name: str, call: str = "c1") -> dict[str, Any]:
    return says({"type": "tool_use", "id": call, "name": name})


def gives(text: str, call: str = "c1") -> dict[str, Any]:
    return {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}}


def stream(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)


def read(
    folder: Path, log: str | None = None, *, reward: float = 0, exception: Any = LATE, name: str = "claude-code"
) -> Trial:
    document = rewarded(reward, exception_info=exception)
    document["config"]["agent"] = {"name": name, "model_name": "claude-sonnet-4-5"}
    document["agent_info"] = {"name": name, "version": "1"}
    files = {} if log is None else {"claude-code.txt" if name == "claude-code" else "codex.txt": log}
    trial = read_trial(write_trial(folder / "job", document, files)).trial
    assert trial is not None
    return trial


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, ErrorClass.AUTH),
        (402, ErrorClass.CREDIT),
        (429, ErrorClass.RATE_LIMIT),
        (500, ErrorClass.PROVIDER),
        (529, ErrorClass.PROVIDER),
        (None, ErrorClass.NETWORK),
    ],
)
def test_seven_refusals_until_the_end_of_the_time(tmp_path: Path, status: int | None, expected: ErrorClass) -> None:
    trial = read(tmp_path, stream(INIT, *(retry(status, 100 * 2**n) for n in range(7))))
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, expected)
    name = "none" if status is None else str(status)
    assert trial.wait == ProviderWait(retries=7, backoff_sec=12.7, refused={name: 7}, at_end=7, last=name)


def test_an_outage_that_the_agent_lived_through_leaves_a_measurement(tmp_path: Path) -> None:
    log = stream(INIT, retry(529, 5000), calls("Bash"), gives("ok"))
    trial = read(tmp_path, log)
    assert (trial.outcome, trial.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)
    assert trial.wait == ProviderWait(retries=1, backoff_sec=5.0, refused={"529": 1}, last="529")
    assert trial.suspect == ["no_tokens", "waited_for_provider"], "5 of 16 seconds"
    again = read(tmp_path / "again", log + stream(retry(529)))
    assert (again.outcome, again.error_class) == (Outcome.ERRORED, ErrorClass.PROVIDER), "down at the end once more"
    passed = read(tmp_path / "passed", log + stream(retry(529)), reward=1)
    assert passed.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "log",
    [
        stream(INIT, calls("Bash"), gives(json.dumps(retry(529)))),
        stream(INIT, calls("Bash"), gives(json.dumps(retry(529)) + "\n" + json.dumps(retry(529)))),
        stream(INIT, says({"type": "text", "text": json.dumps(retry(529))})),
        # appended to the log by a command that then waits: while a tool runs, the client asks no provider
        stream(INIT, calls("Bash"), retry(529), retry(529)),
        stream(INIT, calls("Bash", "a"), calls("Read", "b"), gives("x", "b"), retry(529)),
        stream(INIT, calls("Task", "a"), calls("Bash", "b"), retry(529)),
    ],
)
def test_no_agent_buys_itself_an_error_by_printing_one(tmp_path: Path, log: str) -> None:
    trial = read(tmp_path, log)
    assert (trial.outcome, trial.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)
    assert trial.wait is not None
    assert (trial.wait.retries, trial.wait.at_end) == (0, 0)


def test_a_subagent_waits_for_the_provider_too(tmp_path: Path) -> None:
    trial = read(tmp_path, stream(INIT, calls("Task"), retry(529)))
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.PROVIDER)


def test_a_model_that_never_answers_and_a_hook_that_never_ends(tmp_path: Path) -> None:
    trial = read(tmp_path, stream(INIT))
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.PROVIDER)
    hook = {"type": "system", "subtype": "hook_started", "hook_id": "h", "hook_event": "UserPromptSubmit"}
    own = read(tmp_path / "hook", stream(INIT, hook))
    assert (own.outcome, own.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT), "it waited for its own hook"


def test_a_stream_that_was_cut_back_to_its_beginning_is_not_believed(tmp_path: Path) -> None:
    document = rewarded(0, exception_info=LATE)
    document["config"]["agent"] = {"name": "claude-code", "model_name": "claude-sonnet-4-5"}
    document["agent_info"] = {"name": "claude-code", "version": "1"}
    story = '{"steps": [{"source": "agent", "tool_calls": [{"function_name": "Bash"}]}]}'
    folder = write_trial(tmp_path, document, {"claude-code.txt": stream(INIT), "trajectory.json": story})
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.outcome, trial.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (stream(INIT, calls("Bash")), (Outcome.FAILED, ErrorClass.AGENT_CRASH)),
        (stream(INIT, says({"type": "text", "text": "hm"})), (Outcome.FAILED, ErrorClass.AGENT_CRASH)),
        (stream(INIT, says(model="<synthetic>")), (Outcome.ERRORED, ErrorClass.SETUP)),
        (stream(INIT), (Outcome.ERRORED, ErrorClass.SETUP)),
        ("node: not found\n", (Outcome.ERRORED, ErrorClass.SETUP)),
    ],
)
def test_whether_it_had_acted_is_in_the_stream(tmp_path: Path, log: str, expected: tuple[Outcome, ErrorClass]) -> None:
    trial = read(tmp_path, log, exception=error("NonZeroAgentExitCodeError", when=20))
    assert (trial.outcome, trial.error_class) == expected


def test_codex_tells_of_its_reconnects(tmp_path: Path) -> None:
    down = {"type": "error", "message": "Reconnecting... 1/5 (unexpected status 503 Service Unavailable: x)"}
    cut = {"type": "error", "message": "Reconnecting... 2/5 (stream disconnected before completion)"}
    trial = read(tmp_path, stream({"type": "thread.started"}, down, cut), name="codex")
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.NETWORK)
    assert trial.wait == ProviderWait(retries=2, refused={"503": 1, "none": 1}, at_end=2, last="none")
    begun = {"type": "item.started", "item": {"id": "1", "type": "command_execution"}}
    over = {"type": "item.completed", "item": {"id": "1", "type": "command_execution"}}
    back = read(tmp_path / "back", stream(down, begun, over), name="codex")
    assert (back.outcome, back.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)
    forged = read(tmp_path / "forged", stream(begun, down), name="codex")
    assert forged.outcome is Outcome.FAILED


@pytest.mark.parametrize("name", ["mini-swe-agent", "my-own", "terminus-2"])
def test_a_stream_in_the_logs_of_another_agent_is_not_its_clients_word(tmp_path: Path, name: str) -> None:
    """Its tools can write a file of any name there."""
    codex = stream({"type": "error", "message": "Reconnecting... 1/5"})
    for number, log in enumerate((stream(INIT, retry(529)), stream(INIT))):
        document = rewarded(0, exception_info=LATE)
        document["config"]["agent"] = {"name": name, "model_name": "m"}
        document["agent_info"] = {"name": name, "version": "1"}
        folder = write_trial(tmp_path / str(number), document, {"claude-code.txt": log, "codex.txt": codex})
        trial = read_trial(folder).trial
        assert trial is not None
        assert (trial.outcome, trial.error_class) == (Outcome.FAILED, ErrorClass.AGENT_TIMEOUT)


def test_what_the_host_saw_goes_before_the_logs(tmp_path: Path) -> None:
    document = rewarded(0, exception_info=LATE)
    folder = write_trial(tmp_path, document)
    write_json(
        folder / "seen.json", HostActivity(3, 4, 1, ProviderWait(retries=2, refused={"429": 3}, at_end=3, last="429"))
    )
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.RATE_LIMIT)
    ended = live_ending(folder, document)
    assert (ended.ending.status, count_hits(folder, ended.wait)) == ("429", 3)


@pytest.mark.parametrize(("commands", "expected"), [(0, ErrorClass.SETUP), (2, ErrorClass.AGENT_CRASH)])
def test_an_agent_on_the_host_acts_by_its_commands(tmp_path: Path, commands: int, expected: ErrorClass) -> None:
    crash = error("RuntimeError", when=20)
    folder = write_trial(tmp_path, rewarded(None, exception_info=crash, verifier=None))
    write_json(folder / "seen.json", HostActivity(commands))
    trial = read_trial(folder).trial
    assert trial is not None
    assert trial.error_class is expected


def test_one_429_counts_once_however_many_logs_tell_of_it(tmp_path: Path) -> None:
    # Two refusals: one retried, one that ended the session. Recorded from the CLI.
    trial = read(tmp_path, claude("error_429"), exception=error("NonZeroAgentExitCodeError", when=20))
    assert trial.wait is not None
    told = trial.wait.refused["429"]
    folder = tmp_path / "job" / trial.name
    api_error = {"type": "system", "subtype": "api_error", "error": {"message": "rate_limit_error", "status": 429}}
    (folder / "agent" / "session.jsonl").write_text(
        stream(*[api_error] * (told - 1), says({"text": "rate_limit_error"}))
    )
    (folder / "exception.txt").write_text("RateLimitError: rate_limit_error\n  429 Too Many Requests\n")
    assert count_hits(folder, trial.wait) == count_hits(folder) == told
    assert activity.count_hits(claude("error_429")) == told


def test_plain_logs_count_paragraphs_and_events() -> None:
    trace = "Traceback:\nRateLimitError: a\nRateLimitError: b\n\nworking\nRateLimitError: c\n"
    assert activity.count_hits(trace) == 2
    assert activity.count_hits('{"error_status":429}\n{"error_status":429}\n') == 2
    assert activity.count_hits(stream(gives("rate_limit_error"), says({"text": "rate_limit_error"}))) == 0
