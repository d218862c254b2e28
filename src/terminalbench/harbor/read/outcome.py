"""The outcome of a trial: the one place where it is decided. Pure: nothing is read, nothing is written.

A trial is *passed* when its primary reward is at least 1 and *failed* when it is below 1; the primary reward
is the key "reward", else the only key there is. With several keys and none called "reward" it is not said what
passing is, and the trial is errored (verifier).

A pass is kept whatever became of the agent: one that timed out, ran into a limit, refused or crashed but left a solved
task behind has passed. Otherwise it depends on whose fault the error is (`terminalbench.faults`). An error of the bench
(no key, rate limit, network, out of memory) says nothing about the profile: errored, whatever Harbor's 0 says. An error
of the profile is what the profile does: failed, with a verdict or without one. Two of them need evidence of what the
agent did. A crash of one that never reached its model is the network's, one before its model answered or it called a
tool is a failed start (setup). A time-out whose last
requests the provider refused or did not answer is the provider's. What an agent used up in the local sandbox (memory,
disk, processes) after it had acted is its own doing: otherwise an agent about to fail could fill the disk and be tried
again. A trial that killed its Harbor process is judged as one whose agent crashed.
"""

import math
import re
from datetime import datetime
from typing import Any, TypeGuard

import msgspec

from terminalbench import registry
from terminalbench.decode import decode
from terminalbench.faults import ErrorClass
from terminalbench.harbor.limits.hangs import Hang
from terminalbench.harbor.read.agent_logs import LogEvidence
from terminalbench.harbor.read.claude_stream import ResultEvent
from terminalbench.harbor.read.error_classes import (
    BY_PHASE,
    PHASES,
    error_class,
    refusal_class,
    status_class,
    used_up_class,
)
from terminalbench.harbor.read.result_file import ExceptionInfo, HarborResult, StepResult, Timing, as_utc, from_result
from terminalbench.records.trial import NO_ANSWER, AgentStatus, Outcome, ProviderWait
from terminalbench.records.values import total
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.numbers import duration, plural

PASS_REWARD = 1.0
PRIMARY_KEY = "reward"

START_SEC = 30.0
"""An agent that ended with an error and of which nothing tells what it did has acted if it lived longer than this."""

_RAN = re.compile(r"Command failed \(exit (?!12[67]\))")
"""The error of a command that was started and ended by itself."""

_VAGUE = BY_PHASE | {"ApiError", "UnknownApiError"}
_TIMED_OUT = re.compile(r"timed out after ([\d.]+) seconds$")
_LATE = {
    "EnvironmentStartTimeoutError": "the start of the environment",
    "AgentSetupTimeoutError": "agent setup",
    "AgentTimeoutError": "the agent",
    "VerifierTimeoutError": "the verifier",
}
_WHY_HUNG = {
    ErrorClass.ENVIRONMENT_BROKEN: ": it waited for a program of the agent's",
    ErrorClass.TESTS_HUNG: "; without the agent's work, the same tests ended",
}
_LIMITS = frozenset({"error_max_turns", "error_max_budget_usd"})
_LIMIT_REASONS = frozenset({"max_turns", "max_budget", "prompt_too_long"})
_API_MESSAGE = re.compile(r'"(?:message|result)":\s?"((?:[^"\\]|\\.)*)"')
_STATUS = {
    ErrorClass.AGENT_TIMEOUT: AgentStatus.TIMED_OUT,
    ErrorClass.AGENT_LIMIT: AgentStatus.LIMIT_REACHED,
    ErrorClass.SAFETY_REFUSAL: AgentStatus.REFUSED,
    ErrorClass.CANCELLED: AgentStatus.CANCELLED,
}


class TrialEnding(msgspec.Struct, frozen=True):
    """The end of a trial. `phase` is where the error happened, if there was one.

    `status` is the HTTP status of a provider that the agent waited for until its time ran out.
    """

    outcome: Outcome
    agent_status: AgentStatus
    reward: float | None = None
    rewards: dict[str, float] = {}
    error_class: ErrorClass | None = None
    error_type: str | None = None
    error_message: str | None = None
    phase: str | None = None
    status: str | None = None


