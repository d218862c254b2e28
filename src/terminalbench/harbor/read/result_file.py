"""The parts of Harbor's trial `result.json` that we read, as msgspec types.

They decode from the file and, with `from_result`, from Harbor's own `TrialResult` object without dumping it
(a result can carry megabytes of token ids). Unknown fields are ignored; only the names are required.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import msgspec

from terminalbench.decode import convert, decoder
from terminalbench.experiments.lessons import AGENT as LESSONS_AGENT
from terminalbench.experiments.lessons import unwrapped
from terminalbench.llm.local.spec import shown_model

_ID_MARK = "::"


class Timing(msgspec.Struct, frozen=True):
    """The start and the end of a phase."""

    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """The duration of the phase, if both ends are known. None too when the clock was set back in between."""
        if self.started_at is None or self.finished_at is None:
            return None
        seconds = (as_utc(self.finished_at) - as_utc(self.started_at)).total_seconds()
        return seconds if seconds >= 0 else None


class ExceptionInfo(msgspec.Struct, frozen=True):
    """The exception Harbor recorded."""

    exception_type: str
    exception_message: str = ""
    exception_traceback: str = ""
    occurred_at: datetime | None = None


class AgentContext(msgspec.Struct, frozen=True):
    """The agent's own report. `n_input_tokens` includes cached tokens."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    metadata: dict[str, Any] | None = None


class VerifierResult(msgspec.Struct, frozen=True):
    """The rewards as the verifier gave them."""

    rewards: dict[str, Any] | None = None


class StepResult(msgspec.Struct, frozen=True):
    """One step of a multi-step task."""

    step_name: str = ""
    agent_result: AgentContext | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """The model as Harbor split its name."""

    name: str
    provider: str | None = None


class HarborAgentInfo(msgspec.Struct, frozen=True):
    """The agent that ran."""

    name: str
    version: str | None = None
    model_info: ModelInfo | None = None


class TaskId(msgspec.Struct, frozen=True):
    """The origin of the task: a path, a path in a git repository, or a package."""

    path: Any = None
    org: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        """The id a person uses: the task's folder name, or `org/name` of a package."""
        if self.path is not None:
            return PurePath(str(self.path)).name
        return "/".join(part for part in (self.org, self.name) if part)


class TaskConfig(msgspec.Struct, frozen=True):
    """The request for the task, and the dataset it was labelled with (`source`, see `task_source`)."""

    path: Any = None
    name: str | None = None
    source: str | None = None
    git_url: str | None = None

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that the task itself comes from."""
        found = re.search(r"(?:://(?:[^/@]*@)?|^[^/@]*@)([^/:]+)", self.git_url or "")
        return frozenset({found[1].lower()}) if found else frozenset()

    def __str__(self) -> str:
        """The task's id: the one its label gives, else its folder's name, or `org/name` of a package."""
        if (given := id_in(self.source)) is not None:
            return given
        return PurePath(str(self.path)).name if self.path is not None else self.name or ""

    @property
    def dataset(self) -> str | None:
        """The label of its dataset."""
        return label_in(self.source)


def task_source(label: str, task_id: str, config: Mapping[str, Any]) -> str:
    """Return what the trials of a planned task carry as Harbor's `source`: the label of its dataset.

    A task whose place does not tell its id (a registry names it otherwise) carries its id behind the label, so that
    its trials are found again. Harbor splits at "__", so there is none in it.
    """
    if str(TaskConfig(config.get("path"), config.get("name"))) == task_id:
        return label
    return f"{label}{_ID_MARK}{task_id.replace('%', '%25').replace('__', '%5F%5F')}"


def label_in(source: str | None) -> str | None:
    """The dataset's label in Harbor's `source`."""
    return None if source is None else source.partition(_ID_MARK)[0]


def id_in(source: str | None) -> str | None:
    """The task's id in Harbor's `source`, where it had to be given."""
    return unquote((source or "").partition(_ID_MARK)[2]) or None


class McpServer(msgspec.Struct, frozen=True):
    """A configured MCP server."""

    name: str


class AgentConfig(msgspec.Struct, frozen=True):
    """The configuration of the agent: its own, where it is wrapped to be given lessons."""

    name: str | None = None
    import_path: str | None = None
    model_name: str | None = None
    kwargs: dict[str, Any] = {}
    mcp_servers: list[McpServer] = []

    def __post_init__(self) -> None:
        if self.import_path != LESSONS_AGENT:
            return
        found = unwrapped({"import_path": self.import_path, "kwargs": self.kwargs})
        for name, default in (("name", None), ("import_path", None), ("kwargs", {})):
            msgspec.structs.force_setattr(self, name, found.get(name, default))


def agent_config(agent: Any) -> AgentConfig:
    """The same of an agent as Harbor has it in its own object."""
    return convert(agent, AgentConfig, from_attributes=True)


class EnvironmentConfig(msgspec.Struct, frozen=True):
    """The configuration of the environment."""

    import_path: str | None = None


class VerifierConfig(msgspec.Struct, frozen=True):
    """The configuration of the verifier."""

    disable: bool = False


class TrialConfig(msgspec.Struct, frozen=True):
    """The configuration of the trial. In a trial's `config.json` every default is left out."""

    trial_name: str | None = None
    job_id: Any = None
    task: TaskConfig = TaskConfig()
    agent: AgentConfig = AgentConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    verifier: VerifierConfig = VerifierConfig()
    install_only: bool = False


