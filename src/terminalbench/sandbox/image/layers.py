"""The layers that were built for tasks: what each of them is, when it was used last, and their removal."""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.json_files import decode_plain, write_json
from terminalbench.sandbox import cache, helper

_RECORD_BYTES = 1 << 20


class LayerNote(msgspec.Struct, frozen=True):
    """What a layer was built for: the image that it begins with, its last instruction, and when.

    `base` is what that image was taken from. `size` are its bytes; None where not all of its files can be seen.
    """

    image: str
    text: str
    built_at: str
    seconds: float
    base: str = ""
    size: int | None = None


@dataclass(frozen=True)
class BuiltLayer:
    """A layer of this machine."""

    folder: Path
    note: LayerNote
    used_at: float


def read_note(folder: Path) -> LayerNote | None:
    """Return what a layer was built for; None where there is no whole layer."""
    return decode_plain(folder / "meta.json", LayerNote, _RECORD_BYTES)


def built_layers() -> list[BuiltLayer]:
    """Return the layers of this machine, the one used last first."""
    found = []
    for lock in (cache.root() / "layers").glob("*/lock"):
        if (note := read_note(lock.parent)) is not None:
            found.append(BuiltLayer(lock.parent, note, lock.stat().st_mtime))
    return sorted(found, key=lambda one: one.used_at, reverse=True)


def prune_layers(bases: Collection[str] | None, unused_days: float, *, dry: bool) -> list[BuiltLayer]:
    """Remove layers that begin with one of `bases`, else those not used for so long; what a process uses stays."""
    before = time.time() - (unused_days * 86400 if bases is None else 0.0)
    wanted = [one for one in built_layers() if one.used_at < before and (bases is None or one.note.base in bases)]
    return [one for one in wanted if dry or cache.remove_unused(one.folder, before)]


def publish_layer(folder: Path, name: str, note: LayerNote) -> Path:
    """Make a layer of what was built in a claimed folder, in one step; return where it is."""
    extra = [*folder.glob("work*"), *folder.glob("mount*")]
    helper.helper().ask({"op": "remove", "paths": [str(path) for path in extra]})
    (folder / "lock").touch()
    write_json(folder / "meta.json", msgspec.structs.replace(note, size=size_of(folder)))
    target = cache.root() / "layers" / name
    target.parent.mkdir(exist_ok=True)
    if target.exists():  # a sandbox may still run on it: set aside, old enough for the collector
        aside = target.with_name(f"{name}.{folder.name}")
        target.rename(aside)
        os.utime(aside / "lock", (0, 0))
    return folder.rename(target)


def size_of(folder: Path) -> int | None:
    """Return the bytes that the files below a folder take on the disk."""
    total = 0
    try:
        for place, _folders, names in os.walk(folder, onerror=_raise):
            total += sum(os.lstat(f"{place}/{name}").st_blocks * 512 for name in names)
    except OSError:
        return None
    return total


def _raise(error: OSError) -> None:
    raise error
