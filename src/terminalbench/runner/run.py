"""Running an experiment: plan, prepare, take a batch, run one Harbor job per profile, keep what it leaves."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch, allocate, next_number
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.plan import HARBOR_PARALLEL, Exclusion, ExclusionKind, JobSpec, Plan
from terminalbench.experiments.planner import Selection, plan_with_lessons, write_snapshot
from terminalbench.experiments.tables import RunTable
from terminalbench.files import write_bytes
from terminalbench.harbor.jobs import (
    command,
    harbor_program,
    job_config,
    wave_config,
    with_command_files,
    with_pins,
    with_settings,
)
from terminalbench.harbor.limits.accounts import Account, KnownCost, TrialRefusal, Turn
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.harbor.limits.gate import Gate, GateError, GateState, control_of, gate_of, read_shared
from terminalbench.index.history import likely_costs, past_trials
from terminalbench.index.queries import BatchView
from terminalbench.json_files import read_json, write_json
from terminalbench.live.processes import announced
from terminalbench.live.processes import executor as find_executor
from terminalbench.locks import lock
from terminalbench.modes import make_folder
from terminalbench.records.event import Event
from terminalbench.runner.changes import with_uploads
from terminalbench.runner.control import check_orders
from terminalbench.runner.deaths import scrub_leftovers
from terminalbench.runner.executors.base import ClusterExecutor
from terminalbench.runner.images import local_models, served
from terminalbench.runner.kill import end_containers
from terminalbench.runner.mirror_artifacts import MirrorPass, mirror_batch, mirror_trial
from terminalbench.runner.notify import Notifier, refuse_unsendable
from terminalbench.runner.preflight import (
    PreparedPlan,
    allow_open_files,
    disk_is_full,
    prepare,
    refuse_a_full_disk,
    refuse_a_long_root,
    refuse_if_nothing_is_left,
    refuse_unwritable_results,
)
from terminalbench.runner.provenance import pinned, provenance
from terminalbench.runner.repository import env_file_notes
from terminalbench.runner.signals import put_off
from terminalbench.runner.supervise import BatchSupervisor, Turns
from terminalbench.runner.watchdog_loop import Observer, WatchdogLoop
from terminalbench.runner.waves import Cell, Launch, free_wave_name, split


@dataclass(frozen=True)
class RunResult:
    """A batch that has run, to its end or until it was interrupted, or stopped for a reason (a full disk).

    `view` is its state, when nothing had to run; `as_indexed`, when the index had all of it before.
    """

    batch: Batch
    plan: Plan
    interrupted: bool
    problems: tuple[str, ...] = ()
    view: BatchView | None = None
    stopped: str | None = None
    as_indexed: bool = False


@dataclass(frozen=True)
class BatchSpend:
    """The cost of a batch so far, by profile, superseded trials included: known costs, and how many are unknown.

    `seconds` of the deadline are used up.
    """

    known: dict[str, KnownCost] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Listener:
    """The listener of a run; `tick` is called several times a second, `preparing` with a line
    on what takes long before the first trial. Each function may do nothing.
    """

    prepared: Callable[[Plan, Batch, int], None] = lambda _plan, _batch, _trials: None
    tick: Callable[[], None] = lambda: None
    event: Callable[[Event], None] = lambda _event: None
    stopped: Callable[[str], None] = lambda _reason: None
    note: Callable[[str], None] = lambda _text: None
    preparing: Callable[[str], None] = lambda _text: None


def prepare_run(
    experiment: Experiment,
    selection: Selection,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    refuse: bool = True,
    strict: bool = False,
) -> PreparedPlan:
    """Everything before the first byte is written.

    With `refuse`, an error when not a single trial could run; with `strict`, when one could not.
    """
    refuse_a_long_root(experiment.results_root, experiment.file)
    refuse_a_full_disk(experiment.results_root)
    allow_open_files(max(one.parallel or experiment.run.parallel or HARBOR_PARALLEL for one in experiment.profiles))
    refuse_unwritable_results(experiment.results_root, experiment.file)
    refuse_unsendable(experiment.notify, str(experiment.file))
    number = next_number(experiment.results_root, experiment.slug)
    place = Batch(experiment.results_root / experiment.slug / str(number))
    experiment = pinned(experiment, [profile.key for profile in select_profiles(experiment, selection.profiles)])
    experiment, plan = plan_with_lessons(experiment, place, datetime.now(UTC), selection)
    prepared = prepare(experiment, plan, os.environ, tell, strict=strict)
    if refuse:
        refuse_if_nothing_is_left(prepared.plan, str(experiment.file))
    memory = (f'profile "{one.key}": {one.snapshot}' for one in experiment.profiles if one.snapshot is not None)
    tracked = env_file_notes(profile.env_file for profile in experiment.profiles)
    return dataclasses.replace(prepared, notes=(*tracked, *memory, *prepared.notes))


def run(
    experiment: Experiment,
    prepared: PreparedPlan,
    listener: Listener | None = None,
    *,
    executor: str | None = None,
    gate: Path | None = None,
    number: int | None = None,
) -> RunResult:
    """Run a prepared plan in a batch of its own, by the executor that is named, else by that of the plan.

    `gate` is a file that it shares with other batches: their budget, deadline, rate limits and orders hold for it too.
    `number` is the one that the batch gets if it is free.
    """
    listener = listener or Listener()
    plan = msgspec.structs.replace(prepared.plan, gate=str(gate.absolute()) if gate is not None else None)
    jobs = [runnable for job in plan.jobs if (runnable := plan.runnable(job)).tasks]
    known = check_shared_gate(plan, [job.profile for job in jobs], experiment.results_root)  # before a batch is taken
    for text in (*prepared.notes, *known):
        listener.note(text)
    if executor is not None:
        plan = msgspec.structs.replace(plan, settings=dataclasses.replace(plan.settings, executor=executor))
    place = Batch(experiment.results_root / experiment.slug / str(plan.batch))
    configs = (job_config(experiment, prepared.profiles[job.profile], job, place, plan.images) for job in jobs)
    own = [plan.own_parallel(job.profile) for job in jobs]
    with cluster(plan.settings, own), served(local_models(configs), listener.note):  # before a batch is taken
        return _run(experiment, prepared, plan, jobs, listener, number)


def _run(
    experiment: Experiment,
    prepared: PreparedPlan,
    plan: Plan,
    jobs: list[JobSpec],
    listener: Listener,
    number: int | None,
) -> RunResult:
    batch = None
    try:
        with put_off():
            batch = allocate(experiment.results_root, experiment.slug, number)
        with lock(batch.lock, f"tbench run {experiment.file.name}"):
            ControlFile(batch.control_json).clear()
            plan = record(experiment, prepared, plan, batch)
            return run_jobs(batch, plan, jobs, prepared.environments, listener)
    except BaseException:
        if batch is not None and not batch.plan_json.exists():  # half a batch is of no use to anyone
            shutil.rmtree(batch.folder, ignore_errors=True)
        raise


def record(experiment: Experiment, prepared: PreparedPlan, plan: Plan, batch: Batch) -> Plan:
    """Write what the batch is about, before anything runs: the input, the plan, every profile's JobConfig."""
    folder = batch.folder
    shown = str(folder.relative_to(experiment.root)) if folder.is_relative_to(experiment.root) else str(folder)
    origin = provenance(experiment, datetime.now(UTC))
    plan = msgspec.structs.replace(plan, batch=batch.number, folder=shown, provenance=origin)
    write_bytes(batch.experiment_toml, experiment.file.read_bytes())
    for folder in (batch.runs, batch.analytics, batch.artifacts):
        make_folder(folder)
    for job in plan.jobs:
        if not batch.job_config(job.name).exists():
            profile = prepared.profiles[job.profile]
            write_snapshot(batch, profile)
            write_json(batch.job_config(job.name), job_config(experiment, profile, job, batch, plan.images))
    write_json(batch.plan_json, plan)
    return plan


