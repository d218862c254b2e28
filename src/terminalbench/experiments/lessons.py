"""The lessons that profiles may show of a memory: the snapshot of a batch, the draw of each trial, the words. Pure.

A snapshot is taken before a batch is planned and lies in its folder: for each task the lessons that a trial of it is
eligible for, best first. Each of them is withheld by chance, so that what differs between trials with and without it is
its effect. The chance is a hash: a resume, and a trial that is tried again, draws the same.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError
from terminalbench.files import read_plain
from terminalbench.records.trial import Exposure, LessonsDelivery
from terminalbench.text.numbers import plural

AGENT = "terminalbench.harbor.agents.lessons:LessonsAgent"
"""What Harbor is told to make for a profile with lessons."""
OPTION = "lessons"
"""The option of it that the wrapped agent does not get."""
_SIZE_LIMIT = 256 << 20
_SECTION = re.compile(r"<(lessons-[0-9a-f]{8})>\n.*?\n</\1>\n\n", re.DOTALL)


class LessonReader(NamedTuple):
    """A reader of lessons: what was measured with this model counts most, and only a simulated agent reads what
    simulated trials taught."""

    model: str | None = None
    simulated: bool = False


class EligibleLesson(msgspec.Struct, frozen=True, omit_defaults=True):
    """A lesson that a trial may be shown, with its text; `own`: it comes from the task of the trial or its family.

    `chance` is the probability of showing it; None: that of all lessons of the snapshot.
    """

    id: str
    text: str
    own: bool = False
    chance: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The lessons of a memory for the tasks of a batch: by `label/id` of the task, the lessons in order.

    `masked` counts, over all tasks, lessons that were kept back because they come from the task or its family.
    """

    mode: str
    k: int
    budget: int
    withhold: float
    tasks: dict[str, list[EligibleLesson]]
    masked: int = 0

    @property
    def digest(self) -> str:
        """Equal for snapshots that show the same by the same chance."""
        shown = (self.mode, self.k, self.budget, self.withhold, self.tasks)
        return hashlib.sha256(msgspec.json.encode(shown, order="deterministic")).hexdigest()[:16]

    def __str__(self) -> str:
        """Return what it holds, in words."""
        lessons = len({one.id for found in self.tasks.values() for one in found})
        for_tasks = sum(bool(found) for found in self.tasks.values())
        kept_back = f", {self.masked} left out by the mask" if self.masked else ""
        return f"{plural(lessons, 'lesson')} for {for_tasks} of {plural(len(self.tasks), 'task')}{kept_back}"


def task_key(label: str | None, task: str) -> str:
    """Return how a snapshot names a task: by the label of its dataset in the plan, and its id."""
    return f"{label or ''}/{task}"


def read_snapshot(file: Path, digest: str) -> Snapshot:
    """The snapshot in a file; an error names the file where it is gone, or is not the one with this digest."""
    hint = "restore the file, or start a new batch: tbench run"
    data = read_plain(file, _SIZE_LIMIT)
    if data is None:
        raise UserError("the lessons of this batch are missing, or not readable by you", where=str(file), hint=hint)
    try:
        found = decode(data, Snapshot)
    except NOT_DECODED as error:
        raise UserError(f"the lessons of this batch cannot be read: {error}", where=str(file), hint=hint) from error
    if found.digest != digest:
        what = f"the lessons have changed since the batch was planned: {digest} then, {found.digest} now"
        raise UserError(what, where=str(file), hint=hint)
    return found


def chance(seed: int | str, snapshot: str, task: str, attempt: int, lesson: str) -> float:
    """A number from 0 to below 1 for one lesson of one trial: the same arguments, the same number."""
    text = msgspec.json.encode([str(seed), snapshot, task, attempt, lesson])
    return int.from_bytes(hashlib.sha256(text).digest()[:6]) / 2**48


def draw(snapshot: Snapshot, digest: str, task: str, attempt: int, seed: int | str) -> LessonsDelivery:
    """Return what of the eligible lessons a trial is shown; `digest` is that of the snapshot."""
    exposures = []
    for one in snapshot.tasks[task]:
        likely = round(1 - snapshot.withhold if one.chance is None else one.chance, 9)
        shown = chance(seed, digest, task, attempt, one.id) >= 1 - likely
        exposures.append(Exposure(one.id, likely, shown, len(one.text), one.own))
    return LessonsDelivery(snapshot.mode, digest, exposures)


def with_lessons(instruction: str, texts: Sequence[str], digest: str) -> str:
    """The instruction behind a section with these lessons, each as it stands; without any, the instruction itself.

    The marks hold the digest of the snapshot, so that no text of it can end the section.
    """
    if not texts:
        return instruction
    mark = f"lessons-{digest[:8]}"
    listed = "\n\n".join(texts)
    return (
        f"<{mark}>\nLessons from earlier work that may help. They are not part of the task: where they do not fit it, "
        f"leave them aside.\n\n{listed}\n</{mark}>\n\n{instruction}"
    )


def without_lessons(prompt: str) -> str:
    """The instruction alone of a prompt that `with_lessons` made; any other as it is."""
    return _SECTION.sub("", prompt, count=1)


def wrapped(agent: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """An agent of a JobConfig as one that is given lessons; `told` is what the wrapper has to know."""
    inner = {name: agent[name] for name in ("name", "import_path") if name in agent}
    rest = {name: value for name, value in agent.items() if name not in inner}
    kwargs = {**agent.get("kwargs", {}), OPTION: {"agent": inner, **told}}
    return {"import_path": AGENT, **rest, "kwargs": kwargs}


def is_wrapped(agent: dict[str, Any]) -> bool:
    """Return whether an agent of a JobConfig is one that is given lessons."""
    told = (agent.get("kwargs") or {}).get(OPTION)
    return agent.get("import_path") == AGENT and isinstance(told, dict) and isinstance(told.get("agent"), dict)


def unwrapped(agent: dict[str, Any]) -> dict[str, Any]:
    """The agent itself of one that is given lessons; any other as it is."""
    if not is_wrapped(agent):
        return agent
    kwargs = agent["kwargs"]
    rest = {name: value for name, value in agent.items() if name not in ("name", "import_path", "kwargs")}
    own = {name: value for name, value in kwargs.items() if name != OPTION}
    return {**kwargs[OPTION]["agent"], **rest, **({"kwargs": own} if own else {})}
