"""The batches of a campaign: ordinary ones, found again by the labels of their plans, whoever started them."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import find_batches
from terminalbench.json_files import read_json


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
