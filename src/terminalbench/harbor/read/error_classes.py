"""Every exception Harbor 0.24 can put into a trial, by name, and the class of error we call it.

A test compares this table with the exceptions defined in the installed Harbor, so that an upgrade which
brings a new one cannot pass unnoticed.
"""

import re

from terminalbench.records import ErrorClass

HARBOR_EXCEPTIONS: dict[str, ErrorClass] = {
    # the trial itself
    "AgentSetupTimeoutError": ErrorClass.SETUP,
    "AgentTimeoutError": ErrorClass.AGENT_TIMEOUT,
    "EnvironmentStartTimeoutError": ErrorClass.ENVIRONMENT,
    "VerifierTimeoutError": ErrorClass.VERIFIER,
    "RegradeError": ErrorClass.SETUP,
    # verifier
    "AddTestsDirError": ErrorClass.VERIFIER,
    "DownloadVerifierDirError": ErrorClass.VERIFIER,
    "RewardFileEmptyError": ErrorClass.VERIFIER,
    "RewardFileNotFoundError": ErrorClass.VERIFIER,
    "VerifierOutputParseError": ErrorClass.VERIFIER,
    # environments
    "GKEExecStreamClosedError": ErrorClass.ENVIRONMENT,
    "GKEPodNotFoundError": ErrorClass.ENVIRONMENT,
    "HealthcheckError": ErrorClass.ENVIRONMENT,
    "MemoryLimitExceededError": ErrorClass.OUT_OF_MEMORY,
    "SandboxBuildFailedError": ErrorClass.ENVIRONMENT,
    "SandboxLikelyOutOfMemoryError": ErrorClass.OUT_OF_MEMORY,
    "ServiceOperationsUnsupportedError": ErrorClass.ENVIRONMENT,
    "SSHAccessError": ErrorClass.ENVIRONMENT,
    "VercelScopeError": ErrorClass.ENVIRONMENT,
    "_SnapshotNeedsCreate": ErrorClass.ENVIRONMENT,
    # agents and their model providers
    "AgentAuthenticationError": ErrorClass.AUTH,
    "AgentSafetyRefusalError": ErrorClass.SAFETY_REFUSAL,
    "ApiConnectionClosedError": ErrorClass.NETWORK,
    "ApiConnectionError": ErrorClass.NETWORK,
    "ApiError": ErrorClass.PROVIDER,
    "ApiInternalServerError": ErrorClass.PROVIDER,
    "ApiOverloadedError": ErrorClass.PROVIDER,
    "ApiProviderResourceNotFoundError": ErrorClass.PROVIDER,
    "ApiRateLimitError": ErrorClass.RATE_LIMIT,
    "ApiResponseStalledError": ErrorClass.PROVIDER,
    "ApiUsageLimitError": ErrorClass.RATE_LIMIT,
    "ContextLengthExceededError": ErrorClass.AGENT_LIMIT,
    "ContextWindowExceededError": ErrorClass.AGENT_LIMIT,
    "ModelNotFoundError": ErrorClass.MODEL_NOT_FOUND,
    "NetworkConnectionError": ErrorClass.NETWORK,
    "OutputLengthExceededError": ErrorClass.AGENT_LIMIT,
    "OutputTokenExceededError": ErrorClass.AGENT_LIMIT,
    "RuntimeRequestError": ErrorClass.AGENT_CRASH,
    "UnknownApiError": ErrorClass.PROVIDER,
    # missing pieces of the installation
    "DspyImportError": ErrorClass.SETUP,
    "MissingExtraError": ErrorClass.SETUP,
}
"""Harbor's exceptions that say by themselves what went wrong."""

BY_PHASE: frozenset[str] = frozenset({"NonZeroAgentExitCodeError"})
"""Harbor's exceptions that mean something else in each phase, as Python's own do."""

NOT_IN_TRIALS: frozenset[str] = frozenset(
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

OTHER_EXCEPTIONS: dict[str, ErrorClass] = {
    "CancelledError": ErrorClass.CANCELLED,
    "KeyboardInterrupt": ErrorClass.CANCELLED,
    "MemoryError": ErrorClass.OUT_OF_MEMORY,
    "ConnectionError": ErrorClass.NETWORK,
    "ConnectionRefusedError": ErrorClass.NETWORK,
    "ConnectionResetError": ErrorClass.NETWORK,
    "BrokenPipeError": ErrorClass.NETWORK,
    # httpx, openai, anthropic and LiteLLM: raised by agents that run in Harbor's own process
    "APIConnectionError": ErrorClass.NETWORK,
    "APIError": ErrorClass.PROVIDER,
    "APIStatusError": ErrorClass.PROVIDER,
    "APITimeoutError": ErrorClass.NETWORK,
    "AuthenticationError": ErrorClass.AUTH,
    "BadGatewayError": ErrorClass.PROVIDER,
    "BudgetExceededError": ErrorClass.RATE_LIMIT,
    "ConnectError": ErrorClass.NETWORK,
    "ConnectTimeout": ErrorClass.NETWORK,
    "ContentPolicyViolationError": ErrorClass.SAFETY_REFUSAL,
    "InternalServerError": ErrorClass.PROVIDER,
    "NotFoundError": ErrorClass.MODEL_NOT_FOUND,
    "OverloadedError": ErrorClass.PROVIDER,
    "PermissionDeniedError": ErrorClass.AUTH,
    "RateLimitError": ErrorClass.RATE_LIMIT,
    "ReadError": ErrorClass.NETWORK,
    "ReadTimeout": ErrorClass.NETWORK,
    "RemoteProtocolError": ErrorClass.NETWORK,
    "ServiceUnavailableError": ErrorClass.PROVIDER,
    "Timeout": ErrorClass.NETWORK,
}
"""Exceptions of Python and of model clients that say by themselves what went wrong."""

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

_NO_KEY = re.compile(
    r"(?i)\bmissing credentials\b|\bapi_key client option must be set\b|\bmissing [\w ]*\bapi[ _]key\b"
)
"""What model clients say without a key, in exceptions that are called after the server or the network."""

_STATUS = {401: ErrorClass.AUTH, 403: ErrorClass.AUTH, 404: ErrorClass.MODEL_NOT_FOUND, 429: ErrorClass.RATE_LIMIT}


def error_class(name: str, message: str, phase: str) -> ErrorClass:
    """The class of an exception called `name` that was raised in `phase` of a trial."""
    known = HARBOR_EXCEPTIONS.get(name) or OTHER_EXCEPTIONS.get(name)
    if known is ErrorClass.ENVIRONMENT and phase == "verifier":
        return ErrorClass.VERIFIER  # a separate verifier has an environment of its own
    if (
        name in OTHER_EXCEPTIONS
        and known in (ErrorClass.PROVIDER, ErrorClass.NETWORK)
        and _NO_KEY.search(_own_words(message))
    ):
        return ErrorClass.AUTH
    if known is not None:
        return known
    for pattern, found in _MESSAGES:
        if pattern.search(_own_words(message)):
            return found
    return PHASES.get(phase, ErrorClass.UNKNOWN)


def _own_words(message: str) -> str:
    """The part of a message that is about the failure: not what the agent printed, which may talk of anything."""
    head, printed, tail = message.partition("\nstdout: ")
    if printed:
        return head[:100] + tail.rpartition("\nstderr: ")[2][-2000:]
    return message[:2000] + message[-2000:]


def status_class(status: int | None) -> ErrorClass:
    """The class of an HTTP error from a model provider; no status means it was never reached."""
    if status is None:
        return ErrorClass.NETWORK
    return _STATUS.get(status, ErrorClass.PROVIDER)
