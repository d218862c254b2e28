"""What was learned from the iterations of a night, as it is kept beside each of them."""

from collections.abc import Sequence

import msgspec

from terminalbench.archivist.entries import Trigger
from terminalbench.json_files import decode_plain
from terminalbench.overnight.folder import NightFolder

_LARGEST = 1 << 20


class Reflection(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`reflection.json`: what was learned from an iteration, written when it is done.

    `active` and `held` are lessons that came of it, or that it supports now: those in use, and those that are not.
    `counted` trials were shown lessons by chance, and `retired` are lessons that harm by what they say. `stopped` says
    why no lesson could be looked for.
    """

    iteration: int
    trigger: Trigger | None = None
    why: str = ""
    model: str | None = None
    active: list[str] = []
    held: list[str] = []
    refused: int = 0
    asked: bool = False
    cost_usd: float | None = None
    counted: int = 0
    retired: list[str] = []
    stopped: str | None = None


def read_reflection(folder: NightFolder, number: int) -> Reflection | None:
    """Return what was learned from an iteration; None while nothing was looked for."""
    return decode_plain(folder.reflection_json(number), Reflection, _LARGEST)


def read_reflections(folder: NightFolder, numbers: Sequence[int]) -> list[Reflection]:
    """Those of several iterations."""
    return [found for number in numbers if (found := read_reflection(folder, number)) is not None]


def all_reflections(folder: NightFolder) -> list[Reflection]:
    """Those of all iterations."""
    numbers = [int(file.parent.name) for file in folder.folder.glob("iterations/*/reflection.json")]
    return read_reflections(folder, sorted(numbers))
