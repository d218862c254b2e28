"""How far the running batches are, from their events: reading only, costs nothing to the run."""

import time
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import read_json, read_jsonl
from terminalbench.index.scan import find_batches
from terminalbench.live.alerts import Standing
from terminalbench.live.processes import announced_batches, live_processes
from terminalbench.live.progress import Progress
from terminalbench.live.waiting import Waiting
from terminalbench.records import Event


class RunningBatch(msgspec.Struct, frozen=True):
    """A batch with live processes. `state` is running, or orphaned when its runner is gone and Harbor is not."""

    batch: str
    name: str
    state: str
    runner: int | None
    harbor: list[int]
    since: str | None
    planned: int
    ended: int
    running: int
    outcomes: dict[str, int]
    cost_usd: float | None
    cost_unknown: int = 0
    waiting: list[Waiting] = []
    alerts: list[Standing] = []


def running_batches(results_root: Path | None = None) -> list[RunningBatch]:
    """The batches that run: all this user has announced, or those of one results folder."""
    batches = announced_batches() if results_root is None else list(find_batches(results_root))
    return [status for batch in batches if (status := _status(batch)) is not None]


def _status(batch: Batch) -> RunningBatch | None:
    processes = live_processes(batch)
    if not processes:
        return None
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return None
    progress = Progress.of_plan(plan, time.monotonic())
    for event in read_jsonl(batch.events_jsonl, Event).records:
        progress.add(event)
    runners = [process for process in processes if process.kind == "runner"]
    return RunningBatch(
        batch=str(batch.folder),
        name=plan.name,
        state="running" if runners else "orphaned",
        runner=runners[0].pid if runners else None,
        harbor=[process.pid for process in processes if process.kind == "harbor"],
        since=min(process.since for process in processes),
        planned=progress.total,
        ended=progress.done,
        running=len(progress.running),
        outcomes={name: count for name, count in progress.outcomes.items() if count},
        cost_usd=progress.spent_usd,
        cost_unknown=progress.cost_unknown,
        waiting=list(progress.waiting.trials.values()),
        alerts=list(progress.alerts.standing.values()),
    )
