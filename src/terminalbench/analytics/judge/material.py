"""What a judge reads of one trial: its numbered steps at three levels of detail, and the verifier's last words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec

from terminalbench.analytics.atif import Result, Step, Trajectory, UnreadableTrajectory, read_trajectory
from terminalbench.analytics.judge.clean import clean
from terminalbench.analytics.judge.request import JudgeTrial
from terminalbench.harbor.agent_files import open_plain

_VERIFIER_BYTES = 6000
_VERIFIER_FILE = "test-stdout.txt"
_EDIT_TOOL = re.compile(
    r"(?i)^(multi_?edit|edit|write|create|notebook_?edit|apply_?patch|str_replace\w*|write_file|edit_file|patch)$"
)
_EDIT_COMMAND = re.compile(
    r"(?:^|[;&|]\s*)(?:sed\s+(?:-\w+\s+)*-i|patch\b|git\s+apply|tee\b|ed\b|mv\b|cp\b|rm\b)|apply_patch|>{1,2}\s*[^&\s|>]|<<-?\s*['\"]?\w"
)
_TEST_COMMAND = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|gotestsum)\b|\b(?:npm|yarn|pnpm|cargo|go|make|mvn|gradle|dotnet|bazel|mix)\s+(?:run\s+)?(?:test|check|verify)\b|(?:^|[\s/])(?:run_)?tests?(?:\.sh|\.py)\b"
)
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
    """All of one trial. Numbers are the trajectory's own step ids; those of further trajectories go on from there."""

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
    if not trial.trajectories:
        raise NoMaterial("the trial has no trajectory")
    parts: list[Trajectory] = []
    notes: list[str] = []
    for path in trial.trajectories:
        try:
            parts.append(read_trajectory(path))
        except UnreadableTrajectory as error:
            notes.append(f"a trajectory {error}")
    steps = number_steps(*parts)
    if not steps:
        raise NoMaterial(notes[0] if notes else "its trajectory has no steps")
    notes += [note for part in parts for note in _left_out(part)]
    return Material(trial, steps, clean(_verifier_tail(trial)), tuple(notes))


def number_steps(*trajectories: Trajectory) -> tuple[Numbered, ...]:
    """The steps of one trial under the numbers a judge cites, each with its rank."""
    numbered: list[tuple[int, Step]] = []
    for trajectory in trajectories:
        offset = max((number for number, _ in numbered), default=0)
        numbered += [(offset + step.id, step) for step in trajectory.own_steps()]
    ranks = _ranks([step for _, step in numbered])
    return tuple(Numbered(n, step, rank) for (n, step), rank in zip(numbered, ranks, strict=True))


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


def _ranks(steps: list[Step]) -> list[Rank]:
    agent = [at for at, step in enumerate(steps) if step.source == "agent"]
    asked = [at for at, step in enumerate(steps) if step.source == "user"]
    ends = {*asked[:1], *agent[:2], *range(max(0, len(steps) - _ENDS), len(steps))}
    return [Rank.ENDS if at in ends else _rank(step) for at, step in enumerate(steps)]


def _rank(step: Step) -> Rank:
    if any(result.failed for result in step.results):
        return Rank.FAILED
    commands = [_value(value) for call in step.calls for value in call.arguments.values()]
    if any(_EDIT_TOOL.match(call.name) for call in step.calls) or any(map(_EDIT_COMMAND.search, commands)):
        return Rank.EDIT
    return Rank.TEST if any(map(_TEST_COMMAND.search, commands)) else Rank.OTHER


def _left_out(trajectory: Trajectory) -> list[str]:
    notes = [f"not shown: a subagent's trajectory of {len(sub.steps)} steps" for sub in trajectory.subagents]
    if trajectory.continued_in:
        notes.append("not shown: the trajectory goes on in another file")
    return notes


def _verifier_tail(trial: JudgeTrial) -> str:
    texts = []
    for file in sorted(trial.folder.glob(f"**/verifier/{_VERIFIER_FILE}")):
        with open_plain(file) as stream:
            if stream is None:
                continue
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _VERIFIER_BYTES))
            texts.append(stream.read(_VERIFIER_BYTES).decode(errors="replace").strip())
    return "\n".join(texts)[-_VERIFIER_BYTES:]
