"""How a trial ended: the one place where that is decided. Pure: nothing is read, nothing is written.

A trial is *passed* when its primary reward is at least 1 and *failed* when it is below 1; the primary reward
is the key "reward", else the only key there is. With several keys and none called "reward" it is not said what
passing is, and the trial is errored (verifier).

The verifier's word is kept whatever became of the agent: an agent that timed out, ran into a limit, refused
or crashed but left a solved task behind has passed. A reward below 1 is the agent's failure only if the agent
had its chance: when the machinery broke (no key, rate limit, network, crash, out of memory), Harbor's 0 is
not a measurement and the trial is errored.
"""

import math
import re
from datetime import datetime
from typing import Any, TypeGuard

import msgspec

from terminalbench.harbor.limits.hangs import Hang
from terminalbench.harbor.read.claude_stream import ResultEvent
from terminalbench.harbor.read.error_classes import BY_PHASE, PHASES, error_class, status_class
from terminalbench.harbor.read.result_file import ExceptionInfo, HarborResult, StepResult, Timing, as_utc, from_result
from terminalbench.records import AgentStatus, ErrorClass, Outcome
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.numbers import duration

PASS_REWARD = 1.0
PRIMARY_KEY = "reward"

AGENT_HAD_ITS_CHANCE = frozenset(
    {ErrorClass.AGENT_TIMEOUT, ErrorClass.AGENT_LIMIT, ErrorClass.SAFETY_REFUSAL, ErrorClass.CANCELLED}
)
"""Errors that leave a reward below 1 what it is: a failure."""

_VAGUE = BY_PHASE | {"ApiError", "UnknownApiError"}
_TIMED_OUT = re.compile(r"timed out after ([\d.]+) seconds$")
_LATE = {
    "EnvironmentStartTimeoutError": "the start of the environment",
    "AgentSetupTimeoutError": "agent setup",
    "AgentTimeoutError": "the agent",
    "VerifierTimeoutError": "the verifier",
}
_LIMITS = frozenset({"error_max_turns", "error_max_budget_usd"})
_STATUS = {
    ErrorClass.AGENT_TIMEOUT: AgentStatus.TIMED_OUT,
    ErrorClass.AGENT_LIMIT: AgentStatus.LIMIT_REACHED,
    ErrorClass.SAFETY_REFUSAL: AgentStatus.REFUSED,
    ErrorClass.CANCELLED: AgentStatus.CANCELLED,
}


class Ending(msgspec.Struct, frozen=True):
    """The end of a trial. `phase` is where the error happened, if there was one."""

    outcome: Outcome
    agent_status: AgentStatus
    reward: float | None = None
    rewards: dict[str, float] = {}
    error_class: ErrorClass | None = None
    error_type: str | None = None
    error_message: str | None = None
    phase: str | None = None


def classify(
    result: Any, session: ResultEvent | None = None, hang: Hang | None = None, secrets: Secrets = NONE
) -> Ending:
    """How the trial of `result` (a decoded `result.json`, a dict, or Harbor's `TrialResult`) ended.

    `session` is the last word of a Claude Code session, if there was one: the CLI may report an error that
    never became an exception. `hang` is the note of a trial that we ended. `secrets` are taken out of the message.
    """
    trial = from_result(result)
    rewards = _numbers(trial.verifier_result.rewards if trial.verifier_result else None)
    reward = _verdict(trial, rewards)
    error, phase = _exception(trial)
    found = error_class(error.exception_type, error.exception_message, phase or "") if error else None
    kind, message = error.exception_type if error else None, _message(error, secrets)
    if hang is not None and hang.asked and found is ErrorClass.CANCELLED:
        message = hang.reason
    elif hang is not None and found is ErrorClass.CANCELLED:
        where = "stop" if trial.verifier_result is not None else hang.phase
        found, phase, kind, message = PHASES.get(where, ErrorClass.UNKNOWN), where, "Hang", hang.reason
    elif session is not None and (error is None or error.exception_type in _VAGUE):
        told = _session_error(session)
        if told is not None and (error is None or phase == "agent"):
            found, phase, message = told, "agent", _session_message(session, secrets) or message
    if error is None and found is None and _was_cut_off(trial):
        found, phase, message = (
            ErrorClass.CANCELLED,
            "agent",
            "ended before the verifier, without an error: interrupted",
        )
    outcome = _outcome(trial, reward, found, phase)
    if outcome is Outcome.ERRORED and found is None:
        found, phase, message = ErrorClass.VERIFIER, "verifier", _no_verdict(trial, rewards)
    return Ending(
        outcome=outcome,
        agent_status=_agent_status(trial, found, phase),
        reward=reward,
        rewards=rewards,
        error_class=found,
        error_type=kind,
        error_message=message,
        phase=phase,
    )


def primary_reward(rewards: dict[str, float]) -> float | None:
    """The reward that decides: the key "reward", else the only key; None when there is no such one."""
    if PRIMARY_KEY in rewards:
        return rewards[PRIMARY_KEY]
    return next(iter(rewards.values())) if len(rewards) == 1 else None


