"""A committed project whose code is pinned."""

from pathlib import Path

import pytest

from servers.git_http import git
from support.experiments import Project
from terminalbench.experiments.config import load
from terminalbench.runner import file_archive
from terminalbench.runner.worktree import CodePin, pinned_path

EXPERIMENT = """schema_version = 2
slug = "s"
[run]
results_root = "results"
[tasks]
default_dataset = "starter"
items = [{ id = "csv-clean" }]
[profiles.one]
agent = "claude-code"
model = "m"
no_mcp = true
prompt = "prompts/one.md"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A committed project, in a folder with a space in its name."""
    root = tmp_path / "my project"
    root.mkdir()
    made = Project(root)
    made.experiment(EXPERIMENT)
    made.write("prompts/one.md", "first")
    made.write("hook.sh", "#!/bin/sh\n").chmod(0o755)
    made.write(".gitignore", "results/\n*.secret\n.env\nlocal/\n")
    commit(root)
    return made


def commit(root: Path) -> str:
    if not (root / ".git").exists():
        git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "work")
    return git(root, "rev-parse", "HEAD")


def night(project: Project) -> Path:
    """Where a pin goes: inside the project, as nights usually are."""
    return project.root / "results" / "night 1" / "code"


def tree(folder: Path) -> dict[str, str]:
    names = file_archive.files_of(folder, lambda path: path.name in (".git", "results"))
    return {name: file_archive.digest_of(folder / name) or "" for name in names}


def profile_id(place: CodePin, project: Project) -> str:
    file = pinned_path(place, project.root / "experiments" / "exp.toml")
    return load(file, place.root).profiles[0].id
