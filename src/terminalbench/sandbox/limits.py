"""What a sandbox may use when the task does not say, and at most."""

import os
from dataclasses import dataclass

MEGABYTE = 1 << 20
DEFAULT_STORAGE_MB = 4096
PROCESSES = 2048
_LEAST_MEMORY_MB = 64


@dataclass(frozen=True)
class Limits:
    """Limits of one sandbox; `clamped` names those that were asked for beyond what this machine has."""

    memory_mb: int
    storage_mb: int
    processes: int = PROCESSES
    cpus: float | None = None
    clamped: tuple[str, ...] = ()

    @property
    def scratch_files(self) -> int:
        """How many files fit into a memory scratch."""
        return max(16384, min(1 << 20, self.storage_mb * 64))


def machine_memory_mb() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MEGABYTE


def limits_for(
    memory_mb: int | None, storage_mb: int | None, cpus: float | None, *, scratch: str, machine_mb: int | None = None
) -> Limits:
    """The limits a task gets: its own, else half of the machine's memory and 4 GB of files.

    Files in a memory scratch are memory, so they get half of the machine at most.
    """
    half = (machine_mb or machine_memory_mb()) // 2
    clamped = []
    memory = max(_LEAST_MEMORY_MB, memory_mb if memory_mb is not None else half)
    storage = storage_mb if storage_mb is not None else min(DEFAULT_STORAGE_MB, half)
    if scratch == "memory" and storage > half:
        clamped.append(f"storage_mb {storage} to {half}, half of this machine's memory")
        storage = half
    return Limits(memory, max(1, storage), cpus=cpus, clamped=tuple(clamped))