def _numbers(rewards: dict[str, Any] | None) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in (rewards or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _verdict(trial: HarborResult, rewards: dict[str, float]) -> float | None:
    # Harbor averages over the steps that were verified: a crash in step 2 must not leave step 1's 1.0 as the reward.
    if any(step.verifier_result is None for step in trial.step_results or ()):
        return None
    return primary_reward(rewards)


def _exception(trial: HarborResult) -> tuple[ExceptionInfo | None, str | None]:
    """The exception that counts and the phase it came from: the trial's own, else that of the last step with one."""
    if trial.exception_info is not None:
        return trial.exception_info, _phase(trial, trial.exception_info)
    for step in reversed(trial.step_results or ()):
        if step.exception_info is not None:
            return step.exception_info, _phase_of_run(step, step.exception_info) or "environment"
    return None, None


def _phase(trial: HarborResult, error: ExceptionInfo) -> str:
    run = trial.step_results[-1] if trial.step_results else trial
    phase = _phase_of_run(run, error)
    if phase is not None:
        return phase
    if _started(trial.agent_setup):
        return "agent_setup"
    return "environment" if _started(trial.environment_setup) else "setup"


def _phase_of_run(run: HarborResult | StepResult, error: ExceptionInfo) -> str | None:
    """The phase of an exception by the last timing that had begun before it; None when the agent had not started."""
    if _started(run.verifier):
        if _before(error.occurred_at, run.verifier.started_at):
            return "agent"  # Harbor keeps the agent's exception and starts the verifier
        done = run.verifier_result is not None and _before(run.verifier.finished_at, error.occurred_at)
        return "stop" if done else "verifier"
    if _started(run.agent_execution):
        collecting = "_collect_artifacts" in error.exception_traceback or "_upload_agent" in error.exception_traceback
        return "collect" if collecting else "agent"
    return None


def _was_cut_off(trial: HarborResult) -> bool:
    """Whether Harbor was interrupted in a way that left no exception: SIGTERM can end a trial in mid-sentence."""
    wanted = not (trial.config.install_only or trial.config.verifier.disable)
    return wanted and trial.verifier_result is None and not trial.verifier_timings


def _outcome(trial: HarborResult, reward: float | None, found: ErrorClass | None, phase: str | None) -> Outcome:
    if reward is not None:
        if reward >= PASS_REWARD:
            return Outcome.PASSED
        innocent = found is None or found in AGENT_HAD_ITS_CHANCE or phase == "stop"
        return Outcome.FAILED if innocent else Outcome.ERRORED
    if found is ErrorClass.AGENT_TIMEOUT:
        return Outcome.TIMED_OUT
    if found is ErrorClass.CANCELLED:
        return Outcome.CANCELLED
    if found is None and trial.config.install_only:
        return Outcome.NOT_RUN
    return Outcome.ERRORED


def _agent_status(trial: HarborResult, found: ErrorClass | None, phase: str | None) -> AgentStatus:
    if not trial.agent_timings:
        return AgentStatus.NOT_STARTED
    if found is None or phase != "agent":
        return AgentStatus.COMPLETED
    return _STATUS.get(found, AgentStatus.CRASHED)


def _session_error(session: ResultEvent) -> ErrorClass | None:
    if session.subtype in _LIMITS or session.terminal_reason in ("max_turns", "max_budget"):
        return ErrorClass.AGENT_LIMIT
    if not session.is_error:
        return None
    if session.api_error_status is not None or session.terminal_reason == "api_error":
        return status_class(session.api_error_status)
    return ErrorClass.AGENT_CRASH


def _session_message(session: ResultEvent, secrets: Secrets) -> str | None:
    text = session.result or "; ".join(session.errors)
    return secrets.one_line(text) if text else None


def _no_verdict(trial: HarborResult, rewards: dict[str, float]) -> str:
    if trial.config.verifier.disable:
        return "verification was switched off"
    if len(rewards) > 1:
        return f'no primary reward: none of {", ".join(sorted(rewards))} is called "{PRIMARY_KEY}"'
    return "the verifier left no numeric reward"


def _message(error: ExceptionInfo | None, secrets: Secrets) -> str | None:
    """What an exception says in one line: of a failed command, its exit code and its last words."""
    if error is None:
        return None
    limit = _TIMED_OUT.search(error.exception_message)
    if limit is not None and error.exception_type in _LATE:
        return f"{_LATE[error.exception_type]} did not end within {duration(float(limit[1]))}"
    head, printed, output = error.exception_message.partition("\nstdout: ")
    if not (printed and head.startswith("Command failed (exit ")):
        return secrets.one_line(error.exception_message) or None
    words = [line.strip() for line in output.replace("\nstderr: ", "\n")[-4000:].splitlines()]
    last = next((line for line in reversed(words) if line and line != "None"), "")
    code = head.removeprefix("Command failed (").partition(")")[0]
    return secrets.one_line(f"{code}: {last}" if last else head)


def _started(timing: Timing | None) -> TypeGuard[Timing]:
    return timing is not None and timing.started_at is not None


def _before(first: datetime | None, second: datetime | None) -> bool:
    return first is not None and second is not None and as_utc(first) <= as_utc(second)
