"""Any agent, given lessons: before its instruction stand those that the draw of its trial shows.

Harbor is told to make a `LessonsAgent`; what it gets is the agent of the profile itself, whose set-up and run begin
here. So its name, model, options and what it can do are its own, in Harbor's files as in ours. The snapshot lies in the
folder of the batch, outside of every sandbox, and so does `lessons.json` of the trial, which tells what was shown.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.factory import AgentFactory
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trial.config import AgentConfig
from pydantic import BaseModel, ConfigDict

from terminalbench.errors import UserError
from terminalbench.experiments.lessons import OPTION, draw, read_snapshot, task_key, with_lessons
from terminalbench.harbor.attempt_numbers import ATTEMPT
from terminalbench.harbor.read.delivery import LESSONS
from terminalbench.harbor.read.result_file import TrialConfig
from terminalbench.json_files import decode_plain, write_json

_SIZE_LIMIT = 16 << 20

type Run = Callable[..., Awaitable[None]]


class WrappedAgent(BaseModel):
    """What the wrapper is told: the agent as Harbor would be, the snapshot with its digest, the seed of the draw."""

    model_config = ConfigDict(extra="forbid")

    agent: dict[str, str]
    snapshot: str
    digest: str
    seed: int | str


class LessonsAgent(BaseAgent):
    """Stands for an agent that is given lessons; see the module."""

    AGENT_INFO: ClassVar = {"any_options": True}

    def __new__(
        cls,
        logs_dir: Path,
        model_name: str | None = None,
        *,
        extra_env: dict[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """The agent itself, which Harbor then sets up and runs."""
        told = WrappedAgent.model_validate(options.pop(OPTION, None))
        config = AgentConfig.model_validate({**told.agent, "model_name": model_name, "env": extra_env or {}})
        agent = AgentFactory.create_agent_from_config(config, logs_dir=logs_dir, **options)
        _TrialLessons(agent, told, logs_dir.parent).begin()
        return agent

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None, env: Mapping[str, str] | None = None) -> None:
        """Check the options as the agent itself does."""
        options = dict(kwargs or {})
        told = WrappedAgent.model_validate(options.pop(OPTION, None))
        config = AgentConfig.model_validate(told.agent)
        AgentFactory.get_agent_class_from_config(config).preflight(kwargs=options, env=env)

    @staticmethod
    @override
    def name() -> str:
        return "lessons"

    @override
    def version(self) -> None:
        """That of the agent itself is told."""

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Never called: Harbor has the agent itself."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Never called: Harbor has the agent itself."""


class _TrialLessons:
    """The lessons of one trial."""

    def __init__(self, agent: Any, told: WrappedAgent, trial_dir: Path) -> None:
        self._agent, self._told, self._trial_dir = agent, told, trial_dir
        self._section: list[str] | None = None

    def begin(self) -> None:
        """Let the agent start with its lessons from here on. One that continues a session has them already."""
        self._agent.setup = self._first(self._agent.setup)
        self._agent.run = self._instructed(self._agent.run)
        self._agent.load = self._instructed(self._agent.load)

    def _first(self, setup: Run) -> Run:
        async def checked(*arguments: Any, **named: Any) -> None:
            self._shown()  # lessons that are gone or changed break the set-up, so that nothing is measured
            await setup(*arguments, **named)

        return checked

    def _instructed(self, run: Run) -> Run:
        async def instructed(instruction: str, *arguments: Any, **named: Any) -> None:
            await run(with_lessons(instruction, self._shown(), self._told.digest), *arguments, **named)

        return instructed

    def _shown(self) -> list[str]:
        """The texts that the trial is shown; what was drawn is written down before the agent knows of it."""
        if self._section is None:
            told = self._told
            snapshot = read_snapshot(Path(told.snapshot), told.digest)
            task = self._task()
            if task not in snapshot.tasks:
                raise UserError(f'has no entry for the task "{task}"', where=told.snapshot)
            drawn = draw(snapshot, told.digest, task, int(self._agent.extra_env.get(ATTEMPT, "1")), told.seed)
            write_json(self._trial_dir / LESSONS, drawn)
            shown = {one.lesson for one in drawn.exposures if one.shown}
            self._section = [one.text for one in snapshot.tasks[task] if one.id in shown]
        return self._section

    def _task(self) -> str:
        config = decode_plain(self._trial_dir / "config.json", TrialConfig, _SIZE_LIMIT)
        if config is None:
            raise UserError("cannot be read, so the task of this trial is unknown", where=str(self._trial_dir))
        return task_key(config.task.dataset, str(config.task))
