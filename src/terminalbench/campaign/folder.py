"""The folder of a campaign: held by one process, gone on with as it was begun, its reports written again as it runs.

Its batches are ordinary ones, found again by the labels of their plans, whoever started them.
"""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from terminalbench.errors import EXIT_USAGE, TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import find_batches
from terminalbench.json_files import read_json
from terminalbench.locks import LockHeld, lock
from terminalbench.text.numbers import plural

_DIFFERENCES = 12
_PAUSES = 20
"""Reports are written at most so small a part of the time: a twentieth."""


@contextmanager
def held(file: Path, what: str, folder: Path, hint: str) -> Generator[None]:
    """Hold the lock of a campaign; where another process has it, nothing is started, and `hint` is the next step."""
    try:
        with lock(file, what):
            yield
    except LockHeld as error:
        error.where, error.hint, error.exit_code = str(folder), hint, EXIT_USAGE
        raise


def refuse_differences(found: Sequence[str], folder: Path, hint: str) -> None:
    """Raise UserError with what is asked for otherwise than when the campaign was begun, if anything."""
    if not found:
        return
    more = [f"and {plural(len(found) - _DIFFERENCES, 'more difference')}"] if len(found) > _DIFFERENCES else []
    listed = "\n  ".join([*found[:_DIFFERENCES], *more])
    raise UserError(f"was begun with other options:\n  {listed}", where=str(folder), hint=hint)


@dataclass
class LiveReports:
    """Reports of a campaign that runs: written by `tick` when they are `due`, at most a twentieth of the time."""

    write: Callable[[], object]
    least_sec: float
    due: bool = False
    _next: float = 0.0

    def tick(self) -> None:
        """Write them, if something was measured since the last time and that is long enough ago."""
        began = time.monotonic()
        if not self.due or began < self._next:
            return
        self.due = False
        self.write()
        now = time.monotonic()
        self._next = now + max(self.least_sec, _PAUSES * (now - began))


class _PlanLabels(msgspec.Struct):
    """Of a plan only its labels: there are many plans, and they are long."""

    labels: dict[str, str] = {}


@lru_cache(maxsize=8192)
def _labels(plan: Path, _written: int) -> dict[str, str]:
    return read_json(plan, _PlanLabels).labels


def labels_of(batch: Batch) -> dict[str, str]:
    """Return the labels of a batch; none of one that is not there, or cannot be read."""
    try:
        return _labels(batch.plan_json, batch.plan_json.stat().st_mtime_ns)
    except (OSError, TbenchError):
        return {}


def batches_below(results_root: Path) -> list[Batch]:
    """Return the batches with a plan in a results folder, by slug and number."""
    if not results_root.is_dir():
        return []
    found = [batch for batch in find_batches(results_root) if batch.plan_json.is_file()]
    return sorted(found, key=lambda batch: (batch.folder.parent.name, batch.number))


def find_labelled(batches: Iterable[Batch], wanted: dict[str, str]) -> Batch | None:
    """Return the first batch that has all of these labels."""
    return next((batch for batch in batches if wanted.items() <= labels_of(batch).items()), None)
