"""The agent `guarded`: a workflow of steps that a model answers and guards check, run on the host.

The model has no tools: what it says becomes artifacts, and only guards run commands, in the trial's environment. The
run is traced in `<trial>/workflow/`, by this process. Done, it leaves the accepted patch in the tree; at the time limit
the best so far; exhausted or fatal, the tree as it was, or with `submit_best` the best so far. What a provider does
ends the trial as it ends those of other agents, and leaves nothing.
"""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import (
    Agent,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from pydantic import Field

from terminalbench.errors import TbenchError
from terminalbench.faults import ErrorClass
from terminalbench.harbor.agent_watch import current_watch
from terminalbench.harbor.agents.chat import TrialChat, provider_error
from terminalbench.harbor.agents.patch import metadata_of, workdir_of
from terminalbench.harbor.agents.workspace import TrialWorkspace
from terminalbench.harbor.attempt_numbers import ATTEMPT
from terminalbench.harbor.read.error_classes import error_class
from terminalbench.harbor.retry_queue import TellsProgress
from terminalbench.json_files import write_json
from terminalbench.llm.model import ModelError, ModelFault, Options
from terminalbench.records.event import Progress
from terminalbench.records.trial import Usage
from terminalbench.version import __version__
from terminalbench.workflow import context as repository_context
from terminalbench.workflow.apart import GuardFaultError, in_thread
from terminalbench.workflow.attempt import Ports, WorkflowInput
from terminalbench.workflow.engine import Engine
from terminalbench.workflow.generators import Patch, answer_of, content_of
from terminalbench.workflow.load import from_texts
from terminalbench.workflow.model import Artifact, Workflow
from terminalbench.workflow.patches import changes
from terminalbench.workflow.prompts import context_budget, longest_answer
from terminalbench.workflow.trace import ANSWER, TraceEvent, TraceEventKind, TraceFolder, WorkflowEnding

_SHOWN_FEEDBACK = 20_000
_SHOWN_ANSWER = 200_000
"""Letters of an answer that the trajectory has. The whole of a longer one is among the artifacts, and nowhere else."""
_SHOWN_ID = 12


class TraceRecorder(TraceFolder):
    """The trace of a run, and `tell`, which hears where the run is."""

    def __init__(self, trial: Path, agent: Agent, instruction: str, tell: Callable[[Progress], None] | None) -> None:
        super().__init__(trial)
        self.usage: Callable[[], Usage] = Usage
        self.metadata: dict[str, Any] = {}
        self._agent, self._tell = agent, tell
        self._steps = [Step(step_id=1, source="user", message=instruction)]
        self._contents: dict[str, str] = {}
        self._at: Progress | None = None
        self._retries = 0

    @override
    def put(self, event: TraceEvent) -> None:
        super().put(event)
        match event.kind:
            case TraceEventKind.ATTEMPT:
                self._attempt(event)
            case TraceEventKind.GUARD:
                self._guard(event)
            case TraceEventKind.ESCALATE:
                self._steps.append(self._step(event, source="system", message=event.summary or "the run is sent back"))
        self._move(event)

    @override
    def keep(self, artifact: Artifact) -> None:
        super().keep(artifact)
        self._contents[artifact.id] = artifact.content

    @override
    def put_answer(self, name: str, text: str) -> None:
        super().put_answer(name, text)
        self._contents[name] = text

    def _move(self, event: TraceEvent) -> None:
        """Say where the run is when an event changes that: in a step, in its next attempt."""
        if event.step is None or event.cycle is None:
            return
        attempt = event.attempt or 1
        rejected = event.kind is TraceEventKind.GUARD and event.passed is False and not event.fatal
        unusable = event.kind is TraceEventKind.ATTEMPT and event.artifact is None
        self._retries += event.kind is TraceEventKind.ATTEMPT and attempt > 1
        at = Progress(event.step, attempt + (rejected or unusable), event.cycle, self._retries)
        if at != self._at and event.kind in (TraceEventKind.STEP_START, TraceEventKind.ATTEMPT, TraceEventKind.GUARD):
            self._at = at
            if self._tell is not None:
                self._tell(at)

    def _step(self, event: TraceEvent, **fields: Any) -> Step:
        about = {"step": event.step, "cycle": event.cycle, "attempt": event.attempt, "trace": event.number}
        known = {name: value for name, value in about.items() if value is not None}
        return Step(step_id=len(self._steps) + 1, timestamp=event.at, extra=known, **fields)

    def _attempt(self, event: TraceEvent) -> None:
        said = [self._shown(name) for name in (*event.rejected, event.artifact) if name in self._contents]
        step = self._step(
            event,
            source="agent",
            model_name=self._agent.model_name,
            message=said[-1] if said else f"(no usable answer: {event.reason})",
            llm_call_count=event.tries,
            metrics=_metrics(event.usage or Usage()),
        )
        self._steps.append(step)
        if event.artifact is None:  # its form is checked before every guard
            self._checked(event, ANSWER, "rejected", event.reason)

    def _shown(self, name: str) -> str:
        text = self._contents[name]
        whole = f"\n... {len(text):,} letters in all: workflow/objects/{name[:2]}/{name}"
        return text if len(text) <= _SHOWN_ANSWER else text[:_SHOWN_ANSWER] + whole

    def _guard(self, event: TraceEvent) -> None:
        verdict = "passed" if event.passed else "fatal" if event.fatal else "rejected"
        self._checked(event, event.guard or "", verdict, event.feedback)

    def _checked(self, event: TraceEvent, guard: str, verdict: str, feedback: str | None) -> None:
        said = f"{guard}: {verdict}" + (f"\n{feedback[:_SHOWN_FEEDBACK]}" if feedback else "")
        call = f"guard-{event.number}"
        about = {"artifact": (event.artifact or "")[:_SHOWN_ID], "attempt": event.attempt, "cycle": event.cycle}
        result = ObservationResult(source_call_id=call, content=said, extra={"passed": bool(event.passed)})
        step = self._steps[-1]
        # What the model says is acted on by guards, and by nothing else: they are its tools.
        tool = ToolCall(tool_call_id=call, function_name=f"guard {guard}", arguments=about)
        step.tool_calls = [*(step.tool_calls or ()), tool]
        step.observation = Observation(results=[*(step.observation.results if step.observation else ()), result])

    def hand_over(self, context: AgentContext, trajectory: Path) -> None:
        """Give Harbor what it asks for when a run is over: tokens and cost of all attempts, and the trajectory."""
        used = self.usage()
        context.n_input_tokens, context.n_cache_tokens = _prompt(used), used.cache_read_tokens
        context.n_output_tokens, context.cost_usd = used.output_tokens, used.cost_usd
        context.metadata = dict(self.metadata)
        if trajectory.is_dir() and not trajectory.is_symlink():
            shutil.rmtree(trajectory)
        document = Trajectory(
            session_id=None,
            agent=self._agent,
            steps=self._steps,
            final_metrics=FinalMetrics(
                total_prompt_tokens=_prompt(used),
                total_cached_tokens=used.cache_read_tokens,
                total_completion_tokens=used.output_tokens,
                total_cost_usd=used.cost_usd,
                total_steps=len(self._steps),
            ),
            extra=dict(self.metadata),
        )
        write_json(trajectory, document.to_json_dict())


def _prompt(used: Usage) -> int | None:
    """Harbor's count of the input has the cached part in it."""
    return None if used.input_tokens is None else used.input_tokens + (used.cache_read_tokens or 0)


def _metrics(used: Usage) -> Metrics:
    return Metrics(
        prompt_tokens=_prompt(used),
        cached_tokens=used.cache_read_tokens,
        completion_tokens=used.output_tokens,
        cost_usd=used.cost_usd,
    )


_LEAVE_SEC = 20.0
"""How long leaving the best patch may take when the trial is being ended."""
_EARLY_SEC = 0.5
_GIVEN_UP = (WorkflowEnding.EXHAUSTED, WorkflowEnding.FATAL)


class WorkflowBrokenError(RuntimeError):
    """Our code failed, of a guard or of the engine: an error of the bench, never of the model."""


class GuardedOptions(AgentOptions):
    """The options of the guarded agent."""

    workflow: dict[str, str] = Field(description="The texts of the workflow file and its prompts; set by the profile.")
    base_url: str | None = Field(default=None, description="Address of the model's server. Default: the provider's.")
    seed: int | None = Field(default=None, description="Seed sent to the model, different for each attempt at a task.")
    run_seed: int | None = Field(
        default=None, description="Default of `seed` for a model that takes one; set by `run.seed`."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Temperature of every question. Default: as the workflow says."
    )
    context_tokens: int | None = Field(
        default=None, ge=2000, description="Context window of the model in tokens, if unknown or to use less of it."
    )
    tries: int = Field(default=5, ge=1, le=100, description="How often a question is sent to a busy provider.")


class GuardedAgent(BaseAgent, TellsProgress):
    """Runs a guarded workflow. See the module."""

    AGENT_INFO: ClassVar = {
        "workflow": True, "mcp": False, "skills": False, "usage": "workflow", "seeded": "run_seed",
    }  # fmt: skip
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities(atif=True)
    options_model: ClassVar[type[AgentOptions] | None] = GuardedOptions
    options: GuardedOptions

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._tape: TraceRecorder | None = None
        self._began = 0.0
        self._seed = self.options.seed if self.options.seed is not None else self.options.run_seed

    @cached_property
    def _workflow(self) -> Workflow:
        return from_texts(self.options.workflow)

    @staticmethod
    @override
    def name() -> str:
        return "guarded"

    @override
    def version(self) -> str:
        return __version__

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None, env: Any = None) -> None:
        """Refuse a workflow that is wrong, before any trial starts."""
        super().preflight(kwargs, env)
        options = cls.parse_options(kwargs, env)
        if isinstance(options, GuardedOptions):
            from_texts(options.workflow)

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Find out what would make every question to the model fail, and whether the workflow is one."""
        temperatures = self._temperatures()
        if not self.model_name:
            raise RuntimeError("a guarded workflow needs a model: name it in the profile")
        if (await environment.exec("git --version", timeout_sec=60)).return_code != 0:
            raise RuntimeError("the environment of this task has no git, which a guarded workflow needs")
        # Keys of a profile that names them otherwise than the shell does; a job has one profile.
        os.environ.update({name: value for name, value in self.extra_env.items() if name != ATTEMPT})
        try:
            await self._ready(temperatures)
        except ModelError as error:
            raise (
                provider_error(error) if error.fault is not ModelFault.MISSING else RuntimeError(str(error))
            ) from error

    async def _ready(self, temperatures: list[float]) -> None:
        """Find out what would make every question fail; the seed of the run is not sent to a model that takes none."""
        try:
            await self._chat().ready(temperatures)
        except ModelError as error:
            if error.fault is not ModelFault.MISSING or self.options.seed is not None or self._seed is None:
                raise
            self._seed = None
            await self._chat().ready(temperatures)

    def _temperatures(self) -> list[float]:
        if self.options.temperature is not None:
            return [self.options.temperature]
        steps = self._workflow.steps.values()
        found = [value for step in steps for value in (step.temperature, step.retry_temperature)]
        return sorted({value for value in found if value is not None})

    def _chat(self) -> TrialChat:
        attempt = self.extra_env.get(ATTEMPT, "1")
        seed = self._seed
        options = Options(
            temperature=self.options.temperature or 0.0,
            seed=None if seed is None else seed + int(attempt) - 1,
            base_url=self.options.base_url,
            output_tokens=longest_answer(self.options.context_tokens),
        )
        return TrialChat(
            self.model_name or "",
            options,
            tries=self.options.tries,
            watch=current_watch(),
            window=self.options.context_tokens,
            fixed=self.options.temperature is not None,
        )

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run the workflow to one of its endings; `populate_context_post_run` fills `context` when it is over."""
        self._began = asyncio.get_running_loop().time()
        who = Agent(name=self.name(), version=self.version(), model_name=self.model_name)
        tape = self._tape = TraceRecorder(self.logs_dir.parent, who, instruction, self.tell)
        workflow = self._workflow
        tape.metadata = {
            "workflow": workflow.name,
            "workflow_digest": workflow.digest,
            "oracle": workflow.oracle,
            "patch_applied": False,
        }
        workspace = await TrialWorkspace.open(environment, workdir_of(environment), hidden=tuple(self.extra_env))
        try:
            language = metadata_of(environment).get("language")
            await self._run(tape, workspace, instruction, language if isinstance(language, str) else None)
        except GuardFaultError as error:
            tape.metadata |= {"ending": WorkflowEnding.ERROR.value, "guard": error.guard, "reason": str(error)}
            raise
        except Exception as error:
            name, said = type(error).__name__, str(error)
            if isinstance(error, TbenchError) or error_class(name, said, "agent") is not ErrorClass.AGENT_CRASH:
                raise
            tape.metadata |= {"ending": WorkflowEnding.ERROR.value, "reason": f"{name}: {said}"}
            raise WorkflowBrokenError(f"a guard or the engine failed: {name}: {said}") from error
        finally:
            await workspace.close()

    async def _run(self, tape: TraceRecorder, workspace: TrialWorkspace, task: str, language: str | None) -> None:
        chat = self._chat()
        window = await in_thread(chat.context_tokens)
        seen = await repository_context.build(workspace, task, context_budget(window), language=language)
        spoken = str(seen.language or language or "")
        tape.metadata |= {"context_hash": seen.hash, "language": spoken}
        given = WorkflowInput(
            task=task,
            context=seen.text,
            context_hash=seen.hash,
            shown=seen.shown,
            language=spoken,
            model=self.model_name,
            test_notes=seen.test_notes,
        )
        engine = Engine(self._workflow, given, Ports(model=chat, workspace=workspace, sink=tape))
        tape.usage = lambda: engine.usage
        timer = self._at_limit(engine)
        try:
            result = await engine.run()
        except asyncio.CancelledError:
            tape.metadata["ending"] = engine.cancelled_as.value
            if engine.cancelled_as is WorkflowEnding.TIME:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leave(tape, workspace, engine.best), _LEAVE_SEC)
            raise
        except ModelError as error:
            tape.metadata |= {"ending": WorkflowEnding.ERROR.value, "reason": str(error)}
            raise provider_error(error) from error
        finally:
            if timer is not None:
                timer.cancel()
        told = {"ending": result.ending.value, "step": result.step, "guard": result.guard, "reason": result.reason}
        tape.metadata |= {name: value for name, value in told.items() if value is not None}
        tape.metadata |= {"best_submitted": True} if result.patch is not None and result.ending in _GIVEN_UP else {}
        await self._leave(tape, workspace, result.patch)

    def _at_limit(self, engine: Engine) -> asyncio.TimerHandle | None:
        """Take a cancellation from shortly before its time limit on as Harbor's word that the time is over."""
        if self.limit_sec is None:
            return None

        def over() -> None:
            engine.cancelled_as = WorkflowEnding.TIME

        return asyncio.get_running_loop().call_at(self._began + max(0.0, self.limit_sec - _EARLY_SEC), over)

    async def _leave(self, tape: TraceRecorder, workspace: TrialWorkspace, patch: Artifact | None) -> None:
        """Leave the base with the patch in it, and a copy of it beside the trace."""
        answer = answer_of(patch) if patch is not None else None
        if not isinstance(answer, Patch):
            await workspace.apply("")
            return
        made = await changes(answer, workspace)
        text = await workspace.diff(made.files) if made.files else ""
        refused = await workspace.apply(text)
        data = text.encode()
        tape.metadata |= {
            "patch_applied": refused is None and bool(text),
            "patch_sha256": hashlib.sha256(data).hexdigest(),
        }
        if refused is None and patch is not None:
            tape.keep_applied(patch, content_of(answer.begun()), data)

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Called by Harbor when it has fetched the environment's log folder, over which ours is written."""
        if self._tape is not None:
            self._tape.hand_over(context, self.logs_dir / "trajectory.json")
