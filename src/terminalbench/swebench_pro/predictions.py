"""Files of predictions, ours or a stranger's, one arm each, and what an evaluation says of their patches.

The form of predictions is in `harbor.predictions`.

What a file has too much or too little of is told, never guessed. Ours also go out in the layout of the official runs:

<folder>/<arm>/
  eval_results.json                   {instance id: resolved}; a run without a verdict is not in it
  patches.json                        what the official evaluator takes
  <instance id>/<instance id>.pred    {"model_name_or_path", "instance_id", "model_patch"}
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import convert
from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.harbor.predictions import entries
from terminalbench.json_files import encode_json, read_json, write_json
from terminalbench.locks import changing
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


FILE = "resolved.json"
LOCAL, OFFICIAL = "local", "official"


class VerdictState(StrEnum):
    """What became of a patch. An `eval_error` is no verdict: nothing is known of the patch."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    EVAL_ERROR = "eval_error"


class PatchVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one (instance, arm) pair. `patch_applied` is None where it is not known, or the patch is empty.

    `patch` is the SHA-256 of the patch that was judged. `reason` is what kept it from being judged; of an unresolved
    one, that its tests hung on it, or (official) what shows that they told nothing. `suspect` are signs that the patch
    reaches for its own tests.
    """

    instance_id: str
    arm: str
    state: VerdictState
    patch: str
    patch_applied: bool | None = None
    empty: bool = False
    reason: str | None = None
    mode: str = LOCAL
    suspect: tuple[str, ...] = ()

    @property
    def resolved(self) -> bool | None:
        """Return whether it is resolved; None when that is not known."""
        return None if self.state is VerdictState.EVAL_ERROR else self.state is VerdictState.RESOLVED


@dataclass(frozen=True)
class VerdictCounts:
    """The states of an arm, counted. `not_applied` is None where the evaluator does not tell."""

    resolved: int
    unresolved: int
    not_applied: int | None
    empty: int
    eval_error: int
    suspect: int = 0


def count(verdicts: Iterable[PatchVerdict]) -> VerdictCounts:
    """Count states."""
    found = list(verdicts)

    def of(state: VerdictState) -> int:
        return sum(one.state is state for one in found)

    return VerdictCounts(
        resolved=of(VerdictState.RESOLVED),
        unresolved=of(VerdictState.UNRESOLVED),
        not_applied=None
        if any(one.mode == OFFICIAL for one in found)
        else sum(o.patch_applied is False for o in found),
        empty=sum(one.empty for one in found),
        eval_error=of(VerdictState.EVAL_ERROR),
        suspect=sum(bool(one.suspect) for one in found),
    )


def read_verdicts(file: Path) -> dict[tuple[str, str], PatchVerdict]:
    """The verdicts in a file, by instance and arm; none when there is no file."""
    if not file.exists():
        return {}
    found: list[PatchVerdict] = convert(read_json(file, dict[str, Any])["verdicts"], list[PatchVerdict])
    return {(one.instance_id, one.arm): one for one in found}


def merge_evaluations(folders: Sequence[Path], output: Path) -> Path | None:
    """Merge the verdicts of the evaluations below some output folders into that of another; None without any."""
    place = Path("predictions") / "evaluation" / FILE
    found = [read_verdicts(folder / place) for folder in folders if (folder / place).is_file()]
    if not found or output in folders:
        return None
    merge(output / place, [one for verdicts in found for one in verdicts.values()])
    return output / place


def merge(file: Path, verdicts: Iterable[PatchVerdict]) -> Mapping[tuple[str, str], PatchVerdict]:
    """Put verdicts into a file atomically, each in place of an earlier one of its pair; what stands there then.

    An `eval_error` does not take the place of a verdict on the same patch.
    """
    with changing(file):
        merged = read_verdicts(file)
        for one in verdicts:
            earlier = merged.get((one.instance_id, one.arm))
            known = earlier is not None and earlier.patch == one.patch and earlier.state is not VerdictState.EVAL_ERROR
            if not (known and one.state is VerdictState.EVAL_ERROR):
                merged[one.instance_id, one.arm] = one
        ordered = [merged[pair] for pair in sorted(merged, key=lambda pair: (pair[1], pair[0]))]
        arms: dict[str, dict[str, bool | None]] = {}
        for one in ordered:
            arms.setdefault(one.arm, {})[one.instance_id] = one.resolved
        write_json(file, {"resolved": arms, "verdicts": ordered})
    return merged
