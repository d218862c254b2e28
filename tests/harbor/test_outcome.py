"""How a trial ended, from what Harbor wrote: every rule of the outcome table."""

import ast
import builtins
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from results_kit import claude, error, phase, result, rewarded

from terminalbench.faults import ErrorClass, RetryRule
from terminalbench.harbor.limits.hangs import Hang
from terminalbench.harbor.read.agent_logs import LogEvidence
from terminalbench.harbor.read.claude_stream import ResultEvent, read_stream
from terminalbench.harbor.read.error_classes import (
    BY_PHASE,
    HARBOR_EXCEPTIONS,
    OTHER_EXCEPTIONS,
    error_class,
)
from terminalbench.harbor.read.outcome import classify
from terminalbench.records.trial import AgentStatus, Outcome, ProviderWait

NOT_IN_TRIALS = frozenset(
    {
        "ApiKeyRejectedError",
        "AuthenticationError",
        "EmptyDatasetError",
        "HarborHubAgentCatalogError",
        "HostedNotApprovedError",
        "HostedQuotaExceededError",
        "LeaderboardAPIError",
        "MultimodalExportError",
        "NotAuthenticatedError",
        "OAuthCallbackError",
        "OwnerOrgError",
        "RegistryCredentialReplacementRequired",
        "SecretReplacementRequired",
        "StaleAccessTokenError",
        "StreamError",
        "TaskVersionNotFoundError",
        "UnavailableDatasetTasksError",
        "_BatchUpdateError",
    }
)
"""Harbor's exceptions of its hub, registry, viewer and login: they end a command, never a trial."""

HEADER = re.compile(r"\bclass\s+(\w+)([^:]*)")
WORD = re.compile(r"\w+")

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


FAILED = "Command failed (exit {code}): claude\nstdout: {out}\nstderr: {err}"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (FAILED.format(code=137, out="", err="Killed"), ErrorClass.OUT_OF_MEMORY),
        (FAILED.format(code=1, out="this task is about an out of memory error", err="None"), ErrorClass.SETUP),
        (
            FAILED.format(code=1, out="", err="x\n\nsandbox: memory limit of 512 MB reached: processes were killed\n"),
            ErrorClass.OUT_OF_MEMORY,
        ),
        (FAILED.format(code=1, out="", err="sandbox: storage limit of 9 MB reached: ..."), ErrorClass.DISK_FULL),
        (FAILED.format(code=1, out="", err="sandbox: process limit of 512 reached"), ErrorClass.PROCESS_LIMIT),
        (FAILED.format(code=1, out="", err="OSError: [Errno 24] Too many open files"), ErrorClass.SETUP),
        (FAILED.format(code=1, out="", err="OSError: [Errno 28] No space left on device"), ErrorClass.DISK_FULL),
    ],
)
def test_exhausted_machine_has_a_class_of_its_own(message: str, expected: ErrorClass) -> None:
    document = rewarded(0, exception_info=error("NonZeroAgentExitCodeError", message, when=20))
    assert classify(document).error_class is expected


USED_UP = [
    (
        FAILED.format(code=137, out="", err="\nsandbox: memory limit of 512 MB reached: processes were killed\n"),
        "agent_limit",
    ),
    (FAILED.format(code=1, out="", err="sandbox: process limit of 512 reached"), "agent_limit"),
    (FAILED.format(code=1, out="", err="bash: echo: write error: No space left on device"), "agent_limit"),
    (FAILED.format(code=137, out="", err="Killed"), "agent_crash"),
]


@pytest.mark.parametrize(("message", "expected"), USED_UP)
@pytest.mark.parametrize("name", ["NonZeroAgentExitCodeError", "RuntimeError"])
def test_who_uses_up_its_own_sandbox_to_be_tried_again_has_failed(name: str, message: str, expected: str) -> None:
    document = rewarded(0, exception_info=error(name, message, when=20))
    elsewhere = classify(document, ACTED)
    document["config"]["environment"] = {"import_path": "terminalbench.sandbox.environment:LocalSandbox"}
    ending = classify(document, ACTED)
    assert (ending.outcome, ending.error_class) == (Outcome.FAILED, expected)
    assert ErrorClass(expected).info.again is RetryRule.BY_NAME
    assert classify({**document, "verifier_result": {"rewards": {"reward": 1}}}, ACTED).outcome is Outcome.PASSED
    for unknown in (elsewhere, classify(document, IDLE)):  # whose disk it was, or that the agent began, is not known
        assert unknown.outcome is Outcome.ERRORED


