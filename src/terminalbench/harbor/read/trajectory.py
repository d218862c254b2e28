"""The little we need of a trajectory (Harbor's ATIF document) to judge a trial: calls and totals.

The decoder skips every other field, whatever the schema version.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import read_plain

FILE_NAME = "trajectory.json"
SIZE_LIMIT = 512 << 20


class FinalMetrics(msgspec.Struct, frozen=True):
    """Totals the agent wrote at the end. `total_prompt_tokens` includes cached tokens."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    extra: dict[str, Any] | None = None


class _ToolCall(msgspec.Struct):
    function_name: str | None = None


class _Step(msgspec.Struct):
    tool_calls: list[_ToolCall] | None = None


class _Subagent(msgspec.Struct):
    steps: list[_Step] = []


class _Trajectory(msgspec.Struct):
    steps: list[_Step]
    final_metrics: FinalMetrics | None = None
    subagent_trajectories: list[_Subagent] | None = None


@dataclass
class TrajectorySummary:
    """How often each tool was called, subagents included, and the totals."""

    steps: int
    calls: Counter[str] = field(default_factory=Counter)
    final_metrics: FinalMetrics | None = None


_decoder = msgspec.json.Decoder(_Trajectory)


def summarize(path: Path) -> TrajectorySummary | None:
    """The summary of the trajectory at `path`; None when there is none that can be read."""
    data = read_plain(path, SIZE_LIMIT)
    if not data:
        return None
    try:
        document = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    summary = TrajectorySummary(steps=len(document.steps), final_metrics=document.final_metrics)
    for part in (document, *(document.subagent_trajectories or ())):
        for step in part.steps:
            summary.calls.update(call.function_name or "" for call in step.tool_calls or ())
    return summary
