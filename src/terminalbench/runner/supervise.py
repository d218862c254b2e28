"""Running jobs side by side: start, follow their events, end them on a signal, run what an abort left over."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ExclusionKind, JobSpec
from terminalbench.files import tail_plain
from terminalbench.harbor.limits.clock import AwakeClock
from terminalbench.harbor.limits.gate import TrialRefusal
from terminalbench.harbor.read.results import finished_folders, finished_trials
from terminalbench.json_files import append_jsonl, tail_jsonl, write_json
from terminalbench.live.processes import executor
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.deaths import blame, how_it_ended, log_tail
from terminalbench.runner.executors.base import (
    CLUSTER_GONE,
    NO_ROOM,
    NODE_FENCED,
    NODE_LOST,
    NODE_UNFIT,
    ClusterExecutor,
    Executor,
    JobRun,
)
from terminalbench.runner.kill import when_orphaned
from terminalbench.runner.signals import heard
from terminalbench.runner.waves import Cell, Launch, ProfileWaves, free_wave_name, next_wave, remaining, wanted
from terminalbench.secrets.values import Secrets

MAX_WAVES = 10
MAX_LOST = 3
"""How many waves of a line may be lost with their machines, one after the other, without a trial that ended."""
_KINDS = {
    NODE_UNFIT: ExclusionKind.ABORTED,
    NO_ROOM: ExclusionKind.CLUSTER_LOST,
    CLUSTER_GONE: ExclusionKind.CLUSTER_LOST,
}
"""Exit codes of jobs that another wave would end with too."""
_LOST = "its node, or the cluster, was lost"
_POLL_SEC = 0.1
_LOOK_SEC = 1.0
_GRACE_SEC = 30.0
_KILL_SEC = 10.0
_SAID_BYTES = 4096


@dataclass(frozen=True)
class Turns:
    """The listener to the turns of profiles: as a job of it `begins`, when its process is `gone`, when it is `over`.

    With a job goes the list of the others of its profile that run. What cannot be written then (a full disk) ends the
    run by itself.
    """

    begins: Callable[[JobSpec, list[JobSpec]], None] = lambda _job, _others: None
    gone: Callable[[JobSpec, list[JobSpec]], None] = lambda _job, _others: None
    over: Callable[[str], None] = lambda _profile: None

    def tell[**P](self, told: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Tell it one of these."""
        with suppress(OSError, msgspec.DecodeError):
            told(*arguments, **named)


def _room(running: list[ProfileWaves], line: ProfileWaves, limit: int) -> bool:
    """Return whether a line may run beside others: so many profiles may, each in any number of lines."""
    profiles = {one.profile for one in running}
    return line.profile in profiles or len(profiles) < limit


