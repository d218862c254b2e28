"""Trajectories that are long, read in pieces or left in their file, and those of agents that still run."""

import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, overload, override
from weakref import finalize

import msgspec

from terminalbench.analytics.atif import (
    SIZE_LIMIT,
    SOURCES,
    StepHead,
    Trajectory,
    TrajectoryCall,
    TrajectoryStep,
    UnreadableTrajectory,
    parse_trajectory,
)
from terminalbench.decode import NOT_DECODED, convert, decode, decoder
from terminalbench.files import read_plain
from terminalbench.harbor.agents.command_output import read_output
from terminalbench.harbor.read.agent_logs import TRAJECTORY
from terminalbench.harbor.read.notes import read_planned
from terminalbench.harbor.read.result_file import TrialConfig
from terminalbench.harbor.read.usage import cost_of
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import Usage
from terminalbench.records.values import known_total
from terminalbench.secrets.values import Secrets
from terminalbench.text import numbers
from terminalbench.text.numbers import UNKNOWN, plural

LONG = 4 << 20
"""Files above this many bytes are read in pieces."""
_PIECE = 1 << 20
_LONGEST_STEP = 32 << 20
_TOGETHER, _FEW = 50, 20
"""Steps of a long file that are decoded at once: those of a page; and how few of them each by itself."""
_STEP = re.compile(rb'\{\s*"step_id"')  # never inside a text: quotes are escaped there
_HEAD = re.compile(rb'"steps"\s*:\s*\[\s*\Z')
_PLAIN = re.compile(r"[0-9a-z_ .()=+*<>!#$%&;@^|~?'-]+")
"""What is written in a file as it is shown."""
_NO_NUMBER = re.compile(r"[a-df-z_]")
_LABELS = ("tool", "without", "name", "thinking", "exit", "code", "ok", "not", "shown", "subagent", "input", "null",
           "redacted")  # fmt: skip
"""Words of what a page says of a step that need not stand in it."""
_ESCAPED = re.compile(rb"\\u(?:00(?:0[89acd]|[2-7])|212a|0130)")
_FOLDED = (b"\xe2\x84\xaa", b"\xc4\xb0")
"""The letters outside ASCII that are in it once they are small."""
_heads = decoder(tuple[StepHead, ...])


class StepCalls(StepHead, frozen=True, gc=False):
    """What a pass over a long file reads of a step where calls matter: its head, its calls, and what was said."""

    said: msgspec.Raw = msgspec.field(name="message", default=msgspec.Raw(b"null"))
    calls: tuple[TrajectoryCall, ...] = msgspec.field(name="tool_calls", default=())

    def head(self) -> StepHead:
        """Return its head alone."""
        return StepHead(self.id, self.source, self.time, self.model, self.tokens, self.copied)

    def as_step(self) -> TrajectoryStep:
        """Return what is known of the step, without what came back."""
        return TrajectoryStep(self.id, self.source, message=decode(self.said), calls=self.calls)


_steps = decoder(tuple[TrajectoryStep, ...])
_calls = decoder(tuple[StepCalls, ...])
type _Look = Callable[[int, StepCalls, str | None], None]


class _NotInPieces(Exception):
    """The file is no plain list of steps that fit the schema: it is read as a whole, which names what is odd."""


@dataclass(frozen=True)
class _Piece:
    """Whole steps of a document: where in `data` each begins, and where `data` lies in the file.

    The last one of `starts` is that of the next piece; the last piece has one: that of the last step, and the rest.
    """

    head: bytes
    agent: str | None
    at: int
    data: bytes
    starts: list[int]

    def steps[S: StepHead](self, decode: Callable[[bytes], tuple[S, ...]]) -> tuple[S, ...]:
        """They, decoded."""
        text = self.data[self.starts[0] : self.starts[-1]].rstrip().removesuffix(b",")
        steps = decode(b"[" + text + b"]")
        if len(steps) != len(self.starts) - 1 or any(step.source not in SOURCES for step in steps):
            raise _NotInPieces
        return steps

    def last(self) -> TrajectoryStep:
        """The last step of the document, which must hold no more than its steps."""
        document = parse_trajectory(self.head + self.data)
        if len(document.steps) != 1 or document.problems or document.subagents or document.continued_in:
            raise _NotInPieces
        if document.agent != self.agent:
            raise _NotInPieces
        return document.steps[0]


def _pieces(stream: BinaryIO) -> Iterator[_Piece]:
    waiting, head, agent, at = b"", None, None, 0
    while more := stream.read(_PIECE):
        waiting += more
        starts = [found.start() for found in _STEP.finditer(waiting)]
        if head is None:
            head = waiting[: starts[0]] if starts else b""
            agent = _agent(head)
        if len(starts) > 1:
            yield _Piece(head, agent, at, waiting, starts)
            at, waiting = at + starts[-1], waiting[starts[-1] :]
        if len(waiting) > _LONGEST_STEP:
            raise _NotInPieces
    if head is None or b'"steps"' in waiting:
        raise _NotInPieces
    yield _Piece(head, agent, at, waiting, [0])