def classify(
    result: Any, evidence: LogEvidence | None = None, hang: Hang | None = None, secrets: Secrets = NONE
) -> TrialEnding:
    """Return how the trial of `result` (a decoded `result.json`, a dict, or Harbor's `TrialResult`) ended.

    `evidence` is what the agent's logs tell: Claude Code may report an error that never became an exception. `hang` is
    the note of a trial that we ended. `secrets` are taken out of the message.
    """
    trial = from_result(result)
    told = evidence or LogEvidence()
    session = told.session
    rewards = _numbers(trial.verifier_result.rewards if trial.verifier_result else None)
    reward = _verdict(trial, rewards)
    stopped = told.cancelled and bool(trial.verifier_timings) and (hang is None or hang.asked)
    error, phase = (_INTERRUPTED, "verifier") if stopped else _exception(trial)
    kind = error.exception_type if error else None
    hung = _why_hung(told) if kind == "VerifierTimeoutError" else None
    named = error_class(error.exception_type, error.exception_message, phase or "") if error else None
    found, message = hung or named, _message(error, secrets, hung)
    if hang is not None and hang.died and found is ErrorClass.CANCELLED:
        phase, kind, message = "agent" if trial.agent_timings else "agent_setup", "HarborDied", hang.reason
        found = PHASES[phase]
    elif hang is not None and hang.asked and found is ErrorClass.CANCELLED:
        message = hang.reason
    elif hang is not None and found is ErrorClass.CANCELLED:
        # An agent that its own limit did not end is stuck in its environment: that is no crash of its own.
        where = "stop" if trial.verifier_result is not None else hang.phase
        stuck = ErrorClass.ENVIRONMENT if where == "agent" else PHASES.get(where, ErrorClass.UNKNOWN)
        stuck = ErrorClass.HUNG if hang.deaf else stuck
        found, phase, kind, message = stuck, where, "Hang", hang.reason
    elif session is not None and (error is None or phase == "agent") and found is not ErrorClass.AGENT_TIMEOUT:
        said = _session_error(session)
        if said is not None:
            vague = error is None or error.exception_type in _VAGUE
            found = said if vague or said in (ErrorClass.CREDIT, ErrorClass.AGENT_LIMIT) else found
            phase, message = "agent", _session_message(session, secrets) or message
    timed_out = found is ErrorClass.AGENT_TIMEOUT
    status = _outage(told) if timed_out else None
    if timed_out and session is not None and session.refused:
        # The session had ended by itself, and only its process had not.
        found, message = _session_error(session), _session_message(session, secrets)
    elif status is not None:
        code = int(status) if status.isdecimal() else None
        found = ErrorClass.PROVIDER if status == _SILENCE else status_class(code)
        message = _outage_message(told.wait, status, secrets)
    elif phase == "agent":
        found = _by_deeds(trial, told, error, found)
    if error is None and found is None and _was_cut_off(trial):
        found, phase, message = (
            ErrorClass.CANCELLED,
            "agent",
            "ended before the verifier, without an error: interrupted",
        )
    outcome = _outcome(trial, reward, found, phase)
    if hang is not None and hang.died and found is ErrorClass.AGENT_CRASH and reward is None:
        outcome = Outcome.FAILED  # in whatever phase: no verdict is to come
    if outcome is Outcome.ERRORED and (found is None or found.of_profile):
        found, phase, message = ErrorClass.VERIFIER, "verifier", _no_verdict(trial, rewards)
    return TrialEnding(
        outcome=outcome,
        agent_status=AgentStatus.TIMED_OUT if timed_out else _agent_status(trial, found, phase),
        reward=reward,
        rewards=rewards,
        error_class=found,
        error_type=kind,
        error_message=message,
        phase=phase,
        status=status,
    )


_SILENCE = "silence"
_INTERRUPTED = ExceptionInfo("CancelledError", "the verifier was interrupted before it gave a verdict")


def _outage(told: LogEvidence) -> str | None:
    """The last status of a provider that gave no answer until the agent's time ran out; None when it did."""
    if told.wait is not None and told.wait.at_end:
        return told.wait.last
    if told.unreached:
        return NO_ANSWER
    return _SILENCE if told.unanswered else None


def _outage_message(wait: ProviderWait | None, status: str, secrets: Secrets) -> str:
    if wait is None or status == _SILENCE:
        return "the provider never answered; the agent waited until its time ran out"
    what = "was not reached or cut off its answer" if status == NO_ANSWER else f"answered {status}"
    times = plural(wait.at_end, "time")
    return secrets.one_line(f"the provider {what} {times} in a row; the agent waited for it until its time ran out")


def _by_deeds(
    trial: HarborResult, told: LogEvidence, error: ExceptionInfo | None, found: ErrorClass | None
) -> ErrorClass | None:
    """The class of an error of the agent's phase, by what the agent had done before it."""
    if found is ErrorClass.AGENT_CRASH and told.unreached:
        return ErrorClass.NETWORK
    acted = _acted(trial, told, error)
    if found is ErrorClass.AGENT_CRASH and not acted:
        return ErrorClass.SETUP
    local = trial.config.environment.import_path == registry.BUILTIN["environments"]["local"]
    if error is None or not (acted and local):
        return found
    return used_up_class(error.exception_type, error.exception_message, found) or found