@pytest.mark.parametrize("name", ["OSError", "MemoryError", "SandboxError"])
def test_what_this_machine_lacks_is_not_the_agents_in_its_own_sandbox_either(name: str) -> None:
    document = rewarded(0, exception_info=error(name, "[Errno 28] No space left on device", when=20))
    document["config"]["environment"] = {"import_path": "terminalbench.sandbox.environment:LocalSandbox"}
    assert classify(document, ACTED).outcome is Outcome.ERRORED


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("OSError", "[Errno 24] Too many open files", ErrorClass.OPEN_FILES),
        ("OSError", "[Errno 23] Too many open files in system: '/x'", ErrorClass.OPEN_FILES),
        ("SandboxError", "the sandbox did not start: [Errno 24] pipe: Too many open files", ErrorClass.OPEN_FILES),
        ("RuntimeError", "the model said: [Errno 24] Too many open files", ErrorClass.AGENT_CRASH),
    ],
)
def test_open_files_that_this_machine_lacks_are_not_the_agents(name: str, message: str, expected: ErrorClass) -> None:
    ending = classify(rewarded(0, exception_info=error(name, message, when=20)), ACTED)
    assert ending.error_class is expected


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


LIMIT = {"subtype": "success", "is_error": True, "api_error_status": 400, "terminal_reason": "prompt_too_long"}
POOR = {"subtype": "success", "is_error": True, "api_error_status": 400, "terminal_reason": "api_error"}


@pytest.mark.parametrize(
    ("event", "text", "expected"),
    [
        (LIMIT, "Prompt is too long · the request is ~250000 tokens (limit 200000)", ("failed", "agent_limit")),
        (POOR, "Prompt is too long", ("failed", "agent_limit")),
        (POOR, "Credit balance is too low", ("errored", "credit")),
        (POOR, "API Error: 400 nonsense", ("errored", "provider")),
    ],
)
@pytest.mark.parametrize("name", ["NonZeroAgentExitCodeError", "UnknownApiError"])
def test_what_a_refusal_says_counts_before_its_status(
    event: dict[str, Any], text: str, expected: tuple[str, str], name: str
) -> None:
    told = LogEvidence(session=ResultEvent(**event, result=text), acted=True)
    ending = classify(rewarded(0, exception_info=error(name, FAILED.format(code=1, out='{"a', err="None"), 20)), told)
    assert (ending.outcome, ending.error_class) == expected
    assert ending.error_message == text


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("RateLimitError", "OpenAIException - insufficient_quota: check your plan", ErrorClass.CREDIT),
        ("RateLimitError", "OpenAIException - slow down", ErrorClass.RATE_LIMIT),
        ("BadRequestError", "AnthropicException - Your credit balance is too low to access it", ErrorClass.CREDIT),
        ("BadRequestError", "prompt is too long: 250000 tokens > 200000 maximum", ErrorClass.AGENT_LIMIT),
        ("BudgetExceededError", "", ErrorClass.CREDIT),
        ("ApiUsageLimitError", "", ErrorClass.CREDIT),
    ],
)
def test_used_up_credit_and_context_have_classes_of_their_own(name: str, message: str, expected: ErrorClass) -> None:
    assert error_class(name, message, "agent") is expected


REFUSED = '{"type":"error","error":{"type":"rate_limit_error","message":"slow \\"down\\""}}'


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        ("RateLimitError", f"litellm.RateLimitError: {REFUSED}", 'litellm.RateLimitError: slow "down"'),
        ("ApiRateLimitError", FAILED.format(code=1, out=REFUSED, err="None"), 'exit 1: slow "down"'),
        ("ValueError", "no {json} here", "no {json} here"),
    ],
)
def test_an_api_error_shows_its_message_and_no_json(name: str, message: str, said: str) -> None:
    assert classify(result(**NOT_VERIFIED, exception_info=error(name, message, when=20))).error_message == said


def test_message_is_one_line_without_secrets() -> None:
    message = (
        "Command failed (exit 1): curl -H 'x-api-key: abc'\nstdout: working\n"
        "stderr: warning\nfatal: Authorization: Bearer abcdefghijklmnop rejected for sk-ant-api03-AAAABBBBCCCCDDDD"
    )
    text = classify(result(**NOT_VERIFIED, exception_info=error("RuntimeError", message, when=20))).error_message
    assert text is not None
    assert text.startswith("exit 1: fatal: Authorization:")
    assert "abcdefghijklmnop" not in text
    assert "AAAABBBB" not in text


def test_every_exception_of_the_installed_harbor_is_known() -> None:
    known = set(HARBOR_EXCEPTIONS) | BY_PHASE | NOT_IN_TRIALS
    defined = harbor_exceptions()
    assert len(defined) > 40
    assert defined - known == set(), "new in this Harbor: give each a class in error_classes.py, or name it above"
    assert known - defined == set(), "no longer in this Harbor: remove from error_classes.py"


def test_no_exception_has_two_meanings() -> None:
    assert set(HARBOR_EXCEPTIONS).isdisjoint(OTHER_EXCEPTIONS)
    assert set(HARBOR_EXCEPTIONS).isdisjoint(BY_PHASE | NOT_IN_TRIALS)


