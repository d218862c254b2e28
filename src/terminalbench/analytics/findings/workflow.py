"""The analyzer `workflow`: what the trace of a guarded workflow says. A trial without one has none of its findings."""

from collections import Counter
from collections.abc import Iterable, Iterator

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.trial import as_table
from terminalbench.analytics.findings.trial_files import TrialFiles, Value
from terminalbench.records.trial import Finding
from terminalbench.text.numbers import plural
from terminalbench.workflow.history import History, read_history
from terminalbench.workflow.trace import ANSWER

RETRIES, ESCALATIONS, HELPED, GIVEN_UP = "retries", "escalations", "escalations_helped", "given_up_at"


class WorkflowAnalyzer:
    """Findings from `workflow/trace.jsonl`."""

    name = "workflow"
    version = "1"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:  # noqa: ARG002
        """Return where it was given up and by which guard, what was retried and escalated, and what each step took."""
        history = read_history(trial.folder)
        if history is None:
            return []
        me = (self.name, self.version)
        return [trial.finding(me, name, value, reason) for name, (value, reason) in _values(history)]


def _values(history: History) -> Iterator[tuple[str, tuple[Value, str | None]]]:
    yield "workflow", (history.workflow, history.config)
    yield "ending", (history.ending, history.reason or (None if history.ending else "the trace has no end"))
    gave_up = history.failed_step is not None
    said = next((by for one in reversed(history.attempts) if (by := one.rejected_by) is not None), None)
    why = said.feedback[:500] if gave_up and said is not None else None
    where = f"{history.failed_step}: {history.failed_guard or 'no guard'}" if gave_up else None
    yield GIVEN_UP, (where, why)
    yield "failed_step", (history.failed_step, history.failure)
    yield "failed_guard", (history.failed_guard, why)
    yield "attempts", (len(history.attempts), None)
    yield RETRIES, (history.retries, None)
    rejected = Counter(by.guard for one in history.attempts if (by := one.rejected_by) is not None)
    yield "rejected_by", (as_table(dict(rejected)) if rejected else None, None)
    yield "unusable_answers", (rejected[ANSWER], None)
    stagnant = Counter(history.stagnations)
    yield "stagnant_guards", (as_table(dict(stagnant)) if stagnant else None, None)
    targets = Counter(target for one in history.escalations for target in one.targets)
    to = ", ".join(f"{name} {plural(n, 'time')}" for name, n in targets.most_common())
    yield ESCALATIONS, (len(history.escalations), f"to {to}" if to else None)
    open_ones = sum(one.helped is None for one in history.escalations)
    undecided = f"{plural(open_ones, 'escalation was', 'escalations were')} not decided" if open_ones else None
    yield HELPED, (sum(one.helped is True for one in history.escalations), undecided)
    for step, tokens in history.tokens_by_step().items():
        yield f"tokens.{step}", (tokens, None if tokens is not None else "an attempt did not record it")
    if history.oracle:
        yield "oracle", (True, "its workflow sees the hidden verdict, so comparisons leave it out")
    if history.bad_lines:
        yield "bad_trace_lines", (history.bad_lines, None)
