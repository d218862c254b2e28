"""The agent's log folders of a trial: its Claude Code sessions, and the calls and totals of its trajectories.

A trajectory (Harbor's ATIF document) is decoded only on demand, and of it only the fields that are needed, whatever the
schema version.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import is_plain
from terminalbench.harbor.read import claude_stream, provider_wait
from terminalbench.harbor.read.claude_stream import ClaudeStream, ResultEvent
from terminalbench.harbor.read.notes import read_seen
from terminalbench.harbor.read.result_file import HarborResult
from terminalbench.harbor.read.session_start import SessionStart, codex_start, cursor_start, from_trajectory
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import ProviderWait, Usage
from terminalbench.records.values import known_total, total
from terminalbench.workflow.history import read_usage

TRAJECTORY = "trajectory.json"
WORKFLOW = "workflow"
"""The client that is no program of others: the agent's process runs a workflow, and writes its trace."""
SIZE_LIMIT = 512 << 20
_OWN_START: dict[str, Callable[[Path], SessionStart | None]] = {"codex": codex_start, "cursor-cli": cursor_start}
"""Agents whose own log, other than Claude Code's stream, tells how a session started."""


UNTOLD_CALLS = "tool_calls_unknown"
"""In `extra` of a trajectory: it does not tell which tools were called."""


