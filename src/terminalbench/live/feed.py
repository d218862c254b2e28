"""The state of a batch from its files: events.jsonl as it grows, plan.json, the gate, its processes. Reads only.

A batch without events (an older one, Harbor jobs that are not ours) is read from the index instead.
"""

import socket
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.limits.control import shared_control
from terminalbench.harbor.limits.gate import gate_of
from terminalbench.index.places import ForeignJobs
from terminalbench.index.queries import TrialRow, trial_rows
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import read_json, tail_jsonl
from terminalbench.live.limits import read_limits
from terminalbench.live.processes import ForeignRun, LiveProcess, live_processes
from terminalbench.live.state import LiveState
from terminalbench.locks import lock_owner
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome, ReadState
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import duration

ALIVE_EVERY_SEC = 1.0
SCAN_EVERY_SEC = 5.0
ELSEWHERE_SEC = 120.0
"""A run on another machine is taken to be over when it has said nothing for so long; its heart beats every 10 s."""
LINGER_SEC = 15.0
"""A batch whose runner lets go of it and lives on (a top-up decides on its next round) is over after so long."""
WITHOUT_EVENTS = "no events.jsonl: read from the index"
UNREADABLE_PLAN = "plan.json cannot be read, so the planned trials are unknown"
EMPTY_EVENTS = "events.jsonl is empty: read from the index"


@dataclass
class Feed:
    """Follows one batch. `read` brings `state` up to date with its files; `poll` asks for its processes as well.

    `over` is set when nothing of the batch runs any more. `each` is told of every event, right after the state has
    taken it in. `version` changes with all that shows. `plan_problem` says why
    its plan cannot be read; `secrets` are what no text of its trials may show.
    """

    batch: Batch
    state: LiveState = field(default_factory=LiveState)
    note: str | None = None
    plan_problem: str | None = None
    over: bool = False
    version: int = 0
    secrets: Secrets = field(default_factory=Secrets.of_environment)
    each: Callable[[Event], None] = lambda _event: None
    _offset: int = 0
    _plan_stamp: tuple[int, int, int] | None = None
    _gate_stamps: list[tuple[int, int, int] | None] = field(default_factory=list)
    _alive_at: float | None = None
    _let_go_at: float | None = None
    _seen: list[LiveProcess] = field(default_factory=list)
    _scanned_at: float | None = None
    _told: set[tuple[str, str | None, str]] = field(default_factory=set)
    _foreign: ForeignRun | None = None

    def __post_init__(self) -> None:
        if isinstance(self.batch, ForeignJobs):
            self._foreign = ForeignRun(self.batch.runs)

    def read(self) -> bool:
        """Take in what was written since the last call, and say whether anything was."""
        return self._read_plan() | self._read_gate() | self._read_events()

    def poll(self, now: float) -> bool:
        """Take in what happened since the last call, and say whether anything did. `now` is the time of day."""
        alive = self._alive(now)
        changed = self.read()
        if not self.state.events and (not alive or isinstance(self.batch, ForeignJobs)):
            changed |= self._read_index(now)
        if not alive and not self.over:
            self.state.close()
            self.over = changed = True
        return changed

    @property
    def root(self) -> Path:
        """The results root its index belongs to."""
        return self.batch.folder if isinstance(self.batch, ForeignJobs) else self.batch.folder.parent.parent

    @property
    def place(self) -> str:
        """The batch as a person names it."""
        folder = self.batch.folder
        return folder.name if isinstance(self.batch, ForeignJobs) else f"{folder.parent.name}/{folder.name}"

    @property
    def cut_off(self) -> str | None:
        """Return how a batch came to be over when its run did not end by itself: its lock still names it."""
        if self._foreign is not None:
            return self._foreign.cut_off if self.over else None
        owner = lock_owner(self.batch.lock) if self.over else None
        if owner is None:
            return None
        if owner.host == socket.gethostname():
            return f"its run was killed before it ended (pid {owner.pid}, started {owner.since})"
        return f"its run on {owner.host} has given no sign of life for {duration(ELSEWHERE_SEC)} (pid {owner.pid})"

    def _alive(self, now: float) -> bool:
        if self._alive_at is not None and 0 <= now - self._alive_at < ALIVE_EVERY_SEC:
            return not self.over
        self._alive_at = now
        alive = self._has_processes(now) if self._foreign is None else self._foreign.alive(now)
        if alive:
            self.over = False
        return alive

    def _has_processes(self, now: float) -> bool:
        found = live_processes(self.batch)
        if found:
            self._seen, self._let_go_at = found, None
            return True
        if any(process.kind == "runner" and process.alive for process in self._seen):
            self._let_go_at = now if self._let_go_at is None else self._let_go_at
            return 0 <= now - self._let_go_at < LINGER_SEC
        owner = lock_owner(self.batch.lock)
        if owner is None or owner.host == socket.gethostname():
            return False
        return now - (self.state.last or 0.0) < ELSEWHERE_SEC

    def _read_plan(self) -> bool:
        stamp = _stamp(self.batch.plan_json)
        if stamp is None or stamp == self._plan_stamp:
            return False
        try:
            plan: Plan = read_json(self.batch.plan_json, Plan)
        except (OSError, TbenchError) as error:
            reason = error.what if isinstance(error, TbenchError) else error.strerror or str(error)
            told, self.plan_problem = self.plan_problem, f"{UNREADABLE_PLAN}: {reason}"
            self._plan_stamp = stamp if isinstance(error, TbenchError) else None
            return told != self.plan_problem
        self._plan_stamp, self.plan_problem = stamp, None
        self.secrets |= secrets_of(plan)
        self.state.replan(plan)
        self.version += 1
        return True

    def _read_gate(self) -> bool:
        gate = gate_of(self.batch, self.state.plan)
        shared = () if gate.shared is None else (gate.shared, shared_control(gate.shared))
        stamps = [_stamp(file) for file in (gate.path, self.batch.control_json, *shared)]
        if stamps[0] is None or stamps == self._gate_stamps:
            return False
        try:
            self.state.limits = read_limits(gate, self.batch.control_json)
        except (OSError, msgspec.DecodeError, UserError):
            return False
        self._gate_stamps = stamps
        self.version += gate.shared is not None
        return True

    def _read_events(self) -> bool:
        found = tail_jsonl(self.batch.events_jsonl, self._offset, Event)
        if found.offset < self._offset:  # the file was replaced: what was read of the old one does not count
            self._restart()
        self._offset = found.offset
        self.state.bad_lines += len(found.bad)
        self._take(found.records)
        return bool(found.records or found.bad)

    def _take(self, events: Iterable[Event], told: Container[tuple[str, str | None, str]] = ()) -> None:
        for event in events:
            self.state.apply(event)
            self.version += event.kind != EventKind.HEARTBEAT
            if (event.job, event.trial, event.kind) not in told:
                self.each(event)

    def _read_index(self, now: float) -> bool:
        if self._scanned_at is not None and 0 <= now - self._scanned_at < SCAN_EVERY_SEC:
            return False
        self._scanned_at = now
        bad_lines = self.state.bad_lines
        self.note = f"none of the {bad_lines} lines of events.jsonl can be read: read from the index"
        if not bad_lines:
            self.note = EMPTY_EVENTS if self.batch.events_jsonl.exists() else WITHOUT_EVENTS
        scan_batch(self.batch, self.root)
        self._restart()
        self.state.bad_lines = bad_lines
        rows = trial_rows(self.root, self.batch.folder.relative_to(self.root).as_posix())
        events = sorted((event for row in rows for event in events_of(row)), key=lambda event: event.time)
        self._take(events, self._told)
        self._told = {(event.job, event.trial, event.kind) for event in events}
        self.state.events = 0  # none was read from the file: the next look goes to the index again
        return True

    def _restart(self) -> None:
        plan, limits = self.state.plan, self.state.limits
        self.state = LiveState(limits=limits)
        self.state.replan(plan)
        self.version += 1


