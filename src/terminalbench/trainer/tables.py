"""The tables of a training plan (TOML, version 1): every key, its type, default and one-line meaning."""

from typing import Any, Literal

from terminalbench.experiments.tables import SLUG, SLUG_DOC
from terminalbench.strict import key, table
from terminalbench.trainer.evolvers.tables import EvolverTable
from terminalbench.trainer.variants import Change

PLAN_VERSION = 1


@table
class BudgetTable:
    """`[budget]`: what a night may take."""

    trials: int = key("Trials of a night.", minimum=4, required=True, example="240")
    usd: float | None = key("What a night may spend in dollars, over all its batches.", above=0)
    control: float = key(
        "Share for the champion against the one before it; two fifths of that for the first, its own control. The "
        "rest is for the challenger on dev, and for the search where there is none.",
        default=0.25,
        above=0,
        below=1,
    )


@table
class SplitTable:
    """`[split]`: the parts of the environment, where its families have none yet (see `tbench trainer gym split`)."""

    seed: int = key("Draws which family goes where.", default=0, minimum=0)
    train: float = key("Share of the tasks that teach.", default=0.4, above=0)
    dev: float = key("Share of the tasks that measure.", default=0.4, above=0)
    holdout: float = key("Share of the tasks that are sealed.", default=0.2, above=0)


@table
class GateTable:
    """`[gate]`: what a challenger has to show."""

    alpha: float = key(
        "Chance that anything at all is promoted although nothing is better, over the whole plan: it is divided among "
        "the challengers.",
        default=0.05,
        above=0,
        maximum=0.5,
    )
    looks: int = key(
        "Nights that a challenger is measured, each a look at all of them.", default=5, minimum=1, maximum=20
    )
    challengers: int | None = key(
        "Challengers that may be measured. Default: as many as the nights have room for, `nights / looks`.", minimum=1
    )
    canary_nights: int = key(
        "Nights that a proven challenger is measured anew; only these count for what is claimed.",
        default=1,
        minimum=1,
        maximum=20,
    )
    cost_margin: float | None = key(
        "How much more a trial may cost, 0.25 is a quarter; without it cost decides nothing.", minimum=0
    )
    watch_nights: int = key(
        "Nights that are looked at together when the champion is watched.", default=5, minimum=1, maximum=60
    )
    unit: Literal["task", "family"] = key(
        "What counts as one independent observation. Families are safer, and need many of them on dev.", default="task"
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
    environment: str = key("What to train on, as `tbench trainer gym list` names it.", non_empty=True, required=True)
    nights: int = key("How many nights there are.", minimum=1, maximum=10_000, required=True)
    budget: BudgetTable = key("What a night may take.", required=True)
    lineage: str | None = key(
        "Whose champion it improves. Default: the slug.", pattern=SLUG, pattern_doc=SLUG_DOC, example='"starter"'
    )
    profile: dict[str, Any] | None = key(
        "The first champion, a table as `[profiles.<key>]` of an experiment; where the lineage has one, leave it out."
    )
    run: dict[str, Any] = key("As `[run]` of an experiment, but for what the training decides.", factory=dict)
    split: SplitTable = key("The parts of the environment.", factory=SplitTable)
    evolver: EvolverTable = key("Who proposes variants.", factory=EvolverTable)
    variants: list[Change] = key("Variants of the champion, for the evolver `listed`.", factory=list)
    gate: GateTable = key("What a challenger has to show.", factory=GateTable)
