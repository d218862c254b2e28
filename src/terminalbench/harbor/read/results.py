"""From a trial's folder to a `Trial` record: reading only, and never an exception for what is on the disk.

    <job>/<trial>/result.json                 Harbor's result; a trial without it has not finished
                  config.json, lock.json      how it was configured; digest of the task
                  planned.json                what the plugin knew of it beforehand: the price of its tokens
                  seen.json                   what the plugin saw of the agent: commands, answers, refusals
                  times.json                  the moments between its phases, by two clocks
                  hung.json                   why we ended it, or that its Harbor process died of it
                  safety.json                 what the safe verifier found
                  lessons.json                what it was shown of a memory
                  workflow/trace.jsonl        what a guarded workflow did
                  agent/{claude-code.txt,trajectory.json,delivery.json}
                  steps/<step>/agent/...      the same, of a multi-step task

Files under `agent` are the agent's own words. The outcome comes from `result.json`; what its client tells of its
provider's refusals, and of its own end, decides only whose fault an error or a time-out is. It never makes a pass.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED
from terminalbench.experiments.agents import recorded
from terminalbench.files import is_plain, read_plain
from terminalbench.harbor.limits.hangs import HELD, HoldReason, read_hang
from terminalbench.harbor.read import RESULT
from terminalbench.harbor.read import usage as usage_sources
from terminalbench.harbor.read.agent_logs import AgentLogs, FinalMetrics, LogEvidence
from terminalbench.harbor.read.delivery import deliver, read_lessons, read_notes
from terminalbench.harbor.read.egress import never_reached, read_egress
from terminalbench.harbor.read.notes import PlannedTrial, Times, client_of, read_planned, read_times
from terminalbench.harbor.read.outcome import TrialEnding, classify
from terminalbench.harbor.read.result_file import (
    AgentConfig,
    ExceptionInfo,
    HarborResult,
    TaskId,
    Timing,
    TrialConfig,
    decode,
    from_result,
    iso,
)
from terminalbench.harbor.read.suspicion import SafetyNote, read_safety, suspect
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import (
    CLOCK_JUMPED,
    Outcome,
    Phases,
    ProviderWait,
    ReadState,
    Trial,
    TrialReading,
    Usage,
)
from terminalbench.records.values import total
from terminalbench.secrets.values import NONE, Secrets

NOT_READABLE = f"{RESULT} may not be read, or is too large"
_RESULT_LIMIT = 1 << 30
_SMALL_LIMIT = 16 << 20
_SIMULATED = "simulated"
_AGENT_BEGAN = frozenset({"agent", "collect", "verifier"})


class _TaskLock(msgspec.Struct):
    digest: str | None = None


class _Lock(msgspec.Struct):
    task: _TaskLock = msgspec.field(default_factory=_TaskLock)


def read_trial(trial_dir: Path, *, profile: str | None = None, secrets: Secrets = NONE) -> TrialReading:
    """The trial in `trial_dir`. What is missing, torn or corrupt is a reading with a reason, never an exception."""
    data = read_plain(f"{trial_dir}/{RESULT}", _RESULT_LIMIT)
    try:
        result = decode(data) if data is not None else _died(trial_dir)
    except NOT_DECODED as error:
        return _known(trial_dir, ReadState.UNREADABLE, f"{RESULT} is {_what_it_is(data or b'', error)}")
    if result is None:
        return _known(trial_dir, *_no_result(trial_dir))
    return TrialReading.of(_trial(trial_dir, result, profile, secrets), trial_dir.name)


def _died(trial_dir: Path) -> HarborResult | None:
    """Return what Harbor would have recorded of a trial that killed it; None: of this one that is not known."""
    hang = read_hang(trial_dir)
    config = decode_plain(trial_dir / "config.json", TrialConfig, _SMALL_LIMIT)
    if hang is None or not hang.died or config is None:
        return None
    began = read_planned(trial_dir).started_at
    ran = Timing(began)
    return HarborResult(
        task_name=str(config.task),
        trial_name=trial_dir.name,
        task_id=TaskId(config.task.path, name=config.task.name),
        source=config.task.source,
        config=config,
        exception_info=ExceptionInfo("CancelledError"),
        started_at=began,
        agent_setup=ran,
        agent_execution=ran if hang.phase in _AGENT_BEGAN else None,
    )


def trial_dirs(job_dir: Path) -> Iterator[Path]:
    """The trial folders of a Harbor job folder, by name; anything else in it is passed over."""
    try:
        entries = sorted(job_dir.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink() or not entry.is_dir():
            continue
        if any((entry / name).is_file() for name in (RESULT, "config.json", "lock.json")):
            yield entry


def read_job(job_dir: Path, *, profile: str | None = None) -> list[TrialReading]:
    """Every trial of a Harbor job folder, ours or not."""
    return [read_trial(folder, profile=profile) for folder in trial_dirs(job_dir)]


def finished_trials(job_dir: Path) -> Counter[tuple[str, str]]:
    """Return how many finished trials the folder holds of each (dataset label, task id): these are not run again."""
    return Counter(cell for _, cell in finished_folders(job_dir))


def finished_folders(job_dir: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The folders of the finished trials of a job, each with its dataset label and task id.

    Finished is a trial with an ending other than cancelled. One that we cancelled because it hung is finished too: it
    would hang again. So is one that killed Harbor, and one that was cancelled on request, even before it started. A
    torn file counts for none.
    """
    for folder in trial_dirs(job_dir):
        data = read_plain(folder / RESULT, _RESULT_LIMIT)
        try:
            result = decode(data) if data is not None else _died(folder)
        except NOT_DECODED:
            continue
        if result is not None:
            told = LogEvidence(cancelled=_was_cancelled(folder, result))
            ended = classify(result, told).outcome not in (Outcome.CANCELLED, Outcome.NOT_RUN)
            if (ended and result.finished_at is not None) or read_hang(folder) is not None:
                yield folder, (result.config.task.dataset or "", str(result.config.task))
            continue
        held = decode_plain(folder / HELD, HoldReason, _SMALL_LIMIT)
        if held is not None and held.finished:
            config = decode_plain(folder / "config.json", TrialConfig, _SMALL_LIMIT) or TrialConfig()
            yield folder, (config.task.dataset or "", str(config.task))


