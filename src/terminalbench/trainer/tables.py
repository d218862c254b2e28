"""The tables of a training plan (TOML, version 1): every key and its meaning; and what a night spends on its parts."""

from dataclasses import dataclass
from typing import Any, Literal

from terminalbench import registry
from terminalbench.errors import did_you_mean
from terminalbench.experiments.tables import SLUG, SLUG_DOC
from terminalbench.strict import Problems, key, table
from terminalbench.trainer.variants import Change


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


PLAN_VERSION = 1


@table
class BudgetTable:
    """`[budget]`: what a night may take."""

    trials: int = key("Trials per night.", minimum=4, required=True, example="240")
    usd: float | None = key("Dollars per night.", above=0)
    control: float = key(
        "Share of the trials that compares the champion with the previous one; two fifths of it compares the first "
        "champion with itself.",
        default=0.25,
        above=0,
        below=1,
    )


@table
class SplitTable:
    """`[split]`: the parts of the environment, where its families have none yet (see `tbench trainer gym split`)."""

    seed: int = key("Seed of the random split of families.", default=0, minimum=0)
    train: float = key("Share of the tasks to learn from.", default=0.4, above=0)
    dev: float = key("Share of the tasks to measure gains on.", default=0.4, above=0)
    holdout: float = key("Share of the tasks held out until the end.", default=0.2, above=0)


@table
class GateTable:
    """`[gate]`: what a challenger has to show."""

    alpha: float = key(
        "Probability, over the whole plan, that a variant is promoted although it is not better.",
        default=0.05,
        above=0,
        maximum=0.5,
    )
    looks: int = key(
        "Nights in which a challenger is measured; each is a declared look.", default=5, minimum=1, maximum=20
    )
    challengers: int | None = key("Challengers that may be measured. Default: `nights / looks`.", minimum=1)
    canary_nights: int = key(
        "Nights in which a proven challenger is measured again.",
        default=1,
        minimum=1,
        maximum=20,
    )
    cost_margin: float | None = key(
        "How much more a trial of the challenger may cost: 0.25 is a quarter more.", minimum=0
    )
    watch_nights: int = key(
        "Nights that are pooled to check that the champion has not become worse.", default=5, minimum=1, maximum=60
    )
    unit: Literal["task", "family"] = key(
        "What is counted: tasks or families, as in `tbench compare`. Families are safer, but need many on dev.",
        default="task",
    )


@table
class PlanTable:
    """The top of the file."""

    schema_version: int = key("Must be 1.", minimum=PLAN_VERSION, maximum=PLAN_VERSION, example="1", required=True)
    slug: str = key(
        "Name of the training and of its batches, at most 100 characters.",
        pattern=SLUG,
        pattern_doc=SLUG_DOC,
        example='"starter-prompts"',
        required=True,
    )
    environment: str = key(
        "Environment to train on, as named by `tbench trainer gym list`.", non_empty=True, required=True
    )
    nights: int = key("Number of nights.", minimum=1, maximum=10_000, required=True)
    budget: BudgetTable = key("Limits of a night.", required=True)
    lineage: str | None = key(
        "Lineage whose champion is improved. Default: the slug.",
        pattern=SLUG,
        pattern_doc=SLUG_DOC,
        example='"starter"',
    )
    profile: dict[str, Any] | None = key(
        "The first champion, like `[profiles.<key>]` of an experiment; only if the lineage has no champion yet."
    )
    run: dict[str, Any] = key(
        "Like `[run]` of an experiment, without the keys that the training decides.", factory=dict
    )
    split: SplitTable = key("How the tasks are split.", factory=SplitTable)
    evolver: EvolverTable = key("What proposes variants.", factory=EvolverTable)
    variants: list[Change] = key("Variants of the champion, for the evolver `listed`.", factory=list)
    gate: GateTable = key("What a challenger must show to be promoted.", factory=GateTable)


EVOLVER_SHARE = 0.1
"""What a coding agent that edits profiles may have of a night's money, where the plan does not say."""
ITSELF_SHARE = 0.4
"""How much of the control's share a champion has that is measured against itself: nothing is decided by that."""


@dataclass(frozen=True)
class NightParts:
    """Trials of each part, of all profiles together."""

    control: int
    explore: int
    confirm: int


def control_share(budget: BudgetTable, *, watching: bool) -> float:
    """The share of the control: all of it for a champion against the one before it, less for one against itself."""
    return budget.control * (1.0 if watching else ITSELF_SHARE)


def night_parts(budget: BudgetTable, *, challenger: bool, exploring: bool, watching: bool) -> NightParts:
    """Return how the trials of a night are divided: what is not the control's has the search, or the challenger.

    So a challenger is decided in few nights, its looks are equally large, and nothing is searched for that would wait.
    """
    control = control_share(budget, watching=watching)
    rest = int(budget.trials * (1 - control) + 1e-9)
    return NightParts(
        int(budget.trials * control + 1e-9), rest if exploring and not challenger else 0, rest if challenger else 0
    )


def agent_usd(budget: BudgetTable, evolver: EvolverTable) -> float | None:
    """Return what an edit by a coding agent may cost in a night; None without a limit, or where no agent edits."""
    if evolver.profile is None or evolver.usd is not None:
        return evolver.usd if evolver.profile is not None else None
    return budget.usd * EVOLVER_SHARE if budget.usd is not None else None


def search_usd(budget: BudgetTable, evolver: EvolverTable, *, watching: bool) -> float | None:
    """Return what the trials of a search may cost: its share, without what is kept for an agent that edits."""
    if budget.usd is None:
        return None
    return budget.usd * (1 - control_share(budget, watching=watching)) - (agent_usd(budget, evolver) or 0.0)
