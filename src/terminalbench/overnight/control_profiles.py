"""Profiles of a night that learns: each one as it is, the frozen control, and the same with lessons."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from terminalbench.archivist.utility import PRIOR_SD, is_proven
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import LessonsTable
from terminalbench.overnight.night import LessonsMode, NightLessons, NightModel
from terminalbench.records.lesson import Lesson, LessonState

_SUFFIX = "-lessons"
_KNOWN_SD = 0.75 * PRIOR_SD
_MOST_EVERY = 4
"""At least every fourth iteration has its control: whatever else changes over weeks is seen beside it."""


def night_lessons(mode: LessonsMode | None, model: str | None, budget_usd: float | None) -> NightLessons | None:
    """Return how a night is to learn; None: not at all. Finds out now what would make every question to its model
    fail."""
    if mode is None:
        for option, given in (("--reflect-model", model), ("--reflect-budget-usd", budget_usd)):
            if given is not None:
                raise UserError(f"{option} needs --lessons", hint="add --lessons, or leave out this option")
        return None
    if model is None:
        if budget_usd is not None:
            hint = "name a model with --reflect-model, or leave out the budget"
            raise UserError(
                "--reflect-budget-usd needs --reflect-model: without a model, reflection costs nothing", hint=hint
            )
        return NightLessons(mode)
    from terminalbench.llm.model import chat_model

    try:
        chat_model(model).ready()
    except TbenchError as error:
        raise UserError(f"--reflect-model {model}: {error.what}", hint=error.hint) from error
    return NightLessons(mode, model, budget_usd)


def with_lessons(experiment: Experiment, mode: LessonsMode | None, but: Collection[str] = ()) -> Experiment:
    """Each profile as it is and then with lessons, `but` for some, and for those whose agent calls no model.

    Raises UserError where one has lessons already, and where none is left.
    """
    if mode is None:
        return experiment
    profiles: list[Profile] = []
    for one in experiment.profiles:
        profiles.append(one)
        if one.key in but or not one.agent.model:
            continue
        if one.lessons is not None:
            hint = f"remove lessons from profiles.{one.key}, or leave out --lessons"
            raise UserError(
                f"profile {one.key} sets lessons itself, but --lessons sets them for every profile",
                where=str(experiment.file),
                hint=hint,
            )
        profiles.append(replace(one, key=one.key + _SUFFIX, lessons=LessonsTable(mode=mode)))
    if len(profiles) == len(experiment.profiles):
        hint = "name a --model, or leave out --lessons"
        raise UserError("--lessons: no profile of the suite calls a model", hint=hint)
    return replace(experiment, profiles=tuple(profiles))


def of_one_model(models: Iterable[NightModel]) -> list[NightModel]:
    """The models of a night; a profile with lessons is of the same one as its control, and is not checked again."""
    found = {one.profile: one for one in models}
    for key, one in found.items():
        control = found.get(key.removesuffix(_SUFFIX))
        if control is not None and control is not one:
            found[key] = msgspec.structs.replace(one, spec=control.spec, facts={})
    return list(found.values())


def profiles_by_lessons(profiles: Iterable[str], number: int, lessons: Iterable[Lesson]) -> list[str]:
    """Return the profiles of an iteration by what is known of the lessons.

    While none is in use there is nothing to show: a twin with lessons would only be its control once more.
    """
    active = [one for one in lessons if one.state is LessonState.ACTIVE]
    if not active:
        return [one for one in profiles if not is_with_lessons(one)]
    return list(profiles) if (number - 1) % control_every(active) == 0 else without_controls(profiles)


def control_every(active: Collection[Lesson]) -> int:
    """Return in how many iterations the frozen control runs once, by what is known of the active lessons.

    In each while more than half of them are not known, in every second one then, in every fourth when all are. A lesson
    is known when it is proven, or was shown so often that one more night moves little. Withheld lessons are measured
    in the trials with lessons themselves: the control is for the gain of all of them together.
    """
    known = sum(one.utility is not None and (is_proven(one.utility) or one.utility.sd < _KNOWN_SD) for one in active)
    if not active or 2 * known < len(active):
        return 1
    return _MOST_EVERY if known == len(active) else 2


def is_with_lessons(profile: str) -> bool:
    """Return whether a profile of a night is one that was made from another by giving it lessons."""
    return profile.endswith(_SUFFIX)


def without_controls(profiles: Iterable[str]) -> list[str]:
    """Return the profiles of an iteration that is run without its controls: those that have one are left."""
    found = list(profiles)
    return [one for one in found if one + _SUFFIX not in found]
