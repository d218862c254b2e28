"""What a report says, as types: everything `report.html` and `comparison_report.md` show, and nothing else.

An anchor names a place within the page: `t<i>` a task, `t<i>p<j>` a profile on it, `p<j>` a profile,
`p<j>-<outcome>` its trials that ended so, `k<n>` a contrast.
"""

from dataclasses import dataclass, field

from terminalbench.analytics.causes import FailureCause
from terminalbench.analytics.model import Comparison, Contrast, ProfileSummary
from terminalbench.records.trial import Outcome, TaskRef


@dataclass(frozen=True)
class TrialRef:
    """One trial as it is listed: how it ended and where its folder is. `href` is None for one that never started."""

    task: int
    profile: int
    attempt: int
    outcome: Outcome
    state: str
    """Its outcome, or that it runs."""
    href: str | None = None
    name: str | None = None
    reason: str | None = None
    error_class: str | None = None
    failure: str | None = None
    failure_by: str | None = None
    """Who says so, when it is a person's word."""
    cost_usd: float | None = None
    tokens: int | None = None
    sec: float | None = None

    @property
    def anchor(self) -> str:
        """The place of its task and profile in the list of trials."""
        return f"t{self.task}p{self.profile}"


@dataclass(frozen=True)
class TaskLine:
    """One task and the trials of each profile on it, in the order of the profiles."""

    ref: TaskRef
    label: str
    cells: tuple[tuple[TrialRef, ...], ...]


@dataclass(frozen=True)
class ProfileLine:
    """One profile: its numbers, what it is, and the trials behind each outcome."""

    summary: ProfileSummary
    agent: str
    description: str | None
    outcomes: dict[str, tuple[TrialRef, ...]]
    cost: str


@dataclass(frozen=True)
class TrialGroup:
    """Trials that share something: a reason, a class, a doubt; of `labelled` ones a person says so."""

    what: str
    profile: int
    trials: tuple[TrialRef, ...]
    count: int
    labelled: int = 0


@dataclass(frozen=True)
class ShownCause:
    """One of the most frequent causes of a profile's failures, and where the trial lies that shows it.

    `control`: its profile calls no model, so nothing can be tried to mend it.
    """

    cause: FailureCause
    href: str | None = None
    control: bool = False


@dataclass(frozen=True)
class DeliveryRow:
    """Whether one part of a treatment reached the agent: in how many trials of those that can tell."""

    profile: int
    part: str
    reached: int
    known: int
    unknown: int
    detail: str = ""
    missing: tuple[TrialRef, ...] = ()


@dataclass(frozen=True)
class SupersededRow:
    """Trials of a profile that were run again: their cost counts, their results do not."""

    profile: str
    count: int
    cost: str
    trials: tuple[tuple[str, str, str], ...]
    """Task, why it was set aside or how it ended, and the link to its folder; the first few."""


@dataclass(frozen=True)
class ToolUseRow:
    """Tool calls of one profile by kind, over the trials whose trajectory could be read."""

    profile: int
    calls: dict[str, int]
    trials: int


@dataclass(frozen=True)
class Effort:
    """One trial's tokens and how often it went back to edit what it had edited."""

    trial: TrialRef
    tokens: int
    backtracks: int


@dataclass(frozen=True)
class WorkflowUse:
    """Guarded workflows of one profile: attempts that were retried, and escalations with those that helped."""

    profile: int
    trials: int
    given_up: int
    retries: int
    escalations: int
    helped: int


@dataclass(frozen=True)
class FlakyRow:
    """A task that one profile passes and fails on different attempts."""

    label: str
    trial: TrialRef
    profile: str
    passed: int
    measured: int
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class BatchLine:
    """One batch of a trend; `href` leads to that batch's own report where there is one."""

    batch: str
    created_at: str | None
    points: tuple[ProfileSummary, ...]
    cost: str
    href: str | None = None


@dataclass(frozen=True)
class Report:
    """A batch, told from the answer to the evidence. Made by `build_report`; pure data."""

    title: str
    batch: str
    created_at: str | None
    version: str
    comparison: Comparison
    contrasts: tuple[Contrast, ...]
    profiles: tuple[ProfileLine, ...]
    tasks: tuple[TaskLine, ...]
    analysed: bool
    simulated: bool
    facts: tuple[tuple[str, str], ...]
    not_measured: tuple[TrialGroup, ...] = ()
    suspects: tuple[TrialGroup, ...] = ()
    failures: tuple[TrialGroup, ...] = ()
    causes: tuple[ShownCause, ...] = ()
    next_steps: tuple[str, ...] = ()
    judged: tuple[TrialGroup, ...] = ()
    tools: tuple[ToolUseRow, ...] = ()
    efforts: tuple[Effort, ...] = ()
    workflows: tuple[WorkflowUse, ...] = ()
    given_up: tuple[TrialGroup, ...] = ()
    flaky: tuple[FlakyRow, ...] = ()
    delivery: tuple[DeliveryRow, ...] = ()
    superseded: tuple[SupersededRow, ...] = ()
    notes: tuple[str, ...] = ()
    trend: tuple[BatchLine, ...] = field(default=())
    picked_of: int | None = None
    """How many trials were planned, when only some of them are looked at."""
    pooled: tuple[str, ...] = ()
    """The batches the comparison is over, when they are more than the one the rest is about."""

    @property
    def planned(self) -> int:
        """Return how many trials were planned."""
        return sum(line.summary.planned for line in self.profiles)

    @property
    def measured(self) -> int:
        """Return how many were measured."""
        return sum(line.summary.measured for line in self.profiles)

    def causes_of_profiles(self) -> list[tuple[str, list[ShownCause]]]:
        """The causes by profile: those that are compared first, controls last."""
        compared = {name for one in self.contrasts for name in (one.new, one.old)}
        found: dict[str, list[ShownCause]] = {}
        for one in self.causes:
            found.setdefault(one.cause.profile, []).append(one)
        return sorted(found.items(), key=lambda item: (item[0] not in compared, item[1][0].control))

    def profile_names(self) -> list[str]:
        """The profiles, in order."""
        return [line.summary.profile for line in self.profiles]