def run_jobs(
    batch: Batch,
    plan: Plan,
    jobs: list[JobSpec],
    environments: Mapping[str, dict[str, str]],
    listener: Listener,
    spent: BatchSpend | None = None,
) -> RunResult:
    """Run jobs of a recorded batch, and record what Harbor could not finish.

    The caller holds the batch's lock, and the machines of its executor.
    """
    secrets = secrets_of(plan)
    listener.prepared(plan, batch, sum(job.trials for job in jobs))
    notifier = Notifier.of(plan)
    guard = WatchdogLoop(batch, plan, Observer(batch, gate_of(batch, plan)), notifier.alert)

    def watch(event: Event) -> None:
        guard.add(event)
        listener.event(event)
        if event.kind == "trial_ended" and event.trial and plan.artifacts:
            mirror_trial(batch.job_folder(event.job) / event.trial, plan.artifacts, batch.artifacts)

    def tick() -> None:
        guard.look()
        notifier.look()
        listener.tick()

    launches = _launches(batch, plan, jobs, environments)
    gate = put_up_gate(batch, plan, spent or BatchSpend(), jobs)
    control = control_of(batch, plan)

    def closed(profile: str) -> TrialRefusal | None:
        try:
            shut, told = gate.why_closed(profile), control.read()
        except (OSError, msgspec.DecodeError):
            return None  # a person is just writing one of the files: every trial asks again
        notifier.closed(profile, shut)
        return shut if shut is not None else told.refusal(profile)

    def begins(job: JobSpec, others: list[JobSpec]) -> None:
        gate.begin(job.profile, job.trials, more=bool(others))

    def gone(job: JobSpec, others: list[JobSpec]) -> None:
        alive = [batch.job_folder(other.name) for other in others]
        gate.settle_dead(batch.job_folder(job.name), job.profile, alive)
        end_containers(batch, job.name)

    supervisor = BatchSupervisor(
        batch,
        launches,
        plan.settings.profiles_parallel,
        watch,
        tick,
        closed,
        lambda: disk_is_full(batch.folder),
        Turns(begins, gone, gate.through),
        secrets,
        plan.settings.executor,
    )
    with announced(batch):
        guard.begin()
        left_over = supervisor.run()
        guard.end()
    stopped = supervisor.stop.reason if supervisor.stop is not None else None
    if stopped is not None:
        listener.stopped(stopped)
    scrub_leftovers(batch, secrets)
    told = len(plan.departed())
    plan = with_uploads(batch, msgspec.structs.replace(plan, died=(*plan.died, *supervisor.died)))
    for departure in plan.departed()[told:]:
        listener.note(departure.text)
    plan = _with_left_overs(plan, {place: _as_of_now(gate, place[0], why) for place, why in left_over.items()})
    write_json(batch.plan_json, plan)
    problems = (*copy_artifacts(batch, plan), *notifier.finish())
    return RunResult(batch, plan, bool(supervisor.signals), problems, stopped=stopped)


