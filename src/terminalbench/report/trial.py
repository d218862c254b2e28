"""One trial as plain text."""

import os
from pathlib import Path

from terminalbench.files import is_plain, open_plain
from terminalbench.index.queries import TrialRow
from terminalbench.records import Delivery, Trial, Usage
from terminalbench.report.steps import Shown, instruction_lines, read_all, steps_lines
from terminalbench.text.foreign import line as printable
from terminalbench.text.numbers import UNKNOWN, count, dollars, duration
from terminalbench.text.outcomes import word

_VERIFIER_LINES = 20
_TAIL_BYTES = 64 * 1024


def trial_text(results_root: Path, batch: str, row: TrialRow, shown: Shown | None = None) -> str:
    """How it ended, what it used, what reached the agent, what it was told, its steps, and its verifier's words."""
    shown = shown or Shown()
    folder = results_root / batch / row.folder
    lines = [
        f"{row.name}",
        f"  batch     {batch}",
        f"  profile   {row.profile}",
        f"  task      {row.task} of {row.dataset}",
    ]
    if row.attempt is not None:
        lines.append(f"  attempt   {row.attempt}")
    if row.run_again:
        lines.append("  superseded yes: it was run again; its cost counts, its result does not")
    if row.trial is None:
        lines.append(f"  state     {row.state}: {row.reason}")
    else:
        lines += _ending(row.trial)
    lines += _usage(row.usage)
    if row.trial is not None:
        lines += _delivery(row.trial.delivery)
    lines.append(f"  files     {folder}")
    files = trajectories(folder, row)
    lines += [f"            {file}" for file in files]
    lines = [printable(line) for line in lines]
    found = read_all(files, shown.secrets)
    lines += instruction_lines(folder, found, shown)
    lines += steps_lines(folder, found, shown)
    lines += _verifier(folder, shown)
    return "\n".join(lines) + "\n"


def trajectories(folder: Path, row: TrialRow) -> list[Path]:
    """The trajectory files of a trial; of one that has not ended, what its agent has written so far."""
    if row.trial is not None and row.trial.trajectory_paths:
        return [folder.parent / path for path in row.trial.trajectory_paths]
    unfinished = folder / "agent" / "trajectory.json"
    return [unfinished] if is_plain(unfinished) else []


def _ending(trial: Trial) -> list[str]:
    reward = UNKNOWN if trial.reward is None else f"{trial.reward:g}"
    lines = [f"  outcome   {word(trial.outcome)} (reward {reward}, agent {word(trial.agent_status)})"]
    if trial.error_class is not None or trial.error_message:
        kind = " ".join(str(part) for part in (trial.error_class, trial.error_type) if part)
        lines.append(f"  error     {kind}: {trial.error_message}")
    lines += [f"  doubtful  {reason}" for reason in trial.suspect]
    if trial.simulated:
        lines.append("  simulated yes: not a measurement of a real agent")
    agent = " ".join(part for part in (trial.agent, trial.agent_version, trial.model) if part)
    lines.append(f"  agent     {agent}")
    total = trial.wall_sec
    phases = trial.phases
    parts = {
        "environment": phases.environment_sec,
        "set-up": phases.agent_setup_sec,
        "agent": phases.agent_sec,
        "verifier": phases.verifier_sec,
    }
    shown = ", ".join(f"{name} {duration(value)}" for name, value in parts.items() if value is not None)
    lines.append(f"  time      {duration(total)}{f' ({shown})' if shown else ''}")
    return lines


def _usage(usage: Usage) -> list[str]:
    if not usage.known:
        return ["  usage     unknown"]
    counts = {
        "input": usage.input_tokens,
        "cache read": usage.cache_read_tokens,
        "cache write": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }
    tokens = ", ".join(f"{name} {count(value)}" for name, value in counts.items() if value is not None)
    cost = "cost unknown" if usage.cost_usd is None else f"{dollars(usage.cost_usd)} ({usage.cost_source})"
    return [f"  usage     {tokens} tokens from {usage.source}; {cost}"]


def _delivery(delivery: Delivery) -> list[str]:
    lines = []
    if delivery.mcp_configured:
        connected = "unknown" if delivery.mcp_connected is None else ", ".join(delivery.mcp_connected) or "none"
        calls = sum((delivery.mcp_calls or {}).values()) if delivery.mcp_calls is not None else "unknown"
        lines.append(f"  MCP       {', '.join(delivery.mcp_configured)}; connected: {connected}; calls: {calls}")
    if delivery.hooks_fired is not None:
        fired = ", ".join(f"{name} {count}" for name, count in delivery.hooks_fired.items()) or "none"
        lines.append(f"  hooks     {fired}")
    if delivery.prompt_delivered is not None:
        lines.append(f"  prompt    {'delivered' if delivery.prompt_delivered else 'not delivered'}")
    return lines


def _verifier(folder: Path, shown: Shown) -> list[str]:
    with open_plain(folder / "verifier" / "test-stdout.txt") as stream:
        if stream is None:
            return []
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - _TAIL_BYTES))
        text = stream.read(_TAIL_BYTES).decode(errors="replace")
    lines = shown.secrets.conceal(text).splitlines()[1 if size > _TAIL_BYTES else 0 :]
    kept = lines if shown.full else lines[-_VERIFIER_LINES:]
    head = "  verifier said" if len(kept) == len(lines) and size <= _TAIL_BYTES else "  verifier said, at the end"
    return [head, *(f"    {printable(line)}" for line in kept)] if kept else []
