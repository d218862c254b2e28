"""The one table of error classes: whose fault each is, when it is run again, what two in a row lead to.

The reader of results, retries, `resume --retry-errors`, the watchdog, `errors`, the dashboard and docs/results.md take
it from here; a test compares the docs.
"""

import re
from enum import StrEnum

import msgspec

TOO_LONG = re.compile(
    r"(?i)\bprompt is too long\b|context[_ ](?:length|window)[_ ]exceeded|maximum context length|"
    r"exceeds? the (?:model's )?(?:maximum )?context (?:length|window)"
)
"""How providers say that a prompt does not fit the model's window."""


class Fault(StrEnum):
    """Whose fault an error is."""

    BENCH = "bench"
    """It says nothing about the profile: not measured."""
    PROFILE = "profile"
    """It is what the profile does: measured, as not passed."""


class RetryRule(StrEnum):
    """When trials with an error are run again."""

    AT_ONCE = "at once"
    """As often as `run.retries` says, and by `resume --retry-errors`."""
    ON_REQUEST = "on request"
    """By `resume --retry-errors`: until somebody has mended something it would happen again."""
    BY_NAME = "by name"
    """By `resume --retry-errors CLASS` only: the first verdict counts all the same."""


class ErrorInfo(msgspec.Struct, frozen=True):
    """What is to know of a class of errors. `stops` is the key of `[run]` that says what two in a row lead to."""

    fault: Fault
    again: RetryRule
    meaning: str
    stops: str | None = None


class ErrorClass(StrEnum):
    """Why a trial has an error. An `errored` trial always has one; other outcomes may. `ERRORS` has what each means."""

    SETUP = "setup"
    ENVIRONMENT = "environment"
    VERIFIER = "verifier"
    AUTH = "auth"
    CREDIT = "credit"
    RATE_LIMIT = "rate_limit"
    PROVIDER = "provider"
    NETWORK = "network"
    MODEL_NOT_FOUND = "model_not_found"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    PROCESS_LIMIT = "process_limit"
    OPEN_FILES = "open_files"
    AGENT_CRASH = "agent_crash"
    AGENT_LIMIT = "agent_limit"
    AGENT_TIMEOUT = "agent_timeout"
    SAFETY_REFUSAL = "safety_refusal"
    HUNG = "hung"
    ENVIRONMENT_BROKEN = "environment_broken"
    TESTS_HUNG = "tests_hung"
    GUARD = "guard"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def info(self) -> ErrorInfo:
        """Whose fault it is, when it is run again, what it means."""
        return ERRORS[self]

    @property
    def of_profile(self) -> bool:
        """Return whether it is what the profile does: then it counts as not passed."""
        return self.info.fault is Fault.PROFILE


ERRORS: dict[ErrorClass, ErrorInfo] = {
    ErrorClass.SETUP: ErrorInfo(
        Fault.BENCH,
        RetryRule.AT_ONCE,
        "the agent was not installed or prepared, or it ended before its model answered or it called a tool",
        "on_setup_failure",
    ),
    ErrorClass.ENVIRONMENT: ErrorInfo(Fault.BENCH, RetryRule.AT_ONCE, "the environment did not start, or broke"),
    ErrorClass.VERIFIER: ErrorInfo(Fault.BENCH, RetryRule.ON_REQUEST, "the verifier gave no verdict"),
    ErrorClass.AUTH: ErrorInfo(Fault.BENCH, RetryRule.ON_REQUEST, "the provider refused the key", "on_auth_failure"),
    ErrorClass.CREDIT: ErrorInfo(
        Fault.BENCH, RetryRule.ON_REQUEST, "the account has no credit or quota left", "on_auth_failure"
    ),
    ErrorClass.RATE_LIMIT: ErrorInfo(Fault.BENCH, RetryRule.AT_ONCE, "the provider refused for too many requests"),
    ErrorClass.PROVIDER: ErrorInfo(
        Fault.BENCH, RetryRule.AT_ONCE, "the provider failed, was overloaded, or never answered"
    ),
    ErrorClass.NETWORK: ErrorInfo(
        Fault.BENCH, RetryRule.AT_ONCE, "the provider could not be reached, or the stream was cut"
    ),
    ErrorClass.MODEL_NOT_FOUND: ErrorInfo(Fault.BENCH, RetryRule.ON_REQUEST, "the provider does not know the model"),
    ErrorClass.OUT_OF_MEMORY: ErrorInfo(Fault.BENCH, RetryRule.AT_ONCE, "the memory of the environment was used up"),
    ErrorClass.DISK_FULL: ErrorInfo(Fault.BENCH, RetryRule.AT_ONCE, "the disk of the environment was full"),
    ErrorClass.PROCESS_LIMIT: ErrorInfo(Fault.BENCH, RetryRule.AT_ONCE, "the environment had no process left to start"),
    ErrorClass.OPEN_FILES: ErrorInfo(
        Fault.BENCH, RetryRule.ON_REQUEST, "this machine, not the agent, ran out of open files"
    ),
    ErrorClass.AGENT_CRASH: ErrorInfo(
        Fault.PROFILE, RetryRule.BY_NAME, "the agent ended with its own error, after it had acted"
    ),
    ErrorClass.AGENT_LIMIT: ErrorInfo(
        Fault.PROFILE,
        RetryRule.BY_NAME,
        "the agent ran out of turns, context, output or its own budget, or used up its sandbox after it had acted",
    ),
    ErrorClass.AGENT_TIMEOUT: ErrorInfo(Fault.PROFILE, RetryRule.BY_NAME, "the agent ran out of time while it worked"),
    ErrorClass.SAFETY_REFUSAL: ErrorInfo(Fault.PROFILE, RetryRule.BY_NAME, "the model refused the task"),
    ErrorClass.HUNG: ErrorInfo(
        Fault.BENCH,
        RetryRule.ON_REQUEST,
        "the trial could not be ended: its agent ignored two cancellations, or blocked Harbor's event loop",
    ),
    ErrorClass.ENVIRONMENT_BROKEN: ErrorInfo(
        Fault.PROFILE, RetryRule.BY_NAME, "the agent left an environment in which the tests cannot run"
    ),
    ErrorClass.TESTS_HUNG: ErrorInfo(
        Fault.PROFILE, RetryRule.BY_NAME, "the tests did not end with the agent's work, but did without it"
    ),
    ErrorClass.GUARD: ErrorInfo(
        Fault.BENCH, RetryRule.ON_REQUEST, "a guard of the workflow failed, exited or did not return"
    ),
    ErrorClass.CANCELLED: ErrorInfo(
        Fault.BENCH, RetryRule.ON_REQUEST, "the trial was interrupted; `resume` runs it again"
    ),
    ErrorClass.UNKNOWN: ErrorInfo(Fault.BENCH, RetryRule.ON_REQUEST, "an error that no rule recognises"),
}
