"""Names of images: `ubuntu:24.04`, `ghcr.io/owner/name@sha256:...`, as every tool of containers reads them.

And the keys of registries that Docker and Podman keep: their files, and the helpers that these name.
"""

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from terminalbench.files import read_plain
from terminalbench.sandbox.errors import Refused

DOCKER_HUB = "docker.io"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?")

_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
_HELPER_SEC = 20
_MOST_BYTES = 1 << 20
_TOKEN_USER = "<token>"  # noqa: S105  what helpers say instead of a user


@dataclass(frozen=True)
class ImageReference:
    """The name of an image: where it is, and which of the images there. A digest wins over a tag."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def wanted(self) -> str:
        """Return what a registry is asked for."""
        return self.digest or self.tag or "latest"

    @property
    def name(self) -> str:
        """The name without tag and digest, as a person writes it."""
        if self.registry != DOCKER_HUB:
            return f"{self.registry}/{self.repository}"
        return self.repository.removeprefix("library/")

    def at(self, digest: str) -> "ImageReference":
        """Return the same name pinned to a digest."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> ImageReference:
    """Return the reference that a text is; one that no registry could have is refused."""
    rest, _, digest = text.partition("@")
    first, slash, more = rest.partition("/")
    registry, path = DOCKER_HUB, rest
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, more
    if registry in ("index.docker.io", "registry-1.docker.io"):
        registry = DOCKER_HUB
    repository, _, tag = path.partition(":")
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    fits = (
        _HOST.fullmatch(registry)
        and _REPOSITORY.fullmatch(repository)
        and (_TAG.fullmatch(tag) if ":" in path else True)
        and (_DIGEST.fullmatch(digest) if "@" in text else True)
    )
    if not fits:
        hint = "write it as name:tag, host/name:tag or name@sha256:..., in lower case"
        raise Refused(f'"{text}" is not the name of an image', hint=hint)
    return ImageReference(registry, repository, tag or (None if digest else "latest"), digest or None)


@dataclass(frozen=True)
class Credentials:
    """What a registry is told: user and password, or a token that is exchanged for others."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"

    @property
    def basic(self) -> str:
        """The value of a header for user and password."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def credentials_for(registry: str, repository: str = "") -> Credentials | None:
    """Return what is known for a registry, by the first file that names it; None: it is asked as anybody."""
    keys = _keys(registry, repository)
    for file in _files():
        table = _read(file)
        if table is None:
            continue
        helper = next((table["credHelpers"][key] for key in keys if key in _table(table, "credHelpers")), None)
        found = _by_helper(helper, registry) if helper else None
        found = found or _by_entry(_table(table, "auths"), keys)
        if found is None and isinstance(table.get("credsStore"), str):
            found = _by_helper(table["credsStore"], registry)
        if found is not None:
            return found
    return None


def _keys(registry: str, repository: str) -> list[str]:
    """Return how a file may name a registry: podman's may name a repository of it, the longest first."""
    parts = repository.split("/") if repository else []
    below = [f"{registry}/{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
    hosts = list(_HUB_KEYS) if registry == DOCKER_HUB else [registry, f"https://{registry}", f"http://{registry}"]
    return [*below, *hosts, *(f"{host}/v1/" for host in hosts), *(f"{host}/v2/" for host in hosts)]


def _files() -> Iterator[Path]:
    home = Path.home()
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    yield Path(os.environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers" / "auth.json"


def _read(file: Path) -> dict[str, Any] | None:
    text = read_plain(file, _MOST_BYTES)
    try:
        found = json.loads(text) if text else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _by_entry(auths: dict[str, Any], keys: list[str]) -> Credentials | None:
    for key in keys:
        entry = auths.get(key)
        if not isinstance(entry, dict):
            continue
        if entry.get("identitytoken"):
            return Credentials(identity_token=str(entry["identitytoken"]))
        try:
            user, colon, password = base64.b64decode(entry.get("auth") or "").decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, TypeError):
            continue
        if colon:
            return Credentials(user, password.rstrip("\0"))
        if entry.get("username") and entry.get("password"):
            return Credentials(str(entry["username"]), str(entry["password"]))
    return None


def _by_helper(name: str, registry: str) -> Credentials | None:
    """Ask a program `docker-credential-NAME`; one that knows nothing, or is not there, is no answer."""
    program = shutil.which(f"docker-credential-{name}")
    if program is None:
        return None
    asked = _HUB_KEYS[0] if registry == DOCKER_HUB else registry
    try:
        done = subprocess.run(
            [program, "get"], input=asked.encode(), capture_output=True, timeout=_HELPER_SEC, check=False,
            start_new_session=True,
        )  # fmt: skip
        told = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    if not isinstance(told, dict) or not told.get("Secret"):
        return None
    user, secret = str(told.get("Username", "")), str(told["Secret"])
    return Credentials(identity_token=secret) if user == _TOKEN_USER else Credentials(user, secret)