@dataclass
class BatchSupervisor:
    """Runs launches, at most `side_by_side` at once (0 = all), and tells `watch` of every event.

    `closed` says why nothing of a profile may start (a budget, a deadline), or None while it may. `stopped` says why
    running trials have to end too (a full disk); it is asked about once a second. `turns` are told which profiles run.
    `secrets` are taken out of what it says of a job's log. `executor` runs the jobs.
    """

    batch: Batch
    launches: list[Launch]
    side_by_side: int
    watch: Callable[[Event], None]
    tick: Callable[[], None]
    closed: Callable[[str], TrialRefusal | None] = lambda _profile: None
    stopped: Callable[[], str | None] = lambda: None
    turns: Turns = field(default_factory=Turns)
    secrets: Secrets = field(default_factory=Secrets.of_environment)
    executor: str = "local"
    signals: int = 0
    stop: TrialRefusal | None = None
    died: list[str] = field(default_factory=list)
    _offset: int = 0
    _looked_at: float = 0.0
    _asked_at: float | None = None
    _awake: AwakeClock = field(default_factory=AwakeClock)
    _running: list[ProfileWaves] = field(default_factory=list)

    def why_over(self, profile: str) -> TrialRefusal | None:
        """Return why nothing of a profile may start any more: nothing at all may, or the profile was stopped."""
        return self.stop or self.closed(profile)

    def run(self) -> dict[tuple[str, Cell], TrialRefusal]:
        """Run everything to its end; why each cell that is left over did not run to its end, by profile and cell.

        After a signal nothing new starts, and running trials are cancelled.
        """
        waiting = deque(ProfileWaves(launch) for launch in self.launches)
        running: list[ProfileWaves] = []
        ended: list[ProfileWaves] = []
        if self.batch.events_jsonl.exists():
            self._offset = self.batch.events_jsonl.stat().st_size
        with heard(self._note_signal):
            try:
                self._run(waiting, running, ended)
            except BaseException:
                self._abandon(running)
                raise
        for line in waiting:
            reason = self.why_over(line.profile)
            line.left_over = dict.fromkeys(wanted(line.launch.job), reason) if reason and not self.signals else {}
        return {(line.profile, cell): why for line in [*ended, *waiting] for cell, why in line.left_over.items()}

    def _run(self, waiting: deque[ProfileWaves], running: list[ProfileWaves], ended: list[ProfileWaves]) -> None:
        self._running = running
        limit = self.side_by_side or len(waiting)
        while running or (waiting and not self.signals and self.stop is None):
            while waiting and _room(running, waiting[0], limit) and not self.signals and self.stop is None:
                line = waiting.popleft()
                if reason := self.why_over(line.profile):
                    line.left_over = dict.fromkeys(wanted(line.launch.job), reason)
                    self._over(line, ended, [*running, *waiting])
                    continue
                running.append(line)
                self._start(line, line.launch.job)
            self._look()
            # Who has ended is asked first: then all that it said is read before what it left over is judged.
            over = [(line, code) for line in running if (code := self._poll(line)) is not None]
            self._follow(running)
            for line, code in over:
                if not self._after(line, code):
                    running.remove(line)
                    self._over(line, ended, [*running, *waiting])
            if not running and not waiting:
                self._revive(running, ended, limit)
            self._end_hung(running)
            self._forward_signals(running)
            self.tick()
            time.sleep(_POLL_SEC)
        self._follow(running)

    def _over(self, line: ProfileWaves, ended: list[ProfileWaves], others: list[ProfileWaves]) -> None:
        if all(other.profile != line.profile for other in others):
            self.turns.tell(self.turns.over, line.profile)
        ended.append(line)

    def _revive(self, running: list[ProfileWaves], ended: list[ProfileWaves], limit: int) -> None:
        """All profiles have had their turn: those that the budget stopped run on with what the others have left of it.

        Not one whose last such turn started nothing.
        """
        for line in list(ended):
            short = line.left_over and all(why.kind is ExclusionKind.BUDGET for why in line.left_over.values())
            idle = line.revived and not line.started
            if not short or idle or not _room(running, line, limit) or self.signals or self.why_over(line.profile):
                continue
            line.left_over, line.revived = {}, True
            ended.remove(line)
            running.append(line)
            finished = (finished_trials(self.batch.job_folder(job.name)) for job in line.waves)
            self._next_wave(line, remaining(line.launch.job, sum(finished, Counter())))

    def _next_wave(self, line: ProfileWaves, cells: Mapping[Cell, int]) -> None:
        if not line.waves:
            self._start(line, line.launch.job)
            return
        name = free_wave_name(self.batch, line.launch.job.name)
        self._start(line, next_wave(line.launch.job, cells, name))

    def _abandon(self, running: list[ProfileWaves]) -> None:
        """We cannot go on (a disk that is full): Harbor records what it can, then nothing of ours is left running."""
        lines = [line for line in running if line.worker is not None]
        for now, seconds in ((False, _GRACE_SEC), (True, _KILL_SEC)):
            for line in lines:
                self._stop(line, now=now)
            deadline = time.monotonic() + seconds
            while any(self._poll(line) is None for line in lines) and time.monotonic() < deadline:
                if self.signals > 1 and not now:
                    break
                time.sleep(_POLL_SEC)

    def _look(self) -> None:
        now = time.monotonic()
        if self.stop is None and now - self._looked_at >= _LOOK_SEC:
            self._looked_at = now
            if (reason := self.stopped()) is not None:
                self.stop = TrialRefusal(reason, ExclusionKind.DISK_FULL)

    def _start(self, line: ProfileWaves, job: JobSpec) -> None:
        config = line.launch.config(job)
        alone: list[str] = []
        if line.search.one_at_a_time:
            config["n_concurrent_trials"] = 1
            alone = ["--pk", "fixed_slots=true"]
        write_json(self.batch.job_config(job.name), config)
        self.turns.tell(self.turns.begins, job, self._beside(line))
        line.waves.append(job)
        line.started, line.held, line.hung, line.limits = Counter(), False, False, {}
        line.tries, line.completed, line.over, line.lost_at = {}, False, False, None
        line.heard_at, line.silent = self._awake(), None
        run = JobRun(
            job.name,
            job.profile,
            [*line.launch.command(job), *alone],
            line.launch.env | when_orphaned(self.batch, job.name),
            self.batch.job_folder(job.name),
            self.batch.job_log(job.name),
        )
        line.worker = msgspec.structs.replace(self._executor.start(run), executor=self.executor)
        try:
            write_json(self.batch.worker(job.name), line.worker)
        except BaseException:  # what cannot be found again must not run
            self._stop(line, now=True)
            raise

    @property
    def _executor(self) -> Executor:
        return executor(self.executor)

    def _poll(self, line: ProfileWaves) -> int | None:
        """The exit code of its job. One that is lost may still run: until it has said its end, or must have ended."""
        cluster = self._executor
        code = cluster.poll(line.worker) if line.worker is not None else None
        if code != NODE_LOST or line.over or not isinstance(cluster, ClusterExecutor):
            return code
        if line.lost_at is None:
            line.lost_at = time.monotonic()
        return code if time.monotonic() > line.lost_at + cluster.afterlife_sec else None

    def _stop(self, line: ProfileWaves, *, now: bool) -> None:
        if line.worker is not None:
            self._executor.stop(line.worker, now=now)

    def _after(self, line: ProfileWaves, code: int) -> bool:
        """A process has ended: start a further wave for what it left over; False when the profile is through."""
        finished = (finished_trials(self.batch.job_folder(job.name)) for job in line.waves)
        missing = remaining(line.launch.job, sum(finished, Counter()))
        self._retire(line)
        if not missing or self.signals:
            return False
        reason = self.why_over(line.profile) or self._why_unfit(line, code)
        if reason is not None:
            line.left_over = dict.fromkeys(missing, reason)
            return False
        last = log_tail(self.batch.job_log(line.waves[-1].name), self.secrets)
        wave = line.waves[-1]
        why = line.silent or how_it_ended(code, last)
        if set(missing) <= line.requeued:
            why = "it was scheduled to run again"
        elif line.hung:
            why, line.fruitful = "a trial beside it could not be ended", line.fruitful + 1
        elif line.held:  # a job that is held to its end interrupts itself; what held it was lifted meanwhile
            why, line.fruitful = "the reason for holding it was removed", line.fruitful + bool(line.started)
        elif code in (NODE_LOST, NODE_FENCED):
            why = _LOST
            self._tell_death(line, why, code)
        elif code == 0 and line.completed:
            why = "Harbor finished its job but left no readable result"
            line.search.culprits |= {(t.label, t.ref.id) for t in wave.tasks} & set(missing)
        else:
            cell = line.search.learn(wave, line.started, finished_trials(self.batch.job_folder(wave.name)))
            self._tell_death(line, why, code)
            if cell is not None:
                missing -= self._blame(line, cell, why)
        for cell in line.search.culprits:
            line.reasons.setdefault(cell, why)
        chosen = line.search.choose(missing)
        if not missing:
            return False
        if len(line.waves) - line.fruitful >= MAX_WAVES or not chosen:
            line.left_over = {c: TrialRefusal(line.reasons.get(c, why), ExclusionKind.ABORTED) for c in missing}
            return False
        line.requeued = set()
        self._next_wave(line, chosen)
        return True

    def _why_unfit(self, line: ProfileWaves, code: int) -> TrialRefusal | None:
        """Return why no machine that it would be given to can run it, or None; nothing runs when none is left."""
        if code in (NODE_LOST, NODE_FENCED):
            return self._why_lost(line, code)
        if code not in _KINDS:
            return None
        said = (tail_plain(self.batch.job_log(line.waves[-1].name), _SAID_BYTES) or "").splitlines()
        why = self.secrets.one_line(said[-1] if said else "its node cannot run it")
        self._tell_death(line, why, code)
        refusal = TrialRefusal(why, _KINDS[code])
        if code == CLUSTER_GONE:
            self.stop = refusal
        return refusal

    def _why_lost(self, line: ProfileWaves, code: int) -> TrialRefusal | None:
        """Count a wave that was lost with its machine; return why no further one is started, or None."""
        fruitful = bool(finished_trials(self.batch.job_folder(line.waves[-1].name)))
        line.fruitful, line.lost = line.fruitful + fruitful, 0 if fruitful else line.lost + 1
        if line.lost < MAX_LOST:
            return None
        self._tell_death(line, _LOST, code)
        why = f"{_LOST}, {MAX_LOST} times in a row without a trial that ended"
        return TrialRefusal(why, ExclusionKind.CLUSTER_LOST)

    def _beside(self, line: ProfileWaves) -> list[JobSpec]:
        """The jobs of its profile that run in other lines."""
        others = (one for one in self._running if one is not line and one.profile == line.profile)
        return [one.waves[-1] for one in others if one.waves]

    def _retire(self, line: ProfileWaves) -> None:
        self._stop(line, now=True)  # what Harbor left behind, if anything
        self.batch.worker(line.waves[-1].name).unlink(missing_ok=True)
        self.turns.tell(self.turns.gone, line.waves[-1], self._beside(line))

    def _tell_death(self, line: ProfileWaves, text: str, code: int) -> None:
        job, pid = line.waves[-1], line.worker.pid or 0 if line.worker else 0
        self.died.append(job.name)
        died = Event.now(EventKind.JOB_DIED, job.name, pid=pid, profile=job.profile, error=text, detail={"code": code})
        append_jsonl(self.batch.events_jsonl, died)

    def _blame(self, line: ProfileWaves, cell: Cell, why: str) -> Counter[Cell]:
        """Have the trial that killed Harbor end so; what has ended by that."""
        job = self.batch.job_folder(line.waves[-1].name)
        over = {folder.name for folder, _ in finished_folders(job)}
        tries = [one for name, one in line.tries.items() if name not in over]
        last = next((one for one in reversed(tries) if (one.dataset or "", one.task or "") == cell), None)
        ended = blame(job / (last.trial or ""), last, why, self.secrets) if last is not None else None
        if ended is None:
            line.search.culprits.add(cell)
            return Counter()
        append_jsonl(self.batch.events_jsonl, ended)
        line.fruitful += 1
        return Counter([cell])

    def _follow(self, running: list[ProfileWaves]) -> None:
        found = tail_jsonl(self.batch.events_jsonl, self._offset, Event)
        self._offset = found.offset
        by_job = {line.waves[-1].name: line for line in running}
        for event in found.records:
            if (line := by_job.get(event.job)) is not None:
                line.hear(event, self._awake())
            self.watch(event)

    def _end_hung(self, running: list[ProfileWaves]) -> None:
        for line in running:
            cluster = self._executor
            if line.worker is not None and isinstance(cluster, ClusterExecutor) and cluster.waits(line.worker):
                line.heard_at = self._awake()
            reason = line.why_hung(self._awake())
            if reason is not None and line.silent is None:
                line.silent = reason
                self._stop(line, now=True)

    def _forward_signals(self, running: list[ProfileWaves]) -> None:
        if not self.signals and self.stop is None:
            return
        now = time.monotonic()
        first = self._asked_at is None
        if self._asked_at is None:
            self._asked_at = now
        if first or self.signals > 1 or now - self._asked_at > _GRACE_SEC:
            for line in running:
                self._stop(line, now=not first)

    def _note_signal(self) -> None:
        self.signals += 1
