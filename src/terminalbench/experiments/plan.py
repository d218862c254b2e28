"""The plan of a batch: one job per profile, and what was known when it was made.

Harbor runs a job's trials attempt by attempt, in each attempt task by task; the cells are listed in that order.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.experiments.agents import calls_model
from terminalbench.experiments.departures import Departure, DepartureKind, EarlierExtent, Extent, GrownFrom, earlier
from terminalbench.experiments.profile_changes import Difference, changes_since
from terminalbench.experiments.profiles import SNAPSHOT, policy_id
from terminalbench.experiments.tables import AnalysisTable, NotifyTable, ProfilePrice, RunTable, TopUpTable
from terminalbench.formats.source import digest_of
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import plural, some

HARBOR_PARALLEL = 4
"""Trials Harbor runs at once in a job when nobody says otherwise."""


HARBOR = "harbor"
"""The format of an import whose trials are Harbor's: their treatments are known."""


class PlannedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task of a job: what it is, where it comes from, and the label its trials carry in Harbor.

    `config` is Harbor's own description of the place. `found` is False while the dataset still has to be
    looked up in a registry, which happens when a run starts. `extra` are attempts beyond the job's, added by a top-up.
    `timeout_sec` is how long an agent may work on it, where the experiment says so. `folder` is where a task of another
    machine was brought to.
    """

    ref: TaskRef
    label: str
    config: dict[str, Any]
    found: bool = True
    extra: int = 0
    timeout_sec: float | None = None
    folder: str | None = None

    @property
    def own_folder(self) -> str | None:
        """The folder of a task that the experiment has on this machine; None for one of another machine."""
        return self.config.get("path") if self.found and "git_url" not in self.config else None


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Harbor job: all tasks of one profile."""

    name: str
    profile: str
    profile_id: str
    attempts: int
    tasks: tuple[PlannedTask, ...]

    @property
    def trials(self) -> int:
        """Return how many trials it plans."""
        return sum(self.attempts_of(task) for task in self.tasks)

    def attempts_of(self, task: PlannedTask) -> int:
        """Return how often it attempts one of its tasks."""
        return self.attempts + task.extra


class Cell(msgspec.Struct, frozen=True):
    """One planned trial."""

    task: TaskRef
    profile: str
    attempt: int


class ProfileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A profile as it was when planned: everything its id is made of, the path of its env file, its declared costs.

    `recipe` says which aspects the content has; a plan of an earlier version has the first. `values` are digests of the
    variables that it refers to, as the batch started with them, secrets left out: not in the id, which needs no shell.
    `uploads` are digests of the files that its agent brought into its first trials: nothing says before which it will.
    """

    key: str
    id: str
    content: dict[str, Any]
    description: str | None = None
    env_file: str | None = None
    price: ProfilePrice | None = None
    recipe: int = 1
    values: dict[str, str] = {}
    uploads: dict[str, str] = {}
    likely_cost_usd: float | None = None
    parallel: int | None = None

    @property
    def oracle(self) -> bool:
        """Return whether it sees the hidden verdict: it is shown with a badge, and compared with no other."""
        return self.content.get("oracle") is True

    @property
    def policy_id(self) -> str:
        """The id of the profile whatever its memory held when it was planned: what stands over weeks."""
        return policy_id(self.content) if SNAPSHOT in (self.content.get("lessons") or {}) else self.id

    def changes(self, now: Mapping[str, Any]) -> list[Difference]:
        """Return what makes a profile of content `now` another treatment than this one, as far as it is known."""
        return changes_since(self.content, self.recipe, now)


class ExclusionKind(StrEnum):
    """The reason why planned trials do not run. Code acts on this; the sentence beside it is for people."""

    QUARANTINED = "quarantined"
    """A person left the task out, in the quarantine of the experiment."""
    PROFILE_REFUSED = "profile_refused"
    """The check before the run says that the profile cannot run."""
    TASK_REFUSED = "task_refused"
    """The check before the run says that the task cannot run, whatever the profile."""
    ABORTED = "aborted"
    """Harbor could not run them to an end, although the check before the run had no objection."""
    BUDGET = "budget"
    """The budget was used up before their turn came."""
    DEADLINE = "deadline"
    """The deadline of the run passed before their turn came."""
    STOPPED = "stopped"
    """An order to the live run, or the watchdog, stopped their profile before their turn came."""
    DECIDED = "decided"
    """The comparisons of their profile were decided, or past hope, before their turn came (`analysis.looks`)."""
    CANCELLED = "cancelled"
    """An order to the live run cancelled the trial before it started."""
    INTERRUPTED = "interrupted"
    """The run ended while the trial waited for its turn."""
    DISK_FULL = "disk_full"
    """The disk was full before their turn came."""
    CLUSTER_LOST = "cluster_lost"
    """The machines of the run were lost, or none had room, before their turn came."""
    NOT_STARTED = "not_started"
    """Their turn did not come, for a reason that a plan of an earlier version has only as a sentence."""


class Exclusion(msgspec.Struct, frozen=True, omit_defaults=True):
    """Planned trials that do not run: those of a task, of a profile, or of both together, and why.

    Always made with a kind; a plan of an earlier version has none, it is found out when the plan is read. There
    `errored` marked aborted trials.
    """

    reason: str
    errored: bool = False
    profile: str | None = None
    task: TaskRef | None = None
    kind: ExclusionKind | None = None

    def __post_init__(self) -> None:
        if self.kind is None:
            msgspec.structs.force_setattr(self, "kind", self._old_kind())

    def _old_kind(self) -> ExclusionKind:
        if self.errored:
            return ExclusionKind.ABORTED
        if self.reason.startswith("quarantined: "):
            return ExclusionKind.QUARANTINED
        if self.profile is None:
            return ExclusionKind.TASK_REFUSED
        if self.task is None:
            return ExclusionKind.PROFILE_REFUSED
        return ExclusionKind.BUDGET if self.reason.startswith("the budget of ") else ExclusionKind.NOT_STARTED


class BatchDeclaration(msgspec.Struct, frozen=True):
    """The trials that a batch was to measure before the first started: tasks as `dataset/id`, profiles, attempts."""

    tasks: tuple[str, ...]
    profiles: tuple[str, ...]
    attempts: int


class GitState(msgspec.Struct, frozen=True):
    """The commit of a repository, and whether files differ from it."""

    commit: str
    dirty: bool | None = None


class Provenance(msgspec.Struct, frozen=True):
    """The origin of a batch. None stands for what could not be found out, or was not recorded."""

    created_at: str | None = None
    experiment_file: str | None = None
    root: str | None = None
    experiment_sha256: str | None = None
    versions: dict[str, str] = {}
    platform: str | None = None
    git: GitState | None = None


def exclusion_lines(excluded: Iterable[Exclusion]) -> list[str]:
    """Return what is left out and why, a line for each reason."""
    found: dict[str, list[str]] = {}
    for one in excluded:
        who = " / ".join(filter(None, [one.profile, one.task.id if one.task else None]))
        found.setdefault(one.reason, []).append(who)
    return [f"{some(who)}: {reason}" for reason, who in found.items()]


class PlannedImages(msgspec.Struct, frozen=True, omit_defaults=True):
    """The images of a batch in the local sandbox: the digest of each by its name, and the base of each task.

    A base is the image of the task (`dataset/id`) with its digest and when it was built, or what stands for it.
    `prepared_at` is when builds were tried first, `failed` why those of tasks failed when they were tried last.
    """

    pins: dict[str, str] = {}
    bases: dict[str, str] = {}
    prepared_at: float | None = None
    failed: dict[str, str] = {}


class ImportRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The origin of trials that another tool ran: nothing was declared, and nothing can be run.

    `source` is what was named, `digest` its content when it was read, `rows` how many attempts it held and `rejected`
    how many rows were not used, by cause. `files` has size and time of each file then. `file` holds the trials.
    `earlier` are the digests of the source before it was read again.
    """

    format: str
    source: str
    digest: str
    options_digest: str
    at: str
    rows: int
    file: str
    rejected: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    files: dict[str, tuple[int, int]] = {}
    copied: bool = False
    earlier: tuple[str, ...] = ()

    @property
    def changed(self) -> str | None:
        """Return what of the source is not as it was read; None when all is. Read where size or time differ."""
        gone = [name for name in self.files if not Path(name).exists()]
        if gone:
            return f"{some(gone, 2)} {'is' if len(gone) == 1 else 'are'} gone"
        now = {name: (status.st_size, status.st_mtime_ns) for name in self.files for status in (Path(name).stat(),)}
        other = [name for name, before in self.files.items() if now[name] != tuple(before)]
        if not other or digest_of([Path(name) for name in self.files], Path(self.source)) == self.digest:
            return None
        return f"{some(other, 2)} changed"

    def notes_now(self) -> tuple[str, ...]:
        """Return what a reader of its numbers must know."""
        lines = [
            f"imported from {self.source} ({self.format}): the agent settings, machine and environment are unknown"
        ]
        lines += [f"{count} not used: {cause}" for cause, count in self.rejected.items()]
        lines += self.notes
        if self.earlier:
            lines.append(f"the source was read again {plural(len(self.earlier), 'time')} after it had changed")
        try:
            changed = self.changed
        except OSError as error:
            changed = f"it cannot be checked: {error.strerror}"
        if changed is not None:
            lines.append(f"since the import, {changed}; the results are those of {self.at[:10]}")
        return tuple(lines)


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """The trials that would run: one job per profile, in the order of the file.

    Written as plan.json, with what was found out before the first trial (`excluded`, `provenance`). `superseded` are
    trials (`<job>/<trial>`) that were run again on request, `died` the jobs whose Harbor died. `analysis`, `top_up` and
    `declared` are what was declared before the first trial; they stay as they are when the batch grows. `grown_from`
    say what it had each time it became more; a number stands for attempts alone. `departures` are decided after it.
    `task_files` are digests of the files of each task (`dataset/id`) that lies in a folder; of a task that is not
    there, they are unknown. `labels` are for people and for later selection; they decide nothing. `gate` is the gate
    it shares with other batches. `imported` says where results come from that were not run here.
    """

    slug: str
    name: str
    batch: int
    folder: str
    baseline: str
    jobs: tuple[JobSpec, ...]
    profiles: tuple[ProfileRecord, ...] = ()
    settings: RunTable = RunTable()
    analysis: AnalysisTable = AnalysisTable()
    top_up: TopUpTable | None = None
    notify: NotifyTable | None = None
    declared: BatchDeclaration | None = None
    grown_from: tuple[GrownFrom | int, ...] = ()
    labels: dict[str, str] = {}
    gate: str | None = None
    artifacts: tuple[str, ...] = ()
    selected_tasks: tuple[str, ...] = ()
    selected_profiles: tuple[str, ...] = ()
    selected_attempts: int | None = None
    excluded: tuple[Exclusion, ...] = ()
    superseded: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    departures: tuple[Departure | str, ...] = ()
    task_files: dict[str, dict[str, str]] = {}
    images: PlannedImages | None = None
    provenance: Provenance = Provenance()
    notes: tuple[str, ...] = ()
    imported: ImportRecord | None = None

    def place(self) -> Path:
        """The folder that it was planned for: recorded configurations name files there."""
        return Path(self.provenance.root or "") / self.folder

    def grown(self) -> tuple[EarlierExtent, ...]:
        """Return what it had before it became more, each time."""
        if self.declared is None:  # Harbor jobs that are not ours, whose times are known; an earlier version tells none
            return tuple(EarlierExtent(one.attempts) for one in self.grown_from if isinstance(one, GrownFrom))
        tasks = dict.fromkeys(task.ref.name for job in self.jobs for task in job.tasks)
        now = Extent(max((job.attempts for job in self.jobs), default=0), [*tasks])
        return earlier(self.grown_from, Extent(self.declared.attempts, self.declared.tasks), now)

    def departed(self) -> tuple[Departure, ...]:
        """The departures that the batch has recorded; an earlier version wrote sentences."""
        return tuple(d if isinstance(d, Departure) else Departure(DepartureKind.OTHER, d) for d in self.departures)

    def exclusions(self) -> Callable[[str, TaskRef], Exclusion | None]:
        """A function that says why a cell does not run, or None when it does; the first reason given counts.

        Made once for many cells: a batch can have thousands of both.
        """
        first: dict[tuple[str | None, TaskRef | None], int] = {}
        for place, exclusion in enumerate(self.excluded):
            first.setdefault((exclusion.profile, exclusion.task), place)

        def find(profile: str, task: TaskRef) -> Exclusion | None:
            keys = ((profile, task), (profile, None), (None, task), (None, None))
            places = [first[key] for key in keys if key in first]
            return self.excluded[min(places)] if places else None

        return find

    def record(self, profile: str) -> ProfileRecord | None:
        """A profile as it was planned; None where the plan does not tell."""
        return self._records.get(profile)

    @cached_property
    def _records(self) -> dict[str, ProfileRecord]:
        return {record.key: record for record in reversed(self.profiles)}

    def base_of(self, dataset: str | None, task: str | None) -> str | None:
        """Return what a task runs on: its image, or what stands for it; None where the plan does not tell."""
        return self.images.bases.get(f"{dataset}/{task}") if self.images is not None else None

    def without_model(self) -> frozenset[str]:
        """The profiles whose agent calls no model: they cost nothing, which is not unknown."""
        root = Path(self.provenance.root) if self.provenance.root else None
        return frozenset(p.key for p in self.profiles if not calls_model(str(p.content.get("agent")), root))

    def oracles(self) -> frozenset[str]:
        """The profiles that see the hidden verdict: compared with no other."""
        return frozenset(record.key for record in self.profiles if record.oracle)

    def free(self) -> list[str]:
        """The profiles whose agent calls no model, or one that costs nothing."""
        priced = {record.key for record in self.profiles if record.price is not None and record.price.free}
        return sorted(self.without_model() | priced)

    def price_of(self, profile: str) -> ProfilePrice | None:
        """The price that a profile declares."""
        record = self.record(profile)
        return record.price if record is not None else None

    def runnable(self, job: JobSpec) -> JobSpec:
        """The job without what is excluded."""
        excluded = self.exclusions()
        return msgspec.structs.replace(job, tasks=tuple(t for t in job.tasks if excluded(job.profile, t.ref) is None))

    def at_once(self, profile: str) -> int:
        """The trials of a profile that run at once, as planned."""
        return self.own_parallel(profile) or self.settings.parallel or HARBOR_PARALLEL

    def own_parallel(self, profile: str) -> int | None:
        """`parallel` of a profile; None where `run.parallel` decides."""
        return next((record.parallel for record in self.profiles if record.key == profile), None)

    def all_notes(self) -> tuple[str, ...]:
        """Its notes, and which datasets a run has to look up first: known from the tasks, as long as it is so."""
        unknown = dict.fromkeys(task.ref.dataset for job in self.jobs for task in job.tasks if not task.found)
        said = "its tasks are looked up in the registry when a run starts, and then sorted into the order"
        return (*self.notes, *(f"{name}: {said}" for name in unknown))

    def cells(self) -> list[Cell]:
        """Every planned trial: profile by profile, each attempt by attempt, each task in the order of the file."""
        return [
            Cell(task.ref, job.profile, attempt)
            for job in self.jobs
            for attempt in range(1, max(map(job.attempts_of, job.tasks), default=0) + 1)
            for task in job.tasks
            if attempt <= job.attempts_of(task)
        ]
