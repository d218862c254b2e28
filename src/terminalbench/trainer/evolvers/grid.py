"""The evolvers `listed`, the variants that the plan names, each once, and `grid`: numeric options of the agent, chosen
by Optuna from what earlier nights have found.

Optuna keeps nothing: each night it is told what the nights before tried and how that did against the champion of then,
and draws from a seed of the night. The same nights give the same proposals.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from terminalbench.errors import UserError
from terminalbench.trainer.evolvers.search import Proposal, Search
from terminalbench.trainer.tables import RangeTable
from terminalbench.trainer.variants import Change


class ListedEvolver:
    """Proposes the plan's variants that were not tried before and that the champion does not have already."""

    def propose(self, search: Search) -> Iterator[Proposal]:
        """Those of the list that are new tonight."""
        for index, change in enumerate(search.plan.table.variants):
            proposal = Proposal(change)
            try:
                search.check(proposal, f"variants[{index}]")
            except UserError:  # the champion has it already, or it was tried
                continue
            yield proposal


AT_RANDOM = 6
"""So many results are needed before they guide a draw."""
DRAWS = 10
"""Draws for each candidate: many are of what was tried before, where there are few values."""


class GridEvolver:
    """Proposes values of the options in `evolver.ranges`. Raises UserError without Optuna."""

    def __init__(self) -> None:
        if find_spec("optuna") is None:
            hint = "pip install 'terminalbench[optuna]'"
            raise UserError("evolver grid needs the package optuna", where="evolver.name", hint=hint)

    def propose(self, search: Search) -> Iterator[Proposal]:
        """New values, the most promising first."""
        optuna = _optuna()
        ranges = search.plan.table.evolver.ranges
        space = {name: _distribution(optuna.distributions, one) for name, one in ranges.items()}
        sampler = optuna.samplers.TPESampler(seed=search.seed("grid"), n_startup_trials=AT_RANDOM, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for values, gain in told(search):
            study.add_trial(optuna.trial.create_trial(params=values, distributions=space, value=gain))
        proposed: list[Mapping[str, Any]] = []
        for _ in range(DRAWS * search.plan.table.evolver.candidates):
            values = study.ask(space).params
            proposal = Proposal(Change(reason=_reason(values), options=dict(values)))
            try:
                search.check(proposal, "grid")
            except UserError:  # the champion's own, tried before, or not for this agent
                continue
            if values not in proposed:
                proposed.append(values)
                yield proposal


def told(search: Search) -> Iterator[tuple[dict[str, Any], float]]:
    """The values that earlier nights explored, each with its gain on train over the champion of that night."""
    ranges, variants = search.plan.table.evolver.ranges, search.lineage.variants
    for night in search.before:
        rates = {one.id: one.passed / one.measured for one in night.explored if one.measured}
        base = rates.pop(night.champion, None)
        for profile, rate in rates.items():
            options = variants[profile].table.get("options", {})
            values = {name: options.get(name) for name in ranges}
            if base is not None and all(one.holds(values[name]) for name, one in ranges.items()):
                yield values, rate - base


def _distribution(kinds: Any, one: RangeTable) -> Any:
    if one.whole:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
    return kinds.FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def _reason(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in sorted(values.items()))


def _optuna() -> Any:
    found = import_module("optuna")
    found.logging.set_verbosity(found.logging.ERROR)
    return found
