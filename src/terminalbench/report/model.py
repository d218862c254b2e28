"""What a report says, as types: everything `report.html` and `comparison_report.md` show, and nothing else.

An anchor names a place within the page: `t<i>` a task, `t<i>p<j>` a profile on it, `p<j>` a profile,
`p<j>-<outcome>` its trials that ended so, `k<n>` a contrast.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from terminalbench.analytics.error_groups import FailureCause
from terminalbench.analytics.labels import FAILURE_CLASS, is_label
from terminalbench.analytics.model import Comparison, Contrast, ProfileSummary, TaskSummary
from terminalbench.index.queries import CellState
from terminalbench.records.trial import Finding, TaskRef, Trial


@dataclass(frozen=True)
class TrialRef:
    """One planned trial as it is listed, with the findings about it by name.

    `task` is the label of its task, `at` the places of its task and its profile in the report. `href` leads to its
    folder; None for one that never started.
    """

    cell: CellState
    task: str
    at: tuple[int, int]
    href: str | None
    findings: Mapping[str, Finding]

    @property
    def trial(self) -> Trial | None:
        """Its record, once it has ended."""
        return self.cell.row.trial if self.cell.row is not None else None

    @property
    def anchor(self) -> str:
        """The place of its task and profile in the list of trials."""
        return f"t{self.at[0]}p{self.at[1]}"

    @property
    def failure(self) -> str | None:
        """Why it did not pass, as a label; None when it was not analysed or passed."""
        value = self.findings[FAILURE_CLASS].value if FAILURE_CLASS in self.findings else None
        return value if isinstance(value, str) else None

    @property
    def failure_by(self) -> str | None:
        """The person who says why it did not pass; None where a rule does."""
        said = self.findings.get(FAILURE_CLASS)
        return said.analyzer.partition(":")[2] if said is not None and is_label(said) else None


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
    profile: str
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

    profile: str
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

    profile: str
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

    profile: str
    trials: int
    given_up: int
    retries: int
    escalations: int
    helped: int


@dataclass(frozen=True)
class FlakyRow:
    """A task that one profile passes and fails on different attempts."""

    trial: TrialRef
    summary: TaskSummary


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
    trend: tuple[BatchLine, ...] = ()
    picked_of: int | None = None
    """How many trials were planned, when only some of them are looked at."""
    pooled: tuple[str, ...] = ()
    """The batches the comparison is over, when they are more than the one the rest is about."""

    @property
    def contrasts(self) -> list[Contrast]:
        """The contrasts of its comparison."""
        return self.comparison.contrasts

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
