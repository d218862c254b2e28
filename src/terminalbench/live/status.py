"""How far the running batches are, from their events: reading only, costs nothing to the run."""

import time
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.index.places import find_batches
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec
from terminalbench.live.line import waiting_lines
from terminalbench.live.model import Waiting
from terminalbench.live.notices import Alert
from terminalbench.live.processes import announced_batches, live_processes
from terminalbench.records.event import Progress

_SHOWN_STEPS = 8


class RunningStep(msgspec.Struct, frozen=True):
    """Where in its workflow a running trial is."""

    trial: str
    task: str
    profile: str
    at: Progress


class RunningBatch(msgspec.Struct, frozen=True):
    """A batch with live processes. `state` is running, or orphaned when its runner is gone and Harbor is not.

    `to_start` are the planned trials that have not started and may, `waiting` those of them that something keeps
    waiting, `lines` says why in words; `left_sec` is how long the batch still takes. None is unknown; `over_usd` is
    None while the budget holds. `steps` are of those running trials whose agent says where it is.
    """

    batch: str
    name: str
    state: str
    runner: int | None
    harbor: list[int]
    since: str | None
    planned: int | None
    ended: int
    running: int
    to_start: int | None
    held: int
    outcomes: dict[str, int]
    cost_usd: float | None
    cost_unknown: int
    left_sec: float | None
    waiting: list[Waiting]
    alerts: list[Alert]
    lines: list[str]
    budget_usd: float | None = None
    over_usd: float | None = None
    steps: list[RunningStep] = []


def running_batches(results_root: Path | None = None) -> list[RunningBatch]:
    """The batches that run: all this user has announced, or those of one results folder."""
    batches = announced_batches() if results_root is None else list(find_batches(results_root))
    return [status for batch in batches if (status := _status(batch, time.time())) is not None]


def _status(batch: Batch, now: float) -> RunningBatch | None:
    processes = live_processes(batch)
    if not processes:
        return None
    feed = Feed(batch)
    feed.read()
    state, total = feed.state, feed.state.total
    if state.plan is None:
        return None
    runners = [process for process in processes if process.kind == "runner"]
    alerts = state.alerts.worst_first()
    steps = [RunningStep(t.name, t.task, t.profile, t.at) for t in state.running if t.at is not None]
    return RunningBatch(
        batch=str(batch.folder),
        name=state.plan.name,
        state="running" if runners else "orphaned",
        runner=runners[0].worker.pid if runners else None,
        harbor=[p.worker.pid for p in processes if p.kind == "harbor" and p.worker.pid is not None],
        since=min(process.worker.started_at for process in processes),
        planned=total.planned,
        ended=total.done,
        running=total.running,
        to_start=state.to_start,
        held=len(state.held),
        outcomes=total.counts,
        cost_usd=total.spent_usd,
        cost_unknown=total.cost_unknown,
        left_sec=eta_sec(state, now),
        waiting=state.waiting,
        alerts=alerts,
        budget_usd=state.limits.own.budget_usd,
        over_usd=state.limits.own.over_usd,
        steps=steps,
        lines=[
            *(alert.line for alert in alerts),
            *state.limits.over,
            *waiting_lines(state, now),
            *state.limits.shared_lines,
            *(f"{step.profile}, {step.task}: {step.at}" for step in steps[:_SHOWN_STEPS]),
        ],
    )
