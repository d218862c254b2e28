"""An experiment over arms and instances: one experiment file in the output folder, one batch, projections beside it.

An arm is a profile, an instance is a task. Going on with an experiment may add arms, instances and attempts; what is
gone or changed is said, and refused.
"""

import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.campaign import LiveReports, held, refuse_differences
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.profile_changes import summaries
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.experiments.write import experiment_toml
from terminalbench.files import write_project_file
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.json_files import read_json
from terminalbench.lab.resume import resume
from terminalbench.lab.run import FinishedRun, run
from terminalbench.live.feed import Feed
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.growth import changed_settings
from terminalbench.runner.run import Listener
from terminalbench.swebench_pro.arms import ArmModel, arm_profiles, hand_over_key, own_model, refuse_unknown_provider
from terminalbench.swebench_pro.convert import TaskInstance
from terminalbench.swebench_pro.projections import SLUG as BATCH_SLUG
from terminalbench.swebench_pro.projections import Output, ProjectionFiles, project
from terminalbench.swebench_pro.rows import BASELINE, ResultRow
from terminalbench.text.numbers import some

_LOOK_SEC = 1.0


def shares(workers: int, left: Mapping[str, int]) -> dict[str, int]:
    """Workers by arm: even, none more than it has trials `left`, the rest to those that can use it. Pure."""
    found = dict.fromkeys((arm for arm, many in left.items() if many > 0), 0)
    free = workers
    while free > 0:
        hungry = [arm for arm in found if found[arm] < left[arm]]
        if not hungry:
            break
        for arm in hungry[:free]:
            found[arm] += 1
        free -= len(hungry[:free])
    return {arm: many for arm, many in found.items() if many}


