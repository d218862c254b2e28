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
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import urlsplit

from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError
from harbor.environments.base import BaseEnvironment
from pydantic import BaseModel, ConfigDict, Field, model_validator

from terminalbench.experiments.claude_settings import SYSTEM_PYTHON, Location, Locations, digest
from terminalbench.experiments.profiles import NOT_SOURCE

ROOT = PurePosixPath("/opt/tbench-mcp")
LOG_NAME = "setup/mcp-install.log"
TAIL_LINES = 40

_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]*")

_ASKPASS = """#!/bin/sh
case "$1" in
*"'https://github.com'"* | *"'https://"*"@github.com'"* | *"'https://"*".ghe.com'"*) ;;
*"//${GH_HOST:-github.com}'"* | *"@${GH_HOST:-github.com}'"*) ;;
*) exit 1 ;;
esac
case "$1" in Username*) echo x-access-token ;; *) printf '%s\\n' "$GITHUB_TOKEN" ;; esac"""

_FIND_MISSING_EXTRAS = """
import importlib.metadata, json, re, sys

def plain(name):
    return re.sub("[-_.]+", "-", name).lower()

source, *wanted = sys.argv[1:]
for found in importlib.metadata.distributions():
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if origin.get("url", "").endswith(source):
        has = {plain(name) for name in found.metadata.get_all("Provides-Extra") or []}
        print(*(name for name in wanted if plain(name) not in has))
        sys.exit()
sys.exit("the package was not installed")
"""

_PIP_OPTIONS = "--no-input --disable-pip-version-check --no-cache-dir"


class McpSetupError(RuntimeError):
    """The MCP server could not be put into the sandbox; the message ends with the end of the log."""


class McpSource(BaseModel):
    """The origin of the servers' source: `git` with `ref`, one `path` for all, or `paths` by server."""

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
            raise ValueError("ref can be set only with git")
        if self.git is not None:
            _check_git(self.git, self.ref)
        return self


@dataclass(frozen=True)
class InstalledSource:
    """The source as it is in the sandbox: where its pieces are, and what was installed, for the record."""

    locations: Locations
    record: dict[str, Any]


async def install_source(
    agent: BaseInstalledAgent, environment: BaseEnvironment, source: McpSource, extras: Sequence[str]
) -> InstalledSource:
    """Fetch `source` into the sandbox, install what is a package, and say where its pieces are."""
    if source.paths is not None:
        return await _install_folders(agent, environment, source.paths)
    steps = _InstallSteps(agent, environment, ROOT)
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
        steps = _InstallSteps(agent, environment, ROOT / f"{len(done)}-{name}")
        fetched = await steps.upload(path)
        locations[server], installed = await steps.settle(())
        records[server] = {**fetched, **installed}
    content = digest({server: record["sha256"] for server, record in records.items()})
    return InstalledSource(Locations(by_server=locations), {"paths": records, "sha256": content})


