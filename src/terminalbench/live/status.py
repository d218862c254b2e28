"""The progress of running batches, from their events: reading only, costs nothing to the run."""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.index.imported import ForeignFile
from terminalbench.index.places import ForeignJobs, find_batches
from terminalbench.index.queries import BatchView, CellState, Rerun
from terminalbench.index.results import Results, list_batches, open_view, open_views
from terminalbench.index.results import open_results as open_index
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec, waiting_lines
from terminalbench.live.model import WaitingTrial
from terminalbench.live.notices import Alert
from terminalbench.live.processes import ForeignRun, announced_batches, live_processes
from terminalbench.locks import lock_owner
from terminalbench.records.event import Progress
from terminalbench.records.trial import Outcome, ReadState

_SHOWN_STEPS = 8

type Running = Mapping[str, tuple[str, str]]
"""Trials that run now as `<job>/<trial>`, each with its profile and its task."""


class RunningStep(msgspec.Struct, frozen=True):
    """The place of a running trial in its workflow."""

    trial: str
    task: str
    profile: str
    at: Progress


class RunningBatch(msgspec.Struct, frozen=True):
    """A batch with live processes. `state` is running, or orphaned when its runner is gone and Harbor is not.

    `to_start` are the planned trials that have not started and may, `waiting` those of them that something keeps
    waiting, `lines` says why in words; `left_sec` is how long the batch still takes. Without a runner nothing starts,
    and no time is left that could be told. None is unknown; `over_usd` is None while the budget holds. `steps` are of
    those running trials whose agent says where it is.
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
    waiting: list[WaitingTrial]
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
        to_start=state.to_start if runners else 0,
        held=len(state.held),
        outcomes=total.counts,
        cost_usd=total.spent_usd,
        cost_unknown=total.cost_unknown,
        left_sec=eta_sec(state, now) if runners else None,
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


def running_now(batch: Batch) -> Running | None:
    """The trials of a batch that run now; None when nothing of it runs. Cheap where it does not."""
    now = time.time()
    if isinstance(batch, ForeignFile):
        return None
    if isinstance(batch, ForeignJobs):
        may_run = ForeignRun(batch.runs).alive(now)
    else:
        may_run = bool(live_processes(batch)) or lock_owner(batch.lock) is not None
    if not may_run:
        return None
    feed = Feed(batch)
    feed.poll(now)
    return None if feed.over else {f"{one.job}/{one.name}": (one.profile, one.task) for one in feed.state.running}


def view_now(batch: Batch, results_root: Path | None = None) -> BatchView:
    """A batch as `open_view` has it, with what of it runs now."""
    running = running_now(batch)  # first: what ends in between has its result then
    return _with_spared(batch, with_running(open_view(batch, results_root), running))


def _with_spared(batch: Batch, view: BatchView) -> BatchView:
    """A running batch with the trials marked that it will not run, because their comparisons need them no more."""
    if not view.live or view.plan.analysis.looks != "any":
        return view
    with suppress(OSError, msgspec.DecodeError):
        decided = ControlFile(batch.control_json).read().decided
        cells = [
            msgspec.structs.replace(cell, spared=True, reason=decided[cell.profile])
            if cell.profile in decided and cell.outcome is Outcome.NOT_RUN and not cell.running
            else cell
            for cell in view.cells
        ]
        return msgspec.structs.replace(view, cells=cells)
    return view


def views_now(batches: Iterable[Batch]) -> list[BatchView]:
    """Several batches as `open_views` has them, with what of them runs now."""
    every = list(batches)
    running = [running_now(batch) for batch in every]
    views = zip(every, open_views(every), running, strict=True)
    return [_with_spared(batch, with_running(view, found)) for batch, view, found in views]


def open_results(root: Path | str = "results") -> Results:
    """The results folder at `root`, or the Harbor job. A trial that runs has the outcome `running`."""
    return dataclasses.replace(open_index(root), _open=view_now)


def batches_now(root: Path, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The batches of a results folder as the index has them, and how many trials of each are `running`.

    Those are no trials that have ended, and not among what was not measured.
    """
    rows = []
    for row in list_batches(root, labels):
        batch = ForeignJobs(root) if row["batch"] == "." else Batch(root / row["batch"])
        running = running_now(batch)
        if not running or not (isinstance(batch, ForeignJobs) or batch.plan_json.is_file()):
            rows.append({**row, "running": 0})
            continue
        cells = with_running(open_view(batch, root), running).cells
        counts = {
            "running": sum(cell.running for cell in cells),
            "trials": sum(cell.outcome is not Outcome.NOT_RUN for cell in cells),
            "not_measured": sum(not cell.measured and not cell.running for cell in cells),
        }
        rows.append({**row, **counts})
    return rows


def running_places(cells: Sequence[CellState], running: Running) -> dict[int, str]:
    """Return which cell each running trial stands for: the place of the cell, and the trial.

    By its folder. One that the index does not know yet, or that runs again what was cut off or broke, stands for the
    first cell of its profile and task without a verdict.
    """
    known, found = dict(running), {}
    free: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, cell in enumerate(cells) if known else ():
        if cell.row is not None and cell.row.key in known:
            del known[cell.row.key]
            found[at] = cell.row.key
        elif not cell.measured:
            free[cell.profile, cell.task.id].append(at)
    for places in free.values():
        places.sort(key=lambda at: cells[at].rerun is not Rerun.RESUME)
    for key, place in known.items():
        if free[place]:
            found[free[place].pop(0)] = key
    return found


def with_running(view: BatchView, running: Running | None) -> BatchView:
    """A batch with its running trials marked, each as the try that counts; None: nothing of it runs."""
    if running is None:
        return view
    rows = {row.key: row for row in view.rows()}
    unended = {key: place for key, place in running.items() if key not in rows or rows[key].trial is None}
    found = running_places(view.cells, unended)
    cells, over = list(view.cells), []
    for at, key in found.items():
        before, row = cells[at].row, rows.get(key)
        over += [before] if before is not None and before.key != key and before.state != ReadState.HELD else []
        cells[at] = msgspec.structs.replace(cells[at], outcome=Outcome.NOT_RUN, running=True, row=row, reason=None)
    keys = set(found.values())
    aside = [*(row for row in view.superseded if row.key not in keys), *over]
    return msgspec.structs.replace(view, cells=cells, superseded=aside, live=True)
