"""One iteration of a night, as `episodes.jsonl` holds it."""

from enum import StrEnum

import msgspec


class EpisodeStatus(StrEnum):
    """The measured part of an iteration. It says nothing of the score: that is the pass rate."""

    SUCCESS = "success"
    """Every planned trial has a verdict."""
    PARTIAL = "partial"
    """Some have one."""
    FAILED = "failed"
    """None has."""


class EpisodeSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One profile in one iteration, counted in trials: `total` were planned, `passed` and `failed` are measured.

    `errored` ended without a verdict, `not_run` never ran or were cut off. `pass_rate` is the mean over tasks of passed
    of measured, None when nothing was measured; `coverage` is the measured share of the planned trials.
    """

    total: int
    passed: int
    failed: int
    errored: int
    not_run: int
    pass_rate: float | None
    coverage: float | None

    @property
    def measured(self) -> int:
        """The number of trials with a verdict."""
        return self.passed + self.failed

    @property
    def status(self) -> EpisodeStatus:
        """The rule for the status of an episode."""
        if not self.measured:
            return EpisodeStatus.FAILED
        return EpisodeStatus.SUCCESS if self.measured == self.total else EpisodeStatus.PARTIAL


class EpisodeCost(msgspec.Struct, frozen=True, rename="camel"):
    """The cost of an iteration: the sum of what is known (None: nothing is), and how many trials did not say."""

    usd: float | None = None
    unknown_trials: int = 0


class Episode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One iteration of a night by one profile: one line of `episodes.jsonl`.

    `task_digest` is of the tasks and their contents together, None where one of them is unknown; with `profile_id` it
    says which episodes may be compared. `results_path` is relative to the project, or absolute outside of it.
    """

    id: str
    run_id: str
    iteration: int
    model: str
    status: EpisodeStatus
    summary: EpisodeSummary
    results_path: str
    suite: str
    suite_version: str
    suite_digest: str
    profile: str
    profile_id: str
    simulated: bool
    cost: EpisodeCost = msgspec.field(default_factory=EpisodeCost)
    task_digest: str | None = None
    code_digest: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
