"""What a batch holds after it was shot at, read without the product: an independent count of trials, costs, processes."""

import ctypes
import hashlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_SET_SUBREAPER = 36


def results(batch: Path) -> list[tuple[Path, dict]]:
    """Every readable trial result of a batch, kept or set aside. The same attempt may be there under two names."""
    found = []
    for place in ("runs", "superseded"):
        for file in sorted(batch.glob(f"{place}/*/*/result.json")):
            with suppress(ValueError, OSError):
                found.append((file, json.loads(file.read_text())))
    return found


def _ended(result: dict) -> bool:
    kind = (result.get("exception_info") or {}).get("exception_type")
    return bool(result.get("finished_at") and kind != "CancelledError" and (kind or result.get("verifier_result")))


def finished(batch: Path) -> dict[str, str]:
    """A digest of every finished trial, by the id Harbor gave it: it must never go away or change."""
    return {
        result["id"]: hashlib.sha256(file.read_bytes()).hexdigest() for file, result in results(batch) if _ended(result)
    }


def measured(batch: Path) -> Counter[tuple[str, str]]:
    """How many measured trials each (profile, task) has."""
    counts: Counter[tuple[str, str]] = Counter()
    for file, result in results(batch):
        if _ended(result) and not result.get("exception_info") and "runs" in file.parts:
            counts[file.parts[-3].split("__", 2)[2], Path(result["config"]["task"]["path"]).name] += 1
    return counts


def cost(batch: Path) -> float:
    """What all attempts cost together, each counted once."""
    each = {r["id"]: (r.get("agent_result") or {}).get("cost_usd") or 0.0 for _, r in results(batch)}
    return sum(each.values())


def folders_of(batch: Path, trial: str) -> int:
    """How many tries of a trial have left a folder."""
    here = len(list(batch.glob(f"runs/*/{trial}")))
    return here + len(list(batch.glob(f"superseded/*/{trial}-try*")))


def descendants(pid: int) -> list[int]:
    """Every process below another, the nearest first."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        direct = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return direct + [below for child in direct for below in descendants(child)]


def command_line(pid: int) -> str:
    """The arguments of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Orphanage:
    """Adopts every process that outlives its parent, so that none can hide."""

    def __init__(self) -> None:
        self._strangers = set(descendants(os.getpid()))

    def wait_empty(self, spared: set[int], seconds: float) -> list[str]:
        """Wait until nothing but the spared is below us; the command lines of what is left, which is then ended."""
        deadline = time.monotonic() + seconds
        while left := self._present(spared):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        names = [f"{pid}: {command_line(pid)[:200]}" for pid in left]
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return names

    def _present(self, spared: set[int]) -> list[int]:
        kept = spared | self._strangers
        for pid in set(descendants(os.getpid())) - kept:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        kept |= {below for pid in kept for below in descendants(pid)}
        return [pid for pid in descendants(os.getpid()) if pid not in kept and command_line(pid)]


@contextmanager
def orphanage() -> Generator[Orphanage]:
    """While it lasts, orphans below this process become its children."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield Orphanage()
    finally:
        libc.prctl(_SET_SUBREAPER, 0, 0, 0, 0)