class FinalMetrics(msgspec.Struct, frozen=True):
    """Totals the agent wrote at the end. `total_prompt_tokens` includes cached tokens."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    extra: dict[str, Any] | None = None


class _LoggedToolCall(msgspec.Struct, gc=False):
    function_name: str | None = None


class _Metrics(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None


class _LoggedStep(msgspec.Struct, gc=False):
    source: str | None = None
    tool_calls: list[_LoggedToolCall] | None = None
    metrics: _Metrics | None = None


class _Subagent(msgspec.Struct, gc=False):
    steps: list[_LoggedStep] = []


class _TrajectoryAgent(msgspec.Struct, gc=False):
    version: Any = None
    model_name: Any = None
    tool_definitions: Any = None


class _LoggedTrajectory(msgspec.Struct, gc=False):
    steps: list[_LoggedStep]
    agent: _TrajectoryAgent | None = None
    final_metrics: FinalMetrics | None = None
    subagent_trajectories: list[_Subagent] | None = None
    extra: dict[str, Any] | None = None


@dataclass(frozen=True)
class TrajectorySummary:
    """The number of calls of each tool, subagents included, the totals, what its agent says it had, and its own steps.

    `calls` is None where the trajectory says that it does not tell them: a text that a program printed.
    """

    calls: Counter[str] | None
    final_metrics: FinalMetrics | None
    start: SessionStart | None = None
    agent_steps: int = 0


def summarize(path: str | Path) -> TrajectorySummary | None:
    """The summary of the trajectory at `path`; None when there is none that can be read."""
    document: _LoggedTrajectory | None = decode_plain(path, _LoggedTrajectory, SIZE_LIMIT)
    if document is None:
        return None
    steps = [step for part in (document, *(document.subagent_trajectories or ())) for step in part.steps]
    called = Counter([call.function_name or "" for step in steps for call in step.tool_calls or ()])
    untold = (document.extra or {}).get(UNTOLD_CALLS) is True
    agent = document.agent
    start = from_trajectory(agent.model_name, agent.version, agent.tool_definitions) if agent is not None else None
    own = sum(step.source == "agent" for step in document.steps)
    return TrajectorySummary(None if untold else called, _totals(document.final_metrics, steps), start, own)


def _totals(told: FinalMetrics | None, steps: list[_LoggedStep]) -> FinalMetrics | None:
    """The totals that the agent wrote; those of its steps where it was cut off before it could write any."""
    if told is not None and (told.total_prompt_tokens or told.total_completion_tokens or told.total_cost_usd):
        return told
    metered = [step.metrics for step in steps if step.metrics is not None]
    if not metered:
        return told
    return FinalMetrics(
        total(step.prompt_tokens for step in metered),
        total(step.completion_tokens for step in metered),
        known_total(step.cached_tokens for step in metered),
        total(step.cost_usd for step in metered),
    )


@dataclass(frozen=True)
class LogEvidence:
    """The end of an agent by its logs, for `outcome.classify`.

    `session` is the last word of a Claude Code session. `acted` is whether a model answered the agent or it called a
    tool; None: nothing tells. `unanswered`: it asked its model and had no answer of any kind. `program_hung`: a program
    of the agent's ran when the tests were out of time, as the verifier has noted. `unreached`: it tried to reach its
    model, and never did, as the sandbox has noted. `tests_hung`: the tests did not end on its work, and did without it.
    `cancelled`: the trial was interrupted, as the plugin has noted: Harbor keeps an earlier exception of the agent.
    """

    session: ResultEvent | None = None
    wait: ProviderWait | None = None
    acted: bool | None = None
    unanswered: bool = False
    program_hung: bool = False
    unreached: bool = False
    tests_hung: bool = False
    cancelled: bool = False


class AgentLogs:
    """Everything the agent's log folders of a trial tell, read once. `result` is None while there is none.

    Any agent can write a file with the name of a client's log. It is read only of the client that the agent is known to
    run: `client` for Claude Code (`planned.client_of`), the agent's name for others. Of any other file nothing is
    believed: neither what was used, nor what was called, nor how it ended.
    """

    def __init__(self, trial_dir: Path, result: HarborResult | None, agent: str | None, client: str | None) -> None:
        self.folders = _agent_folders(trial_dir, result)
        self.by_folder: list[ClaudeStream | None] = [
            claude_stream.read_stream(f"{folder}/{claude_stream.FILE_NAME}") if client == claude_stream.SOURCE else None
            for folder in self.folders
        ]
        self.streams: list[ClaudeStream] = [stream for stream in self.by_folder if stream is not None]
        self._is_codex = agent == provider_wait.CODEX
        self._own_start = _OWN_START.get(agent or "")
        self.trajectory_paths = [path for folder in self.folders if is_plain(path := f"{folder}/{TRAJECTORY}")]
        self.seen = read_seen(trial_dir)
        self._workflow = trial_dir if client == WORKFLOW else None

    def traced(self) -> Usage | None:
        """Return what the trace of a guarded workflow says was used; None of any other agent."""
        return read_usage(self._workflow) if self._workflow is not None else None

    @property
    def starts(self) -> list[SessionStart]:
        """The start of each run of the agent that told what it had: in its own log, else in its trajectory."""
        own = [stream.init for stream in self.streams]
        if self._own_start is not None:
            own += [self._own_start(folder) for folder in self.folders]
        found = [start for start in own if start is not None]
        return found or [summary.start for summary in self.summaries if summary.start is not None]

    @property
    def session(self) -> ResultEvent | None:
        """The last word of the last Claude Code session, if there was one."""
        last = self.by_folder[-1]
        return last.result if last is not None else None

    @cached_property
    def wait(self) -> ProviderWait | None:
        """The agent's waits for its provider; None when none of its clients tells."""
        if self.seen.wait is not None:
            return self.seen.wait
        told = [stream.refusals for stream in self.streams]
        if self._is_codex:
            told = [found for folder in self.folders if (found := provider_wait.read_codex(folder)) is not None]
        return provider_wait.added([one.told() for one in told])

    def evidence(self, result: HarborResult) -> LogEvidence:
        """Return what there is to know of how the agent ended. Trajectories are decoded only after an error."""
        errors = [result.exception_info, *(step.exception_info for step in result.step_results or ())]
        broken = any(errors) or (self.session is not None and self.session.is_error)
        acted = self._acted(result) if broken else None
        silent = self.streams[-1].unanswered if self.streams else self.seen.unanswered
        # A stream that an agent has cut back to its beginning is not believed: whatever else tells of an answer counts.
        return LogEvidence(self.session, self.wait, acted, silent and acted is False)

    def _acted(self, result: HarborResult) -> bool | None:
        """Any sign of an answer or a call is one; else who would have seen one says that there was none."""
        signs = [
            any(stream.answers or stream.calls for stream in self.streams),
            bool(self.seen.answers),
            any(context.n_output_tokens for context in result.contexts),
            any(summary.agent_steps or summary.calls for summary in self.summaries),
        ]
        if any(signs):
            return True
        if self.streams or self.seen.asked or self.summaries:
            return False
        return None if self.seen.commands is None else self.seen.commands > 0

    @cached_property
    def summaries(self) -> list[TrajectorySummary]:
        """One for each trajectory that can be read."""
        return [summary for summary in map(summarize, self.trajectory_paths) if summary is not None]

    @property
    def calls(self) -> Counter[str] | None:
        """Every tool call by name, from the streams where there are any, else from the trajectories."""
        counts = [stream.calls for stream in self.streams] or [summary.calls for summary in self.summaries]
        if not counts or any(count is None for count in counts):
            return None
        return sum((count for count in counts if count is not None), Counter())

    @property
    def agent_steps(self) -> int | None:
        """The steps of the agent itself; unknown without a trajectory."""
        return sum(summary.agent_steps for summary in self.summaries) if self.summaries else None

    @property
    def metrics(self) -> list[FinalMetrics]:
        """The totals of the trajectories; none where the sessions say everything themselves."""
        if self.streams and all(stream and stream.result for stream in self.by_folder):
            return []
        return [summary.final_metrics for summary in self.summaries if summary.final_metrics is not None]


def _agent_folders(trial_dir: Path, result: HarborResult | None) -> list[Path]:
    names = _step_names(trial_dir) if result is None else [step.step_name for step in result.step_results or ()]
    steps = [trial_dir / "steps" / name / "agent" for name in names if name and "/" not in name and name != ".."]
    folders = [folder for folder in steps if folder.is_dir()]
    return folders or [trial_dir / "agent"]


def _step_names(trial_dir: Path) -> list[str]:
    try:
        with os.scandir(trial_dir / "steps") as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []
