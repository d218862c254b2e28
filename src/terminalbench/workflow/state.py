"""A run's knowledge of its steps, and the decisions from it: who stagnates, where the run goes back to.

The signature of an error stays the same when the same error happens again, and differs for another one. Line numbers,
addresses, temporary paths, durations, times and process ids go; the exception, its message, the test and the place
stay. Prose around an error is no part of it: two errors in the same frame of words are two.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field

from terminalbench.text.foreign import flat
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.model import Artifact, GuardResult, Kind, Step, Workflow
from terminalbench.workflow.prompts import RejectedAttempt


@dataclass
class WorkflowState:
    """The knowledge on each step: its accepted artifact, how often it ran, what was rejected, why it runs again.

    `withdrawn` are artifacts that had passed when the run was sent back to their step, or to one above it.
    `escalations` counts by step how often it sent the run back, `spent` how often to which target.
    """

    workflow: Workflow
    accepted: dict[str, Artifact] = field(default_factory=dict)
    cycles: Counter[str] = field(default_factory=Counter)
    tried: dict[str, list[RejectedAttempt]] = field(default_factory=dict)
    sent_back: dict[str, list[str]] = field(default_factory=dict)
    withdrawn: dict[str, list[Artifact]] = field(default_factory=dict)
    escalated_from: dict[str, str | None] = field(default_factory=dict)
    escalations: Counter[str] = field(default_factory=Counter)
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)

    def this_cycle(self, name: str) -> list[RejectedAttempt]:
        """Return what was rejected of the step since it started last."""
        return [one for one in self.tried.get(name, ()) if one.cycle == self.cycles[name]]

    def step(self, name: str) -> Step:
        """Return what the workflow says of a step."""
        return self.workflow.steps[name]

    def next_step(self) -> str | None:
        """The first step without an accepted artifact; None: all have one."""
        return next((name for name in self.workflow.steps if name not in self.accepted), None)

    def note(self, name: str, attempt: int, made: Artifact | None, rejected: GuardResult) -> RejectedAttempt:
        """Remember a rejected attempt."""
        tried = RejectedAttempt(
            cycle=self.cycles[name],
            attempt=attempt,
            guard=rejected.guard,
            feedback=rejected.feedback,
            signature=signature_of(rejected) or "",
            artifact=made,
        )
        self.tried.setdefault(name, []).append(tried)
        return tried

    def stagnates(self, name: str, last: RejectedAttempt) -> bool:
        """Return whether this guard has said the same often enough in this cycle, in a row or not."""
        patience = self.step(name).patience
        if patience is None:
            return False
        error = (last.guard, last.signature)
        return sum((one.guard, one.signature) == error for one in self.this_cycle(name)) >= patience

    def targets(self, name: str, rejected: GuardResult) -> tuple[str, ...]:
        """Return where the errors of a guard send the run: as told for it, for a rejecting part of it, or for all."""
        step = self.step(name)
        for guard in (rejected.guard, *(part.guard for part in rejected.parts if not part.passed)):
            if guard in step.escalate_by_guard:
                return tuple(step.escalate_by_guard[guard])
        return tuple(step.escalate)

    def chosen(self, name: str, rejected: GuardResult) -> tuple[str, ...]:
        """Return which targets run again now; none when the step may not send the run back any more.

        Those of the kind that a guard asks for, if the step has such targets, else all; of targets with budgets one.
        """
        step, targets = self.step(name), self.targets(name, rejected)
        if self.escalations[name] >= step.e_max:
            return ()
        asked = tuple(target for target in targets if self.kind(target) == rejected.back)
        if not step.budgets:
            return asked or targets
        left = [t for t in (*asked, *targets) if self.spent[name, t] < step.budgets.get(t, 0)]
        return tuple(left[:1])

    def kind(self, name: str) -> Kind:
        """Return what a step makes."""
        return GENERATORS[self.step(name).generator].kind

    def send_back(self, name: str, targets: tuple[str, ...], summary: str) -> tuple[str, ...]:
        """Let targets and all that is built on them run again, told by `summary` why; what had passed is returned."""
        again = {other for target in targets for other in (target, *self.workflow.dependents(target))}
        invalid = tuple(other for other in self.workflow.steps if other in again and other in self.accepted)
        for other in invalid:
            self.withdrawn.setdefault(other, []).append(self.accepted[other])
        self.accepted = {other: artifact for other, artifact in self.accepted.items() if other not in again}
        self.escalations[name] += 1
        self.spent.update((name, target) for target in targets)
        tried = self.this_cycle(name)
        last = next((one.artifact for one in reversed(tried) if one.artifact is not None), None)
        for other in again:
            if self.cycles[other]:
                self.sent_back.setdefault(other, []).append(summary)
                self.escalated_from[other] = last.id if last is not None else None
        return invalid


def signature_of(said: GuardResult) -> str | None:
    """The error of a guard without what changes from try to try; None when it passed."""
    if said.passed:
        return None
    return said.signature or signature(said.feedback)


LONGEST = 240
"""A longer signature ends with a hash of all of it."""
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\x1b\[[0-9;:]*[A-Za-z]", ""),
        (r"\b0x[0-9a-fA-F]+\b", "0x"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"(?:/private)?(?:/tmp|/var/tmp|/var/folders|/dev/shm)/[^\s'\"`<>()\[\]{},;:]*", "<tmp>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|sec|secs|seconds|min|minutes)\b", "<duration>"),
        (r"(?i)\b(lines?|column|col|offset|position|pid|goroutine|thread)([ :=#]+)\d+(?:-\d+)?", r"\1\2<n>"),
        (r"(\.\w{1,5})\(\d+(?:,\s?\d+)?\)", r"\1"),
        (r"(\.\w{1,5})(?::\d+){1,2}\b", r"\1"),
        (r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", "@@"),
        (r"\bpytest-\d+\b", "pytest"),
    )
)


def normalised(text: str) -> str:
    """The text as one line without what changes from try to try."""
    for pattern, by in _SUBSTITUTIONS:
        text = pattern.sub(by, text)
    return flat(text)


def signature(what: str, *more: str) -> str:
    """The signature of an error: what happened, then the test and the place it happened in, where known."""
    whole = " | ".join(part for part in map(normalised, (what, *more)) if part)
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:12]
    return f"{whole[: LONGEST - 13].rstrip()} {digest}"
