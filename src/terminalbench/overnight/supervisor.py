"""The supervisor of a night: leases iterations to workers, looks after them, and brings the night to its end.

Every trial is in a batch, and a batch is found again by its labels: whatever is killed here, a resume goes on from
what is on disk. What is decided is in `decisions`; the supervisor carries it out and writes it down.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from terminalbench.campaign import GateStatus, follow, standing
from terminalbench.errors import TbenchError
from terminalbench.experiments.experiment import Experiment
from terminalbench.harbor.limits.clock import AwakeClock
from terminalbench.overnight.crew import (
    TasksAtDeath,
    WorkerProcess,
    batch_of,
    end_orphan,
    hire,
    lease_of,
    orphan_of,
    read_beat,
    seen_in,
)
from terminalbench.overnight.decisions import (
    NextAction,
    NightTimeouts,
    WorkerVerdict,
    after,
    judge,
    may_add,
    next_work,
    reopened,
    seed_of,
)
from terminalbench.overnight.folder import Journal, NightFolder
from terminalbench.overnight.iteration_files import (
    drawn_tasks,
    find_batch,
    load_base,
    validation_left_usd,
    write_iteration,
)
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightState,
    Role,
    WithdrawnTask,
    WorkEnd,
    until_of,
    why_stopped,
)
from terminalbench.overnight.scaling import Scaler
from terminalbench.records.values import stamp
from terminalbench.runner.preflight import disk_is_full
from terminalbench.runner.signals import heard
from terminalbench.text.numbers import plural

POLL_SEC = 0.1
_LOOK_SEC = 1.0


@dataclass
class NightSupervisor:
    """Runs a night whose folder is there. The caller holds its lock. `told` hears of every event, `tick` of the time.

    `scaler` says how many workers there are to be, where that is left to the machine; `look` is called once a second.
    """

    folder: NightFolder
    config: NightConfig
    state: NightState
    patience: NightTimeouts = field(default_factory=NightTimeouts)
    told: Callable[[NightEvent], None] = lambda _event: None
    tick: Callable[["NightSupervisor"], None] = lambda _night: None
    look: Callable[["NightSupervisor"], None] = lambda _night: None
    scaler: Scaler | None = None
    hands: list[WorkerProcess] = field(default_factory=list)
    standing: GateStatus = field(default_factory=lambda: GateStatus(0.0, 0))
    signals: int = 0
    _awake: AwakeClock = field(default_factory=AwakeClock)
    _looked: float = 0.0
    _ended_at: float | None = None
    _full: str | None = None
    _base: Experiment | None = None
    _scaled: bool = False

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder, self.state, self.told)

    def run(self) -> NightState:
        """Run it to its end; the state says how it ended. A signal drains it, a second one ends it at once."""
        with heard(self._note_signal):
            self._reclaim()
            try:
                while not self._over():
                    self._round()
                    time.sleep(POLL_SEC)
            except BaseException:
                self._abandon()
                raise
        self._close()
        return self.state

    def _note_signal(self) -> None:
        self.signals += 1

    def _round(self) -> None:
        for hand in list(self.hands):
            self._look_after(hand)
        now = time.monotonic()
        if now - self._looked >= _LOOK_SEC:
            self._looked = now
            self._look_around()
            self._scale()
            self.look(self)
        self._end_by_time()
        while self._may_lease() and (work := self._next()) is not None:
            self._lease(work)
        self.journal.save()
        self.tick(self)

    def _over(self) -> bool:
        """Return whether nothing runs, and nothing is to be started any more; what only waits for its time is waited
        for."""
        if self.hands:
            return False
        if self.signals or self.stopped is not None:
            return True
        more = may_add(self.state, self.config.iterations)
        return not more and all(work.status.over for work in self.state.work)

    @property
    def stopped(self) -> str | None:
        """The reason why no iteration is leased any more, besides signals."""
        return why_stopped(self.state, self.standing)

    # Leases ---------------------------------------------------------------------------------------------------------

    def _may_lease(self) -> bool:
        free = len(self.hands) < self.state.workers
        return free and not self.signals and self.stopped is None and self._full is None

    def _next(self) -> IterationWork | None:
        found = next_work(self.state.work, self.state.clock.now())
        if found is None and may_add(self.state, self.config.iterations):
            number = max((work.number for work in self.state.work), default=0) + 1
            found = self._add(number, Role.ITERATION)
        return found

    def _add(self, number: int, role: Role) -> IterationWork:
        work = IterationWork(number, role, seed_of(self.config.seed, number, role))
        self.state.work.append(work)
        return work

    def _lease(self, work: IterationWork) -> None:
        """Write down that it is begun, then begin: an unrecorded worker would be one too many."""
        work.status, work.starts = IterationStatus.LEASED, work.starts + 1
        work.alone = bool(self.state.suspects.in_a_row)  # until it is known which of them ends workers
        work.started_at, work.not_before = work.started_at or self._now(), None
        number = next(n for n in range(1, len(self.hands) + 2) if n not in {hand.number for hand in self.hands})
        try:
            self._write(work)
            if not self.journal.save():
                raise OSError("the state of the night cannot be written")
            hand = hire(self.folder, work, number, self._awake())
        except OSError as error:  # a full disk, no processes left: it is tried again
            self._settle(work, after(work, WorkEnd(1, said=str(error)), self.patience, asked=False))
            return
        work.lease = lease_of(hand, self.state.clock.now())
        self.hands.append(hand)
        again = " again" if work.starts > 1 else ""
        said = f"{_name(work)} is started{again}"
        self.journal.tell(NightEventKind.WORKER_STARTED, said, work, worker=number, pid=hand.process.pid)

    def _write(self, work: IterationWork) -> None:
        """The experiment file of an iteration; of a validation the tasks that are drawn, and what it may spend."""
        drawn, left = None, None
        if work.role is Role.VALIDATION:
            drawn = drawn_tasks(self.config, self._experiment, work)
            left = validation_left_usd(self.config, self.state)
        base, held = self._experiment, self.state.quarantine
        if self.config.lessons is not None and work.role is Role.ITERATION:
            from terminalbench.overnight.lessons import profiles_of  # only where it is asked for

            wanted = profiles_of(self.config, base, work.number)
            base = replace(base, profiles=tuple(one for one in base.profiles if one.key in wanted))
        write_iteration(self.folder, self.config, base, work, held, tasks=drawn, budget_usd=left)

    @property
    def _experiment(self) -> Experiment:
        self._base = self._base or load_base(self.folder, self.config)
        return self._base

    # Workers --------------------------------------------------------------------------------------------------------

    def _look_after(self, hand: WorkerProcess) -> None:
        now = self._awake()
        code = hand.process.poll()
        beat = read_beat(self.folder, hand.work.number, hand.work.role)
        hand.watch.see(beat, now)
        if beat is not None and hand.work.lease is not None:
            hand.work.batch = beat.batch or hand.work.batch
            self._tell_deaths(hand, beat)
        if code is not None:
            self.hands.remove(hand)
            self._ended(hand, code, beat)
            return
        judged = judge(hand.watch, now, self.patience, waits=self.standing.waits)
        if judged.verdict is WorkerVerdict.KILL and hand.killed is None:
            self._lost(hand.work, f"worker {hand.number} {judged.reason}; ending it", hand)
            hand.kill(judged.reason)
        elif judged.verdict is WorkerVerdict.STOP and hand.stopping is None:
            said = f"worker {hand.number} on {_name(hand.work)}: {judged.reason}; restarting it"
            self.journal.tell(NightEventKind.INCIDENT, said, hand.work, worker=hand.number, cause="no progress")
            hand.stop(judged.reason, now)

    def _tell_deaths(self, hand: WorkerProcess, beat: Heartbeat) -> None:
        """Harbor processes that died under a worker, which goes on with what they had not finished."""
        for death in beat.deaths[hand.deaths :]:
            said = f"{_name(hand.work)}, {death.profile}: {death.cause}; its unfinished trials run again"
            self.journal.tell(NightEventKind.INCIDENT, said, hand.work, worker=hand.number, cause=death.cause)
        hand.deaths = max(hand.deaths, len(beat.deaths))

    def _lost(self, work: IterationWork, said: str, hand: WorkerProcess | None = None) -> None:
        number, pid = (hand.number, hand.process.pid) if hand is not None else (None, None)
        self.journal.tell(NightEventKind.WORKER_LOST, said, work, worker=number, pid=pid, cause=said)

    def _ended(self, hand: WorkerProcess, code: int, beat: Heartbeat | None) -> None:
        work = hand.work
        end = beat.end if beat is not None and beat.pid == hand.process.pid and hand.killed is None else None
        said = hand.killed or _how(code)
        batch = batch_of(self.folder, beat.batch) if beat is not None else None
        seen = seen_in(batch, beat.events_from) if batch is not None and beat is not None else TasksAtDeath()
        if seen.finished:
            work.failures = 0  # it got further
        became = after(work, end, self.patience, asked=hand.stopping is not None, said=said)
        if end is not None and (end.trials or work.end is None):  # one that was refused at its start counted nothing
            work.end = end
        if became.lost:
            if hand.killed is None:
                self._lost(work, f"worker {hand.number} on {_name(work)} died: {said}", hand)
            self._blame(work, seen)
        else:
            self.state.suspects.worker_ended(seen.finished)
        if end is not None and end.closed:
            self.state.stopped = end.said
        said = f"worker {hand.number} on {_name(work)} has ended"
        self.journal.tell(NightEventKind.WORKER_ENDED, said, work, worker=hand.number, pid=hand.process.pid)
        self._settle(work, became)

    def _settle(self, work: IterationWork, became: NextAction) -> None:
        """Write down what becomes of an iteration without a worker."""
        work.lease, work.status, work.reason = None, became.status, became.reason
        work.failures, work.rounds = became.failures, became.rounds
        now = self.state.clock.now()
        work.not_before = (
            now + became.wait_sec if became.status is IterationStatus.WAITING and became.wait_sec else None
        )
        if became.status.over:
            work.finished_at = self._now()
            self.journal.tell(NightEventKind.ITERATION_ENDED, _ending_said(work), work, cause=became.reason)
            self._validate(work)
        elif became.reason and not became.lost:
            self.journal.tell(NightEventKind.INCIDENT, f"{_name(work)}: {became.reason}", work, cause=became.reason)
        self.journal.save()

    def _now(self) -> str:
        """The moment by the night's clock: an iteration has not lasted longer because somebody set the machine's."""
        return stamp(datetime.fromtimestamp(self.state.clock.now(), UTC))

    def _validate(self, work: IterationWork) -> None:
        """An iteration is over: a sample of it is to be run by the validator too, while there is money for that."""
        if work.role is not Role.ITERATION or self.config.validation is None:
            return
        known = any(one.number == work.number and one.role is Role.VALIDATION for one in self.state.work)
        left = validation_left_usd(self.config, self.state)
        if left is not None and left <= 0:
            if not known:
                self.journal.tell(NightEventKind.NOTE, "the validation has spent its budget", work, cause="validation")
        elif not known:
            self._add(work.number, Role.VALIDATION)

    def _blame(self, work: IterationWork, seen: TasksAtDeath) -> None:
        held = {f"{one.dataset}/{one.task}" for one in self.state.quarantine}
        for name in self.state.suspects.worker_died(seen.running, seen.finished):
            if name in held:  # it was running under another worker when it was quarantined
                continue
            dataset, _, task = name.rpartition("/")
            reason = "a worker died every time it ran"
            self.state.quarantine.append(WithdrawnTask(task, dataset, reason))
            said = f"{task} is left out from now on: {reason}"
            self.journal.tell(NightEventKind.QUARANTINED, said, work, cause=name)

    # Around ---------------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Look once a second at the gate, the wall clock and the disk."""
        try:
            moved = follow(self.folder.gate_json, until_of(self.config))
            self.standing = standing(self.folder.gate_json)
        except (OSError, TbenchError, msgspec.DecodeError):
            moved = None  # a person is just writing it, or the disk is full: the next look tells
        self.state.deadline = self.standing.deadline
        if moved is not None:
            self.journal.tell(NightEventKind.NOTE, moved, cause="clock")
        full = disk_is_full(self.folder.folder)
        if full is not None and self._full is None:
            self.journal.tell(NightEventKind.INCIDENT, f"{full}; no new iteration starts", cause="disk")
        elif full is None and self._full is not None:
            self.journal.tell(NightEventKind.NOTE, "the disk has free space again", cause="disk")
        self._full = full

    def _scale(self) -> None:
        """More or fewer workers, where the machine decides: one too many ends with its iteration, if it can wait."""
        if self.scaler is None:
            return
        decision = self.scaler.decide([hand.process.pid for hand in self.hands])
        if decision is None:
            return
        first, self._scaled = not self._scaled, True
        if first or decision.workers != self.state.workers:
            self.state.workers = decision.workers
            said = f"{plural(decision.workers, 'worker')}: {decision.reason}"
            self.journal.tell(NightEventKind.SCALED, said, workers=decision.workers, cause=decision.reason)
        going = [hand for hand in self.hands if hand.stopping is None]
        if decision.urgent:
            for hand in sorted(going, key=lambda hand: hand.watch.started)[decision.workers :]:
                hand.stop(decision.reason, self._awake())

    def _end_by_time(self) -> None:
        """Running trials may finish after the deadline, for a while; a signal asks at once, a second one kills."""
        now = self._awake()
        if self.stopped is not None and self._ended_at is None:
            self._ended_at = now
        late = self._ended_at is not None and now - self._ended_at > self.patience.finish_sec
        for hand in self.hands:
            if self.signals > 1:
                hand.kill("interrupted twice")
            elif self.signals:
                hand.stop("interrupted", now)
            elif late:
                hand.stop(self.stopped or "", now)

    # Beginning and end ----------------------------------------------------------------------------------------------

    def _reclaim(self) -> None:
        """Take over what an earlier supervisor left: its workers are ended, their batches go on."""
        for index, work in enumerate(self.state.work):
            if work.status is IterationStatus.LEASED:
                pid = orphan_of(self.folder, work)
                if pid is not None:
                    self._lost(work, f"the worker on {_name(work)} no longer had a supervisor; ending it")
                    end_orphan(pid)
                found = find_batch(self.folder, self.config.run_id, work.number, work.role)
                work.batch = f"{found.folder.parent.name}/{found.number}" if found is not None else None
            self.state.work[index] = reopened(work)
        self.state.status, self.state.stopped = "running", None
        self._look_around()
        self.journal.save()

    def _abandon(self) -> None:
        """We cannot go on: nothing of ours is left running."""
        for hand in self.hands:
            hand.stop("the supervisor failed", self._awake())
        deadline = time.monotonic() + self.patience.drain_sec
        while any(hand.process.poll() is None for hand in self.hands) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        for hand in self.hands:
            hand.kill("the supervisor failed")

    def _close(self) -> None:
        complete = all(work.status.over for work in self.state.work) and not may_add(self.state, self.config.iterations)
        if self.signals:
            self.state.status = "interrupted"
        else:
            self.state.status = "finished" if complete else "stopped"
        self.state.stopped = None if complete else self.stopped
        why = f": {self.state.stopped}" if self.state.stopped else ""
        self.journal.tell(NightEventKind.ENDED, f"the night is {self.state.status}{why}", cause=self.state.stopped)


def _how(code: int) -> str:
    return f"it was killed by signal {-code}" if code < 0 else f"it ended with code {code} and without a message"


def _name(work: IterationWork) -> str:
    return f"{work.role} {work.number}"


def _ending_said(work: IterationWork) -> str:
    if work.status is IterationStatus.GIVEN_UP:
        return f"{_name(work)} was given up: {work.reason}"
    end = work.end or WorkEnd(1)
    of = f" of {end.trials}" if end.measured < end.trials else ""
    return f"{_name(work)}: {end.passed} passed of {end.measured} measured{of}"