def test_unheard_of_exception_is_classed_by_its_phase() -> None:
    assert error_class("SomethingNew", "", "agent") is ErrorClass.AGENT_CRASH
    assert error_class("SomethingNew", "wrote 429 lines of code", "agent") is ErrorClass.AGENT_CRASH
    assert error_class("SomethingNew", "", "verifier") is ErrorClass.VERIFIER
    assert error_class("SomethingNew", "", "") is ErrorClass.UNKNOWN


OPENAI = (
    "litellm.InternalServerError: InternalServerError: OpenAIException - Missing credentials. Please pass an `api_key`"
)
OLDER = "OpenAIException - The api_key client option must be set either by passing api_key to the client or by setting"
GEMINI = "litellm.APIConnectionError: Missing Gemini API key. Set the GEMINI_API_KEY or GOOGLE_API_KEY environment"


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("InternalServerError", OPENAI, ErrorClass.AUTH),
        ("InternalServerError", OLDER, ErrorClass.AUTH),
        ("APIError", "AzureException APIError - Missing credentials. Please pass one of `api_key`", ErrorClass.AUTH),
        ("APIConnectionError", GEMINI, ErrorClass.AUTH),
        ("InternalServerError", "OpenAIException - the api_key service is down", ErrorClass.PROVIDER),
        (
            "InternalServerError",
            "litellm.InternalServerError: OpenAIException - Connection error..",
            ErrorClass.NETWORK,
        ),
        ("APIConnectionError", "OpenAIException - [Errno 111] Connection refused", ErrorClass.NETWORK),
        ("ApiInternalServerError", OPENAI, ErrorClass.PROVIDER),
        ("RateLimitError", OPENAI, ErrorClass.RATE_LIMIT),
    ],
)
def test_a_client_without_a_key_says_so_in_its_message_only(name: str, message: str, expected: ErrorClass) -> None:
    assert error_class(name, message, "agent") is expected


def harbor_exceptions() -> set[str]:
    """The names of all exception classes in the installed Harbor, found in its source without importing it."""
    spec = importlib.util.find_spec("harbor")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    texts = [path.read_text() for path in Path(next(iter(spec.submodule_search_locations))).rglob("*.py")]
    headers = [HEADER.findall(text) for text in texts]
    may_be = _exceptions({name: set(WORD.findall(header)) for found in headers for name, header in found})
    bases: dict[str, set[str]] = {}
    for text, found in zip(texts, headers, strict=True):
        if may_be.isdisjoint(name for name, _ in found):
            continue  # whatever its classes inherit from, it is no exception: most files are not worth parsing
        for node in _classes(ast.parse(text)):
            names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            bases.setdefault(node.name, set()).update(names)
    return _exceptions(bases)


def _exceptions(bases: dict[str, set[str]]) -> set[str]:
    """Those that inherit from a built-in exception, directly or by way of others."""
    found: set[str] = set()
    builtin = {name for name, value in vars(builtins).items() if _is_exception(value)}
    grown = True
    while grown:
        new = {name for name, parents in bases.items() if name not in found and parents & (builtin | found)}
        found |= new
        grown = bool(new)
    return found


def _classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # no class stands in an expression
        if isinstance(child, ast.ClassDef):
            yield child
        yield from _classes(child)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("RuntimeError", "Prompt is too long", ErrorClass.AGENT_LIMIT),
        ("Exception", "context_length_exceeded: 210000 tokens", ErrorClass.AGENT_LIMIT),
        ("RuntimeError", "Your credit balance is too low to access the Anthropic API", ErrorClass.CREDIT),
        ("MyError", "insufficient_quota", ErrorClass.CREDIT),
        ("RuntimeError", "command failed: API Error: 429 rate_limit_error", ErrorClass.RATE_LIMIT),
        ("ConnectionError", "429 Too Many Requests: rate_limit_error", ErrorClass.RATE_LIMIT),
        ("ConnectionError", "connection reset by peer", ErrorClass.NETWORK),
        ("RuntimeError", "the tests failed", ErrorClass.AGENT_CRASH),
    ],
)
def test_an_agent_of_ones_own_tells_of_its_provider_in_any_exception(
    name: str, message: str, expected: ErrorClass
) -> None:
    assert error_class(name, message, "agent") is expected
    assert name == "ConnectionError" or error_class(name, message, "verifier") is ErrorClass.VERIFIER


def test_tests_that_end_without_the_agents_work_alone_are_its_failure() -> None:
    late = verifier_raised("VerifierTimeoutError")
    late["exception_info"]["exception_message"] = "Verifier execution timed out after 60.0 seconds"
    assert classify(late).error_class == "verifier"
    ending = classify(late, LogEvidence(tests_hung=True))
    assert (ending.outcome, ending.error_class) == ("failed", "tests_hung")
    assert (
        ending.error_message == "the verifier did not end within 60 s; without the agent's work, the same tests ended"
    )
