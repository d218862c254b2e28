"""`[evolver]` of a training plan."""

from typing import Any

from terminalbench import registry
from terminalbench.errors import did_you_mean
from terminalbench.strict import Problems, key, table


@table
class RangeTable:
    """`[evolver.ranges.<option>]`: the values that an option of the agent may have."""

    low: float = key("Smallest value.", required=True)
    high: float = key("Largest value.", required=True)
    step: float | None = key("Distance between two values.", above=0)
    whole: bool = key("Whole numbers only.", default=False)
    log: bool = key("Search on a logarithmic scale; cannot be combined with a step.", default=False)

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of them."""
        number = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def problem(self) -> str | None:
        """Return what is wrong with it."""
        if self.low >= self.high:
            return f"low {self.low:g} is not below high {self.high:g}"
        if self.whole and not all(float(one or 0).is_integer() for one in (self.low, self.high, self.step)):
            return "whole, but low, high or step is not"
        if self.log and (self.low <= 0 or self.step is not None):
            return "log needs a low above 0 and no step"
        return None


@table
class EvolverTable:
    """`[evolver]`: who proposes variants."""

    name: str = key(
        "`listed`: the variants in this file; `reflect`: one a night, from the failures of the champion; `gepa`: "
        "sections of the prompt, rewritten by a model; `grid`: values of numeric options; `agent`: the edit of a "
        "coding agent, one a night; or an evolver of another package, by name or as `pkg.mod:Class`.",
        default="listed",
        non_empty=True,
    )
    candidates: int = key("How many variants a night explores.", default=4, minimum=1, maximum=64)
    model: str | None = key(
        "Chat model of the evolver (`ollama:NAME`, a LiteLLM name, ...). `reflect` without a model uses built-in "
        "rules.",
        non_empty=True,
    )
    usd: float | None = key(
        "Budget of that model or agent in dollars a night. Default for the agent: a tenth of `budget.usd`.",
        above=0,
    )
    ranges: dict[str, RangeTable] = key(
        "Options that `grid` tries.",
        factory=dict,
        example="{ max_turns = { low = 10, high = 80, whole = true } }",
    )
    options: dict[str, Any] = key("Settings of an evolver of another package.", factory=dict)
    profile: dict[str, Any] | None = key(
        "The coding agent of the evolver `agent`, as `[profiles.<key>]` of an experiment."
    )


ASKING = ("reflect", "gepa")
"""The evolvers that ask a chat model."""


def check_evolver(table: EvolverTable, variants: int, problems: Problems) -> None:
    """Find what does not fit the evolver that is named: a key that it does not read would be a wish that is lost."""
    if problems.at("evolver") or problems.at("variants"):
        return
    if registry.import_path("evolvers", table.name) is None:
        hint = did_you_mean(table.name, registry.names("evolvers"))
        problems.add("evolver.name", f'no evolver is called "{table.name}"', hint)
    for name, one in table.ranges.items():
        if wrong := one.problem():
            problems.add(f"evolver.ranges.{name}", wrong)
    if table.name in registry.BUILTIN["evolvers"]:  # another one knows what it reads
        _check_ours(table, variants, problems)


def _check_ours(table: EvolverTable, variants: int, problems: Problems) -> None:
    if table.options:
        problems.add("evolver.options", f"the evolver {table.name} does not use them")
    if table.name == "listed" and not variants:
        problems.add(
            "variants", "must have at least one entry for the evolver listed", "add [[variants]] with a reason"
        )
    if table.name != "listed" and variants:
        problems.add("variants", f"the evolver {table.name} does not use them", 'use evolver.name = "listed"')
    if (table.profile is not None) is not (table.name == "agent"):
        what = (
            "is required: it names the agent that edits"
            if table.name == "agent"
            else f"the evolver {table.name} does not use it"
        )
        problems.add("evolver.profile", what)
    if table.model is not None and table.name not in ASKING:
        problems.add("evolver.model", f"the evolver {table.name} uses no model")
    if bool(table.ranges) != (table.name == "grid"):
        what = "must name an option for the evolver grid" if not table.ranges else "are used by the evolver grid only"
        problems.add("evolver.ranges", what)
    if table.name == "gepa" and table.model is None:
        problems.add("evolver.model", "is required for gepa", "name the chat model that rewrites sections")
    if table.usd is not None and table.model is None and table.profile is None:
        problems.add("evolver.usd", "is the budget of a model, but no model is named", "add evolver.model")