def at_start(workers: int, arms: int) -> tuple[int, int]:
    """Return how many arms run side by side, and how many trials each has at once, before anything has ended."""
    side_by_side = max(1, min(workers, arms))
    return side_by_side, max(1, workers // side_by_side)


class WorkerSharing:
    """Hands workers on while a batch runs: call `tick` often."""

    def __init__(self, batch: Batch, workers: int) -> None:
        self._workers = workers
        self._feed = Feed(batch)
        self._control = ControlFile(batch.control_json)
        self._ordered: dict[str, int] = {}
        self._looked = 0.0

    def tick(self) -> None:
        """Look whether an arm can spare workers that another could use."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SEC:
            return
        self._looked = now
        try:
            self._feed.read()
            wanted = orders(self._workers, self._feed.state)
            changed = {arm: many for arm, many in wanted.items() if self._ordered.get(arm) != many}
            if changed:
                self._control.change(lambda control: control.parallel.update(changed))
                self._ordered |= changed
        except (OSError, msgspec.DecodeError) as error:  # each arm goes on with what it has
            logging.getLogger(__name__).warning("workers could not be reused: %s", error)


def orders(workers: int, state: LiveState) -> dict[str, int]:
    """Return how many trials of each running arm may run at once; nothing while arms still wait for their turn.
    Pure."""
    if state.in_line:
        return {}
    running = {job.profile for job in state.jobs.values() if not job.over}
    left = {
        arm: (profile.planned or 0) - profile.done
        for arm, profile in state.profiles.items()
        if arm in running and profile.planned is not None
    }
    return shares(workers, left)


_ADDRESS = re.compile(r"https?://[^/\s]+")
_AS_IT_WAS = "use the same options (you may add arms, instances or attempts), or choose another --output-dir"
_LEAST_SEC = 2.0


@dataclass(frozen=True)
class ExperimentRequest:
    """What is to be run. `arms` are as `swebench_pro.arms` reads them, `max_cost_usd` is the budget of the batch."""

    arms: tuple[str, ...]
    instances: tuple[TaskInstance, ...]
    tasks: Path
    asked: ArmModel
    attempts: int = 1
    max_workers: int = 1
    trial_timeout_sec: float | None = None
    max_cost_usd: float | None = None
    container_env: str = "docker"
    executor: str | None = None


@dataclass(frozen=True)
class ExperimentResult:
    """What became of it."""

    ended: FinishedRun
    projected: ProjectionFiles


def document(wanted: ExperimentRequest, output: Output) -> dict[str, Any]:
    """The experiment as a TOML document."""
    profiles = arm_profiles(wanted.arms, wanted.asked)
    keys = list(profiles)
    side_by_side, each = at_start(wanted.max_workers, len(keys))
    run_table: dict[str, Any] = {
        "results_root": str(output.results_root.resolve()),
        "container_env": wanted.container_env,
        "parallel": each,
        "profiles_parallel": side_by_side,
    }
    run_table |= {"agent_timeout_sec": wanted.trial_timeout_sec} if wanted.trial_timeout_sec else {}
    run_table |= {"budget_usd": wanted.max_cost_usd} if wanted.max_cost_usd else {}
    run_table |= {"attempts": wanted.attempts} if wanted.attempts != 1 else {}
    run_table |= {"executor": wanted.executor} if wanted.executor else {}
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "slug": BATCH_SLUG,
        "name": f"SWE-Bench Pro: {some(keys, 3)} with {wanted.asked.model}",
        "run": run_table,
        "tasks": {
            "default_dataset": str(wanted.tasks.resolve()),
            "items": [{"id": instance.instance_id} for instance in wanted.instances],
        },
        "profiles": profiles,
    }
    return found | ({"analysis": {"baseline": BASELINE}} if BASELINE in keys else {})


def run_experiment(
    wanted: ExperimentRequest,
    output: Output,
    *,
    going_on: bool,
    retry_errors: str | None = None,
    listener: Listener | None = None,
) -> ExperimentResult:
    """Run the experiment, or go on with it, and project its batch.

    Without `going_on`, a folder that holds a batch already is refused; with it, the batch gains the instances, arms and
    attempts that it has not, and a changed workflow, model or limit is refused. `retry_errors` as for `resume`.
    """
    base_url, provider = wanted.asked.base_url, wanted.asked.provider
    if base_url is not None and not _ADDRESS.match(base_url):
        raise UserError(f"--base-url {base_url} is not an address", hint="as in http://127.0.0.1:8000/v1")
    if not wanted.instances:
        raise UserError("--language, --instances and --max-instances leave no instance", where=str(wanted.tasks))
    if not all(map(own_model, wanted.arms)):
        if provider is None:
            raise UserError(
                "--provider is missing: the arms need the provider of the model", hint="openai, openrouter, ollama, ..."
            )
        refuse_unknown_provider(provider, wanted.asked.model)
        hand_over_key(provider, base_url)
    text = _understood(wanted, output)
    hint = "wait for it, or choose another --output-dir"
    with held(output.lock, "tbench swebench-pro experiment", output.folder, hint):
        return _run(wanted, output, text, going_on, retry_errors, listener)


def _run(
    wanted: ExperimentRequest,
    output: Output,
    text: str,
    going_on: bool,
    retry_errors: str | None,
    listener: Listener | None,
) -> ExperimentResult:
    batches = output.batches()
    if batches and not going_on:
        hint = "continue it with --resume, or choose another --output-dir"
        raise UserError("already contains an experiment", where=str(output.folder), hint=hint)
    before = output.experiment_toml.read_text() if output.experiment_toml.is_file() else None
    write_project_file(output.experiment_toml, text)
    experiment = load(output.experiment_toml)
    told = _watching(listener or Listener(), output, wanted.max_workers)
    if not batches:
        ended = run(experiment, listener=told)
    else:
        try:
            found = differences(experiment, read_json(batches[-1].plan_json, Plan))
            refuse_differences(found, output.folder, _AS_IT_WAS)
            ended = resume(experiment, retry_errors=retry_errors, listener=told)
        except UserError:
            if before is not None:
                write_project_file(output.experiment_toml, before)
            raise
    return ExperimentResult(ended, project([ended.batch], output.folder))


def _understood(wanted: ExperimentRequest, output: Output) -> str:
    """The text of the experiment file, checked; nothing is left in the output folder when it is wrong."""
    import tomlkit

    new = output.experiment_toml.with_name(f".{os.getpid()}.toml")
    write_project_file(new, tomlkit.dumps(document(wanted, output)))
    try:
        return experiment_toml(load(new))
    except UserError as error:
        if error.where == str(new):  # that file is gone when this is read
            error.where = "the experiment that was asked for"
        raise
    finally:
        new.unlink()
        with suppress(OSError):  # not empty: it was there before
            output.folder.rmdir()


def differences(experiment: Experiment, plan: Plan) -> list[str]:
    """Say what is gone or changed since the batch was planned: instances, arms, what each arm is, its limits."""
    planned = {task.ref.id for job in plan.jobs for task in job.tasks}
    now = {task.id for task in experiment.tasks}
    found = [f"- instance {name}" for name in sorted(planned - now)]
    profiles = {profile.key: profile for profile in experiment.profiles}
    for job in plan.jobs:
        record, profile = plan.record(job.profile), profiles.get(job.profile)
        if profile is None:
            found.append(f"- arm {job.profile}")
        elif record is not None:
            found += [f"arm {job.profile}: {line}" for line in summaries(record.changes(profile.content))]
    return found + changed_settings(plan.settings, experiment.run)


def _watching(listener: Listener, output: Output, workers: int) -> Listener:
    """The listener; besides, workers are handed on from arm to arm, and projections written again as trials end."""
    batches: list[Batch] = []
    known: dict[str, ResultRow] = {}
    sharing: list[WorkerSharing] = []

    def write() -> None:
        try:
            project(batches, output.folder, known)
        except (OSError, TbenchError) as error:  # the run goes on, and projects once more at its end
            logging.getLogger(__name__).warning("results could not be written yet: %s", error)

    live = LiveReports(write, _LEAST_SEC)

    def prepared(plan: Plan, batch: Batch, trials: int) -> None:
        batches[:] = [*output.batches()[:-1], batch]
        if not sharing and workers > 1 and len(plan.jobs) > 1:
            sharing.append(WorkerSharing(batch, workers))
        listener.prepared(plan, batch, trials)

    def event(event: Event) -> None:
        live.due |= event.kind is EventKind.TRIAL_ENDED
        listener.event(event)

    def tick() -> None:
        live.tick()
        for shared in sharing:
            shared.tick()
        listener.tick()

    return replace(listener, prepared=prepared, tick=tick, event=event)
