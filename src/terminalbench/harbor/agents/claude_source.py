"""Bring MCP servers' source into the sandbox and install it there: a pinned git commit or folders of the host.

    /opt/tbench-mcp/{src,venv}               the source and, if it is a package, its virtual environment
    /opt/tbench-mcp/1-<server>/{src,venv}    the same for each server that has a folder of its own

Anything that goes wrong is a `McpSetupError` with the end of the log: the agent never starts half-equipped.
"""

import asyncio
import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment
from pydantic import BaseModel, ConfigDict, Field, model_validator

from terminalbench.experiments.profiles import NOT_SOURCE
from terminalbench.harbor.agents.claude_scripts import ROOT, Place
from terminalbench.harbor.agents.claude_settings import SYSTEM_PYTHON, Location, Locations, digest

LOG_NAME = "setup/mcp-install.log"
TAIL_LINES = 40

_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")
_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class McpSetupError(RuntimeError):
    """The MCP server could not be put into the sandbox; the message ends with the end of the log."""


class McpSource(BaseModel):
    """Where the servers' source comes from: `git` with `ref`, one `path` for all, or `paths` by server."""

    model_config = ConfigDict(extra="forbid")

    git: str | None = Field(default=None, description="Repository address, without credentials.")
    ref: str | None = Field(default=None, description="Commit or tag to check out; a branch is refused.")
    path: str | None = Field(default=None, description="Folder on the host, uploaded as it is now.")
    paths: dict[str, str] | None = Field(default=None, description="Folders on the host, by name of the server.")

    @property
    def folders(self) -> list[str]:
        """The folders of the host that are to be uploaded."""
        return [self.path] if self.path is not None else list((self.paths or {}).values())

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(bool(way) for way in (self.git, self.path, self.paths)) != 1:
            raise ValueError("give one of: git and ref, path, paths")
        if self.git is None and self.ref is not None:
            raise ValueError("ref goes with git only")
        if self.git is not None:
            _check_git(self.git, self.ref)
        return self


@dataclass(frozen=True)
class InstalledSource:
    """The source as it is in the sandbox: where its pieces are, and what was installed, for the record."""

    locations: Locations
    record: dict[str, Any]


def extras_problem(extras: Sequence[str]) -> str | None:
    """What is wrong with the names of the extras, if anything."""
    bad = [extra for extra in extras if not _EXTRA.fullmatch(extra)]
    return f"not names of extras: {', '.join(map(repr, bad))}" if bad else None


async def install_source(
    agent: BaseInstalledAgent, environment: BaseEnvironment, source: McpSource, extras: Sequence[str]
) -> InstalledSource:
    """Fetch `source` into the sandbox, install what is a package, and say what is there."""
    if source.paths is not None:
        return await _install_folders(agent, environment, source.paths)
    steps = _Steps(agent, environment, Place())
    if source.git is not None and source.ref is not None:
        fetched = await steps.check_out(source.git, source.ref)
    else:
        fetched = await steps.upload(source.path or "")
    location, installed = await steps.settle(extras)
    return InstalledSource(Locations(shared=location), {**fetched, **installed})


async def _install_folders(
    agent: BaseInstalledAgent, environment: BaseEnvironment, paths: Mapping[str, str]
) -> InstalledSource:
    locations: dict[str, Location] = {}
    records: dict[str, dict[str, Any]] = {}
    done: dict[str, str] = {}
    for server, path in paths.items():
        if path in done:
            locations[server], records[server] = locations[done[path]], records[done[path]]
            continue
        done[path] = server
        name = re.sub(r"[^A-Za-z0-9_-]", "_", server)
        steps = _Steps(agent, environment, Place(ROOT / f"{len(done)}-{name}"))
        fetched = await steps.upload(path)
        locations[server], installed = await steps.settle(())
        records[server] = {**fetched, **installed}
    content = digest({server: record["sha256"] for server, record in records.items()})
    return InstalledSource(Locations(by_server=locations), {"paths": records, "sha256": content})


