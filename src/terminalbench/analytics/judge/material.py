"""What a judge reads of one trial: its numbered steps at three levels of detail, and the verifier's last words."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.actions import Action, actions_of
from terminalbench.analytics.atif import Result, Step, Trajectory
from terminalbench.analytics.judge.clean import clean
from terminalbench.analytics.judge.request import JudgeTrial
from terminalbench.analytics.trial_files import read_story
from terminalbench.files import open_plain

_VERIFIER_BYTES = 6000
_VERIFIER_FILE = "test-stdout.txt"
_ENDS = 3


class Level(IntEnum):
    """How much of a step is shown."""

    NONE = 0
    LINE = 1
    SHORT = 2
    WHOLE = 3


@dataclass(frozen=True)
class _Room:
    """Characters kept of each text: from its start and from its end."""

    start: int
    end: int


_ROOM = {
    Level.LINE: _Room(100, 0),
    Level.SHORT: _Room(700, 500),
    Level.WHOLE: _Room(12_000, 8_000),
}


class Rank(IntEnum):
    """What is shown first when not all can be."""

    ENDS = 0
    FAILED = 1
    EDIT = 2
    TEST = 3
    OTHER = 4


@dataclass(frozen=True)
class Numbered:
    """A step under the number by which a judge cites it."""

    number: int
    step: Step
    rank: Rank


@dataclass(frozen=True)
class Material:
    """All of one trial. Numbers are step ids as the findings have them."""

    trial: JudgeTrial
    steps: tuple[Numbered, ...]
    verifier: str
    notes: tuple[str, ...]

    def steps_numbered(self, number: int) -> Iterator[Step]:
        """The steps under that number: one, or more when the file repeats its ids."""
        return (entry.step for entry in self.steps if entry.number == number)

    def shown(self, step: Step) -> str:
        """A step as a judge would see it in full, nothing cut."""
        return render(Numbered(step.id, step, Rank.OTHER), Level.WHOLE, cut=False)

    @property
    def calls_mcp(self) -> bool:
        """Whether any tool of an MCP server was called."""
        return any(call.name.startswith("mcp__") for entry in self.steps for call in entry.step.calls)


class NoMaterial(Exception):
    """There is nothing to judge; the message says why."""


def load_material(trial: JudgeTrial) -> Material:
    """Everything about one trial that a judge may see. Raises NoMaterial."""
    story = read_story(trial.files)
    if story.trajectory is None:
        raise NoMaterial(story.missing or "it cannot be read")
    steps = number_steps(story.trajectory, trial.files.agent)
    if not steps:
        raise NoMaterial("its trajectory has no steps")
    return Material(trial, steps, clean(_verifier_tail(trial.files.folder)), _left_out(story.trajectory))


def number_steps(trajectory: Trajectory, agent: str | None = None) -> tuple[Numbered, ...]:
    """The steps of a trial with their ranks, under the numbers a judge cites."""
    steps = list(trajectory.own_steps())
    ranks: dict[int, Rank] = {}
    for action in actions_of(replace(trajectory, subagents=()), agent):
        ranks[action.step] = min(ranks.get(action.step, Rank.OTHER), _rank(action))
    asked = [at for at, step in enumerate(steps) if step.source == "user"]
    acted = [at for at, step in enumerate(steps) if step.source == "agent"]
    ends = {*asked[:1], *acted[:2], *range(max(0, len(steps) - _ENDS), len(steps))}
    return tuple(
        Numbered(step.id, step, Rank.ENDS if at in ends else ranks.get(step.id, Rank.OTHER))
        for at, step in enumerate(steps)
    )


def texts_of(step: Step) -> Iterator[str]:
    """Every text of a step that can be quoted."""
    yield step.text
    yield step.reasoning
    for call in step.calls:
        yield call.name
        yield from (_value(argument) for argument in call.arguments.values())
        yield msgspec.json.encode(call.arguments).decode()
    for result in step.results:
        yield result.text


def render(entry: Numbered, level: Level, *, cut: bool = True) -> str:
    """One step as text; whatever is left out of it is marked."""
    if level is Level.NONE:
        return ""
    room = _ROOM[level] if cut else None
    step = entry.step
    lines = [f"[step {entry.number}] {clean(step.source)}"]
    said = [("says", step.text), ("thinks", step.reasoning)]
    lines += [f"{label}: {_fit(text, room)}" for label, text in said if text.strip()]
    for call in step.calls:
        arguments = "; ".join(f"{clean(str(k))}: {_fit(_value(v), room)}" for k, v in call.arguments.items())
        lines.append(f"calls {clean(call.name) or '(no name)'}: {arguments}")
    lines += [f"{_returned(result)}: {_fit(result.text, room)}" for result in step.results]
    if level is Level.LINE and room is not None:
        return " / ".join(" ".join(line.split()) for line in lines)
    return "\n".join(lines)


def _returned(result: Result) -> str:
    notes = [f"exit code {result.exit_code}"] if result.exit_code is not None else []
    notes += ["failed"] if result.failed else []
    notes += [f"with {kind}" for kind in result.media]
    return f"returns ({', '.join(notes)})" if notes else "returns"


def _fit(text: str, room: _Room | None) -> str:
    text = clean(text).strip()
    if room is None or len(text) <= room.start + room.end + 60:
        return text
    gap = len(text) - room.start - room.end
    end = text[-room.end :] if room.end else ""
    return f"{text[: room.start]} [cut: {gap} characters] {end}".rstrip()


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _rank(action: Action) -> Rank:
    if action.failed:
        return Rank.FAILED
    if action.changes:
        return Rank.EDIT
    return Rank.TEST if action.did("test") else Rank.OTHER


def _left_out(trajectory: Trajectory) -> tuple[str, ...]:
    """What is missing of the trajectory, in our own words: none of the file's may stand outside the material."""
    notes = [f"not shown: a subagent's trajectory of {len(sub.steps)} steps" for sub in trajectory.subagents]
    if trajectory.problems:
        notes.append(f"the trajectory file has oddities ({len(trajectory.problems)}); some of it may be missing")
    return tuple(notes)


def _verifier_tail(folder: Path) -> str:
    texts = []
    for file in sorted(folder.glob(f"**/verifier/{_VERIFIER_FILE}")):
        with open_plain(file) as stream:
            if stream is None:
                continue
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _VERIFIER_BYTES))
            texts.append(stream.read(_VERIFIER_BYTES).decode(errors="replace").strip())
    return "\n".join(texts)[-_VERIFIER_BYTES:]