def _acted(trial: HarborResult, told: LogEvidence, error: ExceptionInfo | None) -> bool:
    """Return whether the agent had an answer of its model or called a tool before it crashed. A command had: it ran."""
    if told.acted is not None:
        return told.acted
    command = trial.config.agent.import_path == registry.BUILTIN["agents"]["command"]
    if command and error is not None and _RAN.match(error.exception_message):
        return True
    seconds = total(timing.seconds for timing in trial.agent_timings)
    return seconds is None or seconds > START_SEC


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
    phase = _phase_of_run(_last_run(trial), error)
    if phase is not None:
        return phase
    if _started(trial.agent_setup):
        return "agent_setup"
    return "environment" if _started(trial.environment_setup) else "setup"


def _why_hung(told: LogEvidence) -> ErrorClass | None:
    """Return whether it is the agent's doing that the tests did not end, and how."""
    if told.program_hung:
        return ErrorClass.ENVIRONMENT_BROKEN
    return ErrorClass.TESTS_HUNG if told.tests_hung else None


def _last_run(trial: HarborResult) -> HarborResult | StepResult:
    return trial.step_results[-1] if trial.step_results else trial


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
    """Return whether Harbor was interrupted without an exception: SIGTERM can end a trial at any moment."""
    wanted = not (trial.config.install_only or trial.config.verifier.disable)
    return wanted and trial.verifier_result is None and not trial.verifier_timings


def _outcome(trial: HarborResult, reward: float | None, found: ErrorClass | None, phase: str | None) -> Outcome:
    of_profile = found is not None and found.of_profile
    if reward is not None:
        if reward >= PASS_REWARD:
            return Outcome.PASSED
        # One that was cancelled after its verdict keeps it, as does one whose environment did not end well.
        counts = found is None or of_profile or found is ErrorClass.CANCELLED or phase == "stop"
        return Outcome.FAILED if counts else Outcome.ERRORED
    if found is ErrorClass.AGENT_TIMEOUT:
        return Outcome.TIMED_OUT
    if found is ErrorClass.CANCELLED:
        return Outcome.CANCELLED
    if found in (ErrorClass.ENVIRONMENT_BROKEN, ErrorClass.TESTS_HUNG):
        return Outcome.FAILED  # by the agent, so that no verdict could be given
    if of_profile and phase == "agent" and not _started(_last_run(trial).verifier):
        return Outcome.FAILED  # Harbor asks no verifier after most exceptions: the profile did not pass all the same
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
    if session.subtype in _LIMITS or session.terminal_reason in _LIMIT_REASONS:
        return ErrorClass.AGENT_LIMIT
    if not session.is_error:
        return None
    if session.refused:
        return refusal_class(session.result or "") or status_class(session.api_error_status)
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


def _message(error: ExceptionInfo | None, secrets: Secrets, hung: ErrorClass | None = None) -> str | None:
    """Return what an exception says in one line: of a failed command, its exit code and its last words."""
    if error is None:
        return None
    limit = _TIMED_OUT.search(error.exception_message)
    if limit is not None and error.exception_type in _LATE:
        late = f"{_LATE[error.exception_type]} did not end within {duration(float(limit[1]))}"
        return f"{late}{_WHY_HUNG[hung]}" if hung is not None else late
    head, printed, output = error.exception_message.partition("\nstdout: ")
    if not (printed and head.startswith("Command failed (exit ")):
        return secrets.one_line(_api_words(error.exception_message)) or None
    words = [line.strip() for line in output.replace("\nstderr: ", "\n")[-4000:].splitlines()]
    last = next((line for line in reversed(words) if line and line != "None"), "")
    code = head.removeprefix("Command failed (").partition(")")[0]
    return secrets.one_line(f"{code}: {_api_words(last)}" if last else head)


def _api_words(text: str) -> str:
    """The text, in which the JSON of an answer or of an event is replaced by what it says."""
    start = text.find("{")
    said = _API_MESSAGE.findall(text, start) if start >= 0 else []
    if not said:
        return text
    words = next((word for word in reversed(said) if word), said[-1])
    try:
        words = decode(f'"{words}"', str)
    except msgspec.DecodeError:
        pass  # shown as it is
    return f"{text[:start]}{words}".strip()


def _started(timing: Timing | None) -> TypeGuard[Timing]:
    return timing is not None and timing.started_at is not None


def _before(first: datetime | None, second: datetime | None) -> bool:
    return first is not None and second is not None and as_utc(first) <= as_utc(second)