def events_of(row: TrialRow) -> Iterator[Event]:
    """The events a trial of the index would have had."""
    trial = row.trial
    who = Event(
        time=(trial.started_at if trial else None) or "",
        kind="trial_started",
        job=row.job,
        pid=0,
        profile=row.profile or row.job,
        trial=row.name,
        task=row.task,
        dataset=row.dataset,
        attempt=row.attempt,
    )
    if row.state == ReadState.HELD:
        return
    yield who
    if row.state == ReadState.UNFINISHED:
        return
    detail: dict[str, object] = {"error_class": trial.error_class.value} if trial and trial.error_class else {}
    yield msgspec.structs.replace(
        who,
        time=(trial.finished_at if trial else None) or "",
        kind="trial_ended",
        outcome=trial.outcome.value if trial else Outcome.ERRORED.value,
        reward=trial.reward if trial else None,
        error=trial.error_message if trial else row.reason,
        usage=row.usage if row.usage.known else None,
        detail={**detail, "retried": True} if row.superseded and row.run_again else detail,
    )


def untold_ends(rows: Iterable[TrialRow], told: Iterable[Event]) -> Iterator[Event]:
    """The ends that are missing of trials whose start was told and whose result is there: their process was killed."""
    begun: set[tuple[str, str | None]] = set()
    tries: Counter[tuple[str, str | None]] = Counter()
    ended: set[tuple[str, str | None]] = set()
    for event in told:
        who = (event.job, event.trial)
        if event.kind == EventKind.TRIAL_STARTED:
            begun.add(who)
        elif event.kind == EventKind.TRIAL_ENDED:
            tries[who] += 1
            if not event.detail.get("retried"):
                ended.add(who)
    for row in rows:
        who = (row.job, row.name)
        if row.trial is not None and not row.superseded and who in begun and who not in ended:
            *_, end = events_of(row)
            number = {"try": tries[who] + 1} if tries[who] else {}
            yield msgspec.structs.replace(end, detail={**end.detail, **number})


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)  # replaced within one tick, a file has another number
