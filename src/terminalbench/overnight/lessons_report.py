"""What a night with lessons learned and gained: one section of its report, made from its batches and reflections."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from terminalbench.archivist.entries import Trigger
from terminalbench.archivist.gains import Gain, GainKind, exposed, verdict_said
from terminalbench.archivist.inventory import each_lesson
from terminalbench.archivist.store import open_store
from terminalbench.archivist.utility import chance_of_harm, is_proven, prior
from terminalbench.errors import TbenchError
from terminalbench.json_files import decode_plain
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import is_with_lessons, without_controls
from terminalbench.overnight.night import NightConfig
from terminalbench.records.lesson import Lesson, LessonState
from terminalbench.records.values import known_total
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import between, cost, plural, points, some
from terminalbench.text.table import Columns

if TYPE_CHECKING:
    from terminalbench.overnight.iteration_files import ProjectedIteration


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


SHOWN = 60
"""Reflections in the report; `summary.json` has all."""


_MOST_TOLD = 5
_LONGEST = 400
"""Letters of a lesson in a line."""
_WIDE = 1.96
_WHY = 150
"""Letters of what keeps a gain from a verdict."""


class LessonEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson: its text, its state, and its measured effect on the model of the most trials.

    `counts`: trials have shown that it helps, or have retired it. `earlier`: this night neither wrote nor supported it.
    """

    id: str
    text: str
    state: str
    mean: float
    sd: float
    trials: int
    shown: int
    counts: bool = False
    earlier: bool = False

    def __str__(self) -> str:
        return self.said(_LONGEST)

    def said(self, most: int) -> str:
        """Return what it says, of at most so many letters, and does, in a line."""
        inside = between(self.mean - _WIDE * self.sd, self.mean + _WIDE * self.sd, "pass")
        seen = f"{plural(self.shown, 'trial')} with it, {self.trials - self.shown} without"
        known = ", known before this night" if self.earlier else ""
        return f"“{flat(self.text, most)}” {points(self.mean)} (95 %: {inside}; {seen}), {self.state}{known}, {self.id}"


class LessonsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The learning of a night. `gains` are over its own batches; what reflection cost is part of the night's cost.

    `effects` are the lessons that trials of the night may have been shown and that are proven or retired by now, or
    nearest to it. `control_trials` were measured without lessons, beside `trials` with them, in the `iterations` in
    which a lesson was eligible: what ran before that says nothing of lessons. Of the lessons that it wrote `held` wait
    for somebody's word.
    """

    mode: str
    reflector: str
    gains: list[Gain]
    reflections: list[Reflection]
    cost_usd: float | None
    cost_unknown: int
    effects: list[LessonEffect] = []
    trials: int = 0
    control_trials: int = 0
    iterations: list[int] = []
    control_cost_usd: float | None = None
    held: int = 0

    @property
    def active(self) -> list[str]:
        """The lessons that it wrote or supported, and that are told to agents."""
        return list(dict.fromkeys(name for one in self.reflections for name in one.active))

    @property
    def retired(self) -> list[str]:
        """The lessons that its trials retired."""
        return list(dict.fromkeys(name for one in self.reflections for name in one.retired))


def summarise_lessons(
    folder: NightFolder, config: NightConfig, projected: "Sequence[ProjectedIteration]"
) -> LessonsSummary | None:
    """Return what the iterations of a night learned and gained; None where it was not asked to learn."""
    if config.lessons is None:
        return None
    found = read_reflections(folder, [one.results.iteration for one in projected])
    costs = [one.cost_usd for one in found if one.asked]
    seen = exposed([folder.results_root])
    told = {told.lesson for trial in seen.trials for told in trial.exposures}
    held = {name for one in found for name in one.held}
    known = _lessons_of(config, told | held)
    began = {trial.batch for trial in seen.trials}
    learning = [one.results for one in projected if one.results.batch in began]
    rest = without_controls([one.profile for one in config.models])
    ran = [one for each in learning for one in each.profiles]
    controls = [one for one in ran if one.profile not in rest]
    return LessonsSummary(
        mode=config.lessons.mode,
        reflector=config.lessons.model or "the built-in rules",
        gains=seen.gains(),
        reflections=found,
        cost_usd=known_total(costs),
        cost_unknown=costs.count(None),
        effects=_effects([one for one in known if one.id in told], {name for one in found for name in one.active}),
        held=sum(one.id in held and one.state is LessonState.QUARANTINED for one in known),
        trials=sum(one.measured for one in ran if is_with_lessons(one.profile)),
        control_trials=sum(one.measured for one in controls),
        iterations=[one.iteration for one in learning],
        control_cost_usd=known_total([one.cost_usd for one in controls]),
    )


def _lessons_of(config: NightConfig, names: Collection[str]) -> list[Lesson]:
    """Some lessons, by the memory of the project as it is now."""
    try:
        with open_store(Path(config.project_root) / ".terminalbench") as store:
            return [one for one in each_lesson(store) if one.id in names]
    except TbenchError:  # told where it is read to learn
        return []


def _effects(lessons: Iterable[Lesson], own: Collection[str]) -> list[LessonEffect]:
    """Return the effects of those of some lessons of which most is known; `own` are those of the night itself."""
    found = [one for one in lessons if one.utility is not None]
    sure = sorted(found, key=lambda one: -abs(chance_of_harm(one.utility or prior(one.importance)) - 0.5))
    return [
        LessonEffect(
            id=one.id,
            text=one.text,
            state=one.state,
            mean=effect.mean,
            sd=effect.sd,
            trials=effect.n,
            shown=effect.shown,
            counts=is_proven(effect) or (one.state is LessonState.RETIRED and effect.n > 0),
            earlier=one.id not in own,
        )
        for one in sure[:_MOST_TOLD]
        if (effect := one.utility) is not None
    ]


def lessons_lines(found: LessonsSummary) -> list[str]:
    """The section in sentences: first what was gained, by which lessons, and what it cost to learn it."""
    lines = [f"gain {gained(one)}" for one in found.gains]
    if not lines:
        lines = ["No lesson was eligible for a trial yet, so the gain is unknown."]
    lines += [f"lesson {one}" for one in found.effects]
    if found.effects and found.gains:
        lines.append(
            "these effects do not add up to the gain: each is of one lesson beside the others, and taken for near "
            "zero until many trials speak for it"
        )
    if found.trials or found.control_trials:
        lines.append(learning_cost(found))
    lines.append(
        f"of this night: {plural(len(found.active), 'active lesson')} written or supported, "
        f"{len(found.retired)} retired by effect, by {found.reflector}"
        + (f" for {cost(found.cost_usd, found.cost_unknown)}" if any(one.asked for one in found.reflections) else "")
    )
    lines += [f"iteration {one.iteration}: {one.stopped}" for one in found.reflections if one.stopped]
    return lines


def learning_cost(found: LessonsSummary) -> str:
    """Return what it cost to learn: the trials of the frozen controls; and what the lessons gained in the others."""
    spent = f" for {cost(found.control_cost_usd)}" if found.control_cost_usd is not None else ""
    said = f"learning took {plural(found.control_trials, 'control trial')}{spent} beside {found.trials} with lessons"
    more = sum((one.difference or 0.0) * one.trials for one in found.gains)
    known = any(one.difference is not None for one in found.gains)
    return f"{said}, which passed {abs(more):.0f} {'more' if more >= 0 else 'fewer'} than without" if known else said


_LESSONS_OF = {GainKind.TRANSFER: "lessons from other tasks", GainKind.RECALL: "lessons, also of the same task"}


def gained(gain: Gain) -> str:
    """Return what a policy gained in a sentence: how much, how sure, and on how many trials."""
    name = f"by {_LESSONS_OF[gain.kind]}, {gain.profile} against {gain.control}"
    if gain.difference is None:
        return f"{name}: unknown ({gain.note or 'no task was measured under both'})"
    inside = (
        f" (95 %: {between(gain.low, gain.high, 'pass')})" if gain.low is not None and gain.high is not None else ""
    )
    said = f"{points(gain.difference)}{inside} {name}, over {plural(gain.tasks, 'task')}"
    said += f", {gain.trials} and {gain.control_trials} trials: {verdict_said(gain)}"
    if gain.withheld is not None:
        said += f", because {flat(gain.withheld, _WHY)}"
    return f"{said} (simulated)" if gain.simulated else said


_TRIGGERS: dict[Trigger | None, str] = {one: one.value.replace("_", " ") for one in Trigger}
_TRIGGERS[Trigger.REGRESSION] = "a task fell"  # one task is no regression alert of the night

REFLECTIONS = Columns[Reflection](
    {
        "iteration": lambda one: str(one.iteration),
        "trigger": lambda one: _TRIGGERS.get(one.trigger, "-"),
        "why": lambda one: one.why or "-",
        "in use": lambda one: some(one.active, 3) if one.active else "-",
        "held back": lambda one: str(len(one.held)),
        "refused": lambda one: str(one.refused),
        "counted": lambda one: str(one.counted),
        "cost": lambda one: cost(one.cost_usd) if one.asked else "-",
    }
)