class _Steps:
    """Shell steps in the sandbox as root; their output goes to one log there, answers come back on descriptor 3."""

    def __init__(self, agent: BaseInstalledAgent, environment: BaseEnvironment, place: Place) -> None:
        self._agent = agent
        self._environment = environment
        self._place = place
        self._log = agent.environment_logs_dir / LOG_NAME

    async def run(self, what: str, script: str) -> str:
        """Run one step and return its answer; a failing step raises with the end of the log."""
        log = shlex.quote(str(self._log))
        body = f"set -e; echo '== {what}'; {script}"
        result = await self._environment.exec(
            command=(
                f"mkdir -p {shlex.quote(str(self._log.parent))} && exec 3>&1 && "
                f"bash -c {shlex.quote(body)} >>{log} 2>&1; code=$?; "
                f"[ $code = 0 ] || tail -n {TAIL_LINES} {log}; exit $code"
            ),
            user="root",
        )
        if result.return_code != 0:
            tail = ((result.stdout or "") + (result.stderr or "")).strip()
            raise McpSetupError(f"MCP server setup failed at: {what} (exit {result.return_code})\n{tail}")
        return result.stdout or ""

    async def check_out(self, url: str, ref: str) -> dict[str, Any]:
        """Put the commit into the source folder; say which it is."""
        await self.run("prepare", self._place.clear())
        await self._agent.ensure_system_dependencies(self._environment, ("git",))
        commit = await self.run("git checkout", self._place.checkout(url, ref))
        return {"git": url, "ref": ref, "commit": commit.strip().splitlines()[-1]}

    async def upload(self, path: str) -> dict[str, Any]:
        """Put the host's folder into the source folder; say what its content is."""
        if not Path(path).is_dir():
            raise McpSetupError(f"mcp_source: no such folder: {path}")
        await self.run("prepare", self._place.clear())
        with tempfile.TemporaryDirectory(prefix="tbench-mcp-") as temporary:
            staged = Path(temporary) / "src"
            ignore = shutil.ignore_patterns(*NOT_SOURCE)
            await asyncio.to_thread(shutil.copytree, path, staged, symlinks=True, ignore=ignore)
            content = await asyncio.to_thread(folder_digest, staged)
            await self._environment.upload_dir(staged, str(self._place.source))
        return {"path": path, "sha256": content}

    async def settle(self, extras: Sequence[str]) -> tuple[Location, dict[str, Any]]:
        """Install the source if it is a package; say where things are and what was installed."""
        kind, *files = (await self.run("look at the source", self._place.look())).splitlines()
        if kind != "package":
            location = Location(SYSTEM_PYTHON, str(self._place.source), None, frozenset(files))
            return location, {"installed": False, "extras": [], "extras_missing": list(extras)}
        installer = await self._make_venv()
        missing = (await self.run("install", self._place.install(installer, extras))).split()
        commands = f"{self._place.venv}/bin"
        location = Location(f"{commands}/python", str(self._place.source), commands, frozenset(files))
        has = [extra for extra in extras if extra not in missing]
        return location, {"installed": True, "extras": has, "extras_missing": missing}

    async def _make_venv(self) -> str:
        what = "make a virtual environment"
        installer = (await self.run(what, self._place.make_venv())).strip()
        if installer == "none":
            try:
                await self._agent.ensure_system_dependencies(self._environment, ("python3", "python_venv"))
            except NonZeroAgentExitCodeError as error:
                raise McpSetupError(f"no Python with venv in the sandbox; installing one failed: {error}") from error
            installer = (await self.run(what, self._place.make_venv())).strip()
        if installer == "none":
            raise McpSetupError("the sandbox has neither uv nor a python3 that can make a virtual environment")
        return installer


def folder_digest(folder: Path) -> str:
    """sha256 over the relative names and contents of all files in `folder`, in order."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            content = str(path.readlink()).encode()
        elif path.is_file():
            content = path.read_bytes()
        else:
            continue
        total.update(f"{path.relative_to(folder).as_posix()}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def _check_git(url: str, ref: str | None) -> None:
    if ref is None:
        raise ValueError("git needs ref: the commit or tag to check out")
    if not _REF.fullmatch(ref):
        raise ValueError(f"not a commit or tag: {ref!r}")
    if url.startswith("-"):
        raise ValueError("git is not an address")
    address = urlsplit(url)
    if address.password is not None or (address.scheme in ("http", "https") and address.username is not None):
        raise ValueError("git holds credentials; put the token into GITHUB_TOKEN in the agent's env instead")