def copy_artifacts(batch: Batch, plan: Plan) -> list[str]:
    """Copy the session folders that are not copied yet; what went wrong."""
    mirrored = mirror_batch(batch.runs, plan.artifacts, batch.artifacts) if plan.artifacts else MirrorPass()
    return [f"artifacts were not copied: {failure}" for failure in mirrored.failed]


@contextmanager
def cluster(settings: RunTable, own: Iterable[int | None]) -> Generator[None]:
    """The machines of an executor that has several, as long as the block lasts. A `UserError` when there are none.

    `own` is `parallel` of each profile that runs: one machine must have room for the largest job.
    """
    found = find_executor(settings.executor)
    usual = settings.parallel or HARBOR_PARALLEL
    settings = dataclasses.replace(settings, parallel=max((one or usual for one in own), default=usual))
    if not isinstance(found, ClusterExecutor):
        yield
        return
    found.ready(settings)
    try:
        yield
    finally:
        found.leave()


def _launches(
    batch: Batch, plan: Plan, jobs: list[JobSpec], environments: Mapping[str, dict[str, str]]
) -> list[Launch]:
    """One for each job; where an executor has several machines, for each part of it that goes to one of them."""
    found = [launch(batch, plan, job, environments[job.profile]) for job in jobs]
    several = find_executor(plan.settings.executor)
    if not isinstance(several, ClusterExecutor):
        return found
    most, parts = several.wave_trials(plan.settings, sum(job.trials for job in jobs)), []
    for whole in found:
        for number, tasks in enumerate(split(whole.job, most)):
            part = msgspec.structs.replace(whole.job, tasks=tasks)
            if number:
                part = msgspec.structs.replace(part, name=free_wave_name(batch, part.name))
            if not batch.job_config(part.name).exists():
                write_json(batch.job_config(part.name), whole.config(part))  # the name is taken by that
            parts.append(dataclasses.replace(whole, job=part))
    return parts


