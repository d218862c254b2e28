"""A trajectory as a page shows it: a line a step, repeated ones together, long texts cut. Pure."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import groupby
from typing import Any

from terminalbench.analytics.atif import CallResult, StepHead, Trajectory, TrajectoryCall, TrajectoryStep
from terminalbench.analytics.findings.actions import actions_of_step, taxonomy_for
from terminalbench.analytics.long_trajectory import LongSteps
from terminalbench.dashboard.render import is_diff
from terminalbench.records.values import known_total
from terminalbench.text.foreign import visible

PER_PAGE = 50
_HEAD_CHARS, _TAIL_CHARS = 8000, 2000
_OPEN_LINES = 24
_RESULT_HEAD, _RESULT_TAIL = 6, 4
"""Lines of an output that show at once, of one that has more."""
_NOISE = re.compile(r"0x[0-9a-f]+|\d+|\s+")
ONLY = ("errors", "edits")
MOST_FOUND = 200
MANY_STEPS = 5000
"""Of a trajectory with more steps the shown ones are marked, and nothing is looked for in all of them, until a reader
asks: what a call did takes a tenth of a millisecond to see."""
REPEATED = 3
"""So many steps in a row that did the same are shown as one line."""


@dataclass(frozen=True)
class StepBlock:
    """One piece of a step: what was said, thought, called or returned. `rest`, before the `tail`, opens on demand.

    `number` counts the blocks of a step from 1; `left_out` characters are only in the raw text. `diff`: it is a patch.
    """

    kind: str
    label: str
    number: int
    size: int
    head: str
    rest: str
    left_out: int
    failed: bool = False
    tail: str = ""
    diff: bool = False


@dataclass(frozen=True)
class SpendSoFar:
    """Tokens and money so far; None while nothing is known."""

    prompt: int | None = None
    completion: int | None = None
    cost_usd: float | None = None

    def plus(self, steps: Iterable[StepHead]) -> "SpendSoFar":
        """Return the spend with more steps; copied ones were spent elsewhere."""
        tokens = [step.tokens for step in steps if not step.copied]
        return SpendSoFar(
            known_total((self.prompt, *(one.prompt for one in tokens))),
            known_total((self.completion, *(one.completion for one in tokens))),
            known_total((self.cost_usd, *(one.cost_usd for one in tokens))),
        )


@dataclass(frozen=True)
class StepView:
    """One step. `anchor` names it on its page; `position` counts from 1; `took` is the time until the next one."""

    position: int
    anchor: str
    step: TrajectoryStep
    so_far: SpendSoFar
    since: float | None
    blocks: Sequence[StepBlock]
    took: float | None = None

    @property
    def title(self) -> str:
        """The step in a few words."""
        if self.step.calls:
            return ", ".join(call.name or "a tool" for call in self.step.calls[:3])
        return "thinks" if self.step.reasoning and not self.step.text else "says"

    @property
    def gist(self) -> str:
        """Return what stands for the step on one line: what it called, else what it said, else anything of it."""
        first = {block.kind: block.head for block in reversed(self.blocks)}
        return first.get("call") or first.get("text") or (self.blocks[0].head if self.blocks else "")


@dataclass(frozen=True)
class StepPage:
    """One page of a trajectory."""

    number: int
    pages: int
    total: int
    steps: list[StepView]


def step_page(trajectory: Trajectory, number: int) -> StepPage:
    """Page `number` (from 1) of the steps."""
    total = len(trajectory.steps)
    pages = max(1, -(-total // PER_PAGE))
    number = min(max(1, number), pages)
    shown = range((number - 1) * PER_PAGE, min(number * PER_PAGE, total))
    return StepPage(number, pages, total, list(step_views(trajectory, shown)))


def step_views(trajectory: Trajectory, positions: Sequence[int]) -> Iterator[StepView]:
    """The steps at `positions` (from 0, in order), each with what was used up to it."""
    used, counted, heads = SpendSoFar(), 0, trajectory.heads
    start = next((head.time for head in heads if head.time), None)
    for index in positions:
        used, counted = used.plus(heads[counted : index + 1]), index + 1
        now = heads[index].time
        since = (now - start).total_seconds() if now and start else None
        after = heads[counted].time if counted < len(heads) else None
        took = (after - now).total_seconds() if now and after else None
        step = trajectory.steps[index]
        yield StepView(counted, anchor_of(step, counted), step, used, since, list(blocks(step)), took)


def anchor_of(step: StepHead, position: int) -> str:
    """The name of a step in a link: its id where that is its place, as it nearly always is."""
    return f"step-{step.id}" if step.id == position else f"step-at-{position}"


def places(trajectory: Trajectory, wanted: Collection[int]) -> dict[int, tuple[int, str]]:
    """Return by step id, of those that are wanted, the page it is on and its anchor."""
    found: dict[int, tuple[int, str]] = {}
    for index, step in enumerate(trajectory.heads if wanted else ()):
        if step.id in wanted:
            found.setdefault(step.id, (index // PER_PAGE + 1, anchor_of(step, index + 1)))
    return found


def signature(step: TrajectoryStep) -> tuple[str, ...]:
    """Return what a step does, without what differs by chance: numbers and spaces."""
    if step.calls:
        return tuple(f"{call.name}:{_NOISE.sub(' ', arguments_text(call)[:2000])}" for call in step.calls)
    return (step.source, _NOISE.sub(" ", step.text[:2000]) if step.source != "agent" else "")


def together(views: Sequence[StepView]) -> Iterator[list[StepView]]:
    """The steps; those that did the same, `REPEATED` times in a row or more, in one list."""

    def did(view: StepView) -> tuple[object, ...]:
        calls = [(call.name, " ".join(arguments_text(call).split())) for call in view.step.calls]
        return tuple(calls) or (view.position,)

    for _, run in groupby(views, did):
        steps = list(run)
        yield from [steps] if len(steps) >= REPEATED else ([one] for one in steps)


def blocks(step: TrajectoryStep) -> Iterator[StepBlock]:
    """Yield what a step shows, in the order it happened; a call that changes a file as the diff it makes."""
    calls = iter(step.calls)
    for number, (kind, label, text, failed) in enumerate(pieces(step), start=1):
        patch = _patch(next(calls)) if kind == "call" else None
        yield _block(kind, label, number, text if patch is None else patch, failed=failed, diff=patch is not None)


def _patch(call: TrajectoryCall) -> str | None:
    """Return what an edit changes, as a unified diff; None for another call."""
    given = call.arguments
    for before, after in (("old_string", "new_string"), ("old_str", "new_str")):
        old, new = given.get(before), given.get(after)
        if isinstance(old, str) and isinstance(new, str):
            path = given.get("file_path") or given.get("path") or "a file"
            lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
            return "\n".join([f"*** {path}", *list(lines)[2:]])
    return None


def pieces(step: TrajectoryStep) -> Iterator[tuple[str, str, str, bool]]:
    """Kind, label and whole text of each block, and whether it is an error."""
    if step.reasoning:
        yield "thinking", "thinking", step.reasoning, False
    if step.text:
        yield "text", step.source, step.text, False
    shown_results: set[int] = set()
    for call in step.calls:
        yield "call", call.name or "a tool without a name", arguments_text(call), False
        result = step.result_of(call)
        if result is not None:
            shown_results.add(id(result))
            yield "result", _result_label(result), result.text, bool(result.failed)
    for result in step.results:
        if id(result) not in shown_results:
            yield "result", _result_label(result), result.text, bool(result.failed)


def _result_label(result: CallResult) -> str:
    parts = ["observation"]
    if result.exit_code is not None:
        parts.append(f"exit code {result.exit_code}")
    elif result.failed is not None:
        parts.append("error" if result.failed else "ok")
    parts += [f"{kind} not shown" for kind in result.media]
    parts += [f"subagent {name}" for name in result.subagents]
    return ", ".join(parts)


def arguments_text(call: TrajectoryCall) -> str:
    """The arguments of a call as a person reads them: a lone text as it is, several by name."""
    arguments: Mapping[str, Any] = call.arguments
    if len(arguments) == 1:
        (value,) = arguments.values()
        if isinstance(value, str):
            return value
    lines = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        lines.append(f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}")
    return "\n".join(lines)


def _block(kind: str, label: str, number: int, text: str, *, failed: bool, diff: bool) -> StepBlock:
    size = len(text)
    left_out = 0
    if size > _HEAD_CHARS + _TAIL_CHARS:
        left_out = size - _HEAD_CHARS - _TAIL_CHARS
        text = f"{text[:_HEAD_CHARS]}\n… {left_out:,} characters left out …\n{text[-_TAIL_CHARS:]}"
    result = kind == "result"
    lines = (text if result else visible(text)).split("\n")
    first, last = (_RESULT_HEAD, _RESULT_TAIL) if result else (_OPEN_LINES, 0)
    few = len(lines) <= first + last + 6
    end = len(lines) - last
    parts = (lines, [], []) if few else (lines[:first], lines[first:end], lines[end:])
    head, rest, tail = ("\n".join(part) for part in parts)
    diff = diff or (kind in ("call", "result") and is_diff(text))
    return StepBlock(kind, visible(label)[:200], number, size, head, rest, left_out, failed, tail, diff)


@dataclass(frozen=True)
class MarkedSteps:
    """The ids of the steps of a trajectory that failed, and of those that changed files."""

    errors: frozenset[int] = frozenset()
    edits: frozenset[int] = frozenset()


def marked(trajectory: Trajectory, agent: str | None, steps: Iterable[TrajectoryStep]) -> MarkedSteps:
    """Return what the calls of its `steps` did; a result that says so itself is an error too."""
    taxonomy, errors, edits = taxonomy_for(trajectory.agent or agent), set[int](), set[int]()
    for step in steps:
        actions = [] if step.copied else list(actions_of_step(step, taxonomy))
        if any(action.failed for action in actions) or any(result.failed for result in step.results):
            errors.add(step.id)
        if any(action.changes for action in actions):
            edits.add(step.id)
    return MarkedSteps(frozenset(errors), frozenset(edits))


@dataclass(frozen=True)
class StepFilter:
    """Which steps a reader looks for: those that hold a text, `only` those with errors or edits."""

    text: str = ""
    only: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.only)


def found_steps(trajectory: Trajectory, wanted: StepFilter, marks: MarkedSteps) -> StepPage:
    """The steps that are wanted, on one page: the first of them, where there are very many."""
    ids = {"errors": marks.errors, "edits": marks.edits}.get(wanted.only)
    text = wanted.text.lower()
    heads, steps = trajectory.heads, trajectory.steps
    positions = [position for position, head in enumerate(heads) if ids is None or head.id in ids]
    if text:
        asked = (
            steps.holding(text, positions) if isinstance(steps, LongSteps) else ((at, steps[at]) for at in positions)
        )
        positions = [
            position
            for position, step in asked
            if any(text in words.lower() or text in label.lower() for _, label, words, _ in pieces(step))
        ]
    return StepPage(1, 1, len(positions), list(step_views(trajectory, positions[:MOST_FOUND])))
