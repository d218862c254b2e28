"""Errors by their class: whose they are, by exception, message and what the client said."""

import ast
import builtins
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from results_kit import error, result, rewarded
from test_outcome import ACTED, IDLE, NOT_VERIFIED

from terminalbench.faults import ErrorClass, RetryRule
from terminalbench.harbor.read.agent_logs import LogEvidence
from terminalbench.harbor.read.claude_stream import ResultEvent
from terminalbench.harbor.read.error_classes import (
    BY_PHASE,
    HARBOR_EXCEPTIONS,
    OTHER_EXCEPTIONS,
    error_class,
)
from terminalbench.harbor.read.outcome import classify
from terminalbench.records.trial import Outcome

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
    assert ErrorClass(expected).again is RetryRule.BY_NAME
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
