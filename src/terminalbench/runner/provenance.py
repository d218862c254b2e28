"""Where a batch comes from: versions, the experiment's digest, and the state of the project's repository."""

import hashlib
import platform
import subprocess
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

from terminalbench.experiments.config import Experiment
from terminalbench.experiments.plan import GitState, Provenance
from terminalbench.version import __version__

_GIT_TIMEOUT_SEC = 10


def provenance(experiment: Experiment, now: datetime) -> Provenance:
    """What a reader needs to know to trust or repeat the batch. None stands for what could not be found out."""
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
    """Whether a remote repository has a tag; None when it cannot be asked. Each is asked once."""
    listing = _git(Path.cwd(), "ls-remote", "--", repository, f"refs/tags/{tag}")
    return None if listing is None else bool(listing)
