"""Trials of held-out tasks that no look covers: whoever runs an ordinary experiment on them has seen them too."""

from collections.abc import Mapping, Set
from pathlib import Path

from terminalbench.campaign.batches import labels_of
from terminalbench.experiments.batch import Batch
from terminalbench.index.scan import scan_all
from terminalbench.index.store import open_index
from terminalbench.text.numbers import plural, some
from terminalbench.trainer.journal import (
    HOLDOUT_PART,
    NIGHT_LABEL,
    PART_LABEL,
    TRAINING_LABEL,
    read_sealed,
    training_folder,
)

_ATTEMPTS = "SELECT batch, dataset || '/' || task AS name, count(*) AS trials FROM trials GROUP BY batch, name"


def trials_outside(root: Path, results_root: Path, tasks: Set[str]) -> dict[str, int]:
    """How many trials of these tasks (`dataset/id`) each batch has that was not run by a look at the holdout."""
    if not results_root.is_dir():
        return {}
    scan_all(results_root)
    found: dict[str, int] = {}
    with open_index(results_root) as connection:
        for batch, name, trials in connection.execute(_ATTEMPTS):
            if name in tasks:
                found[batch] = found.get(batch, 0) + trials
    return {batch: trials for batch, trials in found.items() if not _is_look(root, Batch(results_root / batch))}


def outside_line(found: Mapping[str, int]) -> str | None:
    """These trials in a line; None where there are none."""
    if not found:
        return None
    return f"outside of looks: {plural(sum(found.values()), 'trial')} of held-out tasks in {some([*found], 6)}"


def _is_look(root: Path, batch: Batch) -> bool:
    """Whether a training ran the batch for a look that it has recorded."""
    labels = labels_of(batch)
    slug = labels.get(TRAINING_LABEL)
    if slug is None or labels.get(PART_LABEL) != HOLDOUT_PART:
        return False
    return any(str(one.look) == labels.get(NIGHT_LABEL) for one in read_sealed(training_folder(root, slug)))