class LiveEnding(msgspec.Struct, frozen=True):
    """The end of a trial that has just ended, its usage, and its waits for the provider."""

    ending: TrialEnding
    usage: Usage
    wait: ProviderWait | None = None


def live_ending(trial_dir: Path, result: Any, secrets: Secrets = NONE) -> LiveEnding:
    """The same judgement for a trial whose result is at hand as Harbor's object.

    Trajectories are decoded only after an error, or where nothing else tells what was used.
    """
    found = from_result(result)
    planned = read_planned(trial_dir)
    logs = AgentLogs(trial_dir, found, found.agent, _client(found, planned))
    used = _used(found, logs, planned, [])
    if used.total_tokens is None and logs.trajectory_paths:
        used = _used(found, logs, planned, logs.metrics)
    evidence = _evidence(trial_dir, logs, found, read_safety(trial_dir))
    ending = classify(found, evidence, read_hang(trial_dir), secrets)
    return LiveEnding(ending, used, logs.wait)


def _trial(trial_dir: Path, result: HarborResult, profile: str | None, secrets: Secrets) -> Trial:
    agent, planned = recorded(result.agent), read_planned(trial_dir)
    around, _, name = str(trial_dir).rpartition("/")  # many thousand times: no further Path
    logs = AgentLogs(trial_dir, result, result.agent, _client(result, planned))
    safety = read_safety(trial_dir)
    ending = classify(result, _evidence(trial_dir, logs, result, safety), read_hang(trial_dir), secrets)
    used = _used(result, logs, planned, logs.metrics, logs.traced)
    calls = logs.calls
    notes = read_notes([context.metadata for context in result.contexts], logs.folders)
    simulated, times = _is_simulated(result), read_times(trial_dir)
    trial = Trial(
        id=str(result.id) if result.id is not None else result.trial_name,
        name=result.trial_name,
        job=around.rpartition("/")[2],
        task=result.task,
        outcome=ending.outcome,
        agent_status=ending.agent_status,
        job_id=None if result.config.job_id is None else str(result.config.job_id),
        task_name=result.task_name,
        dataset=result.dataset,
        task_digest=_task_digest(trial_dir),
        task_checksum=result.task_checksum,
        profile=profile,
        attempt=planned.attempt,
        agent=result.agent,
        agent_version=_version(result),
        model=result.model,
        reward=ending.reward,
        rewards=ending.rewards,
        error_class=ending.error_class,
        error_type=ending.error_type,
        error_message=ending.error_message,
        error_phase=ending.phase,
        phases=_phases(result, times),
        started_at=iso(result.started_at),
        finished_at=iso(result.finished_at),
        usage=used,
        wait=logs.wait,
        tool_calls=None if calls is None else calls.total(),
        agent_steps=logs.agent_steps,
        delivery=deliver(result.config.agent, notes, logs.streams, logs.starts, calls, read_lessons(trial_dir)),
        egress=read_egress(trial_dir),
        simulated=simulated,
        result_path=f"{name}/{RESULT}",
        trajectory_paths=[path.removeprefix(f"{around}/") for path in logs.trajectory_paths],
    )
    uses_model = trial.model is not None and (agent is None or agent.model) and not simulated
    hosts = result.config.task.hosts
    reports = bool(logs.streams) or (agent is not None and agent.usage == "claude-code") or _declares_usage(result)
    reasons = suspect(
        trial, logs.streams, safety, uses_model=uses_model, reports=reports, task_hosts=hosts,
        commands=logs.seen.commands,
        silent=trial.agent == "command" and not any(map(_printed, logs.folders)),
    )  # fmt: skip
    reasons += [CLOCK_JUMPED] if times.jumped else []
    return msgspec.structs.replace(trial, suspect=reasons) if reasons else trial


