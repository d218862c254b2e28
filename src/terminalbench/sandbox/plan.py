"""What a sandbox is made of, and the request that starts it."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from terminalbench.sandbox.base import Base
from terminalbench.sandbox.limits import MEGABYTE, Limits

_SHARED_MEMORY_BYTES = 64 * MEGABYTE


@dataclass(frozen=True)
class Bind:
    """A host folder or file shown in the sandbox because the user's configuration says so."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Plan:
    """All that a sandbox is made of."""

    base: Base
    limits: Limits
    layer: Path | None = None
    building: Path | None = None
    scratch: str = "memory"
    hostname: str = "sandbox"
    folders: Mapping[str, int] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    resolver: bool = True
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
            "shared_bytes": min(_SHARED_MEMORY_BYTES, limits.storage_mb * MEGABYTE),
            "mounts": self._mounts(),
            "measure": [str(self.building)] if self.building else [],
            "folders": dict(self.folders),
            "etc": self._etc(),
            "binds": [{"source": b.source, "target": b.target, "read_only": b.read_only} for b in self.binds],
            "hostname": self.hostname,
            "use_groups": self.use_groups,
            "limits": {
                "memory_bytes": limits.memory_mb * MEGABYTE,
                "scratch_bytes": limits.storage_mb * MEGABYTE,
                "processes": limits.processes,
                "cpus": limits.cpus,
            },
        }

    def _mounts(self) -> list[dict[str, Any]]:
        mounts: list[dict[str, Any]] = []
        for number, overlay in enumerate(self.base.overlays):
            lower = list(overlay.lower)
            if self.layer is not None and any((self.layer / str(number)).iterdir()):
                lower.insert(0, str(self.layer / str(number)))
            mount: dict[str, Any] = {"at": overlay.at, "lower": lower}
            if self.building is not None:
                mount["upper"] = str(self.building / str(number))
                mount["work"] = str(self.building / f"work{number}")
            mounts.append(mount)
        return mounts

    def _etc(self) -> dict[str, str]:
        names = f"127.0.0.1 localhost {self.hostname}\n::1 localhost ip6-localhost ip6-loopback\n"
        files = {"hosts": names, "hostname": f"{self.hostname}\n", "resolv.conf": ""}
        if self.resolver:
            with contextlib.suppress(OSError):
                files["resolv.conf"] = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
        return files
