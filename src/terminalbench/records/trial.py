"""One attempt at one task: what came of it, what it cost, what reached the agent, and what is found about it."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from terminalbench.faults import ErrorClass
from terminalbench.records.values import elapsed_sec, total


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

    @property
    def name(self) -> str:
        """The task as a person names it among those of several datasets."""
        return f"{self.dataset}/{self.id}"


class Outcome(StrEnum):
    """The outcome of a trial. Computed once, in `terminalbench.harbor.read.results`."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    NOT_RUN = "not_run"

    @property
    def measured(self) -> bool:
        """True when the verifier's word counts: only these are in a pass rate."""
        return self in (Outcome.PASSED, Outcome.FAILED)

    @property
    def ended(self) -> bool:
        """True when the trial came to an end of its own: it was neither cut off nor never begun."""
        return self not in (Outcome.CANCELLED, Outcome.NOT_RUN)


class AgentStatus(StrEnum):
    """The end of the agent itself, whatever the verifier said afterwards."""

    NOT_STARTED = "not_started"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    REFUSED = "refused"
    LIMIT_REACHED = "limit_reached"
    CANCELLED = "cancelled"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and money of one trial. `source` says where the tokens come from, `cost_source` the money.

    `input_tokens` are those sent fresh: neither read from nor written to the provider's cache. `all_tokens` is a total
    that another tool told; of most its parts are unknown.
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    source: str | None = None
    cost_source: str | None = None
    all_tokens: int | None = None

    @property
    def known(self) -> bool:
        """True when any number is known."""
        counts = (self.input_tokens, self.cache_read_tokens, self.cache_write_tokens, self.output_tokens)
        counts = (*counts, self.all_tokens)
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
            all_tokens=total(part.all_tokens for part in parts),
        )

    @property
    def total_tokens(self) -> int | None:
        """All tokens, cached ones too (not every provider has them); None unless told, or in and out are both known."""
        if self.all_tokens is not None:
            return self.all_tokens
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
    """The waits of an agent for its model provider, by its client's own account.

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
    """The lessons that a trial was shown, written on the host by the agent that wraps its agent.

    `mode` is `masked` or `recall`, `snapshot` the digest of the lessons that its profile had for all tasks.
    """

    mode: str
    snapshot: str
    exposures: list[Exposure] = []


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Evidence that the treatment reached the agent: what was configured, what was seen to work, what the agent had.

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
    """The traffic that left a trial's sandbox: the hosts, most contacted first; `left_out` of them are not named.

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
        """True when the numbers and the hosts are complete."""
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
        """True when the verifier's word counts: only these trials are in a pass rate."""
        return self.outcome.measured

    @property
    def wall_sec(self) -> float | None:
        """Seconds from its start to its end; unknown when the clock jumped in between."""
        return None if CLOCK_JUMPED in self.suspect else elapsed_sec(self.started_at, self.finished_at)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The statement of an analyzer about one trial: a truth, a number or a label, and where it saw it.

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


class ReadState(StrEnum):
    """The state of a trial folder."""

    FINISHED = "finished"
    UNFINISHED = "unfinished"
    UNREADABLE = "unreadable"
    HELD = "held"


class TrialReading(msgspec.Struct, frozen=True, kw_only=True):
    """The readable content of one trial folder.

    `trial` is there when it finished. Otherwise `reason` says why not, and `task`, `dataset` and `usage` hold
    what is known all the same: an interrupted trial has spent money too.
    """

    state: ReadState
    name: str
    job: str
    trial: Trial | None = None
    reason: str | None = None
    task: str | None = None
    dataset: str | None = None
    usage: Usage = Usage()

    @classmethod
    def of(cls, trial: Trial, name: str) -> "TrialReading":
        """Return the reading of a folder called `name` whose trial has finished."""
        return cls(
            state=ReadState.FINISHED,
            name=name,
            job=trial.job,
            trial=trial,
            task=trial.task,
            dataset=trial.dataset,
            usage=trial.usage,
        )


SETUP_FILE = "setup.json"
"""The file of a trial that says which set-up it started from."""
ATTEMPT = "TBENCH_ATTEMPT"
"""The variable by which an agent is told which attempt of its task this is."""
ON_HOST = "host"
"""The base of a task for whose image this machine's own system stands."""


class SetupNote(msgspec.Struct, frozen=True):
    """The set-up that a trial started from, when it was made, and whether by this trial."""

    layer: str
    made_at: str
    made_here: bool
