"""The content of `delta.json`: what changed from iteration to iteration, and the rule of its alerts.

`None` is unknown, or not compared. Rates and differences are fractions.
"""

from enum import StrEnum

import msgspec

from terminalbench.records.counts import Counts

ALPHA = 0.05
"""How often a night in which nothing changes may raise an alert."""
RULE = (
    "An alert is raised for an iteration that passes fewer trials than those before it: the exact test over tasks, all "
    "earlier attempts of the same profile id at the same tasks against its own, gives a one-sided p at or below its "
    "level. The levels of a night add up to at most 0.05: each of n planned comparisons has 0.05 / n; where the number "
    "of iterations is not planned, the k-th comparison has 0.05 / (k (k + 1)). Several profiles share the 0.05."
)


class TaskChange(StrEnum):
    """What became of a task since the iteration before."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    FLAKY = "flaky"
    """It passes and fails from time to time, and did so again."""
    UNCHANGED = "unchanged"
    NEW = "new"
    """No earlier iteration had it."""
    GONE = "gone"
    """The iteration before had it, this one has not."""
    OTHER_CONTENT = "other_content"
    """The task itself is another one now, or its content is not known: not compared."""
    UNMEASURED = "unmeasured"
    """It has no verdict, in this iteration or before: not compared."""


class TaskDelta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task. `before` is the iteration before, `earlier` all of them; `p` is Fisher's of now against `earlier`.

    `noise` is None where nothing is compared, or nothing changed. The trials are paths below the night's folder, those
    that show the change first.
    """

    task_id: str
    dataset: str
    change: TaskChange
    now: Counts = Counts()
    before: Counts | None = None
    earlier: Counts | None = None
    p: float | None = None
    p_adjusted: float | None = None
    noise: bool | None = None
    trials: list[str] = []
    trials_before: list[str] = []


class RegressionAlert(msgspec.Struct, frozen=True):
    """A regression that is more than noise: the one-sided p, the level that it had to reach, the tasks that fell."""

    message: str
    p: float
    level: float
    tasks: list[str]


class ProfileDelta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile against the `previous` iteration that measured it, and against all `earlier` ones.

    `difference` is the mean over the common tasks of the change since the previous one, with Student's interval over
    tasks. The p values are exact, two-sided. `sentence` is what a person reads, `since` the part of it on what changed.
    """

    profile: str
    profile_id: str
    previous: int | None
    earlier: list[int]
    tasks: list[TaskDelta]
    since: str
    sentence: str
    compared: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_previous: float | None = None
    p_earlier: float | None = None
    level: float | None = None
    alert: RegressionAlert | None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """`delta.json`: an iteration against those before it, by their numbers."""

    run_id: str
    iteration: int
    profiles: list[ProfileDelta]
    alpha: float = ALPHA
    alert_rule: str = RULE
    schema_version: int = 1
