"""A guarded run as it happens: its trace in `<trial>/workflow/`, its trajectory, and where it is now.

Each attempt of the model is a step of the trajectory, the guards that check it are its tools, and what they say its
observations. All of it is kept in this process: nothing that a test writes into the environment's log folder gets in.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, override

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

from terminalbench.json_files import write_json
from terminalbench.records.event import Progress
from terminalbench.records.trial import Usage
from terminalbench.workflow.model import Artifact
from terminalbench.workflow.trace import ANSWER, TraceEvent, TraceEventKind, TraceFolder

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
