"""`[evolver]` of a training plan."""

from typing import Literal

from terminalbench.strict import Problems, key, table


@table
class EvolverTable:
    """`[evolver]`: who proposes variants."""

    name: Literal["listed", "reflect", "gepa"] = key(
        "`listed`: the variants of this file, in their order; `reflect`: one a night from how the champion failed; "
        "`gepa`: sections of the prompt, rewritten by a model and tried out on train (extra `gepa`).",
        default="listed",
    )
    candidates: int = key("Variants that a night explores.", default=4, minimum=1, maximum=64)
    model: str | None = key(
        "Chat model that is asked (`ollama:NAME`, a LiteLLM name, ...). `reflect` without one proposes the advice of "
        "our own rules.",
        non_empty=True,
    )
    usd: float | None = key("What a night may pay that model, in dollars.", above=0)


ASKING = ("reflect", "gepa")
"""The evolvers that ask a chat model."""


def check_evolver(table: EvolverTable, variants: int, problems: Problems) -> None:
    """Find what does not fit the evolver that is named: a key that it does not read would be a wish that is lost."""
    if problems.at("evolver") or problems.at("variants"):
        return
    if table.name == "listed" and not variants:
        problems.add("variants", "must hold at least one for the evolver listed", "add [[variants]] with a reason")
    if table.name != "listed" and variants:
        problems.add("variants", f"the evolver {table.name} does not read them", 'use evolver.name = "listed"')
    if table.model is not None and table.name not in ASKING:
        problems.add("evolver.model", f"the evolver {table.name} asks none")
    if table.name == "gepa" and table.model is None:
        problems.add("evolver.model", "is required for gepa", "name the chat model that rewrites sections")
    if table.usd is not None and table.model is None:
        problems.add("evolver.usd", "is what a model may be paid, and none is named", "add evolver.model")
