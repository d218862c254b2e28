"""Events of made-up runs, for the live view."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Exclusion, JobSpec, Plan, PlannedTask, ProfileRecord
from terminalbench.experiments.tables import RunTable
from terminalbench.live.feed import Feed
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event
from terminalbench.records.trial import TaskRef, Usage

START = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC).timestamp()


def at(second: float) -> str:
    """A time of an event, so many seconds after the start."""
    return datetime.fromtimestamp(START + second, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plan(
    profiles: tuple[str, ...] = ("p",),
    tasks: tuple[str, ...] = ("a", "b"),
    attempts: int = 1,
    *,
    excluded: tuple[Exclusion, ...] = (),
    superseded: tuple[str, ...] = (),
    agents: dict[str, str] | None = None,
    **settings: Any,
) -> Plan:
    """A plan over tasks of the dataset "d"."""
    planned = tuple(PlannedTask(TaskRef(task, "d"), "d", {}) for task in tasks)
    return Plan(
        slug="s", name="An experiment", batch=0, folder="results/s/0", baseline=profiles[0],
        jobs=tuple(JobSpec(job(p), p, f"id-{p}", attempts, planned) for p in profiles),
        profiles=tuple(ProfileRecord(p, f"id-{p}", {"agent": (agents or {}).get(p, "simulated")}) for p in profiles),
        settings=RunTable(**settings), excluded=excluded, superseded=superseded,
    )  # fmt: skip


def job(profile: str, wave: int = 1) -> str:
    return f"2026-01-02__03-00-00{f'-w{wave}' if wave > 1 else ''}__{profile}"


def feed_of(state: LiveState, place: str = "s/0") -> Feed:
    """A feed that has read this state."""
    return Feed(Batch(Path("results") / place), state)


class Teller:
    """Makes the events of one trial."""

    def __init__(self, name: str, task: str = "a", profile: str = "p", wave: int = 1, attempt: int = 1) -> None:
        self.about: dict[str, Any] = {
            "job": job(profile, wave), "pid": 1, "profile": profile, "trial": name, "task": task, "dataset": "d", "attempt": attempt,
        }  # fmt: skip

    def event(self, second: float, kind: str, **fields: Any) -> Event:
        return Event(time=at(second), kind=kind, **self.about, **fields)

    def started(self, second: float, number: int = 1) -> Event:
        return self.event(second, "trial_started", detail={"try": number} if number > 1 else {})

    def phase(self, second: float, phase: str) -> Event:
        return self.event(second, "trial_phase", phase=phase)

    def ended(
        self, second: float, outcome: str = "passed", cost: float | None = 0.5, tokens: int | None = 1000, *,
        error_class: str | None = None, error: str | None = None, number: int = 1, retried: bool = False,
    ) -> Event:  # fmt: skip
        detail: dict[str, Any] = {"try": number} if number > 1 else {}
        detail |= {"error_class": error_class} if error_class else {}
        detail |= {"retried": True} if retried else {}
        known = cost is not None or tokens is not None
        usage = (
            Usage(input_tokens=tokens, output_tokens=None if tokens is None else 0, cost_usd=cost) if known else None
        )
        return self.event(second, "trial_ended", outcome=outcome, error=error, usage=usage, detail=detail)

    def whole(self, start: float, end: float, outcome: str = "passed", **fields: Any) -> list[Event]:
        """Everything from start to end."""
        middle = (start + end) / 2
        return [
            self.started(start),
            self.phase(start, "environment"),
            self.phase(middle, "agent"),
            self.ended(end, outcome, **fields),
        ]


def job_event(second: float, kind: str, profile: str = "p", wave: int = 1, **detail: Any) -> Event:
    return Event(time=at(second), kind=kind, job=job(profile, wave), pid=1, profile=profile, detail=detail)