def launch(batch: Batch, plan: Plan, job: JobSpec, env: dict[str, str]) -> Launch:
    """Return how to run a job of a recorded batch: each wave is the profile's recorded JobConfig with other trials."""
    first = next(planned.name for planned in plan.jobs if planned.profile == job.profile)
    price = plan.price_of(job.profile)
    template = with_settings(read_json(batch.job_config(first)), plan.settings, plan.own_parallel(job.profile))
    template = with_pins(template, plan.images)
    content = next(record.content for record in plan.profiles if record.key == job.profile)
    template = with_command_files(template, content.get("command_files") or {})
    return Launch(
        job,
        lambda wave: wave_config(template, wave, batch),
        lambda wave: command(plan.settings, wave, batch, harbor_program(), shared=plan.gate, price=price),
        env,
    )


def check_shared_gate(
    plan: Plan, profiles: Iterable[str], results_root: Path, spent: BatchSpend | None = None, name: str = ""
) -> list[str]:
    """Apply the gate that a plan shares to trials of these profiles now; an error when none of them could start.

    `name` is the folder of a batch that has joined it before, and has `spent` so much.
    """
    if plan.gate is None:
        return []
    gate = Gate(Path(name) / "gate.json", Path(plan.gate))
    read_shared(Path(plan.gate))
    notes = list(check_orders(Path(plan.gate)))
    refusal = gate.why_none(_with_likely_costs(_gate_state(plan, spent or BatchSpend()), plan, results_root), profiles)
    if refusal is not None:
        again = "raise budget_usd in it" if refusal.kind is ExclusionKind.BUDGET else "set a later deadline"
        hint = f"{again}, then resume" if name else f"{again}, or name another gate"
        raise GateError(refusal.reason, where=plan.gate, hint=hint)
    return notes


def put_up_gate(batch: Batch, plan: Plan, spent: BatchSpend, jobs: Iterable[JobSpec] = ()) -> Gate:
    """The gate of a batch: its budget, its deadline, which counts from its start, and rate limits as they are met.

    `jobs` are to run.
    """
    gate = gate_of(batch, plan)
    gate.create(_with_likely_costs(_gate_state(plan, spent, jobs), plan, batch.results_root))
    return gate


def _with_likely_costs(state: GateState, plan: Plan, results_root: Path) -> GateState:
    """Return what trials probably cost, where a budget asks for it."""
    if plan.gate is not None or state.budget_usd is not None:
        likely = likely_costs(plan, past_trials(results_root, plan.profiles))
        for key, account in state.accounts.items():
            state.change(key, msgspec.structs.replace(account, likely=likely.get(key)))
    return state


def _gate_state(plan: Plan, spent: BatchSpend, jobs: Iterable[JobSpec] = ()) -> GateState:
    budget, seconds = plan.settings.budget_usd, plan.settings.run_timeout_sec
    state = GateState(budget_usd=budget, seed=plan.settings.seed or 0)
    if seconds is not None:
        state.deadline = state.clock.now() + seconds - spent.seconds
    state.free = plan.free()
    trials = {job.profile: job.trials for job in jobs}
    paying = dict.fromkeys([*(job.profile for job in plan.jobs), *spent.known, *spent.unknown])
    state.accounts = {
        key: Account(
            Turn.LATER if trials.get(key) else Turn.OVER,
            trials.get(key, 0),
            known=spent.known.get(key, KnownCost()),
            unknown=spent.unknown.get(key, 0),
        )
        for key in paying
        if key not in state.free
    }
    return state


def _as_of_now(gate: Gate, profile: str, why: TrialRefusal) -> TrialRefusal:
    """Return why a profile ran no further, with what is spent at the end of the run."""
    if why.kind is not ExclusionKind.BUDGET:
        return why
    try:
        return gate.why_closed(profile) or why
    except (OSError, msgspec.DecodeError):
        return why


def _with_left_overs(plan: Plan, left_over: Mapping[tuple[str, Cell], TrialRefusal]) -> Plan:
    """Add to the plan what Harbor could not run to an end, as errored; what was held back, as not run."""
    refs = {(t.label, t.ref.id): t.ref for job in plan.jobs for t in job.tasks}
    found = [
        Exclusion(why.reason, profile=profile, task=refs[cell], kind=why.kind)
        for (profile, cell), why in left_over.items()
    ]
    return msgspec.structs.replace(plan, excluded=(*plan.excluded, *found)) if found else plan
