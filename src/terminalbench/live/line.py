"""The state of a batch in one line, and why its trials wait."""

from terminalbench.live.forecast import eta_sec
from terminalbench.live.model import WaitingTrial
from terminalbench.live.state import LiveState
from terminalbench.text.numbers import cost, duration, noun, plural
from terminalbench.text.outcomes import word


def run_line(state: LiveState, now: float, since: float | None = None) -> str:
    """The progress of a run: done of planned, outcomes, running, waiting, spend, time left. `now` is the time of day.

    `since` is when the run was started; by default when the first event came.
    """
    total = state.total
    began = state.began if since is None else since
    parts = [f"{total.progress} {noun(total.planned, 'trial')}"]
    parts += [alert.line for alert in state.alerts.worst_first()]
    parts += [f"{number} {word(name)}" for name, number in total.counts.items()]
    parts += [f"{total.running} running"] if total.running else []
    parts += [f"{state.to_start} waiting"] if state.to_start else []
    parts += waiting_lines(state, now)
    if total.cost_usd or total.cost_unknown:
        parts.append(cost(total.spent_usd, total.cost_unknown))
    left = eta_sec(state, now)
    if left is not None and total.done < (total.planned or 0):
        parts.append(f"about {duration(left)} left")
    parts += [*state.limits.over, *state.limits.shared_lines]
    elapsed = duration(now - began) if began is not None else ""
    return f"{elapsed}  {', '.join(parts)}".strip()


def waiting_lines(state: LiveState, now: float) -> list[str]:
    """Return where nothing new starts, and what trials wait for."""
    shut = {profile for profile, _ in state.held}
    where = f" in {', '.join(key for key in state.profiles if key in shut)}" if len(shut) < len(state.profiles) else ""
    runs = any(trial.profile in shut for trial in state.running)
    why = "waiting for the running trials" if runs else "; ".join(dict.fromkeys(reason for _, reason in state.held))
    held = [f"nothing new starts{where}: {why}"] if shut else []
    return [*held, *wait_lines(state, now)]


def wait_lines(state: LiveState, now: float) -> list[str]:
    """Return what trials wait for, one line per reason, and which profiles wait for their turn."""
    by_reason: dict[str, list[WaitingTrial]] = {}
    for waiting in state.waiting:
        by_reason.setdefault(waiting.reason, []).append(waiting)
    lines = [_wait(reason, found, now) for reason, found in by_reason.items()]
    return [*lines, f"waiting for their turn: {', '.join(state.in_line)}"] if state.in_line else lines


def _wait(reason: str, found: list[WaitingTrial], now: float) -> str:
    """Return how long until the next of these trials starts, if that is known, and how many there are."""
    left = [sec for waiting in found if (sec := waiting.left_sec(now)) is not None]
    many = f" ({plural(len(found), 'trial')})" if len(found) > 1 else ""
    return f"waiting{f' {duration(min(left))}' if left else ''}: {reason}{many}"
