"""Files of predictions, ours or a stranger's: one arm each. Their form is in `harbor.predictions`.

What a file has too much or too little of is told, never guessed.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.harbor.predictions import entries

SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True)
class Predictions:
    """The patches of one file, by instance, as they stand. `arm` is the file's name without its ending.

    `unknown` are ids without a task, `missing` tasks without a patch, `duplicates` ids that come twice (the last one
    counts), `empty` patches of nothing.
    """

    arm: str
    file: Path
    patches: dict[str, str]
    duplicates: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def empty(self) -> tuple[str, ...]:
        """The instances whose patch is empty."""
        return tuple(name for name, patch in self.patches.items() if not patch.strip())

    @property
    def content(self) -> bytes:
        """The patches as a file: a table from instance to patch."""
        return json.dumps(self.patches, indent=0, sort_keys=True).encode() + b"\n"

    @property
    def digest(self) -> str:
        """What names these patches: the same ones, the same digest."""
        return hashlib.sha256(self.content).hexdigest()


def find(folder: Path, arms: Sequence[str] = ()) -> list[Path]:
    """The predictions files of a folder, by name; only those of `arms` when they are named."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder), hint="tbench swebench-pro project writes predictions/")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and path.is_file()]
    stems = [path.stem for path in files]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise UserError(f"two files are called {twice}", where=str(folder), hint="an arm is the name of one file")
    if unknown := [arm for arm in arms if arm not in stems]:
        known = ", ".join(stems) or "none"
        raise UserError(f"no predictions of {', '.join(unknown)}", where=str(folder), hint=f"there are: {known}")
    if not files:
        raise UserError("holds no predictions", where=str(folder), hint="files *.json or *.jsonl, one for each arm")
    return [path for path in files if not arms or path.stem in arms]


def read(file: Path, known: Collection[str]) -> Predictions:
    """The predictions in a file for the instances that are `known`."""
    patches: dict[str, str] = {}
    twice: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name, patch in entries(file.read_bytes(), str(file)):
        if name not in known:
            unknown[name] = None
            continue
        if name in patches:
            twice[name] = None
        patches[name] = patch
    missing = tuple(name for name in known if name not in patches)
    return Predictions(file.stem, file, patches, tuple(twice), tuple(unknown), missing)
