"""What a judge reads of one trial: numbered steps fitted into a number of tokens, and the verifier's last words.

Text of an agent is made fit for a judge, and what the judge quotes is looked up in the step that it names.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from pathlib import Path

import msgspec

from terminalbench.analytics.atif import CallResult, Trajectory, TrajectoryStep, written
from terminalbench.analytics.findings.actions import Action, actions_of
from terminalbench.analytics.findings.trial_files import read_story
from terminalbench.analytics.judge.request import JudgeTrial
from terminalbench.files import tail_plain
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.numbers import plural

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# Our own tags, the control tokens of chat templates, and the lines that head our steps and cuts.
_TAGS = re.compile(
    r"<(?=\s*(?:/\s*)?data-)|<(?=\|)|<(?=/?(?:s|system|user|assistant|human|im_start|im_end)>)", re.IGNORECASE
)
_MARKS = re.compile(r"\[(?=\s*(?:step|steps|cut)\b|/?INST\]|\.\.\. )", re.IGNORECASE)
_KEPT = "\n\t"
_SAME = str.maketrans({"‹": "<", "⁅": "[", "“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": "-", "—": "-"})
_SHORTEST = 8
_GAP = re.compile(r"\[?(?:\.{3,}|…)\]?")
_APART = "\x00"
_VERIFIER_BYTES = 6000
_ENDS = 3
VERIFIER_STEP = 0


def clean(text: str, secrets: Secrets = NONE) -> str:
    """`text` as a judge may see it. The same text always gives the same result. Foreign text needs the `secrets`."""
    text = _ESCAPES.sub("", text)
    text = secrets.redact(text)
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_visible, text))
    return _MARKS.sub("⁅", _TAGS.sub("‹", text))


def normal(text: str) -> str:
    """`text` for comparison: white space, quotation marks and our replacements are all the same."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SAME).split())


def _visible(character: str) -> str:
    if character.isprintable() or character in _KEPT:
        return character
    if character == "\r":
        return ""
    return f"\\u{{{ord(character):x}}}"


def contains(text: str, quote: str) -> bool:
    """Return whether a normalised text holds `quote`. Some words are no evidence: a short quote must be a whole
    line."""
    wanted = normal(clean(quote)).strip("\"' ")
    if not wanted:
        return False
    if len(wanted) < _SHORTEST:
        return wanted in (part.strip("\"' ") for part in text.split(_APART))
    if wanted in text:
        return True
    pieces = [piece.strip("\"' ") for piece in _GAP.split(wanted)]
    pieces = [piece for piece in pieces if piece]
    return len(pieces) > 1 and all(len(p) >= _SHORTEST for p in pieces) and _in_order(text, pieces)


def _in_order(text: str, pieces: list[str]) -> bool:
    for part in text.split(_APART):
        at = 0
        for piece in pieces:
            at = part.find(piece, at)
            if at < 0:
                break
            at += len(piece)
        else:
            return True
    return False


class Level(IntEnum):
    """How much of a step is shown."""

    NONE = 0
    LINE = 1
    SHORT = 2
    WHOLE = 3


_ROOM = {Level.LINE: (100, 0), Level.SHORT: (700, 500), Level.WHOLE: (12_000, 8_000)}
"""Characters kept of each text: from its start and from its end."""


class Rank(IntEnum):
    """What is shown first when not all can be."""

    ENDS = 0
    FAILED = 1
    EDIT = 2
    TEST = 3
    OTHER = 4


@dataclass(frozen=True)
class RankedStep:
    """A step, which a judge cites by its id, and what must not be shown of it."""

    step: TrajectoryStep
    rank: Rank
    secrets: Secrets = NONE


