"""What an analysis is made of: the rows that go in, the comparison that comes out. Written as `comparison.json`.

Rates and differences are fractions (0.031, not 3.1). `None` means unknown or not computable, never zero.
"""

from typing import Literal

import msgspec

from terminalbench.experiments.departures import DepartureKind
from terminalbench.index.queries import Rerun
from terminalbench.records.counts import Spend
from terminalbench.records.trial import Delivery, Outcome, TaskRef
from terminalbench.text.numbers import Metric
from terminalbench.text.outcomes import RUNNING

type Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
type LookMethod = Literal["obrien-fleming", "sign-flips", "growth"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One planned trial as the statistics see it. `trial` is `<batch>/<job>/<name>`, None when it never started.

    `spent` is what the trial that counts and every try it superseded (`superseded` of them) took together. `suspect`
    are reasons to doubt its number; `no_model`: its profile calls none and costs nothing. `rerun` says how a resume of
    its batch runs it again, None when it does not. `last` is how the last try ended where the
    attempt was run again after its verdict: the first verdict counts all the same. `broken` tries before the one that
    counts broke, `redrawn` of them after their agent had begun: what those would have come to is not known. Of these,
    `crashed` were ended by the agent itself, of which nothing was seen, or by the death of Harbor. One that is
    `running` has no outcome yet, and one that is `untested` left work that no test has judged: both are `NOT_RUN`. So
    is one that was `spared`: its comparisons needed it no more. `held`: what a resume of it needs first, since its
    budget is used up.
    """

    task: TaskRef
    profile: str
    attempt: int
    outcome: Outcome
    batch: str
    trial: str | None = None
    reason: str | None = None
    error_class: str | None = None
    agent_sec: float | None = None
    reward: float | None = None
    started_at: str | None = None
    finished_at: str | None = None
    task_digest: str | None = None
    environment: str | None = None
    agent_version: str | None = None
    model: str | None = None
    profile_id: str | None = None
    delivery: Delivery = Delivery()
    simulated: bool = False
    superseded: int = 0
    broken: int = 0
    redrawn: int = 0
    crashed: int = 0
    last: Outcome | None = None
    spent: Spend = Spend()
    suspect: tuple[str, ...] = ()
    no_model: bool = False
    rerun: Rerun | None = None
    held: str | None = None
    running: bool = False
    untested: bool = False
    spared: bool = False

    @property
    def state(self) -> str:
        """Return how it stands: its outcome, or that it runs."""
        return RUNNING if self.running else self.outcome.value

    @property
    def measured(self) -> bool:
        """Return whether the verifier's word counts."""
        return self.outcome is Outcome.PASSED or self.outcome is Outcome.FAILED

    @property
    def cost_usd(self) -> float | None:
        """Return what it cost; unknown as soon as the cost of one try is."""
        return None if self.spent.cost_unknown else self.spent.cost_usd

    @property
    def tokens(self) -> int | None:
        """Its tokens; unknown as soon as those of one try are."""
        return None if self.spent.tokens_unknown else self.spent.tokens


class Interval(msgspec.Struct, frozen=True):
    """A confidence interval, and the question it answers."""

    low: float
    high: float
    level: float
    method: str
    question: str = ""


class TaskSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile on one task: counts, the measured rate with its Jeffreys interval, the trials behind it."""

    task: TaskRef
    planned: int
    measured: int
    passed: int
    rate: float | None = None
    interval: Interval | None = None
    outcomes: dict[str, int] = {}
    flaky: bool = False
    trials: list[str] = []


class ProfileSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile over all its tasks.

    `rate` is the mean over tasks of the measured pass rate, `rate_all` counts every planned trial that was not
    measured as not passed. `coverage` is measured / planned. `pass_at` and `pass_hat` are keyed by k.
    """

    profile: str
    planned: int
    measured: int
    passed: int
    coverage: float
    tasks: list[TaskSummary]
    outcomes: dict[str, int]
    errors: dict[str, int] = {}
    rate: float | None = None
    rate_all: float | None = None
    interval: Interval | None = None
    pass_at: dict[int, float] = {}
    pass_hat: dict[int, float] = {}
    cost_usd: float | None = None
    cost_unknown_trials: int = 0
    superseded_trials: int = 0
    tokens: int | None = None
    tokens_unknown_trials: int = 0
    cost_per_success: float | None = None
    cost_per_success_interval: Interval | None = None
    mean_agent_sec: float | None = None
    mean_reward: float | None = None
    simulated: bool = False
    on_pareto_front: bool = False
    no_model: bool = False
    oracle: bool = False


class TaskDifference(msgspec.Struct, frozen=True):
    """One task of a contrast: the mean of the metric under each profile, and new minus old."""

    task: TaskRef
    new: float
    old: float
    difference: float


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One way to compare two profiles: over measured trials only, or over all that were planned.

    `new` and `old` are the means over the common tasks, `error` the standard error of their difference. Wins and losses
    are units (tasks or families) in which `new` is better or worse. `ratio` is how many times as much `new` takes (the
    geometric mean over `ratio_tasks` tasks: those where both take more than nothing); pass rates have none. `ratio_p`
    tests that ratio, by the signs of the logarithms.
    """

    units: int
    trials: int
    tasks: int = 0
    new: float | None = None
    old: float | None = None
    error: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    suite_interval: Interval | None = None
    p: float | None = None
    wins: int = 0
    losses: int = 0
    ties: int = 0
    ratio: float | None = None
    ratio_interval: Interval | None = None
    ratio_tasks: int = 0
    ratio_p: float | None = None


class SequentialPlan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a plan of looks says now, at look `look` of `looks` (0: before the first); p up to `level` decides at it.

    `sign-flips` and `growth` remember their looks: `decided_at` is the first that decided. `growth`: the trials became
    more without declared looks, so each time they did was one more. `never`: so few tasks can decide at no look.
    `chance`: how likely the end shows a difference or equivalence where all goes on as so far; only of `sign-flips`
    that have not decided. `spared` trials did not run, because the run ended early.
    """

    method: LookMethod
    decided: bool
    level: float | None = None
    look: int | None = None
    looks: int | None = None
    decided_at: int | None = None
    never: bool = False
    chance: float | None = None
    spared: int = 0


class MissingTrials(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Trials of the common tasks that were not measured (`new` and `old` of them), and the worst they can have been.

    `lowest` counts those of `new` as not passed and those of `old` as passed, `highest` the reverse: with every trial
    measured the result would lie between them. `verdict` is what there would be without them in mind; so many of them
    as `undone_by` say, gone against it, undo it (None: not even all, or it is not known); `exact`: no fewer do.
    `redrawn_new` and
    `redrawn_old` trials were run again after they broke, by a crash or at different rates: what they were at first is
    missing too.
    """

    new: int
    old: int
    redrawn_new: int = 0
    redrawn_old: int = 0
    lowest: Estimate
    highest: Estimate
    verdict: Verdict
    undone_by: int | None = None
    exact: bool = True


class Repeat(msgspec.Struct, frozen=True):
    """How to get back the trials of a batch that were not measured: one command, which runs so many `trials`.

    `before` is what has to be done first, where a used-up budget holds them back.
    """

    batch: str
    trials: int
    command: str
    before: str = ""


class Contrast(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`new` against `old`: the estimate under the declared rule, the other way beside it, and the verdict.

    `sentence` is what a person reads first. `p_adjusted` is Holm's over the contrasts of the report, and the intervals
    have the same adjustment. `refused` says why the two cannot be compared at all; `reason` why a verdict is
    inconclusive although a number beside it seems to decide. `notes` say which of two numbers answers what, where they
    seem to contradict each other. `changed` are tasks that were not the same task under both; `unmeasured` those with
    no value under either. `effect` is the declared difference that `trials_needed` would show. `units_needed` are the
    fewest that can show any difference, where there are fewer. `equivalence_interval` is what must lie within `margin`
    for `equivalent`: widened for the other contrasts, for trials not measured and for unseen tasks. `coverage_new` is
    the share of its trials, over all tasks of both, that were compared; `doubtful_new` that of these whose number is
    suspect. `smallest_detectable` assumes that every task gains alike, `smallest_in_third` is the mean difference where
    a third of the tasks gains all of it; both are None where no such gap can exist. `same_treatment`: what differs is
    noise. `strict_p`: of a verdict at one look, the p that assumes no symmetry, after Holm.
    """

    new: str
    old: str
    metric: Metric
    rule: Literal["exclude", "fail"]
    estimate: Estimate
    other_way: Estimate
    verdict: Verdict
    sentence: str
    p_adjusted: float | None = None
    unit: Literal["task", "family"] = "task"
    tasks: list[TaskDifference] = []
    only_new: list[TaskRef] = []
    only_old: list[TaskRef] = []
    smallest_detectable: float | None = None
    smallest_in_third: float | None = None
    trials_needed: int | None = None
    units_needed: int | None = None
    margin: float | None = None
    strict: bool = False
    equivalence_interval: Interval | None = None
    error_rate_p: float | None = None
    warnings: list[str] = []
    refused: list[str] = []
    reason: str | None = None
    changed: list[TaskRef] = []
    unmeasured: list[TaskRef] = []
    effect: float | None = None
    coverage_new: float | None = None
    coverage_old: float | None = None
    notes: list[str] = []
    doubtful_new: float | None = None
    doubtful_old: float | None = None
    missing: MissingTrials | None = None
    sequential: SequentialPlan | None = None
    same_treatment: bool = False
    strict_p: float | None = None


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A profile among three or more: a second opinion by partial pooling, never a verdict.

    `rate` is drawn towards those of the others as far as their spread may be luck; `low` to `high` holds the rate on
    tasks like these at `level`, `best_rank` to `worst_rank` are the fewest ranks that hold its own at `level` or more.
    `not_worse_than_best`: no other is shown to be better, over all pairs together. `on_front` is how sure its place on
    the Pareto front is; None without one.
    """

    profile: str
    rate: float
    low: float
    high: float
    level: float
    best_rank: int
    worst_rank: int
    not_worse_than_best: bool
    on_front: float | None = None


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Everything a report says about profiles. Pure function of rows and settings; no clock, no files.

    `departure_kinds` has the kind of each of `departures`. Readers of the JSON rely on `rule` and `coverage`: with a
    factory as default, they are always written.
    """

    batches: list[str]
    metric: Metric
    alpha: float
    baseline: str
    profiles: list[ProfileSummary]
    contrasts: list[Contrast]
    pareto: list[str] = []
    warnings: list[str] = []
    departures: list[str] = []
    rule: Literal["exclude", "fail"] = msgspec.field(default_factory=lambda: "exclude")
    coverage: float = msgspec.field(default_factory=lambda: 0.9)
    repeat: list[Repeat] = []
    departure_kinds: list[DepartureKind] = []
    pareto_note: str | None = None
    hypothesis: str | None = None
    k: int | None = None
    standings: list[Standing] = []
