"""Files of predictions, ours or a stranger's: one arm each. Their form is in `harbor.predictions`.

What a file has too much or too little of is told, never guessed. Ours also go out in the layout of the official runs:

<folder>/<arm>/
  eval_results.json                   {instance id: resolved}; a run without a verdict is not in it
  patches.json                        what the official evaluator takes
  <instance id>/<instance id>.pred    {"model_name_or_path", "instance_id", "model_patch"}
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.harbor.predictions import entries
from terminalbench.json_files import encode_json
from terminalbench.swebench_pro.rows import RESULTS, ResultRow, RunVerdict, file_name, read_results

SUFFIXES = (".json", ".jsonl")
PREFIX = "terminalbench"


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

    def only(self, ids: Collection[str]) -> "Predictions":
        """Return the same of some instances."""
        patches = {name: patch for name, patch in self.patches.items() if name in ids}
        duplicates, missing = (tuple(name for name in of if name in ids) for of in (self.duplicates, self.missing))
        return replace(self, patches=patches, duplicates=duplicates, missing=missing)

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
        """Return what names these patches: the same ones, the same digest."""
        return hashlib.sha256(self.content).hexdigest()


def find(folder: Path, arms: Sequence[str] = ()) -> list[Path]:
    """The predictions files of a folder, by name; only those of `arms` when they are named."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder), hint="tbench swebench-pro project writes predictions/")
    files = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES and path.is_file()]
    stems = [path.stem for path in files]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise UserError(f"two files are called {twice}", where=str(folder), hint="each arm has one file with its name")
    if unknown := [arm for arm in arms if arm not in stems]:
        known = ", ".join(stems) or "none"
        raise UserError(
            f"no predictions of {', '.join(unknown)}", where=str(folder), hint=f"arms with predictions: {known}"
        )
    if not files:
        raise UserError(
            "contains no predictions", where=str(folder), hint="it needs a file *.json or *.jsonl for each arm"
        )
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
    missing = tuple(name for name in sorted(known) if name not in patches)
    return Predictions(file.stem, file, patches, tuple(twice), tuple(unknown), missing)


def prediction(row: ResultRow) -> dict[str, str]:
    """Return the patch of a run as the official evaluator takes it."""
    return {"instance_id": row.instance_id, "patch": row.patch_content, "prefix": f"{PREFIX}-{row.arm}"}


@dataclass(frozen=True)
class SubmissionArm:
    """What was written of an arm: its runs, and how many of them have a verdict."""

    folder: Path
    runs: int
    verdicts: int


def write_submission(output: Path, folder: Path) -> Iterable[SubmissionArm]:
    """Write the first attempts of each arm; one that sees the hidden verdict is none to submit, and left out."""
    arms: dict[str, list[ResultRow]] = {}
    for row in read_results(output / RESULTS).rows:
        if row.attempt == 1 and not row.oracle and row.standing not in (RunVerdict.NOT_RUN, RunVerdict.ERROR):
            arms.setdefault(row.arm, []).append(row)
    for runs in arms.values():
        if large := next((output / row.patch_file for row in runs if row.patch_file), None):
            patches = dict(entries(large.read_bytes(), str(large)))
            runs[:] = [msgspec.structs.replace(row, patch_content=patches[row.instance_id]) for row in runs]
    for arm, runs in arms.items():
        place = folder / file_name(arm)
        verdicts = {row.instance_id: row.resolved for row in runs if row.resolved is not None}
        write_bytes(place / "eval_results.json", encode_json(verdicts))
        write_bytes(place / "patches.json", encode_json([prediction(row) for row in runs]))
        for row in runs:
            name = file_name(row.instance_id)
            said = {
                "model_name_or_path": row.model or arm,
                "instance_id": row.instance_id,
                "model_patch": row.patch_content,
            }
            write_bytes(place / name / f"{name}.pred", encode_json(said))
        yield SubmissionArm(place, len(runs), len(verdicts))