class HarborResult(msgspec.Struct, frozen=True):
    """A trial's `result.json`."""

    task_name: str
    trial_name: str
    id: Any = None
    task_id: TaskId = TaskId()
    source: str | None = None
    task_checksum: str | None = None
    config: TrialConfig = TrialConfig()
    agent_info: HarborAgentInfo | None = None
    agent_result: AgentContext | None = None
    verifier_result: VerifierResult | None = None
    exception_info: ExceptionInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    environment_setup: Timing | None = None
    agent_setup: Timing | None = None
    agent_execution: Timing | None = None
    verifier: Timing | None = None
    step_results: list[StepResult] | None = None

    @property
    def task(self) -> str:
        """The task's id: the one its label gives, its folder's name, a package's `org/name`, else its own name."""
        return id_in(self.source) or str(self.task_id) or self.task_name

    @property
    def dataset(self) -> str | None:
        """The label of its dataset."""
        return label_in(self.source)

    @property
    def agent(self) -> str | None:
        """The name of the agent."""
        return self.agent_info.name if self.agent_info else self.config.agent.name

    @property
    def model(self) -> str | None:
        """The model as it was asked for, with its provider if that was given."""
        if self.config.agent.model_name:
            return shown_model(self.config.agent.model_name)
        info = self.agent_info.model_info if self.agent_info else None
        if info is None:
            return None
        return f"{info.provider}/{info.name}" if info.provider else info.name

    @property
    def contexts(self) -> list[AgentContext]:
        """The agent's reports: one, or one for each step."""
        return _runs(self.agent_result, (step.agent_result for step in self.step_results or ()))

    @property
    def agent_timings(self) -> list[Timing]:
        """The agent's runs: one, or one for each step that got there."""
        return _runs(self.agent_execution, (step.agent_execution for step in self.step_results or ()))

    @property
    def verifier_timings(self) -> list[Timing]:
        """The verifier's runs: one, or one for each step that got there."""
        return _runs(self.verifier, (step.verifier for step in self.step_results or ()))


def _runs[T](whole: T | None, steps: Iterable[T | None]) -> list[T]:
    return [whole] if whole is not None else [one for one in steps if one is not None]


decode = decoder(HarborResult).decode
"""`result.json` decoded; raises `msgspec.DecodeError` (or `UnicodeDecodeError`) when it is not one."""


def from_result(result: Any) -> HarborResult:
    """The same from a dict, or from Harbor's `TrialResult` object by its attributes."""
    if isinstance(result, HarborResult):
        return result
    return convert(result, HarborResult, from_attributes=True)


def as_utc(time: datetime) -> datetime:
    """`time` in UTC; Harbor's trial times are UTC even where they do not say so."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def iso(time: datetime | None) -> str | None:
    """`time` as ISO 8601 in UTC with a Z."""
    return None if time is None else as_utc(time).isoformat().replace("+00:00", "Z")
