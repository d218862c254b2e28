"""Additions of an experiment file to a batch that exists: profiles, tasks, attempts; and what it may not change.

The table and texts of a profile are recorded in its JobConfig: a file that says something else is another treatment.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.planner import Selection
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.quarantine import quarantine_file
from terminalbench.experiments.snapshots import plan_with_lessons, write_snapshot
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.files import write_bytes
from terminalbench.harbor.jobs import job_config
from terminalbench.json_files import read_json, write_json
from terminalbench.runner.growth import extended, refreshed, with_attempts
from terminalbench.runner.preflight import prepare
from terminalbench.runner.provenance import as_planned, batch_commits, pinned


@dataclass(frozen=True)
class GrownPlan:
    """A batch's plan with what was added to it, added profiles with their JobConfigs, and the file that has them."""

    before: Plan
    plan: Plan
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: Path | None = None
    profiles: tuple[Profile, ...] = ()

    def write(self, batch: Batch) -> None:
        """Record it, before anything runs."""
        for profile in self.profiles:
            write_snapshot(batch, profile)
        for name, config in self.configs.items():
            write_json(batch.job_config(name), config)
        if self.plan != self.before:
            write_json(batch.plan_json, self.plan)
        if self.file is not None:
            write_bytes(batch.experiment_toml, self.file.read_bytes())


def grow(
    batch: Batch,
    attempts: int | None,
    experiment: Experiment | None,
    tell: Callable[[str], None] = lambda _text: None,
) -> GrownPlan:
    """Return what a batch becomes by its experiment file as it is now, and by more attempts; nothing is written yet."""
    before: Plan = read_json(batch.plan_json, Plan)
    _refuse_a_moved_project(batch, before, experiment)
    grown = GrownPlan(before, _with_default_env_file(before))
    if experiment is not None:
        grown = _as_of_now(batch, before, experiment, tell)
    if attempts is not None:
        grown = replace(grown, plan=with_attempts(grown.plan, attempts, str(batch.folder)))
    return grown


def _as_of_now(batch: Batch, plan: Plan, experiment: Experiment, tell: Callable[[str], None]) -> GrownPlan:
    """The plan with what the experiment adds to it, and with what it may change freely."""
    before, configs = plan, {}
    labels = {task.ref.dataset: task.label for job in plan.jobs for task in job.tasks}
    attempts = plan.selected_attempts
    if attempts is not None:
        attempts = max(attempts, experiment.run.attempts)
    selection = Selection(plan.selected_tasks, plan.selected_profiles, attempts=attempts)
    pinned_now = _with_pins(batch, plan, experiment)
    pinned_now, wanted = plan_with_lessons(pinned_now, batch, datetime.now(UTC), selection, labels, plan)
    _refuse_changed_profiles(plan, pinned_now)
    added: tuple[Profile, ...] = ()
    if experiment.file.read_bytes() != batch.experiment_toml.read_bytes():
        plan, configs = _added(batch, plan, pinned_now, wanted, tell)
        known = {job.profile for job in before.jobs}
        added = tuple(profile for profile in pinned_now.profiles if profile.key not in known)
    # A quarantine belongs to its file: a copy of the file releases nothing.
    own = plan.provenance.experiment_file in (None, experiment.file.name) or quarantine_file(experiment.file).exists()
    plan = refreshed(plan, wanted if own else msgspec.structs.replace(wanted, excluded=plan.excluded))
    return GrownPlan(before, plan, configs, experiment.file, added)


def _with_pins(batch: Batch, plan: Plan, experiment: Experiment) -> Experiment:
    """The experiment with the commits of the batch where its file pins none; profiles that are added share them."""
    planned = {job.profile for job in plan.jobs}
    selected = select_profiles(experiment, plan.selected_profiles)
    added = [profile.key for profile in selected if profile.key not in planned]
    known = batch_commits(batch, plan, experiment) if added else {}
    made = pinned(as_planned(experiment, plan), added, known)
    for profile in made.profiles:
        if profile.key in added and profile.mcp_git_source is not None and profile.mcp_git_ref is None:
            raise UserError(
                f'profile "{profile.key}" was not added, because the newest commit of'
                f" {profile.mcp_git_source} could not be read from git",
                where=str(experiment.file),
                hint="try again later, or set mcp_git_ref; tbench resume with the batch folder continues without "
                "this profile",
            )
    return made


def _with_default_env_file(plan: Plan) -> Plan:
    """The plan with the default env file where none was recorded, if there is one now: a key may come late."""
    if not (root_of(plan) / DEFAULT_ENV_FILE).is_file():
        return plan
    profiles = (msgspec.structs.replace(p, env_file=p.env_file or DEFAULT_ENV_FILE) for p in plan.profiles)
    return msgspec.structs.replace(plan, profiles=tuple(profiles))


def _refuse_a_moved_project(batch: Batch, plan: Plan, experiment: Experiment | None) -> None:
    """The recorded configurations name files by their full path: elsewhere they would read and write the old place."""
    if plan.provenance.root is None:
        raise UserError("does not say which project it was run from", where=str(batch.plan_json))
    recorded, told = root_of(plan), None
    if plan.place().resolve() != batch.folder.resolve():
        told = f"was planned for the folder {plan.place()}"
    elif experiment is not None and experiment.root.resolve() != recorded.resolve():
        told = f"was started in {recorded}, not in {experiment.root}"  # two projects can share a folder of results
    if told is not None:
        raise UserError(
            f"{told}; its job configurations refer to files there",
            where=str(batch.folder),
            hint="move the folder back, or start a new batch: tbench run",
        )


def _refuse_changed_profiles(plan: Plan, experiment: Experiment) -> None:
    """A profile whose table or texts changed is another treatment; files that trials read are looked at later."""
    now = {profile.key: profile for profile in experiment.profiles}
    for job in plan.jobs:
        profile, planned = now.get(job.profile), plan.record(job.profile)
        changes = [c for c in planned.changes(profile.content) if not c.on_disk] if planned and profile else []
        if profile is not None and (changes or (planned is None and profile.id != job.profile_id)):
            listed = "".join(f"\n  {change.summary()}" for change in changes)
            raise UserError(
                f'profile "{job.profile}" has changed: {job.profile_id} was planned, now it is {profile.id}{listed}',
                where=str(experiment.file),
                hint="start a new batch (tbench run), or finish this batch as planned by naming its folder",
            )


def _added(
    batch: Batch, old: Plan, experiment: Experiment, wanted: Plan, tell: Callable[[str], None]
) -> tuple[Plan, dict[str, dict[str, Any]]]:
    prepared = prepare(experiment, msgspec.structs.replace(wanted, images=old.images), os.environ, tell, build=False)
    grown = extended(old, prepared.plan, str(experiment.file))
    grown = msgspec.structs.replace(grown, excluded=(), images=prepared.plan.images)
    added = [job for job in grown.jobs if not batch.job_config(job.name).exists()]
    return grown, {
        job.name: job_config(experiment, prepared.profiles[job.profile], job, batch, grown.images) for job in added
    }


def root_of(plan: Plan) -> Path:
    """The project of a batch that `grow` has accepted."""
    return Path(plan.provenance.root or "")
