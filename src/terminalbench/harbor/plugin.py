"""The Harbor plugin that writes `events.jsonl`: what happens to a job and its trials, as it happens.

    harbor run -c job.json -y --plugin terminalbench.harbor.plugin:EventPlugin \\
        --pk events=<path of events.jsonl> --pk 'profile="<key>"' [--pk gate=<path of gate.json>] ...

Several Harbor processes append to the same file. Hooks run on Harbor's event loop, and one that raises ends the
job, so a hook only notes what happened and never raises; a thread of its own writes the lines.

It also keeps trials waiting while the gate says so, ends a trial whose phase hangs where Harbor has no limit, tells
each agent its attempt, and takes pipes and links out of the agent's log folder before Harbor reads it.
"""

import asyncio
import atexit
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, override

import msgspec
from harbor.models.job.plugin import BaseJobPlugin
from harbor.trial.hooks import TrialEvent, TrialHookEvent

from terminalbench.decode import convert
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.experiments.tables import ProfilePrice
from terminalbench.files import remove_traps
from terminalbench.harbor.attempt_numbers import hide_commits, number_planned
from terminalbench.harbor.event_writer import EventWriter
from terminalbench.harbor.limits.accounts import TrialRefusal
from terminalbench.harbor.limits.admission import Wait, door_of
from terminalbench.harbor.limits.cancellation import CancellationHooks, Slots, TrialCanceller
from terminalbench.harbor.limits.clock import boot_id
from terminalbench.harbor.limits.hangs import (
    GRACE_SEC,
    HELD,
    HoldReason,
    bound_agents,
    early_sec,
    limits_of,
    planned_limits,
)
from terminalbench.harbor.limits.pacing import is_pressure, lane_of
from terminalbench.harbor.limits.ratelimit import count_hits, pressure_told, wait_in_logs
from terminalbench.harbor.read.notes import PLANNED, SEEN, TIMES, HostActivity, Moment, PlannedTrial, Times, client_of
from terminalbench.harbor.read.outcome import TrialEnding, classify
from terminalbench.harbor.read.result_file import TaskConfig, agent_config, from_result
from terminalbench.harbor.read.results import LiveEnding, live_ending
from terminalbench.harbor.read.usage import best
from terminalbench.harbor.retry_queue import SUPERSEDED, JobTries, set_aside
from terminalbench.json_files import write_json
from terminalbench.records.event import BLOCKED, COMPLETED_JOB, HUNG_JOB, Event, Progress
from terminalbench.sandbox.network.trial import PHASES, enter_phase, phases_are_told

HEARTBEAT_SEC = 10.0
_READ_TIMEOUT_SEC = 10.0
_DRAIN_SEC = 0.5
_PHASES = {
    TrialEvent.ENVIRONMENT_START: "environment",
    TrialEvent.AGENT_START: "agent",
    TrialEvent.AGENT_END: "collect",
    TrialEvent.VERIFICATION_START: "verifier",
}


