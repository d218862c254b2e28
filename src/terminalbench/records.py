"""Everything that is written to disk and read again, one type each.

`None` means unknown in every field of every record: never zero, never false.
"""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.faults import ErrorClass


def stamp(moment: datetime) -> str:
    """A time (UTC) as events write it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def elapsed_sec(started_at: str | None, finished_at: str | None) -> float | None:
    """Seconds between two times; None when one is unknown, or the clock was set back in between."""
    if started_at is None or finished_at is None:
        return None
    seconds = (datetime.fromisoformat(finished_at) - datetime.fromisoformat(started_at)).total_seconds()
    return seconds if seconds >= 0 else None


def total[N: (int, float)](values: Iterable[N | None]) -> N | None:
    """The sum; None as soon as one of them is unknown, and of no values at all."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


def known_total[N: (int, float)](values: Iterable[N | None]) -> N | None:
    """The sum of those that are known; None when none is."""
    return total(value for value in values if value is not None)


class TaskRef(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """One task: its id within a dataset, and the family it belongs to for statistics.

    Dataset and id say which task it is: plans that know another family of it, or none, mean the same task.
    """

    id: str
    dataset: str
    family: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskRef) and self.id == other.id and self.dataset == other.dataset

    def __hash__(self) -> int:
        return hash((self.id, self.dataset))


class Outcome(StrEnum):
    """How a trial ended. Computed once, in `terminalbench.harbor.read.results`."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    NOT_RUN = "not_run"

    @property
    def measured(self) -> bool:
        """Whether the verifier's word counts: only these are in a pass rate."""
        return self in (Outcome.PASSED, Outcome.FAILED)


class AgentStatus(StrEnum):
    """What became of the agent itself, whatever the verifier said afterwards."""

    NOT_STARTED = "not_started"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    REFUSED = "refused"
    LIMIT_REACHED = "limit_reached"
    CANCELLED = "cancelled"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and money of one trial. `source` says where the tokens come from, `cost_source` the money.

    `input_tokens` are those sent fresh: neither read from nor written to the provider's cache.
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    source: str | None = None
    cost_source: str | None = None

    @property
    def known(self) -> bool:
        """Whether any number is known."""
        counts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens, self.output_tokens)
        return self.cost_usd is not None or any(count is not None for count in counts)

    @staticmethod
    def added(parts: "Sequence[Usage]", source: str | None, cost_source: str | None) -> "Usage":
        """Several together. A sum of which a part is unknown is unknown."""
        if len(parts) == 1:  # nearly every trial
            return msgspec.structs.replace(parts[0], source=source, cost_source=cost_source)
        return Usage(
            input_tokens=total(part.input_tokens for part in parts),
            cache_read_tokens=total(part.cache_read_tokens for part in parts),
            cache_write_tokens=total(part.cache_write_tokens for part in parts),
            output_tokens=total(part.output_tokens for part in parts),
            cost_usd=total(part.cost_usd for part in parts),
            source=source,
            cost_source=cost_source,
        )

    @property
    def total_tokens(self) -> int | None:
        """All tokens, cached ones too (not every provider has them); None unless in and out are both known."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)


class Phases(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds spent in each phase of a trial; the steps of a multi-step task are added up."""

    environment_sec: float | None = None
    agent_setup_sec: float | None = None
    agent_sec: float | None = None
    verifier_sec: float | None = None


CLOCK_JUMPED = "clock_jumped"
"""Why a trial is suspect during which the time of day was set, or Harbor stood still: its times are unknown."""

TAMPERING = "tampering:"
"""What the reason to doubt a result begins with, where its agent touched what was not its own."""

NO_ANSWER = "none"
"""The status of a request that had no answer: the provider was not reached, or the stream was cut off."""


