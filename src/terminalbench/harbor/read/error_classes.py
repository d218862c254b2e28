"""Every exception Harbor 0.24 can put into a trial, by name, and the class of error we call it.

A test compares this table with the exceptions defined in the installed Harbor, so that an upgrade which
brings a new one cannot pass unnoticed.
"""

import re

from terminalbench.faults import TOO_LONG, ErrorClass


def _by_name(table: str) -> dict[str, ErrorClass]:
    """Return the classes by exception name, from lines of a class and names of exceptions."""
    lines = (line.split() for line in table.strip().splitlines())
    return {name: ErrorClass(kind) for kind, *names in lines for name in names}


HARBOR_EXCEPTIONS = _by_name(
    """
    setup            AgentSetupTimeoutError DspyImportError MissingExtraError RegradeError
    environment      _SnapshotNeedsCreate EnvironmentStartTimeoutError GKEExecStreamClosedError
    environment      GKEPodNotFoundError HealthcheckError SandboxBuildFailedError
    environment      ServiceOperationsUnsupportedError SSHAccessError VercelScopeError
    verifier         AddTestsDirError DownloadVerifierDirError RewardFileEmptyError RewardFileNotFoundError
    verifier         VerifierOutputParseError VerifierTimeoutError
    agent_crash      RuntimeRequestError
    agent_timeout    AgentTimeoutError
    agent_limit      ContextLengthExceededError ContextWindowExceededError OutputLengthExceededError
    agent_limit      OutputTokenExceededError
    auth             AgentAuthenticationError
    credit           ApiUsageLimitError
    rate_limit       ApiRateLimitError
    provider         ApiError ApiInternalServerError ApiOverloadedError ApiProviderResourceNotFoundError
    provider         ApiResponseStalledError UnknownApiError
    model_not_found  ModelNotFoundError
    network          ApiConnectionClosedError ApiConnectionError NetworkConnectionError
    out_of_memory    MemoryLimitExceededError SandboxLikelyOutOfMemoryError
    safety_refusal   AgentSafetyRefusalError
    """
)
"""Harbor's exceptions that say by themselves what went wrong."""

BY_PHASE: frozenset[str] = frozenset({"NonZeroAgentExitCodeError"})
"""Harbor's exceptions that mean something else in each phase, as Python's own do."""

OTHER_EXCEPTIONS = _by_name(
    """
    auth             AuthenticationError PermissionDeniedError
    credit           BudgetExceededError
    rate_limit       RateLimitError
    provider         APIError APIStatusError BadGatewayError InternalServerError OverloadedError
    provider         ServiceUnavailableError SimulatedCrash SimulatedOutage
    model_not_found  NotFoundError
    network          APIConnectionError APITimeoutError BrokenPipeError ConnectError ConnectionError
    network          ConnectionRefusedError ConnectionResetError ConnectTimeout ReadError ReadTimeout
    network          RemoteProtocolError Timeout
    out_of_memory    MemoryError
    safety_refusal   ContentPolicyViolationError
    cancelled        CancelledError KeyboardInterrupt
    environment      SandboxNetworkError WorkspaceError
    environment_broken  EnvironmentBrokenError
    guard            GuardFaultError
    unknown          WorkflowBrokenError
    """
)
"""Those of Python, of model clients (httpx, openai, anthropic, LiteLLM), of our verifier and agents that say by
themselves what went wrong."""

PHASES: dict[str, ErrorClass] = {
    "setup": ErrorClass.SETUP,
    "environment": ErrorClass.ENVIRONMENT,
    "agent_setup": ErrorClass.SETUP,
    "agent": ErrorClass.AGENT_CRASH,
    "collect": ErrorClass.ENVIRONMENT,
    "verifier": ErrorClass.VERIFIER,
    "stop": ErrorClass.ENVIRONMENT,
}
"""What an exception that says nothing by its name means in each phase of a trial."""

_MESSAGES = (
    (
        re.compile(
            r"(?i)\bout of memory\b|\boom[ -]?kill|cannot allocate memory|\(exit 137\)|memory limit exceeded|"
            r"MemoryError\b|exit(?:ed with)? (?:code|status) 137\b|memory limit of \d+ MB reached"
        ),
        ErrorClass.OUT_OF_MEMORY,
    ),
    (
        re.compile(r"(?i)no space left on device|disk quota exceeded|storage limit of \d+ MB reached"),
        ErrorClass.DISK_FULL,
    ),
    (re.compile(r"process limit of \d+ reached"), ErrorClass.PROCESS_LIMIT),
)

_USED_UP = frozenset({ErrorClass.OUT_OF_MEMORY, ErrorClass.DISK_FULL, ErrorClass.PROCESS_LIMIT})
_NO_FILES = re.compile(r"\s*(?:\w+: )?\[Errno 2[34]\]|.{0,200}: Too many open files(?: in system)?\s*\Z", re.DOTALL)
_OF_THIS_SIDE = frozenset({"OSError", "SandboxError", "SandboxBuildFailedError"})
"""Exceptions of Harbor's own process: what runs out inside shows as the exit of a command."""