@dataclass(frozen=True)
class Material:
    """All of one trial. Numbers are step ids as the findings have them."""

    trial: JudgeTrial
    steps: tuple[RankedStep, ...]
    verifier: str
    notes: tuple[str, ...]
    _texts: dict[int, str] = field(default_factory=dict)

    def holds(self, number: int, quote: str) -> bool:
        """Return whether `quote` stands in that step: whole, or as pieces in order around an ellipsis."""
        if number not in self._texts:
            self._texts[number] = _APART.join(normal(piece) for piece in self._pieces(number))
        return contains(self._texts[number], quote)

    def _pieces(self, number: int) -> Iterator[str]:
        """Yield what can be quoted from the step of that number, or steps where the file repeats its ids; 0: the
        verifier."""
        if number == VERIFIER_STEP:
            yield self.verifier
        for entry in self.steps:
            if entry.step.id == number:
                yield from (clean(text, entry.secrets) for text in _texts(entry.step))
                yield render(entry, Level.WHOLE, cut=False)

    @property
    def calls_mcp(self) -> bool:
        """Return whether any tool of an MCP server was called."""
        return any(call.name.startswith("mcp__") for entry in self.steps for call in entry.step.calls)


class NoMaterial(Exception):
    """There is nothing to judge; the message says why."""


def load_material(trial: JudgeTrial) -> Material:
    """Everything about one trial that a judge may see. Raises NoMaterial."""
    story = read_story(trial.files)
    if story.trajectory is None:
        raise NoMaterial(story.missing or "it cannot be read")
    secrets = trial.files.secrets
    steps = rank_steps(story.trajectory, trial.files.agent, secrets)
    if not steps:
        raise NoMaterial("its trajectory has no steps")
    return Material(trial, steps, clean(_verifier_tail(trial.files.folder), secrets), _left_out(story.trajectory))


def rank_steps(trajectory: Trajectory, agent: str | None = None, secrets: Secrets = NONE) -> tuple[RankedStep, ...]:
    """The steps of a trial with their ranks."""
    steps = list(trajectory.own_steps())
    ranks: dict[int, Rank] = {}
    for action in actions_of(replace(trajectory, subagents=()), agent):
        ranks[action.step] = min(ranks.get(action.step, Rank.OTHER), _rank(action))
    asked = [at for at, step in enumerate(steps) if step.source == "user"]
    acted = [at for at, step in enumerate(steps) if step.source == "agent"]
    ends = {*asked[:1], *acted[:2], *range(max(0, len(steps) - _ENDS), len(steps))}
    return tuple(
        RankedStep(step, Rank.ENDS if at in ends else ranks.get(step.id, Rank.OTHER), secrets)
        for at, step in enumerate(steps)
    )


def _texts(step: TrajectoryStep) -> Iterator[str]:
    """Every text of a step that can be quoted."""
    yield step.text
    yield step.reasoning
    for call in step.calls:
        yield call.name
        yield from (written(argument) for argument in call.arguments.values())
        yield msgspec.json.encode(call.arguments).decode()
    for result in step.results:
        yield result.text


def render(entry: RankedStep, level: Level, *, cut: bool = True) -> str:
    """One step as text; whatever is left out of it is marked."""
    if level is Level.NONE:
        return ""
    room = _ROOM[level] if cut else None
    step, secrets = entry.step, entry.secrets
    lines = [f"[step {step.id}] {clean(step.source, secrets)}"]
    said = [("says", step.text), ("thinks", step.reasoning)]
    lines += [f"{label}: {_fit(text, room, secrets)}" for label, text in said if text.strip()]
    for call in step.calls:
        given = [f"{clean(str(k), secrets)}: {_fit(written(v), room, secrets)}" for k, v in call.arguments.items()]
        lines.append(f"calls {clean(call.name, secrets) or '(no name)'}: {'; '.join(given)}")
    lines += [f"{_returned(result)}: {_fit(result.text, room, secrets)}" for result in step.results]
    if level is Level.LINE and room is not None:
        return " / ".join(" ".join(line.split()) for line in lines)
    return "\n".join(lines)


def _returned(result: CallResult) -> str:
    notes = [f"exit code {result.exit_code}"] if result.exit_code is not None else []
    notes += ["failed"] if result.failed else []
    notes += [f"with {kind}" for kind in result.media]
    return f"returns ({', '.join(notes)})" if notes else "returns"