class ProviderWait(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an agent waited for its model provider, by its client's own account.

    `refused` are the answers that were refusals, by HTTP status or `NO_ANSWER`; `backoff_sec` is what the client paused
    before its `retries`. `at_end` is how many refusals in a row, without an answer after them, were the last that the
    client told of its provider; `last` is the status of the last.
    """

    retries: int = 0
    backoff_sec: float | None = None
    refused: dict[str, int] = {}
    at_end: int = 0
    last: str | None = None


class Exposure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One lesson that a trial was eligible for: its chance to be shown, whether it was, and how long its text is.

    `own`: it comes from the task of the trial, or from its family.
    """

    lesson: str
    propensity: float
    shown: bool
    characters: int
    own: bool = False


class LessonsDelivery(msgspec.Struct, frozen=True):
    """What a trial was shown of a memory, written on the host by the agent that wraps its agent.

    `mode` is `masked` or `recall`, `snapshot` the digest of the lessons that its profile had for all tasks.
    """

    mode: str
    snapshot: str
    exposures: list[Exposure] = []


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the treatment reached the agent: what was configured, what was seen to work, what the agent had.

    From `told_by` on it is the agent's own account of its session (`told_by` says which), written inside the sandbox:
    shown and compared, never a reason for an outcome. `tools` are the built-in ones, those of MCP servers are in
    `mcp_tools` by server; `mcp_state` is how the session found each server; `mcp_undeclared` are servers that it had
    and nothing declares. `left_out` counts names beyond what is kept.
    """

    mcp_configured: list[str] | None = None
    mcp_connected: list[str] | None = None
    mcp_calls: dict[str, int] | None = None
    hooks_fired: dict[str, int] | None = None
    prompt_delivered: bool | None = None
    prompt_digest: str | None = None
    hooks_digest: str | None = None
    source_commit: str | None = None
    cli_version: str | None = None
    lessons: LessonsDelivery | None = None
    told_by: str | None = None
    model: str | None = None
    permission_mode: str | None = None
    tools: list[str] | None = None
    mcp_tools: dict[str, list[str]] | None = None
    mcp_state: dict[str, str] | None = None
    mcp_undeclared: list[str] | None = None
    slash_commands: list[str] | None = None
    skills: list[str] | None = None
    agents: list[str] | None = None
    left_out: int = 0


class Contact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host that a trial's sandbox connected to, or was kept from: how often, and bytes up and down.

    `by_agent` are the connections of the agent's own phase; `why` are the reasons of refusals.
    """

    host: str
    connections: int = 0
    by_agent: int = 0
    refused: int = 0
    up: int = 0
    down: int = 0
    why: list[str] = []


class Egress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went out of a trial's sandbox: the hosts, most contacted first; `left_out` of them are not named.

    `host_network`: commands used the network of the machine itself, `pasta`: one that pasta made. Of what went out by
    these nothing is seen. `upstreams` are the hosts of what the task says it was made from; None: it was not asked.
    """

    connections: int = 0
    refused: int = 0
    up: int = 0
    down: int = 0
    hosts: list[Contact] = []
    left_out: int = 0
    host_network: bool = False
    pasta: bool = False
    upstreams: list[str] | None = None

    @property
    def seen(self) -> bool:
        """Whether the numbers and the hosts are all there was."""
        return not self.host_network and not self.pasta


class Trial(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attempt at one task by one profile, as read from its folder.

    `reward` is the primary reward (the key "reward", else the only key). `profile` is known to the plan, not to
    Harbor, and `attempt` to the plugin that numbered it. Paths are relative to the job folder.
    """

    id: str
    name: str
    job: str
    task: str
    outcome: Outcome
    agent_status: AgentStatus
    job_id: str | None = None
    task_name: str | None = None
    dataset: str | None = None
    task_digest: str | None = None
    task_checksum: str | None = None
    profile: str | None = None
    attempt: int | None = None
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None
    reward: float | None = None
    rewards: dict[str, float] = {}
    error_class: ErrorClass | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_phase: str | None = None
    phases: Phases = Phases()
    started_at: str | None = None
    finished_at: str | None = None
    usage: Usage = Usage()
    wait: ProviderWait | None = None
    tool_calls: int | None = None
    agent_steps: int | None = None
    suspect: list[str] = []
    delivery: Delivery = Delivery()
    egress: Egress | None = None
    simulated: bool = False
    result_path: str | None = None
    trajectory_paths: list[str] = []

    @property
    def measured(self) -> bool:
        """Whether the verifier's word counts: only these trials are in a pass rate."""
        return self.outcome.measured

    @property
    def wall_sec(self) -> float | None:
        """Seconds from its start to its end; unknown when the clock jumped in between."""
        return None if CLOCK_JUMPED in self.suspect else elapsed_sec(self.started_at, self.finished_at)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an analyzer says about one trial: a truth, a number or a label, and where it saw it.

    `trial` is `<job>/<name>` within the batch. A `value` of None means the analyzer could not tell; `reason` says why.
    `steps` are step ids of the trajectory.
    """

    trial: str
    analyzer: str
    version: str
    name: str
    value: bool | int | float | str | None = None
    reason: str | None = None
    steps: list[int] = []


class LessonState(StrEnum):
    """Where a lesson stands: only an active one is ever shown to an agent."""

    CANDIDATE = "candidate"
    """Written, and not checked yet against the tasks that it comes from."""
    ACTIVE = "active"
    """Checked and clean, or approved by a person."""
    RETIRED = "retired"
    """Taken out of use: by a person, by its effect, or because it is part of another one now."""
    QUARANTINED = "quarantined"
    """A check found something in it; a person may approve it."""


class LessonScope(StrEnum):
    """For which tasks a lesson is meant, the widest first; all but `global` have a value."""

    GLOBAL = "global"
    SUITE = "suite"
    REPOSITORY = "repository"
    FAMILY = "family"
    TASK = "task"


class LessonKind(StrEnum):
    """What a lesson is about."""

    STRATEGY = "strategy"
    PITFALL = "pitfall"
    TOOL = "tool"
    ENVIRONMENT = "environment"
    CHECKING = "checking"


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What supports a lesson: a trial (`<slug>/<n>/<job>/<name>`), steps of its trajectory, and its words there."""

    trial: str
    steps: list[int] = []
    quote: str | None = None


class Utility(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect of showing a lesson on the chance to pass: mean and standard deviation of what is believed.

    `n` are the trials that it was learned from, all of one `model`, `shown` those that had it. `own`: of tasks that the
    lesson comes from; else of others, which is what it is worth. `simulated`: no real agent was measured.
    """

    mean: float
    sd: float
    n: int
    shown: int = 0
    model: str | None = None
    own: bool = False
    simulated: bool = False


class Lesson(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that memory holds, with what supports it.

    `importance` is what its author thinks of it, from 0 to 1: a prior, which `utility` replaces once trials with and
    without it were measured: of `effects`, one for each model, that of the most trials. `source_tasks` are the tasks
    (with their families) that it was learned from: the mask goes by them. `reason` is why it is in its state. `author`
    is a person's name, or that of a model or of a program. One that was learned from `simulated` trials is told to
    simulated agents only.
    """

    id: str
    do: str | None = None
    avoid: str | None = None
    kind: LessonKind = LessonKind.STRATEGY
    scope: LessonScope = LessonScope.GLOBAL
    scope_value: str | None = None
    tags: list[str] = []
    importance: float = 0.5
    evidence: list[Evidence] = []
    source_tasks: list[TaskRef] = []
    model: str | None = None
    profile: str | None = None
    state: LessonState = LessonState.CANDIDATE
    reason: str | None = None
    superseded_by: str | None = None
    utility: Utility | None = None
    effects: list[Utility] = []
    author: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    simulated: bool = False

    @property
    def text(self) -> str:
        """What an agent is told."""
        parts = (("Do", self.do), ("Avoid", self.avoid))
        return "\n".join(f"{word}: {said}" for word, said in parts if said)

    @property
    def families(self) -> list[str]:
        """The families of the tasks that it was learned from, each once."""
        return list(dict.fromkeys(task.family for task in self.source_tasks if task.family is not None))


class EventKind(StrEnum):
    """What an event tells. A file of another version may hold further kinds: they are shown as they are."""

    JOB_STARTED = "job_started"
    JOB_ENDED = "job_ended"
    JOB_DIED = "job_died"
    RESUMED = "resumed"
    TRIAL_WAITING = "trial_waiting"
    TRIAL_STARTED = "trial_started"
    TRIAL_HELD = "trial_held"
    TRIAL_PHASE = "trial_phase"
    TRIAL_ENDED = "trial_ended"
    TRIAL_CANCELLED = "trial_cancelled"
    HEARTBEAT = "heartbeat"
    CONTROL = "control"
    ALERT = "alert"
    NOTE = "note"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in its workflow a running trial is: step, attempt of the cycle, cycle of the step, both from 1.

    `retries` are the attempts so far that were not the first of their step in a cycle.
    """

    step: str
    attempt: int
    cycle: int
    retries: int = 0

    def __str__(self) -> str:
        return f"{self.step}, attempt {self.attempt}, cycle {self.cycle}"


COMPLETED_JOB = "completed"
"""`how` a job has ended whose Harbor process came to its end."""

HUNG_JOB = "hung"
"""`how` a job has ended whose Harbor process had to end because a trial in it could not be: nothing of it broke."""


class WaitKind(StrEnum):
    """What a trial that does not start yet waits for."""

    RATE_LIMIT = "rate_limit"
    RETRY = "retry"
    PAUSED = "paused"
    PARALLEL = "parallel"
    BUDGET = "budget"
    """What running trials hold of the budget."""
    FIRST_COST = "first_cost"
    """The first known cost of its profile: until then one trial runs at a time."""
    SHARE = "share"
    """What other profiles leave of their shares of the budget."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `events.jsonl`: something happened to a job or a trial. `time` is UTC, ISO 8601.

    `job_died` is the supervisor's: the Harbor process of a job ended before its job did, with `code` in `detail`.
    A waiting trial says in `error` what it waits for, and in `detail` the `cause` (a `WaitKind`) and `until` when; a
    held one never starts. `control` is an order to the live run with its reason in `error`
    and `action`, `target` and `by` in `detail`; `done` when a trial was ended by it. `alert` is the watchdog's: `error`
    is its message, `detail` its `cause`, `severity` (warning, error), `message`, `since`,
    and `state` (raised, cleared). `resumed` says how many trials of each profile a resume runs, in `detail`. `clock` is
    in seconds of the machine's boot (which `job_started` names in `detail`): setting the time does not move it.
    """

    time: str
    kind: str
    job: str
    pid: int
    profile: str | None = None
    trial: str | None = None
    task: str | None = None
    dataset: str | None = None
    attempt: int | None = None
    phase: str | None = None
    outcome: str | None = None
    reward: float | None = None
    error: str | None = None
    usage: Usage | None = None
    detail: dict[str, Any] = {}
    clock: float | None = None

    @classmethod
    def now(cls, kind: str, job: str = "", pid: int | None = None, **fields: Any) -> "Event":
        """An event that happens now, in this process unless `pid` is given."""
        return cls(stamp(datetime.now(UTC)), kind, job, os.getpid() if pid is None else pid, **fields)

    @property
    def job_died(self) -> bool:
        """Whether the job's Harbor process died. Before there was a kind for it, that was a note with a code."""
        return self.kind == EventKind.JOB_DIED or (self.kind == EventKind.NOTE and "code" in self.detail)

    @property
    def resumed(self) -> dict[str, int] | None:
        """The trials of each profile that a resume runs; None for other events. An earlier version wrote a note."""
        told = self.detail.get("resumed") if self.kind in (EventKind.RESUMED, EventKind.NOTE) else None
        return told if isinstance(told, dict) else None


class EpisodeStatus(StrEnum):
    """How much of an iteration was measured. It says nothing of the score: that is the pass rate."""

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
        """How many have a verdict."""
        return self.passed + self.failed

    @property
    def status(self) -> EpisodeStatus:
        """The rule for the status of an episode."""
        if not self.measured:
            return EpisodeStatus.FAILED
        return EpisodeStatus.SUCCESS if self.measured == self.total else EpisodeStatus.PARTIAL


class EpisodeCost(msgspec.Struct, frozen=True, rename="camel"):
    """What an iteration cost: the sum of what is known (None: nothing is), and how many trials did not say."""

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
