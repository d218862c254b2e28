"""A long trajectory read once, in pieces: every step is decoded and seen, only those that are wanted are kept."""

import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from terminalbench.analytics.atif import (
    SIZE_LIMIT,
    SOURCES,
    Trajectory,
    TrajectoryStep,
    UnreadableTrajectory,
    parse_trajectory,
)
from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.files import open_plain

LONG = 4 << 20
"""Files above this many bytes are read in pieces."""
_PIECE = 1 << 20
_LONGEST_STEP = 32 << 20
_STEP = re.compile(rb'\{\s*"step_id"')  # never inside a text: quotes are escaped there
_HEAD = re.compile(rb'"steps"\s*:\s*\[\s*\Z')
type _Seen = Callable[[TrajectoryStep, str | None], None]
_steps = decoder(tuple[TrajectoryStep, ...])


class _NotInPieces(Exception):
    """The file is no plain list of steps that fit the schema: it is read as a whole, which names what is odd."""


@dataclass
class KeptSteps:
    """Which steps of a long trajectory are kept, as the bytes they are in the file.

    The first `first` and the last `last` that are its own, what its user said first, those with an id from `start` to
    `end`, and the very last.
    """

    first: int
    last: int
    start: int = 0
    end: int = -1
    own: int = 0
    _kept: dict[int, bytes] = field(default_factory=dict)
    _tail: "deque[tuple[int, bytes]]" = field(default_factory=deque)
    _seen: int = 0
    _told: bool = False

    def take(self, step: TrajectoryStep, raw: bytes) -> None:
        """One more step, and its bytes up to the next."""
        position = self._seen
        self._seen += 1
        says = not self._told and step.source == "user" and step.text.strip() != ""
        self._told |= says
        if says or (not step.copied and (self.own < self.first or self.start <= step.id <= self.end)):
            self._kept[position] = raw
        if not step.copied:
            self.own += 1
            self._tail.append((position, raw))
            if len(self._tail) > self.last:
                self._tail.popleft()

    def taken(self, last: TrajectoryStep, rest: bytes) -> list[bytes]:
        """The bytes of those that are kept, in order; the last step is, with the rest of the document."""
        self.own += not last.copied
        return [*(raw for _, raw in sorted((self._kept | dict(self._tail)).items())), rest]


def read_long(path: Path, kept: KeptSteps, conceal: Callable[[bytes], bytes], see: _Seen | None) -> Trajectory | None:
    """The trajectory at `path` with the steps that are `kept`, concealed; None where it must be read as a whole.

    `see` is given each step as it is read, and the agent that the document names before them. As a whole is read a file
    that is not long, or holds anything but steps of the schema.
    """
    with open_plain(path) as stream:
        if stream is None or not LONG < os.fstat(stream.fileno()).st_size <= SIZE_LIMIT:
            return None
        try:
            return _read(stream, kept, conceal, see)
        except (*NOT_DECODED, OSError, UnreadableTrajectory, _NotInPieces):
            return None


def _read(stream: BinaryIO, kept: KeptSteps, conceal: Callable[[bytes], bytes], see: _Seen | None) -> Trajectory:
    waiting, head, agent = b"", None, None
    while more := stream.read(_PIECE):
        waiting += more
        starts = [found.start() for found in _STEP.finditer(waiting)]
        if head is None:
            head = waiting[: starts[0]] if starts else b""
            agent = _agent(head)
        if len(starts) > 1:
            for at, step in enumerate(_whole(waiting, starts)):
                kept.take(step, waiting[starts[at] : starts[at + 1]])
                if see is not None:
                    see(step, agent)
            waiting = waiting[starts[-1] :]
        if len(waiting) > _LONGEST_STEP:
            raise _NotInPieces
    if head is None or b'"steps"' in waiting:
        raise _NotInPieces
    last = parse_trajectory(head + waiting)
    if len(last.steps) != 1 or last.problems or last.subagents or last.continued_in:
        raise _NotInPieces
    if last.agent != agent:
        raise _NotInPieces
    if see is not None:
        see(last.steps[0], agent)
    return parse_trajectory(conceal(head + b"".join(kept.taken(last.steps[0], waiting))))


def _agent(head: bytes) -> str | None:
    """The agent that a document names before its steps; `head` must end where its own list of them begins."""
    document = parse_trajectory(head + b"]}")
    if not _HEAD.search(head) or document.problems or document.subagents:
        raise _NotInPieces
    return document.agent


def _whole(waiting: bytes, starts: list[int]) -> tuple[TrajectoryStep, ...]:
    """The whole steps of a piece: from each of `starts` to the next."""
    steps = _steps.decode(b"[" + waiting[starts[0] : starts[-1]].rstrip().removesuffix(b",") + b"]")
    if len(steps) != len(starts) - 1 or any(step.source not in SOURCES for step in steps):
        raise _NotInPieces
    return steps