def _agent(head: bytes) -> str | None:
    """The agent that a document names before its steps; `head` must end where its own list of them begins."""
    document = parse_trajectory(head + b"]}")
    if not _HEAD.search(head) or document.problems or document.subagents:
        raise _NotInPieces
    return document.agent


class LongSteps(Sequence[TrajectoryStep]):
    """The steps of a long file: where each begins is known, and so is its head; what it holds is read when asked for.

    `problems` are those of the steps that were asked for. `look` is given each step with its calls as it is passed, its
    number, and the agent that the document names.
    """

    def __init__(self, stream: BinaryIO, conceal: Callable[[bytes], bytes], look: _Look | None = None) -> None:
        self.problems: list[str] = []
        self.heads: list[StepHead] = []
        self._handle, self._conceal = os.dup(stream.fileno()), conceal
        finalize(self, os.close, self._handle)
        self._head, self._starts = b"", array("q")
        self._kept: tuple[int, Sequence[TrajectoryStep]] = (-1, ())
        for piece in _pieces(stream):
            self._head = piece.head
            *starts, end = [piece.at + start for start in piece.starts]
            if starts:
                self._pass(piece, look)
                self._starts.extend(starts)
            else:
                last = piece.last()
                if look is not None:
                    said = msgspec.Raw(msgspec.json.encode(last.message))
                    look(
                        len(self.heads),
                        StepCalls(last.id, last.source, copied=last.copied, said=said, calls=last.calls),
                        piece.agent,
                    )
                self.heads.append(last)
                self._starts.extend((end, end + len(piece.data)))

    def _pass(self, piece: _Piece, look: _Look | None) -> None:
        if look is None:
            self.heads += piece.steps(_heads.decode)
            return
        for step in piece.steps(_calls.decode):
            look(len(self.heads), step, piece.agent)
            self.heads.append(step.head())

    @override
    def __len__(self) -> int:
        return len(self.heads)

    @overload
    def __getitem__(self, at: int) -> TrajectoryStep: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[TrajectoryStep, ...]: ...
    @override
    def __getitem__(self, at: int | slice) -> TrajectoryStep | tuple[TrajectoryStep, ...]:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        block, place = divmod(range(len(self))[at], _TOGETHER)
        kept = self._kept
        if kept[0] != block:
            first = block * _TOGETHER
            self._kept = kept = (block, self._decoded(first, min(first + _TOGETHER, len(self))).steps)
        return kept[1][place]

    def alone(self, at: int) -> TrajectoryStep:
        """The step of that number, not concealed: for rules, which look at steps that lie apart."""
        if at + 1 == len(self):
            return self[at]
        text = self._text(at, at + 1).rstrip().removesuffix(b",")
        try:
            return _steps.decode(b"[" + text + b"]")[0]
        except NOT_DECODED:
            return parse_trajectory(self._head + text + b"]}", at + 1).steps[0]

    def document(self) -> Trajectory:
        """The document with its last steps."""
        return self._decoded((len(self) - 1) // _TOGETHER * _TOGETHER, len(self), self._head)

    def holding(self, text: str, places: Sequence[int]) -> Iterator[tuple[int, TrajectoryStep]]:
        """Those of the steps at `places` (in order) that may show a text in small letters, each with its place.

        A part of the text is looked for in the bytes of a step first: one that does not hold it is not decoded.
        """
        part = _telling_part(text)
        for _, near in groupby(places, lambda place: place // _TOGETHER):
            block = list(near)
            data, start = self._text(block[0], block[-1] + 1).lower(), self._starts[block[0]]
            if not _may_hold(data, part):
                continue
            block = [
                at for at in block if _may_hold(data[self._starts[at] - start : self._starts[at + 1] - start], part)
            ]
            if len(block) < _FEW:
                yield from ((at, self._decoded(at, at + 1).steps[0]) for at in block)
            else:
                steps = self._decoded(block[0], block[-1] + 1).steps
                yield from ((at, steps[at - block[0]]) for at in block)

    def _text(self, first: int, end: int) -> bytes:
        """Those of the steps from `first` to before `end`, as they are in the file."""
        size = self._starts[end] - self._starts[first]
        data = os.pread(self._handle, size, self._starts[first])
        if len(data) != size:
            raise UnreadableTrajectory("it changed while it was read")
        return data

    def _decoded(self, first: int, end: int, head: bytes = b'{"steps": [') -> Trajectory:
        """A document with those steps, concealed."""
        text = self._text(first, end)
        if end < len(self):
            text = text.rstrip().removesuffix(b",") + b"]}"
        found = parse_trajectory(self._conceal(head + text), first + 1)
        if len(found.steps) != end - first:
            raise UnreadableTrajectory("it changed while it was read")
        self.problems += [problem for problem in found.problems if problem not in self.problems]
        return found


def _may_hold(data: bytes, part: bytes) -> bool:
    """Return whether data in small letters holds a part of a text, or may once it is decoded."""
    if part in data or (b"\\u" in data and _ESCAPED.search(data)):
        return True
    return not data.isascii() and any(letter in data for letter in _FOLDED)


def _telling_part(text: str) -> bytes:
    """The longest part of a text in small letters that stands in the bytes of each step that shows the text; empty
    where none must. A number does not: it may have been written in another way."""
    runs = [run.strip() for run in _PLAIN.findall(text)]
    parts = [part for run in runs for part in (run, *run.split()) if _NO_NUMBER.search(part)]
    fit = [part for part in parts if not any(word in label for word in part.split() for label in _LABELS)]
    return max(fit, key=len, default="").encode()


def open_long(stream: BinaryIO, conceal: Callable[[bytes], bytes], look: _Look | None = None) -> Trajectory | None:
    """The trajectory in an open file, its steps left there; None where it must be read as a whole.

    As a whole is read a file that is not long, or holds anything but steps of the schema.
    """
    if not LONG < os.fstat(stream.fileno()).st_size <= SIZE_LIMIT:
        return None
    try:
        steps = LongSteps(stream, conceal, look)
    except (*NOT_DECODED, OSError, UnreadableTrajectory, _NotInPieces):
        return None
    return replace(steps.document(), steps=steps, problems=steps.problems)


PRINTED = {"claude-code.txt": "claude-stream-json", "codex.txt": "codex-json", "stdout.txt": "auto"}
"""What clients print, by the name of the log that it is kept in, and its format."""
LIVE_FILES = tuple(f"agent/{name}" for name in (TRAJECTORY, *PRINTED))
"""What tells the steps of a trial while it runs; the first that can be read is shown."""
_LIVE_LIMIT = 64 << 20
_CONFIG_LIMIT = 4 << 20


@dataclass(frozen=True)
class SpentSoFar:
    """Steps, tokens and cost of an agent that runs; None is unknown.

    `at_least`: of some steps the cost is that of the tokens they are known to have used, and there were more.
    """

    steps: int
    tokens: int | None
    cost_usd: float | None
    at_least: bool = False

    def cost(self, *, no_model: bool = False) -> str:
        """Its cost in words."""
        return numbers.cost(self.cost_usd, no_model=no_model and self.cost_usd is None, at_least=self.at_least)

    def words(self, *, no_model: bool = False) -> str:
        """All of it in a line: `3 steps, 2,500 tokens, at least $0.012`."""
        cost = f"cost {UNKNOWN}" if self.cost_usd is None and not no_model else self.cost(no_model=no_model)
        counted = [] if self.tokens is None else [f"{numbers.tokens(self.tokens)} tokens"]
        return ", ".join([plural(self.steps, "step"), *counted, cost])


def log_trajectory(name: str, data: bytes) -> Trajectory:
    """The trajectory in a file of `LIVE_FILES`. Raises UnreadableTrajectory, also where it has no steps yet."""
    if name not in PRINTED:
        return parse_trajectory(data)
    wanted = PRINTED[name]
    found = read_output(data, wanted)
    if found.document is not None:
        return parse_trajectory(msgspec.json.encode(found.document))
    try:
        steps = [convert({**step, "step_id": at}, TrajectoryStep) for at, step in enumerate(found.steps, start=1)]
    except NOT_DECODED as error:
        raise UnreadableTrajectory(f"it cannot be read: {error}") from None
    if not steps or wanted not in ("auto", found.format):
        raise UnreadableTrajectory("it has no steps yet")
    return Trajectory(None, None, tuple(steps), (), None, None, untold=found.format in ("text", "lines"))


def running_trajectory(trial_dir: Path, secrets: Secrets) -> tuple[Path, Trajectory] | None:
    """The steps of a trial that runs, concealed, and the file that tells them; None: nothing tells yet."""
    for name in LIVE_FILES:
        data = read_plain(trial_dir / name, _LIVE_LIMIT)
        if data is None:
            continue
        try:
            return trial_dir / name, log_trajectory(Path(name).name, secrets.conceal_bytes(data))
        except UnreadableTrajectory:
            continue
    return None


def spent_so_far(trajectory: Trajectory, trial_dir: Path) -> SpentSoFar:
    """Return what the steps of a running trial have used, at the prices that its profile declares or at the recorded
    ones."""
    config = decode_plain(trial_dir / "config.json", TrialConfig, _CONFIG_LIMIT)
    declared = read_planned(trial_dir).price
    steps = [step for step in trajectory.heads if not step.copied and step.source == "agent"]
    costs: list[float | None] = []
    partly = False
    for step in steps:
        told, model = step.tokens, step.model or (config.agent.model_name if config else None)
        if told.cost_usd is not None or told.prompt is None:
            costs.append(told.cost_usd)
            partly |= told.cost_usd is None
            continue
        cached = min(told.cached or 0, told.prompt)
        used = Usage(told.prompt - cached, cached, None, told.completion)
        partly |= told.completion is None
        costs.append(
            cost_of(
                model, used if told.completion is not None else msgspec.structs.replace(used, output_tokens=0), declared
            )
        )
    tokens = known_total(count for step in steps for count in (step.tokens.prompt, step.tokens.completion))
    cost = known_total(costs)
    return SpentSoFar(len(steps), tokens, cost, cost is not None and (partly or None in costs))