_NO_KEY = re.compile(
    r"(?i)\bmissing credentials\b|\bapi_key client option must be set\b|\bmissing [\w ]*\bapi[ _]key\b"
)
"""What model clients say without a key, in exceptions that are called after the server or the network."""

_NO_CREDIT = re.compile(
    r"(?i)credit balance is too low|\binsufficient[_ ](?:quota|credits?|funds|balance)\b|"
    r"\bbilling_(?:error|hard_limit)|no credits remaining|unpaid invoice|payment required"
)
_NOT_REACHED = re.compile(r"Exception - (?:Connection error|Cannot connect to host|\[Errno (?:111|113|-2|-3)\])")
"""What LiteLLM says of a server that was not reached, in an exception that is called after the server."""
_TOO_MANY = re.compile(
    r"(?i)\brate_limit_error\b|\btoo many requests\b|^429\b|\b(?:error|status|code|http)\b\W{0,3}(?:code\W{0,3})?429\b"
)
_STATUS = {
    401: ErrorClass.AUTH,
    402: ErrorClass.CREDIT,
    403: ErrorClass.AUTH,
    404: ErrorClass.MODEL_NOT_FOUND,
    429: ErrorClass.RATE_LIMIT,
}
_REFUSALS = (ErrorClass.PROVIDER, ErrorClass.NETWORK, ErrorClass.RATE_LIMIT, ErrorClass.AUTH)


def error_class(name: str, message: str, phase: str) -> ErrorClass:
    """The class of an exception called `name` that was raised in `phase` of a trial."""
    known, words = HARBOR_EXCEPTIONS.get(name) or OTHER_EXCEPTIONS.get(name), _own_words(message)
    of_client = name in OTHER_EXCEPTIONS and known in (ErrorClass.PROVIDER, ErrorClass.NETWORK)
    if name in _OF_THIS_SIDE and _NO_FILES.match(message):
        return ErrorClass.OPEN_FILES
    if known is ErrorClass.ENVIRONMENT and phase == "verifier":
        return ErrorClass.VERIFIER  # a separate verifier has an environment of its own
    if of_client and _NO_KEY.search(words):
        return ErrorClass.AUTH
    if (known in _REFUSALS or name == "BadRequestError") and (said := refusal_class(words)) is not None:
        return said
    if of_client and _TOO_MANY.search(words):
        return ErrorClass.RATE_LIMIT
    if name == "InternalServerError" and _NOT_REACHED.search(words):
        return ErrorClass.NETWORK
    if known is not None:
        return known
    for pattern, found in _MESSAGES:
        if pattern.search(words):
            return found
    if phase == "agent" and name not in BY_PHASE:  # an agent of one's own tells of its provider in any exception
        said = refusal_class(words)
        if said is not None or _TOO_MANY.search(words):
            return said or ErrorClass.RATE_LIMIT
    return PHASES.get(phase, ErrorClass.UNKNOWN)


def used_up_class(name: str, message: str, found: ErrorClass | None) -> ErrorClass | None:
    """Return the class of an agent's end in the local sandbox, after it had acted, for want of memory, disk, processes.

    Their limits are the trial's own, and the sandbox says when one is reached: a command that was killed without such
    a word was killed from inside. None: the error says something else, or is one of Harbor's own process.
    """
    inside = name not in _OF_THIS_SIDE and name not in HARBOR_EXCEPTIONS and name not in OTHER_EXCEPTIONS
    if found not in _USED_UP or not inside:
        return None
    killed = found is ErrorClass.OUT_OF_MEMORY and "memory limit of" not in _own_words(message)
    return ErrorClass.AGENT_CRASH if killed else ErrorClass.AGENT_LIMIT


def refusal_class(text: str) -> ErrorClass | None:
    """The class that the words of a provider's refusal give it, whatever its status; None: they say nothing special."""
    if _NO_CREDIT.search(text):
        return ErrorClass.CREDIT
    return ErrorClass.AGENT_LIMIT if TOO_LONG.search(text) else None


def _own_words(message: str) -> str:
    """The part of a message that is about the failure: not what the agent printed, which may talk of anything."""
    head, printed, tail = message.partition("\nstdout: ")
    if printed:
        return head[:100] + tail.rpartition("\nstderr: ")[2][-2000:]
    return message if len(message) <= 4000 else f"{message[:2000]}\n{message[-2000:]}"


def status_class(status: int | None) -> ErrorClass:
    """The class of an HTTP error from a model provider; no status means it was never reached."""
    if status is None:
        return ErrorClass.NETWORK
    return _STATUS.get(status, ErrorClass.PROVIDER)
