"""The one table of error classes: whose fault each is, when it is run again, what two in a row lead to.

The reader of results, retries, `resume --retry-errors`, the watchdog, `errors`, the dashboard and docs/results.md take
it from here; a test compares the docs.
"""

import re
from enum import StrEnum

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


class ErrorClass(StrEnum):
    """Why a trial has an error: whose fault it is, when it is run again, what it means.

    An `errored` trial always has one; other outcomes may. `stops` is the key of `[run]` that says what two in a row
    lead to.
    """

    fault: Fault
    again: RetryRule
    meaning: str
    stops: str | None

    def __new__(cls, name: str, fault: Fault, again: RetryRule, meaning: str, stops: str | None = None) -> "ErrorClass":
        """Make a row of the table."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.fault, made.again, made.meaning, made.stops = fault, again, meaning, stops
        return made

    SETUP = (
        "setup",
        Fault.BENCH,
        RetryRule.AT_ONCE,
        "the agent was not installed or prepared, or it ended before its model answered or it called a tool",
        "on_setup_failure",
    )
    ENVIRONMENT = "environment", Fault.BENCH, RetryRule.AT_ONCE, "the environment did not start, or broke"
    VERIFIER = "verifier", Fault.BENCH, RetryRule.ON_REQUEST, "the verifier gave no verdict"
    AUTH = "auth", Fault.BENCH, RetryRule.ON_REQUEST, "the provider refused the key", "on_auth_failure"
    CREDIT = "credit", Fault.BENCH, RetryRule.ON_REQUEST, "the account has no credit or quota left", "on_auth_failure"
    RATE_LIMIT = "rate_limit", Fault.BENCH, RetryRule.AT_ONCE, "the provider refused for too many requests"
    PROVIDER = "provider", Fault.BENCH, RetryRule.AT_ONCE, "the provider failed, was overloaded, or never answered"
    NETWORK = "network", Fault.BENCH, RetryRule.AT_ONCE, "the provider could not be reached, or the stream was cut"
    MODEL_NOT_FOUND = "model_not_found", Fault.BENCH, RetryRule.ON_REQUEST, "the provider does not know the model"
    OUT_OF_MEMORY = "out_of_memory", Fault.BENCH, RetryRule.AT_ONCE, "the memory of the environment was used up"
    DISK_FULL = "disk_full", Fault.BENCH, RetryRule.AT_ONCE, "the disk of the environment was full"
    PROCESS_LIMIT = "process_limit", Fault.BENCH, RetryRule.AT_ONCE, "the environment had no process left to start"
    OPEN_FILES = "open_files", Fault.BENCH, RetryRule.ON_REQUEST, "this machine, not the agent, ran out of open files"
    AGENT_CRASH = (
        "agent_crash",
        Fault.PROFILE,
        RetryRule.BY_NAME,
        "the agent ended with its own error, after it had acted",
    )
    AGENT_LIMIT = (
        "agent_limit",
        Fault.PROFILE,
        RetryRule.BY_NAME,
        "the agent ran out of turns, context, output or its own budget, or used up its sandbox after it had acted",
    )
    AGENT_TIMEOUT = "agent_timeout", Fault.PROFILE, RetryRule.BY_NAME, "the agent ran out of time while it worked"
    SAFETY_REFUSAL = "safety_refusal", Fault.PROFILE, RetryRule.BY_NAME, "the model refused the task"
    HUNG = (
        "hung",
        Fault.BENCH,
        RetryRule.ON_REQUEST,
        "the trial could not be ended: its agent ignored two cancellations, or blocked Harbor's event loop",
    )
    ENVIRONMENT_BROKEN = (
        "environment_broken",
        Fault.PROFILE,
        RetryRule.BY_NAME,
        "the agent left an environment in which the tests cannot run",
    )
    TESTS_HUNG = (
        "tests_hung",
        Fault.PROFILE,
        RetryRule.BY_NAME,
        "the tests did not end with the agent's work, but did without it",
    )
    GUARD = "guard", Fault.BENCH, RetryRule.ON_REQUEST, "a guard of the workflow failed, exited or did not return"
    CANCELLED = "cancelled", Fault.BENCH, RetryRule.ON_REQUEST, "the trial was interrupted; `resume` runs it again"
    UNKNOWN = "unknown", Fault.BENCH, RetryRule.ON_REQUEST, "an error that no rule recognises"

    @property
    def of_profile(self) -> bool:
        """Return whether it is what the profile does: then it counts as not passed."""
        return self.fault is Fault.PROFILE
