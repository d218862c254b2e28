"""Which commit MCP servers are installed from, where the experiment file pins none: found once, then kept.

The commit is part of the profile before the plan is made, so that plan.json and the profile's id tell of it. A batch
keeps the commits it was planned with for as long as it grows.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import Experiment
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.profiles import Profile
from terminalbench.files import read_json
from terminalbench.runner.provenance import has_tag, remote_commit

_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_WHOLE_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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
    """What a JobConfig installs MCP servers from git at; None when it does not, or is not pinned."""
    return config["agents"][0].get("kwargs", {}).get("mcp_source", {}).get("ref")


def source_problem(source: str, ref: str | None) -> str | None:
    """Why servers cannot be installed from `ref` of a source; None also when its repository does not answer."""
    if ref is None:
        return f"the newest commit of {source} could not be found out; set mcp_git_ref, then start a new batch"
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