def _printed(agent_folder: str | Path) -> bool:
    """Return whether a command printed anything."""
    kept = (Path(agent_folder, name) for name in ("stdout.txt", "stderr.txt"))
    return any(is_plain(path) and path.stat().st_size > 0 for path in kept)


def _declares_usage(result: HarborResult) -> bool:
    """Return whether the profile of a command says where it prints its tokens: then none told is none used."""
    command = result.config.agent.kwargs.get("command")
    return isinstance(command, dict) and bool(command.get("usage"))


def _used(
    result: HarborResult,
    logs: AgentLogs,
    planned: PlannedTrial,
    metrics: Sequence[FinalMetrics],
    traced: Callable[[], Usage | None] = lambda: None,
) -> Usage:
    """Return what a trial used; the cost is known to be zero where it broke before the set-up of its agent.

    That its environment was begun and the agent was not says so; a result without times says nothing.
    """
    used = usage_sources.best(result.model, result.contexts, logs.by_folder, metrics, planned.price, traced)
    begun = result.environment_setup is None or result.agent_setup is not None or result.agent_timings
    broke = result.exception_info is not None and not begun
    return Usage(cost_usd=0.0, cost_source="not started") if broke and not used.known else used


def _evidence(trial_dir: Path, logs: AgentLogs, result: HarborResult, safety: SafetyNote | None) -> LogEvidence:
    return replace(
        logs.evidence(result),
        program_hung=safety is not None and safety.program_hung,
        tests_hung=safety is not None and safety.untouched_ended is True,
        unreached=result.exception_info is not None and never_reached(trial_dir),
        cancelled=_was_cancelled(trial_dir, result),
    )


def _was_cancelled(trial_dir: Path, result: HarborResult) -> bool:
    error = result.exception_info
    return error is not None and result.verifier_result is None and read_times(trial_dir).cancelled


def _client(result: HarborResult, planned: PlannedTrial) -> str | None:
    return client_of(result.agent, result.config.agent.import_path, planned)


def _what_it_is(data: bytes, error: Exception) -> str:
    """Return what a file is that cannot be read as a result."""
    if not data.strip():
        return "empty"
    if isinstance(error, msgspec.ValidationError):
        return f"not a Harbor result: {error}"
    begun = data.lstrip().startswith(b"{") and not data.rstrip().endswith(b"}")
    return "cut off: it ends in the middle" if begun else "not JSON"


def _no_result(trial_dir: Path) -> tuple[ReadState, str]:
    """Return what a trial without a result is, and why it has none."""
    if is_plain(trial_dir / RESULT):
        return ReadState.UNREADABLE, NOT_READABLE
    if not trial_dir.is_dir():
        return ReadState.UNREADABLE, "no such folder"
    if (trial_dir / RESULT).exists() or (trial_dir / RESULT).is_symlink():
        return ReadState.UNREADABLE, f"{RESULT} cannot be read as a plain file"
    held = decode_plain(trial_dir / HELD, HoldReason, _SMALL_LIMIT)
    if held is not None:
        return ReadState.HELD, held.reason
    return ReadState.UNFINISHED, f"no {RESULT}: running, or interrupted"


def _known(trial_dir: Path, state: ReadState, reason: str) -> TrialReading:
    config = decode_plain(trial_dir / "config.json", TrialConfig, _SMALL_LIMIT)
    agent, planned = config.agent if config else AgentConfig(), read_planned(trial_dir)
    logs = AgentLogs(trial_dir, None, agent.name, client_of(agent.name, agent.import_path, planned))
    spent = usage_sources.best(agent.model_name, [], logs.by_folder, [], planned.price, logs.traced)
    return TrialReading(
        state=state,
        name=trial_dir.name,
        job=trial_dir.parent.name,
        reason=reason,
        task=str(config.task) or None if config else None,
        dataset=config.task.dataset if config else None,
        usage=spent,
    )


def _phases(result: HarborResult, times: Times) -> Phases:
    found = Phases(
        environment_sec=_seconds([result.environment_setup]),
        agent_setup_sec=_seconds([result.agent_setup]),
        agent_sec=_seconds(result.agent_timings),
        verifier_sec=_seconds(result.verifier_timings),
    )
    return msgspec.structs.replace(found, **dict.fromkeys(times.unknown))


def _seconds(timings: list[Timing] | list[Timing | None]) -> float | None:
    seconds = total(timing.seconds for timing in timings if timing is not None)
    return None if seconds is None else round(seconds, 6)


def _version(result: HarborResult) -> str | None:
    version = result.agent_info.version if result.agent_info else None
    return None if version in (None, "", "unknown") else version


def _is_simulated(result: HarborResult) -> bool:
    if result.agent_info is not None and result.agent_info.name == _SIMULATED:
        return True
    return any((context.metadata or {}).get(_SIMULATED) is True for context in result.contexts)


def _task_digest(trial_dir: Path) -> str | None:
    lock = decode_plain(f"{trial_dir}/lock.json", _Lock, _SMALL_LIMIT)
    return lock.task.digest if lock else None
