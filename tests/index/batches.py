"""Batches of the tests beside it, and what an index says of them."""

import os
from pathlib import Path

import msgspec

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.index.sql import ask
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef

LABELS = '{"role":"baseline","run":"night-1"}'


def labelled(root: Path) -> Batch:
    """A batch with labels, of two tasks; one of them belongs to a family."""
    batch = allocate(root, "s")
    plan = make_plan(batch, ("p",), "ab", 1, labels={"run": "night-1", "role": "baseline"})
    (job,) = plan.jobs
    first = msgspec.structs.replace(job.tasks[0], ref=TaskRef("a", "d", "first"))
    plan = msgspec.structs.replace(plan, jobs=(msgspec.structs.replace(job, tasks=(first, job.tasks[1])),))
    write_json(batch.plan_json, plan)
    for task in "ab":
        make_trial(batch, f"{task}__1")
    return batch


def outcomes(batch: Batch) -> dict[tuple[str, str, int], str]:
    scan_batch(batch)
    return {(c.profile, c.task.id, c.attempt): c.outcome for c in view_batch(batch).cells}


def standing(batch: Batch) -> dict[str, tuple[int | None, int | None]]:
    """What the index says of each trial of profile p: whether it counts, and as which attempt."""
    scan_batch(batch)
    found = ask(batch.folder.parent.parent, "SELECT trial, counts, attempt FROM trials WHERE profile = 'p'")
    return {name: (counts, attempt) for name, counts, attempt in found.rows}


def hold_a_batch(root: Path) -> None:
    """Make it a results folder, which has its index in it."""
    (allocate(root, "s").folder / "runs").mkdir()


def old(batch: Batch) -> None:
    """As if it had ended long ago."""
    for path in [batch.folder, *batch.folder.rglob("*")]:
        os.utime(path, (1_700_000_000, 1_700_000_000))
