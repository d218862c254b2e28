"""Two trajectories beside each other: which steps correspond, and where they first part. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from terminalbench.analytics.atif import Step
from terminalbench.dashboard.pages.steps import arguments_text

COMPARED_STEPS = 2000
_NOISE = re.compile(r"0x[0-9a-f]+|\d+|\s+")


@dataclass(frozen=True)
class Beside:
    """A line of the page: a step of each (positions from 0), or of one alone. `same`: both did the same."""

    left: int | None
    right: int | None
    same: bool


def signature(step: Step) -> tuple[str, ...]:
    """What a step does, without what differs by chance: numbers and spaces."""
    if step.calls:
        return tuple(f"{call.name}:{_NOISE.sub(' ', arguments_text(call)[:2000])}" for call in step.calls)
    return (step.source, _NOISE.sub(" ", step.text[:2000]) if step.source != "agent" else "")


def align(left: Sequence[Step], right: Sequence[Step]) -> list[Beside]:
    """Every step of both, in order; those that correspond on one line."""
    keys = [[signature(step) for step in side[:COMPARED_STEPS]] for side in (left, right)]
    lines: list[Beside] = []
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [Beside(a1 + n, b1 + n, True) for n in range(a2 - a1)]
        else:
            lines += _uneven(range(a1, a2), range(b1, b2))
    lines += _uneven(range(len(keys[0]), len(left)), range(len(keys[1]), len(right)))
    return lines


def _uneven(left: range, right: range) -> Iterator[Beside]:
    for position in range(max(len(left), len(right))):
        yield Beside(
            left[position] if position < len(left) else None, right[position] if position < len(right) else None, False
        )


def first_difference(lines: Sequence[Beside]) -> int | None:
    """The first line on which they part, None when they never do."""
    return next((position for position, line in enumerate(lines) if not line.same), None)
