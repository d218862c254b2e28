"""How a trial ended, from what Harbor wrote: every rule of the outcome table."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from results_kit import claude, error, phase, result, rewarded, write_trial

from terminalbench.faults import ErrorClass
from terminalbench.harbor.limits.hangs import Hang
from terminalbench.harbor.read.agent_logs import LogEvidence
from terminalbench.harbor.read.claude_stream import ResultEvent, read_stream
from terminalbench.harbor.read.notes import TIMES, Moment, Times
from terminalbench.harbor.read.outcome import classify
from terminalbench.harbor.read.results import finished_folders, live_ending, read_trial
from terminalbench.json_files import write_json
from terminalbench.records.trial import AgentStatus, Outcome, ProviderWait

NOT_VERIFIED = {"verifier_result": None, "verifier": None}
NO_AGENT = {**NOT_VERIFIED, "agent_execution": None, "agent_result": None}


ACTED, IDLE = LogEvidence(acted=True), LogEvidence(acted=False)


def ended(document: dict[str, Any], evidence: LogEvidence | None = None) -> tuple[str, str, str | None]:
    ending = classify(document, evidence)
    return ending.outcome.value, ending.agent_status.value, ending.error_class and ending.error_class.value


def with_verdict(reward: float, name: str, when: float = 20) -> dict[str, Any]:
    return rewarded(reward, exception_info=error(name, when=when))


def unverified(name: str, when: float = 20, **changes: Any) -> dict[str, Any]:
    return result(**{"verifier_result": None, "verifier": None, **changes}, exception_info=error(name, when=when))


def verifier_raised(name: str, when: float = 28) -> dict[str, Any]:
    return result(verifier_result=None, exception_info=error(name, when=when))


def before_agent(name: str, when: float, **changes: Any) -> dict[str, Any]:
    return result(**NO_AGENT, **changes, exception_info=error(name, when=when))


COLLECTING = error("OSError", when=20.1, traceback="in _collect_artifacts")
NO_ENVIRONMENT = {"agent_setup": None, "environment_setup": None}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (rewarded(1), ("passed", "completed", None)),
        (rewarded(1.5), ("passed", "completed", None)),
        (rewarded(0), ("failed", "completed", None)),
        (rewarded(0.999), ("failed", "completed", None)),
        (rewarded(-1), ("failed", "completed", None)),
        # the verdict is kept whatever became of the agent
        (with_verdict(1, "AgentTimeoutError"), ("passed", "timed_out", "agent_timeout")),
        (with_verdict(0, "AgentTimeoutError"), ("failed", "timed_out", "agent_timeout")),
        (with_verdict(1, "ApiRateLimitError"), ("passed", "crashed", "rate_limit")),
        (with_verdict(1, "NonZeroAgentExitCodeError"), ("passed", "crashed", "setup")),
        # Harbor's 0 is not a measurement when the machinery broke
        (with_verdict(0, "ApiRateLimitError"), ("errored", "crashed", "rate_limit")),
        (with_verdict(0, "AgentAuthenticationError"), ("errored", "crashed", "auth")),
        (with_verdict(0, "NetworkConnectionError"), ("errored", "crashed", "network")),
        (with_verdict(0, "ApiUsageLimitError"), ("errored", "crashed", "credit")),
        # nothing tells that the agent did anything: it did not start
        (with_verdict(0, "NonZeroAgentExitCodeError"), ("errored", "crashed", "setup")),
        # ... but it is one when the error is what the profile does
        (with_verdict(0, "AgentSafetyRefusalError"), ("failed", "refused", "safety_refusal")),
        (with_verdict(0, "ContextWindowExceededError"), ("failed", "limit_reached", "agent_limit")),
        # no verdict
        (unverified("AgentTimeoutError"), ("timed_out", "timed_out", "agent_timeout")),
        (unverified("RuntimeError"), ("errored", "crashed", "setup")),
        (unverified("ContextLengthExceededError"), ("failed", "limit_reached", "agent_limit")),
        (unverified("CancelledError"), ("cancelled", "cancelled", "cancelled")),
        (verifier_raised("CancelledError", 25), ("cancelled", "completed", "cancelled")),
        (verifier_raised("VerifierTimeoutError"), ("errored", "completed", "verifier")),
        (verifier_raised("RewardFileNotFoundError"), ("errored", "completed", "verifier")),
        (verifier_raised("EnvironmentStartTimeoutError"), ("errored", "completed", "verifier")),
        (result(verifier_result=None), ("errored", "completed", "verifier")),
        (result(verifier_result={"rewards": None}), ("errored", "completed", "verifier")),
        (result(verifier_result={"rewards": {}}), ("errored", "completed", "verifier")),
        # Harbor was interrupted in mid-sentence
        (result(**NOT_VERIFIED), ("cancelled", "cancelled", "cancelled")),
        (result(**NO_AGENT), ("cancelled", "not_started", "cancelled")),
        # before the agent
        (before_agent("AgentSetupTimeoutError", 4), ("errored", "not_started", "setup")),
        (before_agent("NonZeroAgentExitCodeError", 4), ("errored", "not_started", "setup")),
        (before_agent("RuntimeError", 2, agent_setup=None), ("errored", "not_started", "environment")),
        (before_agent("EnvironmentStartTimeoutError", 2, agent_setup=None), ("errored", "not_started", "environment")),
        (before_agent("ValueError", 1, **NO_ENVIRONMENT), ("errored", "not_started", "setup")),
        (before_agent("CancelledError", 3), ("cancelled", "not_started", "cancelled")),
        # after the verdict: stopping the environment failed, or somebody pressed Ctrl-C
        (with_verdict(0, "RuntimeError", 29), ("failed", "completed", "environment")),
        (with_verdict(1, "RuntimeError", 29), ("passed", "completed", "environment")),
        (with_verdict(0, "CancelledError", 29), ("failed", "completed", "cancelled")),
        # between agent and verifier
        (result(**NOT_VERIFIED, exception_info=COLLECTING), ("errored", "completed", "environment")),
    ],
)
def test_outcome(document: dict[str, Any], expected: tuple[str, str, str | None]) -> None:
    assert ended(document) == expected


@pytest.mark.parametrize(
    ("document", "evidence", "expected"),
    [
        # a crash after the first answer or call is what the profile does, with Harbor's verdict or without one
        (with_verdict(0, "NonZeroAgentExitCodeError"), ACTED, ("failed", "crashed", "agent_crash")),
        (with_verdict(1, "NonZeroAgentExitCodeError"), ACTED, ("passed", "crashed", "agent_crash")),
        (unverified("RuntimeError"), ACTED, ("failed", "crashed", "agent_crash")),
        # before it, it is the bench's
        (with_verdict(0, "NonZeroAgentExitCodeError"), IDLE, ("errored", "crashed", "setup")),
        (unverified("RuntimeError"), IDLE, ("errored", "crashed", "setup")),
        # what nothing tells of is decided by how long it lived
        (unverified("RuntimeError", 40, agent_execution=phase(4, 40)), None, ("failed", "crashed", "agent_crash")),
        # a verifier that had its turn and gave no verdict is the bench's, whatever became of the agent
        (verifier_raised("NonZeroAgentExitCodeError", 20), ACTED, ("errored", "completed", "verifier")),
        # other errors stay whose they are
        (with_verdict(0, "ApiRateLimitError"), ACTED, ("errored", "crashed", "rate_limit")),
    ],
)
def test_whose_fault_a_crash_is(
    document: dict[str, Any], evidence: LogEvidence | None, expected: tuple[str, str, str | None]
) -> None:
    assert ended(document, evidence) == expected


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (ProviderWait(retries=7, refused={"401": 7}, at_end=7, last="401"), "auth"),
        (ProviderWait(retries=7, refused={"402": 7}, at_end=7, last="402"), "credit"),
        (ProviderWait(retries=7, refused={"429": 7}, at_end=7, last="429"), "rate_limit"),
        (ProviderWait(retries=2, refused={"429": 1, "500": 1}, at_end=2, last="500"), "provider"),
        (ProviderWait(retries=7, refused={"529": 7}, at_end=7, last="529"), "provider"),
        (ProviderWait(retries=7, refused={"none": 7}, at_end=7, last="none"), "network"),
    ],
)
def test_a_time_out_whose_end_was_spent_waiting_for_the_provider_is_the_providers(
    wait: ProviderWait, expected: str
) -> None:
    told = LogEvidence(wait=wait, acted=True)
    assert ended(with_verdict(0, "AgentTimeoutError"), told) == ("errored", "timed_out", expected)
    assert ended(unverified("AgentTimeoutError"), told) == ("errored", "timed_out", expected)
    assert ended(with_verdict(1, "AgentTimeoutError"), told)[:2] == ("passed", "timed_out")
    over = LogEvidence(wait=msgspec.structs.replace(wait, at_end=0), acted=True)
    assert ended(with_verdict(0, "AgentTimeoutError"), over) == ("failed", "timed_out", "agent_timeout")
    message = classify(with_verdict(0, "AgentTimeoutError"), told).error_message
    assert message is not None
    assert message.endswith("times in a row; the agent waited for it until its time ran out")


def test_a_session_that_was_refused_and_whose_process_did_not_end_is_told_by_its_last_word() -> None:
    said = ResultEvent(
        "success", is_error=True, api_error_status=400, terminal_reason="api_error", result="Credit balance is too low"
    )
    told = LogEvidence(session=said, wait=ProviderWait(refused={"400": 1}, at_end=1, last="400"))
    assert ended(with_verdict(0, "AgentTimeoutError"), told) == ("errored", "timed_out", "credit")


def test_a_provider_that_never_answered_at_all_is_the_reason() -> None:
    silent = LogEvidence(acted=False, unanswered=True)
    assert ended(with_verdict(0, "AgentTimeoutError"), silent) == ("errored", "timed_out", "provider")


def test_an_agent_that_its_limit_did_not_end_is_the_benchs() -> None:
    hung = Hang("agent", "the agent did not end within 11 min")
    ending = classify(unverified("CancelledError"), ACTED, hung)
    assert (ending.outcome, ending.error_class, ending.error_message) == ("errored", "environment", hung.reason)


@pytest.mark.parametrize(
    ("rewards", "reward", "outcome"),
    [
        ({"reward": 1, "style": 0}, 1.0, Outcome.PASSED),
        ({"accuracy": 1}, 1.0, Outcome.PASSED),
        ({"accuracy": 0.5}, 0.5, Outcome.FAILED),
        ({"accuracy": 1, "style": 1}, None, Outcome.ERRORED),
        ({"reward": True}, None, Outcome.ERRORED),
        ({"reward": "1"}, None, Outcome.ERRORED),
        ({"reward": None}, None, Outcome.ERRORED),
    ],
)
def test_primary_reward(rewards: dict[str, Any], reward: float | None, outcome: Outcome) -> None:
    ending = classify(result(verifier_result={"rewards": rewards}))
    assert (ending.reward, ending.outcome) == (reward, outcome)
    if outcome is Outcome.ERRORED:
        assert ending.error_class is ErrorClass.VERIFIER


def test_why_there_is_no_verdict_is_said() -> None:
    several = classify(result(verifier_result={"rewards": {"b": 1, "a": 1}}))
    assert several.error_message == 'no primary reward: none of a, b is called "reward"'
    off = result(verifier_result=None, verifier=None)
    off["config"]["verifier"]["disable"] = True
    assert classify(off).error_message == "verification was switched off"


@pytest.mark.parametrize("agents", ["AgentTimeoutError", "NonZeroAgentExitCodeError"])
def test_a_verifier_that_was_interrupted_gives_no_ending_though_harbor_keeps_the_agents_exception(
    tmp_path: Path, agents: str
) -> None:
    """Harbor records the agent's exception and no other: only the plugin's note tells that the run was stopped."""
    document = unverified(agents, verifier=phase(20.5, 24))
    folder = write_trial(tmp_path, document)
    assert len(list(finished_folders(tmp_path))) == 1
    write_json(folder / TIMES, Times([Moment("verification-start", 20.5, 20.5), Moment("cancel", 24, 24)]))
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.outcome, trial.error_class) == (Outcome.CANCELLED, ErrorClass.CANCELLED)
    assert live_ending(folder, document).ending.outcome is Outcome.CANCELLED
    assert not list(finished_folders(tmp_path)), "resume runs it again"
    judged = document | {"verifier_result": {"rewards": {"reward": 1}}}
    assert live_ending(folder, judged).ending.outcome is Outcome.PASSED, "a verdict stays"


def test_install_only_is_not_run() -> None:
    document = result(**NO_AGENT)
    document["config"]["install_only"] = True
    assert ended(document) == ("not_run", "not_started", None)


def step(name: str, reward: float | None, **changes: Any) -> dict[str, Any]:
    verdict = None if reward is None else {"rewards": {"reward": reward}}
    return {"step_name": name, "verifier_result": verdict, "agent_execution": phase(4, 10), **changes}


def test_a_crash_in_a_later_step_does_not_leave_the_first_steps_reward() -> None:
    # Harbor averages over the verified steps only, so the reward of this trial says 1.0.
    steps = [
        step("one", 1, verifier=phase(10, 12)),
        step("two", None, agent_execution=phase(12, 20), exception_info=error("RuntimeError", when=20)),
    ]
    document = result(agent_result=None, agent_execution=None, verifier=None, step_results=steps)
    assert ended(document, ACTED) == ("failed", "crashed", "agent_crash")
    assert classify(document, ACTED).reward is None


def test_steps_that_all_passed() -> None:
    steps = [step("one", 1, verifier=phase(10, 12)), step("two", 1, verifier=phase(20, 22))]
    document = result(agent_result=None, agent_execution=None, verifier=None, step_results=steps)
    assert ended(document) == ("passed", "completed", None)


def test_verifier_that_breaks_in_a_step() -> None:
    broken = step("one", None, verifier=phase(10, 12), exception_info=error("RewardFileNotFoundError", when=12))
    document = result(
        agent_result=None, agent_execution=None, verifier=None, verifier_result=None, step_results=[broken]
    )
    assert ended(document) == ("errored", "completed", "verifier")


def session(tmp_path: Path, name: str) -> LogEvidence:
    path = tmp_path / "claude-code.txt"
    path.write_text(claude(name))
    stream = read_stream(path)
    assert stream is not None
    assert stream.result is not None
    return LogEvidence(session=stream.result)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("error_401", ("errored", ErrorClass.AUTH)),
        ("error_429", ("errored", ErrorClass.RATE_LIMIT)),
        ("error_529", ("errored", ErrorClass.PROVIDER)),
        ("error_network", ("errored", ErrorClass.NETWORK)),
        ("max_turns", ("failed", ErrorClass.AGENT_LIMIT)),
        ("denied", ("failed", None)),
    ],
)
@pytest.mark.parametrize(
    "exception", [None, error("UnknownApiError", when=20), error("NonZeroAgentExitCodeError", when=20)]
)
def test_claude_code_says_what_its_exit_code_does_not(
    tmp_path: Path, stream: str, expected: tuple[str, ErrorClass | None], exception: dict[str, str] | None
) -> None:
    ending = classify(rewarded(0, exception_info=exception), session(tmp_path, stream))
    if stream == "denied" and exception is not None:
        return  # a session that ended well while its exception says otherwise: the exception counts
    assert (ending.outcome.value, ending.error_class) == expected


def test_claude_code_error_after_solving_the_task_is_still_a_pass(tmp_path: Path) -> None:
    ending = classify(rewarded(1), session(tmp_path, "error_429"))
    assert (ending.outcome, ending.agent_status) == (Outcome.PASSED, AgentStatus.CRASHED)


def test_a_session_cannot_talk_a_verifier_error_away(tmp_path: Path) -> None:
    document = result(verifier_result=None, exception_info=error("VerifierTimeoutError", when=28))
    assert classify(document, session(tmp_path, "max_turns")).error_class is ErrorClass.VERIFIER


def test_tests_that_end_without_the_agents_work_alone_are_its_failure() -> None:
    late = verifier_raised("VerifierTimeoutError")
    late["exception_info"]["exception_message"] = "Verifier execution timed out after 60.0 seconds"
    assert classify(late).error_class == "verifier"
    ending = classify(late, LogEvidence(tests_hung=True))
    assert (ending.outcome, ending.error_class) == ("failed", "tests_hung")
    assert (
        ending.error_message == "the verifier did not end within 60 s; without the agent's work, the same tests ended"
    )
