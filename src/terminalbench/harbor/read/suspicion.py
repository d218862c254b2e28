"""Reasons to look at a trial before believing its number. Flags, never a change of outcome."""

from collections import Counter
from collections.abc import Sequence

from terminalbench.harbor.read.claude_stream import Stream
from terminalbench.harbor.read.delivery import not_connected
from terminalbench.harbor.read.outcome import Ending
from terminalbench.harbor.read.safety import SafetyNote
from terminalbench.records import AgentStatus, Delivery, Outcome, Usage

SHORT_SEC = 1.0
"""No model has read a task, acted and answered in less."""

WITHOUT_MODEL = frozenset({"oracle", "nop"})
"""Harbor's agents that never call a model."""


def suspect(
    ending: Ending,
    *,
    uses_model: bool,
    agent_sec: float | None,
    calls: int | None,
    usage: Usage,
    delivery: Delivery,
    streams: Sequence[Stream],
    safety: SafetyNote | None,
) -> list[str]:
    """The reasons why this trial's number is suspect, by name; empty when there is none."""
    reasons: list[str] = []
    measured = ending.outcome in (Outcome.PASSED, Outcome.FAILED)
    if uses_model and measured:
        if calls == 0:
            reasons.append("no_tool_calls")
        if usage.output_tokens == 0 or (usage.output_tokens is None and not usage.input_tokens):
            reasons.append("no_tokens")
        if ending.agent_status is AgentStatus.COMPLETED and agent_sec is not None and agent_sec < SHORT_SEC:
            reasons.append("implausibly_short")
    if any(stream.result is not None and stream.result.permission_denials for stream in streams):
        reasons.append("permission_denied")
    late = sum((stream.late_hooks for stream in streams), Counter())
    reasons += [f"hook_timed_out:{name}" for name in sorted(late)]
    reasons += [f"mcp_not_connected:{name}" for name in not_connected(delivery)]
    reasons += [f"tampering:{name}" for name in (safety.tampering if safety else ())]
    return reasons
