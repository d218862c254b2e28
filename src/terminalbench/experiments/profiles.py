"""Profiles: one named way to attempt tasks, resolved from its table, what it extends, and the defaults.

A profile's id is a hash of everything that changes what the agent sees or does, file contents included,
and of nothing else: renaming a profile does not change it, one byte in a prompt does.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from terminalbench.experiments.agents import AgentInfo
from terminalbench.experiments.tables import CommandTable, LessonsTable, ProfilePrice
from terminalbench.frozen import frozen
from terminalbench.llm.local.spec import shown_model

if TYPE_CHECKING:
    from terminalbench.experiments.lessons import Snapshot
    from terminalbench.experiments.mounts import Mount, Program

NOT_SOURCE = (
    ".git", ".hg", ".venv", "venv", ".env", ".env.*", "node_modules", "__pycache__", "*.pyc", ".tox", ".nox",
    ".pytest_cache", ".ruff_cache", ".mypy_cache",
)  # fmt: skip
"""Names that are no part of a folder's content, neither in the profile's id nor in what is uploaded: version control,
environments, caches, and files that hold secrets by custom."""
_IS_NOT_SOURCE = re.compile("|".join(map(fnmatch.translate, NOT_SOURCE)))
_PASSING = re.compile("|".join(map(fnmatch.translate, (".git", ".hg", "__pycache__", "*.pyc"))))
"""What changes by itself in a folder that is handed over as it is."""
RECIPE = 4
"""Which aspects the content of a profile has."""
SNAPSHOT = "snapshot"
"""In the aspect `lessons`: the digest of what its memory held when it was planned."""
_SERVER_FILES = {".mcp.json", "USAGE.md", "hooks.json"}


@frozen
class TextFile:
    """A file and its text when the experiment was loaded."""

    path: Path
    text: str

    @property
    def digest(self) -> str:
        """Hash of the text."""
        return _digest(self.text.encode())


@frozen
class ContentFolder:
    """A folder whose whole content counts: its source, or `every` file where it is handed to the agent as it is."""

    path: Path
    every: bool = False

    @cached_property
    def digest(self) -> str:
        """Hash of every file's relative path, mode and bytes."""
        total = hashlib.sha256()
        for file in source_files(self.path, _PASSING if self.every else _IS_NOT_SOURCE):
            executable = "x" if file.stat().st_mode & 0o100 else "-"
            total.update(f"{file.relative_to(self.path).as_posix()}\0{executable}\0".encode())
            total.update(_digest(file.read_bytes()).encode())
        return total.hexdigest()[:16]


@frozen
class WorkflowTexts:
    """A checked workflow: how the profile names it, and its texts (the file and its prompts).

    `oracle`: it sees the hidden verdict. `guards` are the import paths of guards of one's own.
    """

    spec: str
    path: Path
    texts: dict[str, str]
    shipped: bool = False
    oracle: bool = False
    guards: tuple[str, ...] = ()


@frozen
class CommandFile:
    """A file or folder of the project, as a profile names it, and where it is in the sandbox of a command."""

    name: str
    path: Path
    target: str

    @cached_property
    def digest(self) -> str:
        """Hash of its content and of who may run it."""
        if self.path.is_dir():
            return ContentFolder(self.path, every=True).digest
        executable = b"x" if self.path.stat().st_mode & 0o100 else b"-"
        return _digest(executable + self.path.read_bytes())[:16]


