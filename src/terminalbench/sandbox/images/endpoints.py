"""Where a registry is reached: at its own address, or at the mirrors that containers-registries.conf names.

    [[registry]]
    prefix = "docker.io"
    location = "registry-1.docker.io"
    [[registry.mirror]]
    location = "mirror.example.org:5000/hub"
    insecure = true

The file is that of Podman and Skopeo: `$CONTAINERS_REGISTRIES_CONF`, `~/.config/containers/registries.conf`, then
`/etc/containers/registries.conf`. A registry on this machine is asked without TLS.
"""

import os
import tomllib
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.images.reference import DOCKER_HUB, ImageReference

_HUB = "registry-1.docker.io"


@dataclass(frozen=True)
class Endpoint:
    """An address of a registry: its host, the repository there, and whether it may be asked without TLS."""

    host: str
    repository: str
    insecure: bool = False
    mirror: bool = False

    @property
    def schemes(self) -> tuple[str, ...]:
        """The protocols to try, in this order."""
        if is_local(self.host):
            return ("http",)
        return ("https", "http") if self.insecure else ("https",)


def is_local(host: str) -> bool:
    """Return whether a host, perhaps with a port, is this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def endpoints_of(reference: ImageReference) -> list[Endpoint]:
    """Return where an image may be asked for, mirrors first."""
    named = f"{reference.registry}/{reference.repository}"
    found: dict[str, Any] = {}
    best = ""
    for entry in _entries():
        prefix = str(entry.get("prefix") or entry.get("location") or "")
        if len(prefix) > len(best) and _covers(prefix, named):
            best, found = prefix, entry
    if found.get("blocked"):
        raise Refused(f"{best} is blocked by containers-registries.conf", hint="take the line blocked = true out of it")
    mirrors = [one for one in found.get("mirror", ()) if isinstance(one, dict)]
    told = [(one, True) for one in mirrors if _serves(one, reference)] + [(found, False)]
    return [_endpoint(one, best, named, mirror=is_mirror) for one, is_mirror in told]


def _endpoint(entry: dict[str, Any], prefix: str, named: str, *, mirror: bool) -> Endpoint:
    location = str(entry.get("location") or "")
    moved = location.rstrip("/") + named.removeprefix(prefix) if location and not prefix.startswith("*.") else named
    host, _, repository = moved.partition("/")
    return Endpoint(_HUB if host == DOCKER_HUB else host, repository, entry.get("insecure") is True, mirror)


def _serves(mirror: dict[str, Any], reference: ImageReference) -> bool:
    kind = mirror.get("pull-from-mirror", "all")
    return kind == "all" or (kind == "digest-only") == (reference.digest is not None)


def _covers(prefix: str, named: str) -> bool:
    if prefix.startswith("*."):
        return named.partition("/")[0].partition(":")[0].endswith(prefix[1:])
    return named == prefix or named.startswith((f"{prefix}/", f"{prefix}:"))


def _entries() -> list[dict[str, Any]]:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    named = os.environ.get("CONTAINERS_REGISTRIES_CONF")
    for file in (
        [Path(named)] if named else [home / "containers" / "registries.conf", Path("/etc/containers/registries.conf")]
    ):
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise Refused(
                f"it cannot be read: {error}",
                where=str(file),
                hint="mend it, or name another one by CONTAINERS_REGISTRIES_CONF",
            ) from None
        entries = table.get("registry", [])
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return []
