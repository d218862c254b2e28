"""What a sandbox is made of and may use, and the request that starts it."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.network.client import EgressWay
from terminalbench.sandbox.network.egress_proxy import RELAY_ADDRESS
from terminalbench.sandbox.root_filesystem import RootFilesystem

MEGABYTE = 1 << 20
DEFAULT_STORAGE_MB = 4096
DEFAULT_SHARED_MB = 64
PROCESSES = 2048
HOSTNAME = "sandbox"
_LEAST_MEMORY_MB = 64
_LAN = (172, 29, 253)
"""What the addresses in the private network of a trial begin with: each trial has one of its own."""

HOST_BUNDLE = "host"
_INSIDE = "/run/tbench-ca.crt"
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "DENO_CERT"),
)


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one sandbox; `clamped` says what was asked for beyond what this machine has."""

    memory_mb: int
    storage_mb: int
    processes: int = PROCESSES
    cpus: float | None = None
    clamped: str | None = None

    @property
    def scratch_files(self) -> int:
        """Return how many files fit into a memory scratch."""
        return max(16384, min(1 << 20, self.storage_mb * 64))


def limits_for(memory_mb: int | None, storage_mb: int | None, cpus: float | None, *, scratch: str) -> SandboxLimits:
    """The limits a task gets: its own, else half of the machine's memory and 4 GB of files.

    Files in a memory scratch are memory, so they get half of the machine at most.
    """
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEGABYTE // 2
    clamped = None
    memory = max(_LEAST_MEMORY_MB, memory_mb if memory_mb is not None else half)
    storage = storage_mb if storage_mb is not None else min(DEFAULT_STORAGE_MB, half)
    if scratch == "memory" and storage > half:
        clamped = f"storage_mb {storage} to {half}, half of this machine's memory"
        storage = half
    return SandboxLimits(memory, max(1, storage), cpus=cpus, clamped=clamped)


@dataclass(frozen=True)
class Bind:
    """A host folder or file shown in the sandbox because the user's configuration says so."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Seat:
    """A place in the private network of a trial, which `hub` keeps open: which of its addresses, under which name.

    `names` are the addresses of all that are in it.
    """

    hub: int
    number: int
    hostname: str = HOSTNAME
    names: Mapping[str, str] = field(default_factory=dict)


def seat_address(number: int) -> str:
    """Return the address of a seat."""
    return ".".join(map(str, (*_LAN, number)))


@dataclass(frozen=True)
class SandboxPlan:
    """All that a sandbox is made of, the top one of its `layers` first; `setup` is a layer that the agent alone sees.

    Without a `way` it has no network, unless it is to have that of the host. What is in `volumes`, folders of this
    machine that are among its binds, counts as its own files. `shared_mb` is the size of its /dev/shm.
    """

    base: RootFilesystem
    limits: SandboxLimits
    layers: tuple[Path, ...] = ()
    setup: Path | None = None
    building: Path | None = None
    scratch: str = "memory"
    folders: Mapping[str, int] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    volumes: tuple[Path, ...] = ()
    shared_mb: int = DEFAULT_SHARED_MB
    way: EgressWay | None = None
    seat: Seat | None = None
    host_network: bool = False
    use_groups: bool = True
    holds: tuple[int, ...] = ()

    def request(self, run_dir: Path, bwrap: str) -> dict[str, Any]:
        """The helper's request that starts it."""
        limits = self.limits
        return {
            "op": "start",
            "name": run_dir.name,
            "run_dir": str(run_dir),
            "bwrap": bwrap,
            "scratch": self.scratch,
            "scratch_bytes": limits.storage_mb * MEGABYTE,
            "scratch_files": limits.scratch_files,
            "shared_bytes": min(self.shared_mb, limits.storage_mb) * MEGABYTE,
            "mounts": self._mounts(),
            "measure": [str(one) for one in (*((self.building,) if self.building else ()), *self.volumes)],
            "folders": dict(self.folders),
            "etc": self._etc(),
            "binds": [{"source": b.source, "target": b.target, "read_only": b.read_only} for b in self.binds],
            "hostname": self._hostname,
            "use_groups": self.use_groups,
            "network": self._network(),
            "lan": {"common": _LAN, "number": self.seat.number} if self.seat is not None else None,
            "limits": {
                "memory_bytes": limits.memory_mb * MEGABYTE,
                "scratch_bytes": limits.storage_mb * MEGABYTE,
                "processes": limits.processes,
                "cpus": limits.cpus,
            },
        }

    def handles(self, lock: int) -> tuple[int, ...]:
        """Return what goes with the request; `lock` is that of its folder."""
        return (*((self.seat.hub,) if self.seat is not None else ()), lock, *self.holds)

    @property
    def _hostname(self) -> str:
        return self.seat.hostname if self.seat is not None else HOSTNAME

    @property
    def way_out(self) -> EgressWay | None:
        """Its way, which knows the names of those beside it."""
        if self.way is None or self.seat is None:
            return self.way
        return dataclasses.replace(self.way, beside=self.seat.names)

    def _network(self) -> dict[str, Any] | None:
        if self.way is None:
            return None
        return {**self.way.request(), "beside": _LAN if self.seat is not None else ()}

    def _mounts(self) -> list[dict[str, Any]]:
        mounts: list[dict[str, Any]] = []
        for number, overlay in enumerate(self.base.overlays):
            above = [layer / str(number) for layer in self.layers]
            lower = [*(str(folder) for folder in above if any(folder.iterdir())), *overlay.lower]
            own = [str(self.setup / str(number))] if self.setup is not None else []
            own = [folder for folder in own if any(Path(folder).iterdir())]
            mount: dict[str, Any] = {"at": overlay.at, "lower": [*own, *lower], "host": overlay.host, "own": len(own)}
            if self.building is not None:
                mount["upper"] = str(self.building / str(number))
                mount["work"] = str(self.building / f"work{number}")
            mounts.append(mount)
        return mounts

    def _etc(self) -> dict[str, str]:
        own = "localhost" if self.seat is not None else f"localhost {HOSTNAME}"
        names = f"127.0.0.1 {own}\n::1 localhost ip6-localhost ip6-loopback\n"
        if self.seat is not None:
            names += "".join(f"{address} {name}\n" for name, address in self.seat.names.items())
        files = {"hosts": names, "hostname": f"{self._hostname}\n", "resolv.conf": ""}
        if self.way is not None:
            files["resolv.conf"] = f"nameserver {RELAY_ADDRESS}\n"
        elif self.host_network:
            with contextlib.suppress(OSError):
                files["resolv.conf"] = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
        return files


@dataclass(frozen=True)
class Certificates:
    """Whose certificates sandboxes trust: those of their image, or with `kind` "host" this machine's."""

    kind: str = ""

    @cached_property
    def _bundle(self) -> str | None:
        if self.kind != HOST_BUNDLE:
            return None
        found = next((path for path in _BUNDLES if Path(path).is_file()), None)
        if found is None:
            hint = f"install ca-certificates; looked for {', '.join(_BUNDLES)}"
            raise SandboxError("this machine has no certificate bundle", hint=hint)
        return found

    @property
    def binds(self) -> tuple[Bind, ...]:
        """Return what is shown inside for it."""
        return (Bind(self._bundle, _INSIDE, read_only=True),) if self._bundle is not None else ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which programs find it."""
        return dict.fromkeys(_VARIABLES, _INSIDE) if self._bundle is not None else {}
