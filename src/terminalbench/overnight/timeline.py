"""When the workers of a night worked, what went wrong meanwhile, and what its trials had cost by then."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.night import NightEvent, NightEventKind, Role

_POINTS = 200
"""Points of the spend that are kept; the last is always one of them."""


class WorkerSpan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A worker at an iteration; without `ended_at` it works still. `lost`: it died, or was ended by its supervisor."""

    worker: int
    started_at: str
    iteration: int | None = None
    role: Role | None = None
    ended_at: str | None = None
    lost: bool = False


class SpendPoint(msgspec.Struct, frozen=True):
    """What the trials that had ended by then cost, as far as it is known."""

    time: str
    cost_usd: float


class NightTimeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of a night. The spend is that of the trials of its iterations."""

    workers: list[WorkerSpan] = []
    spend: list[SpendPoint] = []


def timeline_of(events: Sequence[NightEvent], iterations: Iterable[IterationResults]) -> NightTimeline:
    """Return the times of a night, from its events and the results of its iterations."""
    return NightTimeline(_workers(events), _spend(iterations))


def _workers(events: Sequence[NightEvent]) -> list[WorkerSpan]:
    """A supervisor that was killed wrote no end of its workers: the last thing that it did write is theirs."""
    found: list[WorkerSpan] = []
    open_: dict[int, int] = {}

    def end(worker: int | None, at: str | None, *, lost: bool = False) -> None:
        place = open_.get(worker) if worker is not None else None
        if place is None or worker is None:
            return
        span = found[place]
        found[place] = msgspec.structs.replace(span, ended_at=at or span.ended_at, lost=lost or span.lost)
        if at is not None:
            del open_[worker]

    before = ""
    for event in events:
        match event.kind:
            case NightEventKind.WORKER_STARTED if event.worker is not None:
                open_[event.worker] = len(found)
                span = WorkerSpan(
                    worker=event.worker, started_at=event.time, iteration=event.iteration, role=event.role
                )
                found.append(span)
            case NightEventKind.WORKER_LOST:
                end(event.worker, None, lost=True)
            case NightEventKind.WORKER_ENDED:
                end(event.worker, event.time)
            case NightEventKind.RESUMED:
                for worker in list(open_):
                    end(worker, before, lost=True)
            case NightEventKind.ENDED:
                for worker in list(open_):
                    end(worker, event.time)
            case _:
                pass
        before = event.time
    return found


def _spend(iterations: Iterable[IterationResults]) -> list[SpendPoint]:
    trials = [trial for each in iterations for one in each.profiles for task in one.tasks for trial in task.trials]
    known = [(one.finished_at, one.cost_usd) for one in trials if one.finished_at and one.cost_usd is not None]
    spent, found = 0.0, []
    for at, cost_usd in sorted(known, key=lambda one: (datetime.fromisoformat(one[0]), one[1])):
        spent += cost_usd
        found.append(SpendPoint(at, round(spent, 6)))
    every = 1 + len(found) // _POINTS
    return found[:-1:every] + found[-1:]
