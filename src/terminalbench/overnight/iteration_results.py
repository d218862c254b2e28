"""What a batch of a night measured, task by task and profile by profile: the content of `results.json`.

`None` is unknown. Counts are trials; a pass rate is the mean over tasks of passed of measured, as everywhere.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

import msgspec

from terminalbench.analytics.model import Row
from terminalbench.analytics.rows import rows_of
from terminalbench.index.places import PlanFacts
from terminalbench.index.queries import BatchView, CellState
from terminalbench.json_files import encode_line
from terminalbench.overnight.night import NightConfig
from terminalbench.records.counts import Spend, pass_rates
from terminalbench.records.episode import EpisodeSummary
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.records.values import copied


class TrialResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One planned trial. `agent_status` is what became of the agent, whatever the verifier said of its work.

    `path` is the folder of the trial, relative to that of the night; both are None for one that never started. Cost and
    tokens are of every try; None as soon as one is unknown. `tries` were run in its place before.
    """

    attempt: int
    outcome: Outcome
    agent_status: str | None = None
    reward: float | None = None
    error_class: str | None = None
    reason: str | None = None
    trial: str | None = None
    path: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    wall_sec: float | None = None
    agent_sec: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    tries: int = 0


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """One profile at one task. `errored` ended without a verdict, `not_run` never ran or were cut off.

    `category` and `difficulty` are what the suite says of it, else the task itself; None where neither does.
    """

    task_id: str
    dataset: str
    family: str | None
    digest: str | None
    attempts: int
    passed: int
    failed: int
    errored: int
    not_run: int
    cost_usd: float | None
    cost_unknown: int
    mean_agent_sec: float | None
    trials: list[TrialResult]
    category: str | None = None
    difficulty: str | None = None

    @property
    def ref(self) -> TaskRef:
        """Return which task it is."""
        return TaskRef(self.task_id, self.dataset, self.family)

    @property
    def measured(self) -> int:
        """Return how many have a verdict."""
        return self.passed + self.failed


class MeasuredProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile did, in one iteration or in several: its counts, its rate, and what it took."""

    profile: str
    profile_id: str
    model: str
    simulated: bool
    no_model: bool
    total: int
    passed: int
    failed: int
    errored: int
    not_run: int
    pass_rate: float | None
    coverage: float | None
    cost_usd: float | None
    cost_unknown: int
    tokens: int | None
    tokens_unknown: int

    @property
    def measured(self) -> int:
        """Return how many have a verdict."""
        return self.passed + self.failed


class ProfileResult(MeasuredProfile, frozen=True, kw_only=True):
    """One profile in one iteration. `task_digest` is of all its tasks together; None where one of them is unknown."""

    task_digest: str | None
    started_at: str | None
    finished_at: str | None
    tasks: list[TaskResult]

    def summary(self) -> EpisodeSummary:
        """Its counts as an episode has them."""
        return EpisodeSummary(
            self.total, self.passed, self.failed, self.errored, self.not_run, self.pass_rate, self.coverage
        )


class IterationResults(msgspec.Struct, frozen=True, kw_only=True):
    """`results.json`: an iteration as its batch has it. `batch` is its folder below `batches/`."""

    run_id: str
    iteration: int
    suite_name: str
    suite_version: str
    suite_digest: str
    batch: str
    seed: int | None
    created_at: str | None
    profiles: list[ProfileResult]
    schema_version: int = 1

    def of(self, profile_id: str, profile: str) -> ProfileResult | None:
        """The profile with this id; of several that are equal the one that is called so."""
        same = [one for one in self.profiles if one.profile_id == profile_id]
        return next((one for one in same if one.profile == profile), same[0] if same else None)


def measure(view: BatchView, config: NightConfig, number: int) -> IterationResults:
    """The iteration `number` from its batch."""
    rows = rows_of([view])
    about = _about(view, rows, config)
    by_profile: dict[str, list[tuple[CellState, Row]]] = {job.profile: [] for job in view.plan.jobs}
    for cell, row in zip(view.cells, rows, strict=True):
        by_profile[cell.profile].append((cell, row))
    specs = {model.profile: model.spec for model in config.models}
    ids = PlanFacts.of(view.plan).policy_ids  # memory may learn during the night: the profile is what it was
    return copied(
        IterationResults,
        config,
        iteration=number,
        batch=view.batch,
        seed=view.plan.settings.seed,
        created_at=view.plan.provenance.created_at,
        profiles=[
            _profile(name, ids[name], specs.get(name, name), found, about, view) for name, found in by_profile.items()
        ],
    )


@dataclass(frozen=True)
class _TaskFacts:
    """What is known of a task besides its trials."""

    digest: str | None
    category: str | None
    difficulty: str | None


def _about(view: BatchView, rows: Sequence[Row], config: NightConfig) -> dict[TaskRef, _TaskFacts]:
    """Return what the suite says of each task, and its content: of its files where they are, else what Harbor says."""
    told: dict[TaskRef, set[str]] = defaultdict(set)
    for row in rows:
        told[row.task] |= {row.task_digest} if row.task_digest is not None else set()
    suite = {(task.dataset, task.id): task for task in config.suite_tasks}
    found: dict[TaskRef, _TaskFacts] = {}
    for ref, seen in told.items():
        files = view.plan.task_files.get(ref.name)
        only = next(iter(seen)) if len(seen) == 1 else None
        digest = sha256(encode_line(sorted(files.items()))).hexdigest() if files else only
        said = suite.get((ref.dataset, ref.id))
        category = (said.category if said is not None else None) or ref.family
        found[ref] = _TaskFacts(digest, category, said.difficulty if said is not None else None)
    return found


def together(tasks: Sequence[TaskResult]) -> str | None:
    """One digest of tasks and their contents; None where the content of one is unknown."""
    if not tasks or any(task.digest is None for task in tasks):
        return None
    lines = sorted((task.dataset, task.task_id, task.digest) for task in tasks)
    return sha256(encode_line(lines)).hexdigest()


def _profile(
    name: str,
    profile_id: str,
    model: str,
    found: Sequence[tuple[CellState, Row]],
    about: dict[TaskRef, _TaskFacts],
    view: BatchView,
) -> ProfileResult:
    by_task: dict[TaskRef, list[tuple[CellState, Row]]] = defaultdict(list)
    for cell, row in found:
        by_task[row.task].append((cell, row))
    tasks = [_task(ref, same, about[ref], view.batch) for ref, same in by_task.items()]
    counts = _counts([cell for cell, _ in found])
    measured = counts["passed"] + counts["failed"]
    spent = Spend.total(row.spent for _, row in found)
    started = [row.started_at for _, row in found if row.started_at]
    finished = [row.finished_at for _, row in found if row.finished_at]
    return ProfileResult(
        profile=name,
        profile_id=profile_id,
        model=model,
        simulated=any(row.simulated for _, row in found),
        no_model=name in view.plan.without_model(),
        task_digest=together(tasks),
        total=len(found),
        **counts,
        pass_rate=pass_rates(cell for cell, _ in found).rate,
        coverage=measured / len(found) if found else None,
        **msgspec.structs.asdict(spent),
        started_at=min(started, default=None),
        finished_at=max(finished, default=None),
        tasks=tasks,
    )


def _counts(cells: Sequence[CellState]) -> dict[str, int]:
    found = [cell.outcome for cell in cells]
    return {
        "passed": found.count(Outcome.PASSED),
        "failed": found.count(Outcome.FAILED),
        "errored": sum(one.ended and not one.measured for one in found),
        "not_run": sum(not one.ended for one in found),
    }


def _task(ref: TaskRef, found: Sequence[tuple[CellState, Row]], about: _TaskFacts, batch: str) -> TaskResult:
    spent = Spend.total(row.spent for _, row in found)
    seconds = [row.agent_sec for _, row in found if row.agent_sec is not None]
    return copied(
        TaskResult,
        ref,
        task_id=ref.id,
        **asdict(about),
        attempts=len(found),
        **_counts([cell for cell, _ in found]),
        cost_usd=spent.cost_usd,
        cost_unknown=spent.cost_unknown,
        mean_agent_sec=sum(seconds) / len(seconds) if seconds else None,
        trials=[_trial(cell, row, batch) for cell, row in found],
    )


def _trial(cell: CellState, row: Row, batch: str) -> TrialResult:
    started = cell.row if row.trial is not None else None
    trial = started.trial if started is not None else None
    return copied(
        TrialResult,
        row,
        outcome=cell.outcome,
        error_class=str(row.error_class) if row.error_class is not None else None,
        reason=cell.reason,
        trial=started.key if started is not None else None,
        path=f"batches/{batch}/{started.folder}" if started is not None else None,
        tries=row.superseded,
        reward=trial.reward if trial is not None else None,
        wall_sec=trial.wall_sec if trial is not None else None,
        agent_status=trial.agent_status.value if trial is not None else None,
    )
