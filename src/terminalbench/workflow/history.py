"""The content of a trace, folded once: each attempt with its guards, each escalation and whether it helped, the end.

Results, findings, pages and error analysis read this and not the events. A trace that was cut off, or that holds lines
of another version, gives what it gives: `bad_lines` counts the others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import read_plain
from terminalbench.records.trial import Usage
from terminalbench.records.values import copied, known_total, total
from terminalbench.workflow.trace import (
    ANSWER,
    FOLDER,
    StepFailure,
    TraceEvent,
    TraceEventKind,
    WorkflowEnding,
    trace_file,
)

_LIMIT = 256 << 20


class GuardCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict of one guard on an attempt."""

    guard: str
    passed: bool | None
    fatal: bool = False
    feedback: str = ""
    signature: str | None = None
    duration_sec: float | None = None


class StepAttempt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One answer of the model in a step. `number` is that of its event; `reason` says why an answer was unusable."""

    number: int
    step: str
    cycle: int
    attempt: int
    at: str = ""
    artifact: str | None = None
    reason: str | None = None
    usage: Usage = Usage()
    tries: int | None = None
    temperature: float | None = None
    duration_sec: float | None = None
    uses: Mapping[str, str] = {}
    checks: tuple[GuardCheck, ...] = ()

    @property
    def rejected_by(self) -> GuardCheck | None:
        """The guard that rejected it; an unusable answer is rejected as such; None when it was not rejected."""
        if self.artifact is None:
            return GuardCheck(ANSWER, False, feedback=self.reason or "")
        return next((check for check in self.checks if check.passed is False), None)


class Escalation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A step that sent the work back to earlier ones. `helped`: it passed afterwards; None: the run ended before."""

    number: int
    step: str
    cycle: int | None = None
    guard: str | None = None
    signature: str | None = None
    targets: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    escalations: int | None = None
    summary: str | None = None
    helped: bool | None = None


class History(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run of a workflow. `failed_step` and `failed_guard` are where it was given up; both None when it was not.

    `stagnations` are guards, once for each time that one said the same again and again. `ending` None: it was cut off.
    """

    workflow: str | None = None
    config: str | None = None
    model: str | None = None
    context: str | None = None
    oracle: bool = False
    ending: WorkflowEnding | None = None
    reason: str | None = None
    failure: StepFailure | None = None
    failed_step: str | None = None
    failed_guard: str | None = None
    patch: str | None = None
    attempts: tuple[StepAttempt, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    stagnations: tuple[str, ...] = ()
    passed_steps: tuple[str, ...] = ()
    bad_lines: int = 0

    @property
    def best_submitted(self) -> bool:
        """Return whether it was given up, and left its best patch all the same (`submit_best`)."""
        return self.patch is not None and self.ending in (WorkflowEnding.EXHAUSTED, WorkflowEnding.FATAL)

    @property
    def rejected(self) -> int:
        """Attempts that failed: a guard rejected them, or their answer was unusable."""
        return sum(attempt.rejected_by is not None for attempt in self.attempts)

    @property
    def retries(self) -> int:
        """Attempts that were not the first of their step in a cycle."""
        return sum(attempt.attempt > 1 for attempt in self.attempts)

    @property
    def cycles(self) -> int:
        """The most often that a step was run."""
        return max((attempt.cycle for attempt in self.attempts), default=0)

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps in the order in which they were first tried."""
        return tuple(dict.fromkeys(attempt.step for attempt in self.attempts))

    def tokens_by_step(self) -> dict[str, int | None]:
        """The tokens of all attempts of each step; None where those of one are not known."""
        return {
            step: total(attempt.usage.total_tokens for attempt in self.attempts if attempt.step == step)
            for step in self.steps
        }

    def cost_by_step(self) -> dict[str, float | None]:
        """Return what all attempts of each step cost; None where the cost of one is not known."""
        return {
            step: total(attempt.usage.cost_usd for attempt in self.attempts if attempt.step == step)
            for step in self.steps
        }

    @property
    def tokens(self) -> int | None:
        """The tokens of all attempts; None where those of one are not known."""
        return total(attempt.usage.total_tokens for attempt in self.attempts)

    @property
    def cost_usd(self) -> float | None:
        """Return what all attempts are known to have cost."""
        return known_total(attempt.usage.cost_usd for attempt in self.attempts)


def read_events(data: bytes) -> tuple[list[TraceEvent], int]:
    """The events of a trace, and how many lines are none: torn, of another version, or not ours."""
    events: list[TraceEvent] = []
    bad = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            events.append(decode(line, TraceEvent))
        except NOT_DECODED:
            bad += 1
    return events, bad


def read_history(trial: Path, before: Callable[[bytes], bytes] | None = None) -> History | None:
    """Return what became of the workflow of a trial; None without a trace. `before` is done with its bytes first."""
    data = read_plain(trace_file(trial), _LIMIT)
    return None if data is None else fold(*read_events(before(data) if before is not None else data))


def read_usage(trial: Path) -> Usage:
    """Return what the model's answers in a trial used, as its trace knows it; without a trace it was asked nothing.

    Of a run that was cut off, that leaves out the answer it was waiting for: its source says `workflow:partial`.
    """
    data = read_plain(trace_file(trial), _LIMIT)
    events = read_events(data)[0] if data is not None else []
    ended: list[Usage] = []
    since: list[Usage] = []
    for event in events:
        if event.kind is TraceEventKind.ATTEMPT:
            since.append(event.usage or Usage())
        elif event.kind is TraceEventKind.RUN_END:  # it also counts questions that never became an attempt
            ended += [event.usage] if event.usage is not None and event.usage.known else since
            since = []
    whole = not events or events[-1].kind is TraceEventKind.RUN_END
    parts = [*ended, *since] or [Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)]
    return Usage.added(parts, FOLDER if whole else f"{FOLDER}:partial", None)


