"""The analyzers `trial`, what the result says, and `workflow`, what the trace of a guarded workflow says."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.failed_checks import CtrfTest, ctrf_tests
from terminalbench.analytics.findings.trial_files import TrialFiles, Value
from terminalbench.decode import NOT_DECODED
from terminalbench.files import read_plain
from terminalbench.records.trial import Finding, Outcome, Phases, Usage
from terminalbench.text.numbers import plural
from terminalbench.workflow.history import History, read_history
from terminalbench.workflow.trace import ANSWER

_CTRF_LIMIT = 64 << 20


class TrialAnalyzer:
    """Findings from `result.json` and the verifier's own report."""

    name = "trial"
    version = "1"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:  # noqa: ARG002
        """Every measure of the result; None with a reason where it is not known."""
        me = (self.name, self.version)
        values = {**_ending(trial), **dict(_tests(trial)), **_usage(trial.usage), **_times(trial)}
        return [trial.finding(me, name, value, reason) for name, (value, reason) in values.items()]


def read_ctrf(trial: TrialFiles) -> list[CtrfTest] | str | None:
    """The verifier's tests; None when it wrote no report; the reason when that cannot be read."""
    found: list[CtrfTest] = []
    folder = trial.folder
    paths = [folder / "verifier" / "ctrf.json", *sorted(folder.glob("steps/*/verifier/ctrf.json"))]
    paths = [path for path in paths if path.is_file()]
    for path in paths:
        data = read_plain(path, _CTRF_LIMIT)
        try:
            found += ctrf_tests(data or b"")
        except NOT_DECODED as error:
            return f"ctrf.json cannot be read: {error}"
    return found if paths else None


def _ending(trial: TrialFiles) -> dict[str, tuple[Value, str | None]]:
    record = trial.record
    if record is None:
        reason = trial.reason or "the trial has no result"
        return {"success": (None, reason), "reward": (None, reason)}
    success = record.outcome is Outcome.PASSED if record.measured else None
    why = None if record.measured else f"{record.outcome}: {record.error_message or 'no verdict'}"
    return {"success": (success, why), "reward": (record.reward, why if record.reward is None else None)}


def _tests(trial: TrialFiles) -> Iterator[tuple[str, tuple[Value, str | None]]]:
    names = ("tests_passed", "tests_failed", "tests_total", "tests_passed_ratio")
    tests = read_ctrf(trial)
    if tests is None or isinstance(tests, str):
        yield from ((name, (None, tests or "the verifier wrote no ctrf.json")) for name in names)
        return
    passed = sum(test.status == "passed" for test in tests)
    failing = [test.name for test in tests if test.status == "failed"]
    yield "tests_passed", (passed, None)
    yield "tests_failed", (len(failing), ", ".join(failing[:20]) or None)
    yield "tests_total", (len(tests), None)
    yield "tests_passed_ratio", (passed / len(tests), None) if tests else (None, "no tests in ctrf.json")


def _usage(usage: Usage) -> dict[str, tuple[Value, str | None]]:
    values: dict[str, Value] = {"tokens": usage.total_tokens, **msgspec.structs.asdict(usage)}
    values["usage_source"] = values.pop("source")
    del values["all_tokens"]  # a total that an import told is `tokens`
    return {name: (value, "it was not recorded" if value is None else None) for name, value in values.items()}


def _times(trial: TrialFiles) -> dict[str, tuple[Value, str | None]]:
    record = trial.record
    try:
        wall_sec = record.wall_sec if record is not None else None
    except (ValueError, TypeError):
        wall_sec = None
    phases = record.phases if record is not None else Phases()
    values: dict[str, Value] = {"wall_sec": wall_sec, **msgspec.structs.asdict(phases)}
    reason = "the trial did not get that far, or did not record it"
    return {name: (value, reason if value is None else None) for name, value in values.items()}


def as_table(counts: dict[str, int]) -> str:
    """Counts as JSON text, the largest first."""
    return json.dumps(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))), ensure_ascii=False)


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
        return [trial.finding(me, name, value, reason) for name, (value, reason) in _of_trace(history)]


def _of_trace(history: History) -> Iterator[tuple[str, tuple[Value, str | None]]]:
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