def _fit(text: str, room: tuple[int, int] | None, secrets: Secrets) -> str:
    text = clean(text, secrets).strip()
    if room is None or len(text) <= sum(room) + 60:
        return text
    start, end = room
    return f"{text[:start]} [cut: {len(text) - start - end} characters] {text[-end:] if end else ''}".rstrip()


def _rank(action: Action) -> Rank:
    if action.failed:
        return Rank.FAILED
    if action.changes:
        return Rank.EDIT
    return Rank.TEST if action.did("test") else Rank.OTHER


def _left_out(trajectory: Trajectory) -> tuple[str, ...]:
    """Return what is missing of the trajectory, in our own words: none of the file's may stand outside the material."""
    notes = [f"not shown: a subagent's trajectory of {plural(len(sub.steps), 'step')}" for sub in trajectory.subagents]
    if trajectory.problems:
        notes.append(f"the trajectory file has oddities ({len(trajectory.problems)}); some of it may be missing")
    return tuple(notes)


def _verifier_tail(folder: Path) -> str:
    found = (tail_plain(file, _VERIFIER_BYTES) for file in sorted(folder.glob("**/verifier/test-stdout.txt")))
    return "\n".join(text.strip() for text in found if text is not None)[-_VERIFIER_BYTES:]


type Counter = Callable[[str], int]


def fit(steps: Sequence[RankedStep], budget: int, count: Counter) -> str:
    """The steps as text of at most `budget` tokens as `count` sees them. The same input gives the same text.

    The ends, failed calls, edits and test runs come first, each kind from the newest on, and get a short form; then
    every other step gets one line, then a short form; then all of them, in the same order, their whole text. A later
    pass begins only when the one before it is complete. Raises NoMaterial when not even the mark of a gap fits.
    """
    order = sorted(range(len(steps)), key=lambda at: (steps[at].rank, -at))
    levels = _levels(steps, order, budget, count)
    text = _joined(steps, levels)
    for at in reversed(order):  # Tokens need not add up over joined texts: what is over goes, the least telling first.
        if count(text) <= budget:
            return text
        levels[at] = Level.NONE
        text = _joined(steps, levels)
    if count(text) > budget:
        raise NoMaterial(f"{budget} tokens are too few to show anything of it")
    return text


def _levels(steps: Sequence[RankedStep], order: Sequence[int], budget: int, count: Counter) -> list[Level]:
    """Return how much of each step there is room for."""
    telling = [at for at in order if steps[at].rank < Rank.OTHER]
    rest = order[len(telling) :]
    longest = max((entry.step.id for entry in steps), default=0)
    mark = count(f"{_gap(longest, longest + 1)}\n\n")
    levels, costs, left = [Level.NONE] * len(steps), [0] * len(steps), budget - mark

    def give(group: Sequence[int], level: Level) -> bool:
        """Raise the steps of `group` to `level`, in order, until one does not fit. Whether all did."""
        nonlocal left
        for at in group:
            if levels[at] >= level:
                continue
            # A step that is shown parts a gap in two, so it may cost one more mark.
            wanted = count(f"{render(steps[at], level)}\n\n") + mark
            if wanted - costs[at] > left:
                return False
            left -= wanted - costs[at]
            costs[at], levels[at] = wanted, level
        return True

    complete = give(telling, Level.SHORT)
    complete = give(telling, Level.LINE) and complete
    complete = give(rest, Level.LINE) and complete
    for group, level in ((rest, Level.SHORT), (telling, Level.WHOLE), (rest, Level.WHOLE)):
        complete = complete and give(group, level)
    return levels


def _joined(steps: Sequence[RankedStep], levels: Sequence[Level]) -> str:
    parts: list[str] = []
    shown = groupby(zip(steps, levels, strict=True), key=lambda pair: pair[1] is not Level.NONE)
    for is_shown, group in shown:
        entries = list(group)
        cut = _gap(entries[0][0].step.id, entries[-1][0].step.id)
        parts += [render(entry, level) for entry, level in entries] if is_shown else [cut]
    return "\n\n".join(parts)


def _gap(first: int, last: int) -> str:
    return f"[cut: step {first}]" if first == last else f"[cut: steps {first} to {last}]"