class _InstallSteps:
    """Shell steps in the sandbox as root, which bring a source to `root`/src and its packages to `root`/venv.

    Each runs under `set -e`; its output goes to one log there, its answer comes back on descriptor 3.
    """

    def __init__(self, agent: BaseInstalledAgent, environment: BaseEnvironment, root: PurePosixPath) -> None:
        self._agent, self._environment, self._root = agent, environment, root
        self._source, self._venv = root / "src", root / "venv"
        self._log = agent.environment_logs_dir / LOG_NAME
        # What uv downloads must be readable for the agent's user, who may not look into /root.
        self._uv_folders = f"export UV_CACHE_DIR={root}/cache UV_PYTHON_INSTALL_DIR={root}/python"

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

    async def _clear(self) -> None:
        await self.run("prepare", f"mkdir -p {self._root}; rm -rf {self._source} {self._venv}")

    async def check_out(self, url: str, ref: str) -> dict[str, Any]:
        """Put the commit into the source folder; say which it is."""
        await self._clear()
        await self._agent.ensure_system_dependencies(self._environment, ("git",))
        commit = await self.run("git checkout", checkout_script(self._root, url, ref))
        return {"git": url, "ref": ref, "commit": commit.strip().splitlines()[-1]}

    async def upload(self, path: str) -> dict[str, Any]:
        """Put the host's folder into the source folder; say what its content is."""
        if not Path(path).is_dir():
            raise McpSetupError(f"mcp_source: no such folder: {path}")
        await self._clear()
        with tempfile.TemporaryDirectory(prefix="tbench-mcp-") as temporary:
            staged = Path(temporary) / "src"
            ignore = shutil.ignore_patterns(*NOT_SOURCE)
            await asyncio.to_thread(shutil.copytree, path, staged, symlinks=True, ignore=ignore)
            content = await asyncio.to_thread(folder_digest, staged)
            await self._environment.upload_dir(staged, str(self._source))
        return {"path": path, "sha256": content}

    async def settle(self, extras: Sequence[str]) -> tuple[Location, dict[str, Any]]:
        """Install the source if it is a package; say where things are and what was installed."""
        script = f"""
cd {self._source}
chmod -R a+rX {self._root}
if [ -f pyproject.toml ] || [ -f setup.py ]; then echo package >&3; else echo folder >&3; fi
find . -name .git -prune -o -type f -name '*.py' -print | sed 's#^[.]/##' >&3
"""
        kind, *files = (await self.run("inspect the source", script)).splitlines()
        if kind != "package":
            location = Location(SYSTEM_PYTHON, str(self._source), None, frozenset(files))
            return location, {"installed": False, "extras": [], "extras_missing": list(extras)}
        missing = await self._install(extras)
        commands = f"{self._venv}/bin"
        location = Location(f"{commands}/python", str(self._source), commands, frozenset(files))
        has = [extra for extra in extras if extra not in missing]
        return location, {"installed": True, "extras": has, "extras_missing": missing}

    async def _install(self, extras: Sequence[str]) -> list[str]:
        """Install the source with `extras`; those it does not have (installers only warn)."""
        installer = await self._make_venv()
        python = f"{self._venv}/bin/python"
        command = {
            "uv": f"uv pip install --python {python}",
            "pip": f"{python} -m pip install {_PIP_OPTIONS}",
            "outside-pip": f"python3 -m pip --python {python} install {_PIP_OPTIONS}",
        }[installer]
        target = shlex.quote(f"{self._source}[{','.join(extras)}]" if extras else str(self._source))
        script = f"""
{self._uv_folders}
{command} {target}
{python} -c {shlex.quote(_FIND_MISSING_EXTRAS)} {self._source} {shlex.join(extras)} >&3
rm -rf {self._root}/cache
chmod -R a+rX {self._root}
"""
        return (await self.run("install", script)).split()

    async def _make_venv(self) -> str:
        """Make the virtual environment; the installer to use: uv, outside-pip (no second pip to install) or pip."""
        what = "create a virtual environment"
        script = f"""
{self._uv_folders}
rm -rf {self._venv}
if command -v uv; then uv venv -q {self._venv}; echo uv >&3
elif python3 -m pip --python "$(command -v python3)" --version && python3 -m venv --without-pip {self._venv}; then
  echo outside-pip >&3
elif python3 -m venv --clear {self._venv}; then echo pip >&3
else echo none >&3; fi
"""
        installer = (await self.run(what, script)).strip()
        if installer == "none":
            try:
                await self._agent.ensure_system_dependencies(self._environment, ("python3", "python_venv"))
            except NonZeroAgentExitCodeError as error:
                raise McpSetupError(f"no Python with venv in the sandbox; installing one failed: {error}") from error
            installer = (await self.run(what, script)).strip()
        if installer == "none":
            raise McpSetupError("the sandbox has neither uv nor a python3 that can create a virtual environment")
        return installer


def checkout_script(root: PurePosixPath, url: str, ref: str) -> str:
    """Put exactly `ref` of `url` into `root`/src; answer with the commit.

    The token reaches git through an askpass program that reads GITHUB_TOKEN, and only when git asks on
    behalf of GitHub (or of GH_HOST): it is in no address, argument or file.
    """
    tag = f"refs/tags/{ref}"
    fetch_commit = f"""
    git fetch -q --depth 1 origin {ref} || git fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*'
    git checkout -q --detach {ref}
    case "$(git rev-parse HEAD)" in {ref}*) ;; *) echo 'checked out another commit' >&2; exit 1 ;; esac
"""
    if re.fullmatch(r"[0-9a-f]{7,40}", ref) is None:
        fetch_commit = f"echo '{ref} is neither a tag nor a commit of the repository' >&2; exit 1"
    return f"""
export GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND='ssh -o BatchMode=yes'
if [ -n "${{GITHUB_TOKEN:-}}" ]; then
    cat > {root}/askpass <<'ASKPASS'
{_ASKPASS}
ASKPASS
    chmod 755 {root}/askpass
    export GIT_ASKPASS={root}/askpass
    trap 'rm -f {root}/askpass' EXIT
fi
git init -q {root}/src
cd {root}/src
git remote add origin {shlex.quote(url)}
found=0
git ls-remote -q --exit-code origin {tag} || found=$?
case $found in
0)
    git fetch -q --depth 1 origin {tag}:{tag} || git fetch -q origin {tag}:{tag}
    git checkout -q --detach {tag} ;;
2) {fetch_commit} ;;
*) exit $found ;;
esac
if [ -f .gitmodules ]; then git submodule update -q --init --recursive; fi
git rev-parse HEAD >&3
"""


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
        raise ValueError(f"{ref!r} is neither a commit nor a tag")
    if url.startswith("-"):
        raise ValueError("git is not the address of a repository")
    address = urlsplit(url)
    if address.password is not None or (address.scheme in ("http", "https") and address.username is not None):
        raise ValueError("git holds credentials; put the token into GITHUB_TOKEN in the agent's env instead")
