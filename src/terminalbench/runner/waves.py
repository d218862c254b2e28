"""A profile on its way through its jobs (waves), and the trials that a resume runs again despite their verdict.

The folders of the latter are gone, or cannot be read: the events of a batch still tell of them. One who deletes what
failed and runs it again passes more often, so the plan keeps it as a departure. The event of the resume names them, so
that a later one does not tell of them again.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.harbor.attempt_numbers import first_wave
from terminalbench.harbor.limits.gate import TrialRefusal
from terminalbench.index.queries import BatchView
from terminalbench.json_files import BadLine, each_jsonl
from terminalbench.live.processes import Worker
from terminalbench.locks import is_stopped
from terminalbench.records.event import BLOCKED, COMPLETED_JOB, HUNG_JOB, Event, EventKind
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import duration, noun, plural, some

type Cell = tuple[str, str]
"""A dataset label and a task id."""


def wanted(job: JobSpec) -> Counter[Cell]:
    """Return how many trials of each cell a job plans; a task may stand in it more than once."""
    return Counter((task.label, task.ref.id) for task in job.tasks for _ in range(job.attempts_of(task)))


def remaining(job: JobSpec, finished: Mapping[Cell, int]) -> Counter[Cell]:
    """Return how many trials of each cell are missing."""
    return Counter({cell: n for cell, count in wanted(job).items() if (n := count - finished.get(cell, 0)) > 0})


def next_wave(job: JobSpec, missing: Mapping[Cell, int], name: str) -> JobSpec:
    """A job of single attempts for exactly the missing trials: attempt by attempt, in the order of the tasks."""
    rounds = max(missing.values(), default=0)
    each = {(task.label, task.ref.id): msgspec.structs.replace(task, extra=0) for task in job.tasks}
    tasks = tuple(task for number in range(rounds) for cell, task in each.items() if missing.get(cell, 0) > number)
    return msgspec.structs.replace(job, name=name, attempts=1, tasks=tasks)


def split(job: JobSpec, most: int) -> list[tuple[PlannedTask, ...]]:
    """The tasks of a job in parts of `most` trials, or a few more: all attempts at a task are in the same part."""
    cells: dict[Cell, list[PlannedTask]] = {}
    for task in job.tasks:
        cells.setdefault((task.label, task.ref.id), []).append(task)
    parts: list[list[PlannedTask]] = []
    room = 0
    for tasks in cells.values():
        if room <= 0:
            parts.append([])
            room = most
        parts[-1] += tasks
        room -= sum(job.attempts_of(task) for task in tasks)
    return [tuple(part) for part in parts]


@dataclass
class AbortSearch:
    """Finds the tasks that end a job, and keeps them from taking others with them.

    After an abort the tasks in question (the first that did not start, and those that were running) are put off,
    and everything else runs first. Then they run one at a time, which tells for certain which of them it is: the one
    that was running, else the one that did not start. `deaths` counts the aborts while trials of a cell ran.
    """

    suspects: set[Cell] = field(default_factory=set)
    culprits: set[Cell] = field(default_factory=set)
    deaths: Counter[Cell] = field(default_factory=Counter)
    one_at_a_time: bool = False

    def learn(self, wave: JobSpec, started: Mapping[Cell, int], finished: Mapping[Cell, int]) -> Cell | None:
        """Take an aborted wave into account; returns the cell whose trial did it: it ran alone, and not the first time.

        What did not start is a culprit; a trial that did it has ended so, and others of its cell may still run.
        """
        stopped_at = first_not_started(wave, started)
        running = {cell: n for cell, count in started.items() if (n := count - finished.get(cell, 0)) > 0}
        self.deaths.update(running.keys())
        self.suspects |= running.keys()
        if stopped_at is not None and not (self.one_at_a_time and running):
            (self.culprits if self.one_at_a_time else self.suspects).add(stopped_at)
        alone = next(iter(running)) if list(running.values()) == [1] else None
        return alone if alone is not None and self.deaths[alone] > 1 else None

    def choose(self, missing: Mapping[Cell, int]) -> dict[Cell, int]:
        """Return what to run next of what is missing; empty when only culprits are left."""
        open_cells = {cell: count for cell, count in missing.items() if cell not in self.culprits}
        others = {cell: count for cell, count in open_cells.items() if cell not in self.suspects}
        self.one_at_a_time = not others
        return others or open_cells


def first_not_started(wave: JobSpec, started: Mapping[Cell, int]) -> Cell | None:
    """The first task, in the order Harbor starts them, of which a trial did not start."""
    seen: Counter[Cell] = Counter()
    for _ in range(wave.attempts):
        for task in wave.tasks:
            cell = (task.label, task.ref.id)
            seen[cell] += 1
            if started.get(cell, 0) < seen[cell]:
                return cell
    return None


def wave_name(job: str, number: int) -> str:
    """The name of the nth job of a profile (from 2): the stamp of the first, marked."""
    day, time, profile = first_wave(job).split("__", 2)
    return f"{day}__{time}-w{number}__{profile}"


def free_wave_name(batch: Batch, job: str) -> str:
    """A name that no job of the batch has yet."""
    number = 2
    while batch.job_config(name := wave_name(job, number)).exists() or batch.job_folder(name).exists():
        number += 1
    return name


SILENT_SEC = 300.0
"""A Harbor that has said nothing for so long, not even a heartbeat of an event loop that answers, hangs: it is
ended, and the rest runs anew.

