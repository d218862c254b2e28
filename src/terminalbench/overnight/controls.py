"""Profiles of a night that learns: each one as it is, the frozen control, and the same with lessons."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import LessonsTable
from terminalbench.overnight.night import LessonsMode, NightLessons, NightModel

_SUFFIX = "-lessons"


def night_lessons(mode: LessonsMode | None, model: str | None, budget_usd: float | None) -> NightLessons | None:
    """How a night is to learn; None: not at all. Finds out now what would make every question to its model fail."""
    if mode is None:
        for option, given in (("--reflect-model", model), ("--reflect-budget-usd", budget_usd)):
            if given is not None:
                raise UserError(f"{option} is for a night that learns", hint="add --lessons, or leave it out")
        return None
    if model is None:
        if budget_usd is not None:
            hint = "name one with --reflect-model"
            raise UserError("--reflect-budget-usd limits a model, and our own rules cost nothing", hint=hint)
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
            hint = f"take them out of profiles.{one.key}, or leave --lessons out"
            raise UserError(f"profile {one.key} has lessons already", where=str(experiment.file), hint=hint)
        profiles.append(replace(one, key=one.key + _SUFFIX, lessons=LessonsTable(mode=mode)))
    if len(profiles) == len(experiment.profiles):
        hint = "name a --model, or leave --lessons out"
        raise UserError("no profile calls a model that could read lessons", hint=hint)
    return replace(experiment, profiles=tuple(profiles))


def of_one_model(models: Iterable[NightModel]) -> list[NightModel]:
    """The models of a night; a profile with lessons is of the same one as its control, and is not checked again."""
    found = {one.profile: one for one in models}
    for key, one in found.items():
        control = found.get(key.removesuffix(_SUFFIX))
        if control is not None and control is not one:
            found[key] = msgspec.structs.replace(one, spec=control.spec, facts={})
    return list(found.values())
