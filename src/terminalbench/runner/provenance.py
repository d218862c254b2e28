"""The provenance of a batch: versions, digests, the state of the project's repository, the commits of MCP servers.

A commit that the experiment file does not pin is found once, and is part of the profile before the plan is made, so
that plan.json and the profile's id tell of it. A batch keeps the commits it was planned with for as long as it grows.
"""

import dataclasses
import hashlib
import platform
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import GitState, Plan, Provenance
from terminalbench.experiments.profiles import Profile
from terminalbench.json_files import read_json
from terminalbench.version import __version__

_GIT_TIMEOUT_SEC = 10
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_WHOLE_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def provenance(experiment: Experiment, now: datetime) -> Provenance:
    """Return what a reader needs to know to trust or repeat the batch. None stands for what could not be found out."""
    return Provenance(
        created_at=now.isoformat(timespec="seconds"),
        experiment_file=experiment.file.name,
        root=str(experiment.root),
        experiment_sha256=hashlib.sha256(experiment.file.read_bytes()).hexdigest(),
        versions={
            "terminalbench": __version__,
            "harbor": version("harbor"),
            "python": platform.python_version(),
        },
        platform=platform.platform(),
        git=git_state(experiment.root),
    )


def git_state(folder: Path) -> GitState | None:
    """Commit and cleanliness of the repository around `folder`; None outside one or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return GitState(commit, bool(status) if status is not None else None)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_SEC,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def remote_commit(repository: str) -> str | None:
    """The newest commit of a remote repository's default branch; None when it cannot be asked."""
    listing = _git(Path.cwd(), "ls-remote", "--", repository, "HEAD")
    return listing.split()[0] if listing else None


@cache
def has_tag(repository: str, tag: str) -> bool | None:
    """Return whether a remote repository has a tag; None when it cannot be asked. Each is asked once."""
    listing = _git(Path.cwd(), "ls-remote", "--", repository, f"refs/tags/{tag}")
    return None if listing is None else bool(listing)


def pinned(experiment: Experiment, keys: Collection[str], known: Mapping[str, str] | None = None) -> Experiment:
    """The experiment with the sources of these profiles pinned, where the file pins none.

    To the commit that is `known` for the source, else to its newest, which is asked for once.
    """
    commits: dict[str, str | None] = dict(known or {})

    def commit(profile: Profile) -> str | None:
        source = profile.mcp_git_source
        if source is None or profile.key not in keys:
            return None
        if source not in commits:
            commits[source] = remote_commit(source)
        return commits[source]

    return _with_commits(experiment, commit)


def as_planned(experiment: Experiment, plan: Plan) -> Experiment:
    """The experiment with the commits its profiles were planned with. Plans of older versions record none."""
    planned = {record.key: record.content for record in plan.profiles}

    def commit(profile: Profile) -> str | None:
        content = planned.get(profile.key, {})
        ref = content.get("mcp_git_ref") or ""
        same_source = content.get("mcp_git_source") == profile.mcp_git_source
        return ref if same_source and _WHOLE_COMMIT.fullmatch(ref) else None

    return _with_commits(experiment, commit)


def batch_commits(batch: Batch, plan: Plan, experiment: Experiment) -> dict[str, str]:
    """The commit a batch installs each source from that the file does not pin; from its job configurations."""
    unpinned = {p.key: p.mcp_git_source for p in experiment.profiles if p.mcp_git_source and p.mcp_git_ref is None}
    found = {}
    for job in plan.jobs:
        source = unpinned.get(job.profile)
        ref = planned_ref(read_json(batch.job_config(job.name))) if source is not None else None
        if source is not None and ref is not None:
            found[source] = ref
    return found


def planned_ref(config: Mapping[str, Any]) -> str | None:
    """Return what a JobConfig installs MCP servers from git at; None when it does not, or is not pinned."""
    return config["agents"][0].get("kwargs", {}).get("mcp_source", {}).get("ref")


def source_problem(source: str, ref: str | None) -> str | None:
    """Return why servers cannot be installed from `ref` of a source; None also when its repository does not answer."""
    if ref is None:
        return f"the newest commit of {source} could not be determined; set mcp_git_ref, then start a new batch"
    if _COMMIT.fullmatch(ref) is None and has_tag(source, ref) is False:
        return f'{source} has no tag "{ref}"; mcp_git_ref takes a tag or a commit, not a branch'
    return None


def _with_commits(experiment: Experiment, commit: Callable[[Profile], str | None]) -> Experiment:
    profiles = tuple(
        dataclasses.replace(profile, mcp_git_ref=commit(profile))
        if profile.mcp_git_source is not None and profile.mcp_git_ref is None
        else profile
        for profile in experiment.profiles
    )
    return dataclasses.replace(experiment, profiles=profiles)