While trials run in it, one of them may keep it from saying anything for as long as that trial may take, and so much
longer.
"""

START_SEC = 1800.0
"""The same before its first word, when it looks up and downloads tasks."""


@dataclass(frozen=True)
class Launch:
    """Everything needed to run the jobs of one profile: its job, its JobConfig for any wave, its environment."""

    job: JobSpec
    config: Callable[[JobSpec], dict]
    command: Callable[[JobSpec], list[str]]
    env: dict[str, str]


@dataclass
class ProfileWaves:
    """One profile on its way through its waves."""

    launch: Launch
    waves: list[JobSpec] = field(default_factory=list)
    worker: Worker | None = None
    started: Counter[Cell] = field(default_factory=Counter)
    tries: dict[str, Event] = field(default_factory=dict)
    completed: bool = False
    search: AbortSearch = field(default_factory=AbortSearch)
    reasons: dict[Cell, str] = field(default_factory=dict)
    left_over: dict[Cell, TrialRefusal] = field(default_factory=dict)
    heard_at: float = 0.0
    silent: str | None = None
    limits: dict[str, float] = field(default_factory=dict)
    requeued: set[Cell] = field(default_factory=set)
    held: bool = False
    hung: bool = False
    over: bool = False
    lost_at: float | None = None
    lost: int = 0
    fruitful: int = 0
    revived: bool = False

    @property
    def profile(self) -> str:
        """Return what it runs."""
        return self.launch.job.profile

    def why_hung(self, now: float) -> str | None:
        """Return why its Harbor process seems to hang, or None. `now` is the time in which we were awake to listen."""
        quiet = now - self.heard_at
        if not self.started and quiet > START_SEC:
            return f"Harbor did not start a trial within {duration(START_SEC)}"
        if not self.started or quiet <= SILENT_SEC:
            return None
        if self.worker is not None and is_stopped(self.worker.pid):
            return f"Harbor was stopped by a signal for {duration(SILENT_SEC)}"
        patience = SILENT_SEC + max(self.limits.values(), default=0.0)
        return f"Harbor hung: it gave no sign of life for {duration(patience)}" if quiet > patience else None

    def hear(self, event: Event, now: float) -> None:
        """Take an event of its Harbor process into account."""
        if not event.detail.get(BLOCKED):
            self.heard_at = now
        cell = (event.dataset or "", event.task or "")
        if event.kind == EventKind.TRIAL_STARTED:
            self.started[cell] += 1
            self.limits[event.trial or ""] = float(event.detail.get("limit_sec") or 0.0)
        elif event.kind == EventKind.TRIAL_ENDED:
            self.limits.pop(event.trial or "", None)
        elif event.kind == EventKind.TRIAL_HELD:
            self.held = True
        elif event.kind == EventKind.CONTROL and event.detail.get("done"):
            self.requeued.add(cell)
        elif event.kind == EventKind.JOB_ENDED:
            self.over = True
            self.hung = event.detail.get("how") == HUNG_JOB
            self.completed = event.detail.get("how") == COMPLETED_JOB
        if event.kind in (EventKind.TRIAL_STARTED, EventKind.TRIAL_PHASE):
            self.tries[event.trial or ""] = event


LOST = "lost_verdicts"
"""The key in the detail of a `resumed` event: `<job>/<trial>` of each."""


class _EndEvent(msgspec.Struct):
    """The part of an event that matters here."""

    kind: str
    job: str = ""
    trial: str | None = None
    profile: str | None = None
    dataset: str | None = None
    task: str | None = None
    outcome: str | None = None
    detail: dict[str, Any] = {}


def lost_verdicts(batch: Batch, view: BatchView, missing: Mapping[str, Counter[Cell]]) -> dict[str, str]:
    """Return of the cells that are to run `<job>/<trial>` of each trial with a verdict that is not there any more, in
    words.

    Not those that were run again on request: their plan tells of them. Reads the events only where something is to run.
    """
    if not missing or not batch.events_jsonl.exists():
        return {}
    there = {row.key for row in view.rows() if row.trial is not None} | set(view.plan.superseded)
    found: dict[str, str] = {}
    told: set[str] = set()
    for event in each_jsonl(batch.events_jsonl, _EndEvent):
        if isinstance(event, BadLine):
            continue
        if event.kind == EventKind.RESUMED:
            told.update(event.detail.get(LOST) or ())
        if event.kind != EventKind.TRIAL_ENDED or event.detail.get("retried"):
            continue
        if event.outcome not in (Outcome.PASSED, Outcome.FAILED):
            continue
        key, cell = f"{event.job}/{event.trial}", (event.dataset or "", event.task or "")
        if key not in there and missing.get(event.profile or "", {}).get(cell):
            found[key] = f"{event.profile} {event.task} ({event.outcome})"
    return {key: text for key, text in found.items() if key not in told}


def with_lost(plan: Plan, lost: Mapping[str, str]) -> Plan:
    """The plan with these as a departure."""
    if not lost:
        return plan
    departure = Departure(DepartureKind.LOST_VERDICTS, said(lost))
    return msgspec.structs.replace(plan, departures=(*plan.departures, departure))


def said(lost: Mapping[str, str]) -> str:
    """The sentence, with the first of them."""
    count = len(lost)
    gone = f"{noun(count, 'was', 'were')} gone or unreadable and {noun(count, 'is', 'are')} run again"
    return f"{plural(count, 'trial')} that had ended with a verdict {gone}: {some(list(lost.values()), 10)}"
