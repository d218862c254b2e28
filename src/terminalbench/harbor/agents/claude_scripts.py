"""Shell scripts that fetch and install an MCP server's source inside the sandbox. Text only, nothing runs here.

Each script runs as root under `set -e`; its answer goes to descriptor 3, everything else to the log.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

ROOT = PurePosixPath("/opt/tbench-mcp")

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


@dataclass(frozen=True)
class Place:
    """One folder of the sandbox that holds a source and its virtual environment."""

    root: PurePosixPath = ROOT

    @property
    def source(self) -> PurePosixPath:
        """Where the source is."""
        return self.root / "src"

    @property
    def venv(self) -> PurePosixPath:
        """Where its virtual environment is, if it has one."""
        return self.root / "venv"

    def clear(self) -> str:
        """Start from nothing."""
        return f"mkdir -p {self.root}; rm -rf {self.source} {self.venv}"

    def look(self) -> str:
        """Answer `package` or `folder`, then the Python files."""
        return f"""
cd {self.source}
chmod -R a+rX {self.root}
if [ -f pyproject.toml ] || [ -f setup.py ]; then echo package >&3; else echo folder >&3; fi
find . -name .git -prune -o -type f -name '*.py' -print | sed 's#^[.]/##' >&3
"""

    def make_venv(self) -> str:
        """Make the virtual environment and answer with the installer to use: uv, pip, outside-pip or none."""
        return f"""
{self._uv_folders}
rm -rf {self.venv}
if command -v uv; then uv venv -q {self.venv}; echo uv >&3
elif python3 -m venv {self.venv}; then echo pip >&3
elif python3 -m pip --version && python3 -m venv --clear --without-pip {self.venv}; then echo outside-pip >&3
else echo none >&3; fi
"""

    def install(self, installer: str, extras: Sequence[str]) -> str:
        """Install the source with `extras`; answer with the extras it does not have (installers only warn)."""
        python = f"{self.venv}/bin/python"
        command = {
            "uv": f"uv pip install --python {python}",
            "pip": f"{python} -m pip install {_PIP_OPTIONS}",
            "outside-pip": f"python3 -m pip --python {python} install {_PIP_OPTIONS}",
        }[installer]
        target = shlex.quote(f"{self.source}[{','.join(extras)}]" if extras else str(self.source))
        return f"""
{self._uv_folders}
{command} {target}
{python} -c {shlex.quote(_FIND_MISSING_EXTRAS)} {self.source} {shlex.join(extras)} >&3
rm -rf {self.root}/cache
chmod -R a+rX {self.root}
"""

    @property
    def _uv_folders(self) -> str:
        # What uv downloads must be readable for the agent's user, who may not look into /root.
        return f"export UV_CACHE_DIR={self.root}/cache UV_PYTHON_INSTALL_DIR={self.root}/python"

    def checkout(self, url: str, ref: str) -> str:
        """Put exactly `ref` of `url` into the source folder; answer with the commit.

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
    cat > {self.root}/askpass <<'ASKPASS'
{_ASKPASS}
ASKPASS
    chmod 755 {self.root}/askpass
    export GIT_ASKPASS={self.root}/askpass
    trap 'rm -f {self.root}/askpass' EXIT
fi
git init -q {self.source}
cd {self.source}
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
