"""The steps of a trial as plain text: who spoke, what was called, what came back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.atif import Call, Step, Trajectory, UnreadableTrajectory, read_trajectory
from terminalbench.files import read_plain
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.foreign import cut as shorten
from terminalbench.text.foreign import line as printable
from terminalbench.text.numbers import plural, tokens

_CONFIG_LIMIT = 4 << 20
_INSTRUCTION_LIMIT = 1 << 20
_FIRST, _LAST = 5, 25


@dataclass(frozen=True)
class Shown:
    """Which steps, and how much of each. `only` holds the first and the last step id; None means all."""

    only: tuple[int, int] | None = None
    full: bool = False
    secrets: Secrets = NONE

    @property
    def lines(self) -> int | None:
        """How many lines of one message or result."""
        return None if self.full else 40 if self.only else 4

    @property
    def letters(self) -> int | None:
        """How many letters of one line."""
        return None if self.full else 400 if self.only else 160


@dataclass(frozen=True)
class Read:
    """A trajectory file, and what is in it, or why it cannot be read."""

    file: Path
    trajectory: Trajectory | None
    problem: str = ""


def read_all(files: Sequence[Path], secrets: Secrets) -> list[Read]:
    """Every trajectory of a trial, concealed."""
    found = []
    for file in files:
        try:
            found.append(Read(file, read_trajectory(file, before=secrets.conceal_bytes)))
        except UnreadableTrajectory as error:
            found.append(Read(file, None, str(error)))
    return found


def instruction_lines(folder: Path, found: Sequence[Read], shown: Shown) -> list[str]:
    """What the agent was told: the first words of its user, else the instruction of a task that is on this machine."""
    steps = [step for read in found if read.trajectory for step in read.trajectory.steps]
    text = next((step.text for step in steps if step.source == "user" and step.text.strip()), None)
    if text is None:
        text = _instruction_file(folder, shown.secrets)
    if text is None:
        return []
    more = Shown(full=True) if shown.full else Shown((0, 0))
    return ["  instruction", *cut(text, more, "    ")]


def steps_lines(folder: Path, found: Sequence[Read], shown: Shown) -> list[str]:
    """The steps of every trajectory of a trial; why one cannot be read."""
    lines: list[str] = []
    for read in found:
        name = printable(str(read.file.relative_to(folder) if read.file.is_relative_to(folder) else read.file))
        if read.trajectory is None:
            lines.append(f"  steps     {name}: {printable(read.problem)}")
        else:
            lines += _trajectory(read.trajectory, name, shown)
    return lines


def cut(text: str, shown: Shown, indent: str) -> list[str]:
    """Somebody else's text, indented, cut to what is shown; says how much more there is."""
    found = text.strip("\n").splitlines()
    kept = found if shown.lines is None else found[: shown.lines]
    lines = [f"{indent}{printable(shorten(line, shown.letters))}" for line in kept]
    if len(kept) < len(found):
        lines.append(f"{indent}({plural(len(found) - len(kept), 'more line')})")
    return lines


def _trajectory(trajectory: Trajectory, name: str, shown: Shown) -> list[str]:
    steps = list(trajectory.own_steps())
    lines = [f"  steps     {len(steps)} in {name}"]
    lines += [f"            odd: {printable(problem)}" for problem in trajectory.problems[:3]]
    if shown.only is not None:
        first, last = shown.only
        picked = [step for step in steps if first <= step.id <= last]
        if not picked and steps:
            lines.append(f"            none from {first} to {last}: they are {steps[0].id} to {steps[-1].id}")
        return [*lines, *(line for step in picked for line in _step(step, shown))]
    if shown.full or len(steps) <= _FIRST + _LAST + 5:
        return [*lines, *(line for step in steps for line in _step(step, shown))]
    gap = steps[_FIRST : len(steps) - _LAST]
    lines += [line for step in steps[:_FIRST] for line in _step(step, shown)]
    lines.append(f"    ... {len(gap)} steps left out: --steps {gap[0].id}-{gap[-1].id} or --full shows them")
    return [*lines, *(line for step in steps[-_LAST:] for line in _step(step, shown))]


def _step(step: Step, shown: Shown) -> Iterator[str]:
    used = [f"{tokens(n)} {what}" for n, what in ((step.tokens.prompt, "in"), (step.tokens.completion, "out")) if n]
    yield f"    #{step.id} {printable(step.source)}" + (f"  ({', '.join(used)})" if used else "")
    if step.reasoning and (shown.full or shown.only):
        yield from cut(step.reasoning, shown, "      ~ ")
    yield from cut(step.text, shown, "      ")
    for call in step.calls:
        yield f"      > {_call(call, shown)}"
        result = step.result_of(call)
        if result is not None:
            yield from _result(result.text, result.failed, result.exit_code, result.media, shown)
    answered = {id(step.result_of(call)) for call in step.calls}
    for result in step.results:
        if id(result) not in answered:
            yield from _result(result.text, result.failed, result.exit_code, result.media, shown)


def _call(call: Call, shown: Shown) -> str:
    values = list(call.arguments.values())
    alone = len(values) == 1 and isinstance(values[0], str)
    text = values[0] if alone else msgspec.json.encode(dict(call.arguments), enc_hook=str).decode(errors="replace")
    line = shorten(" ⏎ ".join(str(text).strip().splitlines()) if not shown.full else str(text), shown.letters)
    named = printable(call.name or "(no name)")
    if shown.full and "\n" in line:
        return "\n".join([named, *(f"          {printable(part)}" for part in line.splitlines())])
    return f"{named} {printable(line)}".rstrip()


def _result(text: str, failed: bool | None, code: int | None, media: tuple[str, ...], shown: Shown) -> list[str]:
    notes = []
    if code is not None:
        notes.append(f"exit {code}")
    elif failed:
        notes.append("failed")
    notes += [f"[{kind}]" for kind in media]
    lines = cut(text, shown, "        ")
    head = f"        {' '.join(notes)}" if notes else None
    return ([head] if head else []) + (lines or ([] if head else ["        (no output)"]))


def _instruction_file(folder: Path, secrets: Secrets) -> str | None:
    data = read_plain(folder / "config.json", _CONFIG_LIMIT)
    try:
        config: Any = msgspec.json.decode(data or b"null")
        path = config["task"]["path"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None
    text = read_plain(Path(path) / "instruction.md", _INSTRUCTION_LIMIT) if isinstance(path, str) else None
    return secrets.conceal(text.decode(errors="replace")) if text else None
