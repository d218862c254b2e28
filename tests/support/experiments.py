"""Throw-away projects and experiments."""

import re
from pathlib import Path

import pytest

from terminalbench.errors import InvalidFile
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment

BASE = """
schema_version = 2
slug = "s"
[tasks]
items = [{ id = "a" }]
"""
ORACLE = '[profiles.oracle]\nagent = "oracle"\n'


class Project:
    """A project folder in which files are written by relative path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pyproject.toml").touch()

    def write(self, path: str, text: str) -> Path:
        """Write a file, with its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def experiment(self, text: str, name: str = "exp.toml") -> Path:
        """Write an experiment file."""
        return self.write(f"experiments/{name}", text)

    def server(self, name: str, folder: str | None = None) -> Path:
        """Write a minimal MCP server folder."""
        text = f'{{"mcpServers": {{"{name}": {{"command": "python3", "args": ["-m", "{name}"]}}}}}}'
        return self.write(f"{folder or name}/.mcp.json", text)

    def task(self, dataset: str, task: str) -> Path:
        """Write a minimal Harbor task folder; its `task.toml` is returned."""
        for name in ("instruction.md", "tests/test.sh"):
            self.write(f"{dataset}/{task}/{name}", "")
        self.write(f"{dataset}/{task}/environment/Dockerfile", "FROM debian:12\n")
        return self.write(f"{dataset}/{task}/task.toml", 'schema_version = "1.4"\n[metadata]\nhost_base = true\n')


def problems(project: Project, text: str) -> list[str]:
    """The `key: message` lines of an invalid experiment."""
    file = project.experiment(text)
    with pytest.raises(InvalidFile) as caught:
        load(file)
    return [re.sub(rf"^{re.escape(str(file))}(:\d+)?: ", "", line) for line in caught.value.lines()]


def good(project: Project, text: str) -> Experiment:
    return load(project.experiment(text))