@frozen
class CommandSetup:
    """The command of a profile: its table, and its files."""

    table: CommandTable
    files: tuple[CommandFile, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return what the table says, without files."""
        told = {name: value for name, value in asdict(self.table).items() if name != "files"}
        return {name: value for name, value in told.items() if value not in (None, [], {}, "auto")}


@frozen
class McpSetup:
    """The servers a profile uses, ready to hand to an agent."""

    servers: dict[str, dict[str, Any]]
    folders: dict[str, Path]
    usage: tuple[Path, ...]

    def config(self) -> dict[str, Any]:
        """The merged configuration."""
        return {"mcpServers": self.servers}


NO_MCP = McpSetup({}, {}, ())


@frozen
class Profile:
    """One named way to attempt tasks. Nothing in it is a secret: `env` holds references only.

    `lessons` is what it may show of a memory, `snapshot` what the memory held for it when it was planned.
    """

    key: str
    agent: AgentInfo
    model: str | None = None
    reasoning: str | None = None
    agent_version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    prompt: TextFile | None = None
    usage: tuple[TextFile, ...] = ()
    skills: tuple[ContentFolder, ...] = ()
    mcp: McpSetup = NO_MCP
    mcp_git_source: str | None = None
    mcp_git_ref: str | None = None
    hooks: TextFile | None = None
    env: dict[str, str] = field(default_factory=dict)
    env_file: Path | None = None
    workflow: WorkflowTexts | None = None
    command: CommandSetup | None = None
    mounts: "tuple[Mount, ...]" = ()
    programs: "tuple[Program, ...]" = ()
    lessons: LessonsTable | None = None
    snapshot: "Snapshot | None" = None
    code: dict[str, str] = field(default_factory=dict)
    environment_code: dict[str, str] = field(default_factory=dict)
    option_files: dict[str, str] = field(default_factory=dict)
    description: str | None = None
    price: ProfilePrice | None = None
    likely_cost_usd: float | None = None
    parallel: int | None = None

    @property
    def oracle(self) -> bool:
        """Return whether its workflow sees the hidden verdict."""
        return self.workflow is not None and self.workflow.oracle

    @property
    def system_prompt(self) -> str | None:
        """Return what is added to the agent's prompt: the profile's own file, then each server's USAGE.md."""
        texts = [part.text.strip() for part in (self.prompt, *self.usage) if part is not None]
        return "\n\n".join(text for text in texts if text) or None

    def hooks_config(self) -> dict[str, Any] | None:
        """The hooks as Claude Code's settings hold them."""
        if self.hooks is None:
            return None
        data = json.loads(self.hooks.text)
        return data if "hooks" in data else {"hooks": data}

    def conditions(self, kind: Literal["env", "options"]) -> dict[str, Any]:
        """The variables or options that every profile of this agent has alike, where it does not set them itself."""
        own = self.env if kind == "env" else self.options
        return {name: value for name, value in self.agent.conditions.get(kind, {}).items() if name not in own}

    def local_servers(self) -> dict[str, ContentFolder]:
        """Folders of MCP servers that carry code of their own and are not installed from git."""
        if self.mcp_git_source is not None:
            return {}
        return {name: ContentFolder(folder) for name, folder in self.mcp.folders.items() if has_code(folder)}

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that makes this profile what it is, by aspect; texts and configurations in full."""
        aspects = {
            "agent": self.agent.import_path if self.agent.import_path == self.agent.name else self.agent.name,
            "agent_version": self.agent_version,
            "agent_code": self.code or None,
            "environment_code": self.environment_code or None,
            "model": shown_model(self.model),
            "reasoning": self.reasoning,
            "options": self.options or None,
            "option_files": self.option_files or None,
            "system_prompt": self.system_prompt,
            "skills": {f.path.name: f.digest for f in self.skills} or None,
            "mcp_servers": self.mcp.servers or None,
            "mcp_git_source": self.mcp_git_source,
            "mcp_git_ref": self.mcp_git_ref,
            "mcp_code": {name: folder.digest for name, folder in self.local_servers().items()} or None,
            "hooks": self.hooks_config(),
            "conditions": {**self.conditions("env"), **self.conditions("options")} or None,
            "env": self.env or None,
            "workflow": self.workflow.texts if self.workflow else None,
            "command": self.command.plain() if self.command else None,
            "command_files": {f"{one.name} at {one.target}": one.digest for one in self.command.files} or None
            if self.command
            else None,
            "mounts": {one.target: one.digest for one in self.mounts} or None,
            "programs": {one.name: one.digest for one in self.programs} or None,
            "lessons": self._lessons(),
            "oracle": self.oracle or None,
        }
        return {name: value for name, value in aspects.items() if value is not None}

    def _lessons(self) -> dict[str, Any] | None:
        if self.lessons is None:
            return None
        known = {SNAPSHOT: self.snapshot.digest} if self.snapshot is not None else {}
        return {**asdict(self.lessons), **known}

    @cached_property
    def id(self) -> str:
        """Stable id: equal for profiles that treat the agent alike, whatever they are called."""
        return content_id(self.content)


def content_id(content: Mapping[str, Any]) -> str:
    """The id of a profile with this content."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"p{_digest(canonical.encode())[:12]}"


def policy_id(content: Mapping[str, Any]) -> str:
    """The id without the snapshot of its lessons: the same for a profile whose memory has learned since."""
    lessons = content.get("lessons")
    if not isinstance(lessons, dict):
        return content_id(content)
    standing = {name: value for name, value in lessons.items() if name != SNAPSHOT}
    return content_id({**content, "lessons": standing})


def has_code(folder: Path) -> bool:
    """Return whether the folder of an MCP server holds more than its configuration."""
    return any(file.name not in _SERVER_FILES for file in source_files(folder))


def handed_files(folder: Path) -> list[Path]:
    """The files of a folder that is handed to an agent as it is."""
    return source_files(folder, _PASSING)


def is_passing(name: str) -> bool:
    """Return whether a file or folder of that name changes by itself, also in what is handed over as it is."""
    return _PASSING.match(name) is not None


def is_source(name: str) -> bool:
    """Return whether a file or folder of that name is part of what a folder holds."""
    return _IS_NOT_SOURCE.match(name) is None


def source_files(folder: Path, without: re.Pattern[str] = _IS_NOT_SOURCE) -> list[Path]:
    """The files of a folder that count, in order."""
    found: list[Path] = []
    for place, folders, files in folder.walk():
        folders[:] = [name for name in folders if not without.match(name)]
        found += [place / name for name in files if not without.match(name)]
    return sorted(path for path in found if path.is_file())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
