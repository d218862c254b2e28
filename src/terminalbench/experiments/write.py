"""An experiment back to TOML: what it loads to is the same plan, with the same profile ids.

Profiles are written as they were resolved: each with all of its keys, without `[defaults]` and `extends`. Take changes
with `dataclasses.replace` on the experiment, its run, tasks or profiles. A prompt, hooks or a workflow is named by its
path; a changed text has to be in its file before the experiment is loaded again.
"""

from collections import Counter
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.project import from_root
from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine
from terminalbench.experiments.tables import SCHEMA_VERSION
from terminalbench.files import write_project_file


def write_experiment(experiment: Experiment, file: Path) -> None:
    """Write an experiment to a file of its project, and what it has in quarantine beside it."""
    write_project_file(file, experiment_toml(experiment))
    if experiment.quarantine:
        held = experiment.quarantine.items()
        write_quarantine(file, [QuarantinedTask(task, dataset, reason) for (dataset, task), reason in held])


def experiment_toml(experiment: Experiment) -> str:
    """The text of an experiment file; relative paths in it start from the experiment's root."""
    import tomlkit

    return tomlkit.dumps(_document(experiment))


def _document(experiment: Experiment) -> dict[str, Any]:
    common = Counter(task.dataset for task in experiment.tasks).most_common(1)[0][0]
    items = [
        _given(
            id=task.id,
            dataset=task.dataset if task.dataset != common else None,
            family=task.family,
            timeout_sec=task.timeout_sec,
        )
        for task in experiment.tasks
    ]
    folders = {name: folder for p in experiment.profiles for name, folder in p.mcp.folders.items()}
    return _given(
        schema_version=SCHEMA_VERSION,
        slug=experiment.slug,
        name=experiment.name,
        labels=experiment.labels,
        run=_changed(experiment.run),
        tasks={"default_dataset": common, "items": items},
        datasets={name: _changed(table) for name, table in experiment.dataset_tables.items()},
        mcp=_given(aliases={name: from_root(folder, experiment.root) for name, folder in folders.items()}),
        profiles={profile.key: profile_table(profile, experiment.root) for profile in experiment.profiles},
        artifacts=_changed(experiment.artifacts),
        analysis=_changed(experiment.analysis),
        top_up=_changed(experiment.top_up) if experiment.top_up else None,
        notify=_changed(experiment.notify) if experiment.notify else None,
    )


def profile_table(profile: Profile, root: Path) -> dict[str, Any]:
    """The whole table of a profile, with nothing left to `[defaults]` and `extends`; paths start from `root`."""

    def file(part: Any) -> str | None:
        return from_root(part.path, root) if part is not None else None

    return _given(
        description=profile.description,
        agent=profile.agent.name,
        agent_version=profile.agent_version,
        model=profile.model,
        reasoning=profile.reasoning,
        prompt=file(profile.prompt),
        skills=[from_root(folder.path, root) for folder in profile.skills],
        no_mcp=True if profile.agent.mcp and not profile.mcp.servers else None,
        mcp_servers=list(profile.mcp.servers),
        mcp_git_source=profile.mcp_git_source,
        mcp_git_ref=profile.mcp_git_ref,
        hooks=file(profile.hooks),
        workflow=_workflow(profile, root),
        command=_command(profile, root),
        lessons=_lessons(profile),
        env_file=from_root(profile.env_file, root) if profile.env_file is not None else None,
        env=profile.env,
        options=profile.options,
        price=_changed(profile.price) if profile.price is not None else None,
        likely_cost_usd=profile.likely_cost_usd,
        parallel=profile.parallel,
    )


def _workflow(profile: Profile, root: Path) -> str | None:
    found = profile.workflow
    if found is None:
        return None
    return found.spec if found.shipped else from_root(found.path, root)


def _command(profile: Profile, root: Path) -> dict[str, Any] | None:
    if profile.command is None:
        return None
    files = {from_root(one.path, root): one.target for one in profile.command.files}
    return {**profile.command.plain(), **({"files": files} if files else {})}


def _lessons(profile: Profile) -> str | dict[str, Any] | None:
    if profile.lessons is None:
        return None
    rest = {name: value for name, value in _changed(profile.lessons).items() if name != "mode"}
    return {"mode": profile.lessons.mode, **rest} if rest else profile.lessons.mode


def _given(**values: Any) -> dict[str, Any]:
    """Return what is set: TOML has no null, and an empty table or list says no more than none."""
    return {name: value for name, value in values.items() if value is not None and value not in ({}, [])}


def _changed(table: Any) -> dict[str, Any]:
    """The keys of a table that are not as they are by default."""
    usual = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(table)}
    found = {name: getattr(table, name) for name, default in usual.items() if getattr(table, name) != default}
    return {name: _changed(value) if is_dataclass(value) else value for name, value in found.items()}