class EventPlugin(BaseJobPlugin):
    """Writes the events of one job. Options it does not know are an error before the first trial."""

    def __init__(
        self,
        events: str,
        profile: str | None = None,
        heartbeat_sec: float = HEARTBEAT_SEC,
        gate: str | None = None,
        grace_sec: float = GRACE_SEC,
        fixed_slots: bool = False,
        shared: str | None = None,
        price: dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        # Harbor parses option values as JSON, so give `profile` as a JSON string; bare 12 and true are names here too.
        self._path = Path(str(events))
        self._profile = None if profile is None else _spelled(profile)
        self._heartbeat_sec = float(heartbeat_sec)
        if not self._heartbeat_sec > 0:
            raise ValueError("heartbeat_sec must be more than 0")
        self._grace_sec = float(grace_sec)
        self._price = convert(price, ProfilePrice | None)
        self._door = door_of(gate, shared, self._profile or "")
        self._held: set[str] = set()
        self._fixed_slots = bool(fixed_slots)
        self._interrupted = False
        self._refused: TrialRefusal | None = None
        self._writer = EventWriter(self._path)
        self._job = ""
        self._job_dir = self._path.parent
        self._planned = 0
        self._attempts: dict[str, int] = {}
        self._tries = JobTries()
        self._moments: dict[str, list[Moment]] = {}
        self._met: dict[str, TrialHookEvent] = {}
        self._running: set[str] = set()
        voice = CancellationHooks(
            self._write, self._writer.failed, self._bury, lambda: self._at_exit(HUNG_JOB), self._heartbeat
        )
        tick_sec = self._heartbeat_sec
        self._ender = TrialCanceller(self._door, self._profile or "", self._grace_sec, tick_sec, voice, self._running)
        self._outcomes: dict[str, str] = {}
        self._beat_at = time.monotonic()
        self._ended = False

    @override
    async def on_job_start(self, job: Any) -> None:
        """Write `job_started` and follow the job from here on."""
        try:
            self._job = str(job.config.job_name)
            self._job_dir = Path(job.job_dir)
            self._planned = len(job)
            self._writer.start()
            atexit.register(self._at_exit)
            hide_commits(job._remaining_trial_configs)  # Harbor has no public list
            self._attempts = await asyncio.to_thread(number_planned, job, Batch(self._path.parent))
            self._tries.follow(job, self._attempts, self._at)
            planned = await asyncio.to_thread(planned_limits, Batch(self._path.parent).plan_json)
            await asyncio.to_thread(bound_agents, job._remaining_trial_configs, planned)
            told = {"trials": self._planned, "resumed": bool(job.is_resuming), "job_id": str(job.id), "boot": boot_id()}
            self._write("job_started", detail=told)
        except Exception as error:  # noqa: BLE001 - a plugin must not end the job it watches
            self._writer.failed("job_started", error)
        try:
            for kind in TrialEvent:
                job.add_hook(kind, self._hook(kind))
            phases_are_told(type(self).__name__)
            loop = asyncio.get_running_loop()
            self._ender.start(loop, self._job_dir, Slots(job, fixed=self._fixed_slots))
        except Exception as error:  # noqa: BLE001 - as above
            self._writer.failed("hooks", error)

    @override
    async def on_job_end(self, job_result: Any) -> None:
        """Write `job_ended`; Harbor does not call this when the job was aborted or cancelled."""
        try:
            self._ender.stop()
            self._end(COMPLETED_JOB)
            await asyncio.to_thread(self._writer.stop)
        except Exception as error:  # noqa: BLE001 - as above
            self._writer.failed("job_ended", error)

    def _hook(self, kind: TrialEvent) -> Callable[[TrialHookEvent], Coroutine[Any, Any, None]]:
        handlers = {TrialEvent.START: self._trial_started, TrialEvent.END: self._trial_ended}
        handle = handlers.get(kind, self._trial_phase)

        async def hook(event: TrialHookEvent) -> None:
            try:
                await handle(event)
            except Exception as error:  # noqa: BLE001 - a hook that raises ends the job or fails every trial
                self._writer.failed(f"{kind.value} of {event.trial_name}", error)

        return hook

    async def _trial_started(self, event: TrialHookEvent) -> None:
        self._ender.met(event, {})
        try:
            if (refusal := await self._wait(event)) is not None:
                await self._hold(event, refusal)
            self._tries.began(event.trial_name)
            self._moments[event.trial_name] = [Moment.now("start", self._ender.clock())]
            self._running.add(event.trial_name)
            agent = agent_config(event.config.agent)
            client = await asyncio.to_thread(client_of, agent.name, agent.import_path)
            planned = PlannedTrial(self._price, self._attempts.get(event.trial_name), client, datetime.now(UTC))
            await asyncio.to_thread(self._leave, event.trial_name, PLANNED, planned)
            limits = await asyncio.to_thread(limits_of, event.config, self._grace_sec)
        except asyncio.CancelledError:  # Harbor tells of no end of a trial that has not begun
            self._running.discard(event.trial_name)
            self._door.withdraw(event.trial_name)
            self._ender.gone(event)
            raise
        self._ender.met(event, limits)
        self._met[event.trial_name] = event
        self._write("trial_started", event, detail=self._try(event) | {"limit_sec": max(limits.values())})

    async def _wait(self, event: TrialHookEvent) -> TrialRefusal | None:
        """Stay here while something keeps the trial from starting for now; returns why it may never start."""
        told: Wait | None = None
        answer: Wait | TrialRefusal | None = None
        lane = lane_of(agent_config(event.config.agent))
        try:
            while isinstance(answer := await asyncio.to_thread(self._door.ask, event.trial_name, lane), Wait):
                if answer != told:
                    self._write("trial_waiting", event, error=answer.reason, detail=answer.detail(self._door.now()))
                    told = answer
                await asyncio.sleep(answer.left_sec(self._door.now()))
        except (OSError, msgspec.DecodeError) as error:
            self._writer.failed(f"gate for {event.trial_name}", error)
        except asyncio.CancelledError:
            over = TrialRefusal("the run ended before the trial could start", ExclusionKind.INTERRUPTED)
            why = self._refused if self._interrupted and self._refused is not None else over
            self._leave(event.trial_name, HELD, HoldReason(why.reason, why.kind))
            raise
        if told is not None:
            event.result.started_at = datetime.now(UTC)  # waiting is no part of the trial
        return answer if isinstance(answer, TrialRefusal) else None

    async def _hold(self, event: TrialHookEvent, refusal: TrialRefusal) -> None:
        """Keep a trial from starting until the job is interrupted, which happens when nothing else runs any more."""
        self._held.add(event.trial_name)
        self._refused = refusal
        self._ender.gone(event)
        self._leave(event.trial_name, HELD, HoldReason(refusal.reason, refusal.kind))
        self._write("trial_held", event, error=refusal.reason, detail={"kind": refusal.kind.value})
        self._interrupt_when_drained()
        await asyncio.Event().wait()

    def _leave(self, trial: str, file: str, note: PlannedTrial | HoldReason | HostActivity | Times) -> None:
        """Never raises: a hook that does lets its trial start, though it is held or cancelled."""
        try:
            write_json(self._job_dir / trial / file, note)
        except OSError as error:
            self._writer.failed(f"{file} of {trial}", error)

    def _interrupt_when_drained(self) -> None:
        if self._held and not self._running:
            # Not at once: the trial that has just ended still has its last files to write.
            asyncio.get_running_loop().call_later(_DRAIN_SEC, self._interrupt)

    def _interrupt(self) -> None:
        """Interrupt Harbor once, however many are held: at a second signal it drops what it has to write. Not while one
        starts."""
        if not self._interrupted and not self._running:
            self._interrupted = True
            os.kill(os.getpid(), signal.SIGINT)

    async def _trial_phase(self, event: TrialHookEvent) -> None:
        self._moments.setdefault(event.trial_name, []).append(Moment.now(event.event.value, self._ender.clock()))
        if event.event is TrialEvent.CANCEL:
            self._write("trial_cancelled", event)
            return
        if (
            event.event is TrialEvent.AGENT_START
        ):  # of a trial that kills this process nothing else may tell if it acted
            self._tries.at_first_act(event.trial_name, lambda seen: self._leave(event.trial_name, SEEN, seen))
        if event.event is TrialEvent.AGENT_END:
            # Harbor is about to read the agent's logs on its event loop: a pipe among them would hang the whole job.
            await asyncio.to_thread(remove_traps, self._job_dir / event.trial_name / "agent")
            await asyncio.to_thread(self._leave, event.trial_name, SEEN, self._tries.seen(event.trial_name))
        await asyncio.sleep(early_sec(event.event.value, event.config.environment.import_path))
        self._ender.phases.phase(event.trial_name, _PHASES[event.event])
        if (phase := _PHASES[event.event]) in PHASES:
            await enter_phase(self._job_dir / event.trial_name, phase)
        steps = event.result.step_results
        detail = {"step": steps[-1].step_name} if steps else {}
        self._write("trial_phase", event, phase=_PHASES[event.event], detail=detail)

    def _at(self, trial: str, progress: Progress) -> None:
        """Its agent says where it is."""
        if (event := self._met.get(trial)) is not None:
            self._write("trial_phase", event, phase="agent", detail={"at": msgspec.to_builtins(progress)})

    async def _trial_ended(self, event: TrialHookEvent) -> None:
        self._ender.phases.ended(event.trial_name)
        self._met.pop(event.trial_name, None)
        moments = [*self._moments.pop(event.trial_name, []), Moment.now("end", self._ender.clock())]
        await asyncio.to_thread(self._leave, event.trial_name, TIMES, Times(moments))
        try:
            await self._tell_end(event)
        finally:
            self._ender.gone(event)
            try:
                await self._settle(event, None, measured=False)  # if nobody could say what it cost: others wait
            finally:  # only now: another trial takes its place, or a job that is drained is interrupted
                self._running.discard(event.trial_name)
                self._door.left(event.trial_name)
                self._interrupt_when_drained()

    async def _tell_end(self, event: TrialHookEvent) -> None:
        """Keep and write all that is to be known of a trial that has ended."""
        result, secrets = from_result(event.result), self._writer.secrets
        used = best(result.model, result.contexts, [], [], self._price)
        known = LiveEnding(classify(result, secrets=secrets), used)
        asked, hits = None, 0
        try:
            # Now: a retry deletes the folder of the failed try, and its cost would be known nowhere else.
            work = asyncio.to_thread(live_ending, self._job_dir / event.trial_name, result, secrets)
            known = await asyncio.wait_for(work, _READ_TIMEOUT_SEC)
            asked = await self._pace(event, known.ending)
            counting = asyncio.to_thread(count_hits, self._job_dir / event.trial_name, known.wait)
            hits = await asyncio.wait_for(counting, _READ_TIMEOUT_SEC)
        except (OSError, TimeoutError, msgspec.DecodeError) as error:
            self._writer.failed(f"logs of {event.trial_name}", error)
        finally:
            # Harbor takes out the secrets only of the variables that it gave to the agent.
            scrub, folder = self._writer.secrets.scrub_folder, self._job_dir / event.trial_name
            await self._or_tell(f"secrets of {event.trial_name}", scrub, folder)
            retried = self._tries.decide(event.trial_name, known.ending)
            if retried:
                await self._keep_failed_try(event)
            told = {"measured": known.ending.outcome.measured, "again": retried}
            await self._settle(event, known.usage.cost_usd, **told)
            self._write_end(event, known, pressure_told(asked, hits) | ({"retried": True} if retried else {}))

    async def _or_tell(self, what: str, work: Callable[..., Any], *arguments: Any) -> None:
        """Do something in a thread; what goes wrong with it is told."""
        try:
            await asyncio.to_thread(work, *arguments)
        except (OSError, ValueError, RecursionError, msgspec.DecodeError) as error:  # folders in folders in folders
            self._writer.failed(what, error)

    async def _pace(self, event: TrialHookEvent, ending: TrialEnding) -> float | None:
        """Tell the gate how the provider treated the trial; return the seconds it asked us to wait."""
        trial, lane = event.trial_name, lane_of(agent_config(event.config.agent))
        if is_pressure(ending.error_class, ending.error_type, ending.status):
            work = asyncio.to_thread(wait_in_logs, self._job_dir / trial, datetime.now(UTC))
            asked = await asyncio.wait_for(work, _READ_TIMEOUT_SEC)
            await asyncio.to_thread(self._door.press, trial, lane, asked)
            return asked
        if ending.outcome.measured or ending.error_class is None or ending.error_class.of_profile:
            await asyncio.to_thread(self._door.ease, trial, lane)
        return None

    async def _settle(self, event: TrialHookEvent, cost_usd: float | None, **told: bool) -> None:
        settle = partial(self._door.settle, event.trial_name, cost_usd, **told)
        await self._or_tell(f"budget of {event.trial_name}", settle)

    async def _keep_failed_try(self, event: TrialHookEvent) -> None:
        self._door.failed(event.trial_name)
        folder, superseded = self._job_dir / event.trial_name, self._path.parent / SUPERSEDED
        what, tries = f"evidence of {event.trial_name}", self._tries.number(event.trial_name)
        await self._or_tell(what, set_aside, folder, superseded, tries)

    def _write_end(self, event: TrialHookEvent, known: LiveEnding, told: dict[str, Any]) -> None:
        ending, usage = known.ending, known.usage
        self._outcomes[event.trial_name] = ending.outcome.value
        detail = {"agent_status": ending.agent_status, "error_class": ending.error_class}
        said = ": ".join(part for part in (ending.error_type, ending.error_message) if part)
        self._write(
            "trial_ended",
            event,
            outcome=ending.outcome.value,
            reward=ending.reward,
            error=said or None,
            usage=usage if usage.known else None,
            detail=self._try(event) | {name: value for name, value in detail.items() if value is not None} | told,
        )

    def _try(self, event: TrialHookEvent) -> dict[str, Any]:
        number = self._tries.number(event.trial_name)
        return {"try": number} if number > 1 else {}

    def _heartbeat(self, blocked_sec: float) -> None:
        """Say that this process lives, and that its event loop has not answered since the last time, if so.

        Called in the ender's thread, which has its turn while an import of seconds keeps the loop of a busy machine.
        """
        if (now := time.monotonic()) - self._beat_at < self._heartbeat_sec:
            return
        self._beat_at = now
        blocked = {BLOCKED: round(blocked_sec, 1)} if blocked_sec >= self._heartbeat_sec else {}
        self._write("heartbeat", detail={"running": len(self._running), "ended": len(self._outcomes)} | blocked)

    def _bury(self, event: TrialHookEvent) -> None:
        """Tell the end of a trial that Harbor could not end; its result is on disk. Called in the ender's thread."""
        folder, secrets = self._job_dir / event.trial_name, self._writer.secrets
        secrets.scrub_folder(folder)
        known = live_ending(folder, from_result(event.result), secrets)
        self._door.settle(event.trial_name, known.usage.cost_usd)
        self._write_end(event, known, {})

    def _end(self, how: str) -> None:
        if self._ended or not self._job:
            return
        self._ended = True
        outcomes = dict(Counter(self._outcomes.values()))
        self._write("job_ended", detail={"how": how, "trials": self._planned, "outcomes": outcomes})

    def _at_exit(self, how: str = "interrupted") -> None:
        self._end(how)
        self._writer.stop()

    def _write(self, kind: str, event: TrialHookEvent | None = None, **fields: Any) -> None:
        about: dict[str, Any] = {}
        if event is not None:
            task = convert(event.config.task, TaskConfig, from_attributes=True)
            about = {
                "trial": event.trial_name,
                "task": str(task) or event.task_name,
                "dataset": task.dataset,
                "attempt": self._attempts.get(event.trial_name),
            }
        clock = round(time.monotonic(), 3)
        self._writer.put(Event.now(kind, self._job, profile=self._profile, clock=clock, **about, **fields))


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
