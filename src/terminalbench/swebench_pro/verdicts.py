"""What an evaluation says of patches: three states, by instance and arm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import convert
from terminalbench.json_files import read_json, write_json
from terminalbench.locks import changing

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


def read(file: Path) -> dict[tuple[str, str], PatchVerdict]:
    """The verdicts in a file, by instance and arm; none when there is no file."""
    if not file.exists():
        return {}
    found: list[PatchVerdict] = convert(read_json(file, dict[str, Any])["verdicts"], list[PatchVerdict])
    return {(one.instance_id, one.arm): one for one in found}


def merge_evaluations(folders: Sequence[Path], output: Path) -> Path | None:
    """Merge the verdicts of the evaluations below some output folders into that of another; None without any."""
    place = Path("predictions") / "evaluation" / FILE
    found = [read(folder / place) for folder in folders if (folder / place).is_file()]
    if not found or output in folders:
        return None
    merge(output / place, [one for verdicts in found for one in verdicts.values()])
    return output / place


def merge(file: Path, verdicts: Iterable[PatchVerdict]) -> Mapping[tuple[str, str], PatchVerdict]:
    """Put verdicts into a file atomically, each in place of an earlier one of its pair; what stands there then.

    An `eval_error` does not take the place of a verdict on the same patch.
    """
    with changing(file):
        merged = read(file)
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