def fold(events: Sequence[TraceEvent], bad_lines: int = 0) -> History:
    """Events as one history. Never fails: what is out of place is passed over."""
    # A trace that was continued by a further run holds several starts: the last run says how it ended.
    begin = max((place for place, event in enumerate(events) if event.kind is TraceEventKind.RUN_START), default=0)
    last_run = events[begin:]
    by_kind = {event.kind: event for event in last_run}  # the last of each
    nothing = TraceEvent(number=0, at="", kind=TraceEventKind.RUN_END)
    start = by_kind.get(TraceEventKind.RUN_START, nothing)
    end = by_kind.get(TraceEventKind.RUN_END, nothing)
    failed = by_kind.get(TraceEventKind.STEP_FAIL, nothing)
    attempts = _attempts(events)
    gave_up = end.ending is not WorkflowEnding.DONE
    step = guard = None
    if gave_up:
        step = end.step or failed.step
        guard = next((event.guard for event in (end, failed) if event.guard and event.step in (step, None)), None)
        last = next((one for one in reversed(attempts) if one.step == step), None)
        if guard is None and last is not None and last.rejected_by is not None:
            guard = last.rejected_by.guard
    return copied(
        History,
        start,
        ending=end.ending,
        reason=end.reason,
        failure=failed.failure if gave_up else None,
        failed_step=step,
        failed_guard=guard,
        patch=end.artifact,
        attempts=tuple(attempts),
        escalations=tuple(_escalations(events)),
        stagnations=tuple(event.guard or "?" for event in events if event.kind is TraceEventKind.STAGNATION),
        passed_steps=tuple(
            dict.fromkeys(event.step or "?" for event in events if event.kind is TraceEventKind.STEP_PASS)
        ),
        bad_lines=bad_lines,
    )


def _attempts(events: Iterable[TraceEvent]) -> list[StepAttempt]:
    """Each attempt with what the guards said of it: those between its event and the next attempt."""
    found: list[StepAttempt] = []
    checks: list[GuardCheck] = []

    def close() -> None:
        if found and checks:
            found[-1] = msgspec.structs.replace(found[-1], checks=tuple(checks))
        checks.clear()

    for event in events:
        if event.kind is TraceEventKind.ATTEMPT:
            close()
            found.append(
                copied(
                    StepAttempt,
                    event,
                    step=event.step or "?",
                    cycle=event.cycle or 1,
                    attempt=event.attempt or 1,
                    usage=event.usage or Usage(),
                )
            )
        elif event.kind is TraceEventKind.GUARD and found and event.step in (found[-1].step, None):
            checks.append(copied(GuardCheck, event, guard=event.guard or "?", feedback=event.feedback or ""))
    close()
    return found


def _escalations(events: Sequence[TraceEvent]) -> list[Escalation]:
    """Each escalation with the stagnation before it, what it made run again, and whether its step passed then."""
    helped = _helped(events)
    found: list[Escalation] = []
    stagnant: dict[str, TraceEvent] = {}
    for place, event in enumerate(events):
        step = event.step or "?"
        if event.kind is TraceEventKind.STAGNATION:
            stagnant[step] = event
        elif event.kind is TraceEventKind.ESCALATE:
            before = stagnant.pop(step, None)
            around = (*events[place + 1 : place + 3], *events[max(0, place - 2) : place])
            near = next((one for one in around if one.kind is TraceEventKind.INVALIDATE), None)
            found.append(
                copied(
                    Escalation,
                    event,
                    step=step,
                    guard=event.guard or (before.guard if before is not None else None),
                    signature=before.signature if before is not None else event.signature,
                    invalidated=near.targets if near is not None else (),
                    helped=helped.get(place),
                )
            )
    return found


def _helped(events: Sequence[TraceEvent]) -> dict[int, bool | None]:
    """Return by the place of an escalation whether its step passed before it escalated again or a step was given up."""
    after: dict[str, bool] = {}
    given_up = False
    found: dict[int, bool | None] = {}
    for place in reversed(range(len(events))):
        event, step = events[place], events[place].step or "?"
        if event.kind is TraceEventKind.STEP_PASS:
            after[step] = True
        elif event.kind is TraceEventKind.STEP_FAIL:
            given_up = True
            after = {}
        elif event.kind is TraceEventKind.ESCALATE:
            found[place] = after.get(step, False if given_up else None)
            after[step] = False
    return found
