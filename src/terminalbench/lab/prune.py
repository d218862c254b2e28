"""Batches that are old and named by nothing, and their removal."""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, batch_numbers
from terminalbench.experiments.project import current_project
from terminalbench.index.places import batch_places, is_text
from terminalbench.index.scan import scan_all
from terminalbench.lab.select import find_target
from terminalbench.live.processes import live_processes
from terminalbench.locks import living_owner, lock
from terminalbench.text.screen import tell

RECORDS = ".terminalbench"
"""Where a project keeps episodes, lessons and trainings: what is named in any of its files stays."""
ASIDE = ".pruned-"
"""How a folder is called while it is being removed: one that is left was cut off, and is removed by the next call."""
_NIGHT_SIGNS = ("config.json", "events.jsonl")
_NAMED = re.compile(rb"(?<![A-Za-z0-9._-])(?=([A-Za-z0-9._-]{1,100}/\d{1,9})(?![A-Za-z0-9._-]))")


@dataclass(frozen=True)
class OldBatch:
    """A batch that was looked at: its key (`slug/n`), when it was last written to, its size, and why it stays."""

    key: str
    folder: Path
    written: datetime
    bytes: int | None = None
    stays: str | None = None


@dataclass(frozen=True)
class RemovedBatches:
    """The result of a removal: the batches that are gone, and what could not be removed."""

    keys: tuple[str, ...]
    problems: tuple[str, ...]


def find_old(root: Path, named: Sequence[Path], *, days: float, keep: int, now: datetime) -> list[OldBatch]:
    """The batches that are named; else those that nothing was written to for `days`, but the newest `keep` of a slug.

    One that runs, or that a comparison, an episode, a lesson, a training or a night names, stays and says why.
    """
    if any(root.name == "batches" and (root.parent / sign).exists() for sign in _NIGHT_SIGNS):
        raise UserError(
            "these batches belong to a night", where=str(root), hint="remove the whole folder of the night instead"
        )
    found = [_old(root, folder) for folder in (_named(root, named) if named else _all(root))]
    if not named:
        newest = {key for slug in {one.folder.parent for one in found} for key in _newest(slug, keep)}
        found = [one for one in found if now - one.written >= timedelta(days=days) and one.folder not in newest]
    records = _named_in_records(root)
    compared = _named_in_comparisons(root)
    judged = []
    for place, one in enumerate(found):
        tell("measuring batches", place, len(found))
        judged.append(_judged(one, records.get(one.key), compared.get(one.key)))
    tell("measuring batches", len(found), len(found))
    return judged


def remove(root: Path, found: Sequence[OldBatch]) -> RemovedBatches:
    """Remove the batches that do not stay; the index follows. What is being run or was renamed meanwhile is left."""
    gone: list[str] = []
    problems: list[str] = []
    for one in found:
        if one.stays is not None:
            continue
        aside = one.folder.with_name(f"{ASIDE}{one.folder.name}")
        try:
            with lock(Batch(one.folder).lock, "prune"):
                one.folder.rename(aside)
            _remove_tree(aside)
            gone.append(one.key)
        except OSError as error:
            problems.append(f"{one.key}: {error.strerror or error} ({error.filename})")
    for left in root.glob(f"*/{ASIDE}*"):
        _remove_tree(left)
    scan_all(root)
    return RemovedBatches(tuple(gone), tuple(problems))


def _named(root: Path, named: Sequence[Path]) -> list[Path]:
    folders = [find_target(name, results=root).batch.folder for name in named]
    for folder in folders:
        if folder.resolve().parent.parent != root:
            raise UserError(
                "is not a batch of this results folder",
                where=str(folder),
                hint=f"name its results folder with --results instead of {root}",
            )
    return list(dict.fromkeys(folders))


def _all(root: Path) -> list[Path]:
    return [Path(place.folder) for place in batch_places(root) if place.key != "." and is_text(place.key)]


def _newest(slug: Path, keep: int) -> list[Path]:
    numbers = sorted(batch_numbers(slug.parent, slug.name))
    return [slug / str(number) for number in numbers[len(numbers) - keep :]] if keep else []


def _old(root: Path, folder: Path) -> OldBatch:
    batch = Batch(folder)
    told = [path for path in (batch.plan_json, batch.events_jsonl) if path.exists()] or [folder]
    times = [path.stat().st_mtime for path in told]
    return OldBatch(folder.relative_to(root).as_posix(), folder, datetime.fromtimestamp(max(times), UTC))


def _judged(one: OldBatch, record: str | None, comparison: str | None) -> OldBatch:
    batch = Batch(one.folder)
    why = None
    if one.folder.is_symlink() or one.folder.parent.is_symlink():
        why = "it is a symbolic link"
    elif living_owner(batch.lock) is not None or live_processes(batch):
        why = "it runs"
    elif record is not None or comparison is not None:
        why = f"{record or comparison} names it"
    return replace(one, stays=why) if why else replace(one, bytes=_size(one.folder))


def _named_in_records(root: Path) -> dict[str, str]:
    """The batches that a record of the project names, each with the first file that does."""
    places = {folder / RECORDS for folder in (*root.parents, current_project())}
    found: dict[str, str] = {}
    for place in sorted(places):
        for training in (place / "training").glob(
            "*/"
        ):  # its batches have its slug; those of tonight are in no journal
            numbers = batch_numbers(root, training.name)
            found |= {f"{training.name}/{number}": f"the training {training.name}" for number in numbers}
        for file in _files(place):
            if file.suffix in (".json", ".jsonl"):
                for key in _keys(file):
                    found.setdefault(key, f"{RECORDS}/{file.relative_to(place)}")
    return found


def _named_in_comparisons(root: Path) -> dict[str, str]:
    """The batches that a comparison of another batch names."""
    found: dict[str, str] = {}
    for file in sorted(root.glob("*/*/analytics/comparison.json")):
        own = file.parent.parent.relative_to(root).as_posix()
        for key in _keys(file) - {own}:
            found.setdefault(key, f"the comparison of {own}")
    return found


def _keys(file: Path) -> set[str]:
    """Everything in a file that reads as `slug/n`: rather too much than too little."""
    keys: set[str] = set()
    with file.open("rb") as stream:
        for line in stream:
            keys.update(match.decode() for match in _NAMED.findall(line))
    return keys


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _size(folder: Path) -> int:
    total = 0
    for file in _files(folder):
        try:
            total += file.lstat().st_size
        except OSError:
            continue
    return total


def _remove_tree(folder: Path) -> None:
    """Remove a folder; those in it that an agent has closed to us are opened first."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink() and path.lstat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
                path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder)
