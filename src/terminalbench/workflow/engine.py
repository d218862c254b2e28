"""The engine: steps in order, attempts until the guards are content, and the way back when a step does not get on.

Everything outside is a port: the model, the repository, the trace, the clock. A run ends by itself: each cycle of a
step has `rmax + 1` attempts, and each step sends the run back at most `e_max` times. What a provider does (down, over
its limits) is raised and never an attempt of the model.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.records.trial import Usage
from terminalbench.workflow import prompts
from terminalbench.workflow.apart import GuardFaultError, run_guard
from terminalbench.workflow.attempt import Ports, StepClient, WorkflowInput
from terminalbench.workflow.model import Artifact, Guard, GuardContext, GuardResult, Kind, Workflow
from terminalbench.workflow.prompts import RejectedAttempt
from terminalbench.workflow.state import WorkflowState, signature_of
from terminalbench.workflow.trace import StepFailure, TraceEventKind, WorkflowEnding

_LONGEST_REASON = 500
_GIVEN_UP = (WorkflowEnding.EXHAUSTED, WorkflowEnding.FATAL)


@dataclass(frozen=True)
class WorkflowResult:
    """The end of a run. `patch` is what it leaves: the accepted one, at a time limit the best so far, else nothing.

    The best so far is left, too, when a workflow with `submit_best` gives up.

    `step` and `guard` are where it was given up.
    """

    ending: WorkflowEnding
    patch: Artifact | None
    usage: Usage
    reason: str | None = None
    step: str | None = None
    guard: str | None = None


@dataclass(frozen=True)
class _End:
    ending: WorkflowEnding
    reason: str | None = None
    guard: str | None = None


class Engine:
    """One run of a workflow."""

    def __init__(self, workflow: Workflow, given: WorkflowInput, ports: Ports) -> None:
        self._workflow, self._given, self._ports = workflow, given, ports
        self._state = WorkflowState(workflow)
        self._asker = StepClient(given, ports, self._state)
        self._best: tuple[int, Artifact] | None = None
        self._guards: dict[str, Guard] = {}
        self._step: str | None = None
        self.cancelled_as = WorkflowEnding.STOPPED
        """What a cancellation is, as the caller knows it."""

    @property
    def best(self) -> Artifact | None:
        """The patch so far that passed most guards, of several the latest; None while none passed any."""
        return self._best[1] if self._best is not None else None

    @property
    def usage(self) -> Usage:
        """Tokens and cost of every request so far, those of unusable answers and repairs too."""
        return self._asker.usage

    async def run(self, limit_sec: float | None = None) -> WorkflowResult:
        """Run to an end, which is the last event of the trace in any case.

        At the time limit it returns. Cancelled, it raises that; provider faults (ModelError) are raised, and whatever a
        guard or the workspace could not do.
        """
        self._write(
            TraceEventKind.RUN_START,
            workflow=self._workflow.name,
            config=self._workflow.digest,
            oracle=self._workflow.oracle,
            model=self._given.model,
            context=self._given.context_hash,
            limits={} if limit_sec is None else {"time_sec": limit_sec},
        )
        try:
            async with asyncio.timeout(limit_sec) as limit:
                return self._ended(await self._steps())
        except TimeoutError as error:
            if not limit.expired():
                self._ended(_broken(error))
                raise
            return self._ended(_End(WorkflowEnding.TIME, f"the time limit of {limit_sec:g} s was reached"))
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._ended(_End(self.cancelled_as))
            raise
        except ModelError as error:
            ending = WorkflowEnding.STOPPED if error.fault is ModelFault.STOPPED else WorkflowEnding.ERROR
            self._ended(_End(ending, f"{error.fault}: {error.what}"[:_LONGEST_REASON]))
            raise
        except Exception as error:
            self._ended(_broken(error))
            raise

    def _write(self, kind: TraceEventKind, **fields: Any) -> None:
        self._ports.sink.write(kind, **fields)

    def _ended(self, end: _End) -> WorkflowResult:
        done = end.ending is WorkflowEnding.DONE
        accepted = [artifact for artifact in self._state.accepted.values() if artifact.kind is Kind.PATCH]
        leaves_best = end.ending is WorkflowEnding.TIME or (self._workflow.submit_best and end.ending in _GIVEN_UP)
        left = accepted[-1:] if done else [self.best] if leaves_best else []
        patch = next(iter(left), None)
        result = WorkflowResult(
            ending=end.ending,
            patch=patch,
            usage=self.usage,
            reason=end.reason,
            step=None if done else self._step,
            guard=end.guard,
        )
        self._write(
            TraceEventKind.RUN_END,
            ending=result.ending,
            reason=result.reason,
            step=result.step,
            cycle=self._state.cycles[result.step] if result.step is not None else None,
            guard=result.guard,
            artifact=patch.id if patch is not None else None,
            usage=result.usage,
        )
        return result

    async def _steps(self) -> _End:
        while (name := self._state.next_step()) is not None:
            end = await self._cycle(name)
            if end is not None:
                return end
        return _End(WorkflowEnding.DONE)

    async def _cycle(self, name: str) -> _End | None:
        """One run of a step. None: it passed, or sent the run back."""
        step, state = self._workflow.steps[name], self._state
        self._step = name
        state.cycles[name] += 1
        self._write(TraceEventKind.STEP_START, step=name, cycle=state.cycles[name])
        stuck: str | None = None
        told: set[tuple[str, str]] = set()
        previous: Artifact | None = None
        for attempt in range(1, step.rmax + 2):
            made = await self._asker.attempt(name, attempt, previous, stuck)
            if isinstance(made, Artifact):
                previous, rejected = made, await self._check(name, made)
                if rejected is None:
                    self._passed(name, made)
                    return None
            else:
                rejected = made
            tried = state.note(name, attempt, made if isinstance(made, Artifact) else None, rejected)
            if rejected.fatal:
                return self._failed(name, StepFailure.FATAL, tried)
            if rejected.back is not None and state.targets(name, rejected):
                return self._escalate(name, rejected)
            if state.stagnates(name, tried):
                stuck = tried.guard
                if (tried.guard, tried.signature) not in told:
                    told.add((tried.guard, tried.signature))
                    self._write(
                        TraceEventKind.STAGNATION,
                        step=name,
                        cycle=state.cycles[name],
                        attempt=attempt,
                        guard=tried.guard,
                        signature=tried.signature,
                    )
                if state.targets(name, rejected):
                    return self._escalate(name, rejected)
        return self._failed(name, StepFailure.RMAX, state.this_cycle(name)[-1])

    def _passed(self, name: str, made: Artifact) -> None:
        state = self._state
        state.accepted = {**state.accepted, name: made}
        self._write(
            TraceEventKind.STEP_PASS, step=name, cycle=state.cycles[name], attempt=made.attempt, artifact=made.id
        )

    async def _check(self, name: str, artifact: Artifact) -> GuardResult | None:
        """Return what the first guard that rejects an artifact says; None when all of them pass it."""
        step, state = self._workflow.steps[name], self._state
        inputs = {state.accepted[required].kind: state.accepted[required] for required in step.requires}
        passed = 0
        if not step.guards:
            self._rank(artifact, passed)
        for guard in step.guards:
            if guard not in self._guards:
                self._guards[guard] = self._ports.guard(guard)
            context = GuardContext(
                workspace=self._ports.workspace,
                inputs=inputs,
                language=self._given.language,
                options=step.options.get(guard, {}),
            )
            started = self._ports.clock()
            said = await run_guard(guard, self._guards[guard], artifact, context, step.guard_timeout_sec)
            seconds = round(self._ports.clock() - started, 3)
            said = msgspec.structs.replace(said, guard=guard, signature=signature_of(said), duration_sec=seconds)
            now = passed + (sum(part.passed for part in said.parts) if said.parts else said.passed)
            if now > passed:
                passed = now
                self._rank(artifact, passed)
            self._write(
                TraceEventKind.GUARD,
                step=name,
                cycle=state.cycles[name],
                attempt=artifact.attempt,
                guard=guard,
                passed=said.passed,
                fatal=said.fatal,
                signature=said.signature,
                feedback=said.feedback or None,
                duration_sec=seconds,
                artifact=artifact.id,
                parts={part.guard: part.passed for part in said.parts},
            )
            if not said.passed:
                return said
        return None

    def _rank(self, artifact: Artifact, passed: int) -> None:
        """Remember the best patch so far; at any time, as the run may be stopped in the middle of a guard."""
        if artifact.kind is Kind.PATCH and passed >= (self._best[0] if self._best is not None else 0):
            self._best = (passed, artifact)

    def _escalate(self, name: str, rejected: GuardResult) -> _End | None:
        """Send the run back: targets and all that is built on them run again, and are told why."""
        state = self._state
        tried, targets = state.this_cycle(name), state.chosen(name, rejected)
        if not targets:
            return self._failed(name, StepFailure.ESCALATION_EXHAUSTED, tried[-1])
        summary = prompts.failure_summary(name, state.step(name), tried, targets)
        invalid = state.send_back(name, targets, summary)
        about = {"step": name, "cycle": state.cycles[name]}
        self._write(
            TraceEventKind.ESCALATE,
            **about,
            guard=rejected.guard,
            targets=targets,
            escalations=state.escalations[name],
            summary=summary,
        )
        self._write(TraceEventKind.INVALIDATE, **about, targets=invalid)
        return None

    def _failed(self, name: str, failure: StepFailure, tried: RejectedAttempt) -> _End:
        reason = tried.feedback[:_LONGEST_REASON] or None
        self._write(
            TraceEventKind.STEP_FAIL,
            step=name,
            cycle=self._state.cycles[name],
            attempt=tried.attempt,
            failure=failure,
            guard=tried.guard,
            signature=tried.signature or None,
            reason=reason,
        )
        ending = WorkflowEnding.FATAL if failure is StepFailure.FATAL else WorkflowEnding.EXHAUSTED
        return _End(ending, f"step {name}: {failure}", tried.guard)


def _broken(error: Exception) -> _End:
    if isinstance(error, GuardFaultError):
        return _End(WorkflowEnding.ERROR, str(error), error.guard)
    return _End(WorkflowEnding.ERROR, f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
