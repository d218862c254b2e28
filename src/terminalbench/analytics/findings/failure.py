"""The analyzer `failure`: why a trial that did not pass did not. Rules in order; the first that holds is the class.

An error has the name of its class (`terminalbench.faults`). A failure is classed by what the trajectory shows, with the
steps that show it; where no calls are told, by how its agent ended, what it printed last, and the check that failed.
docs/analysis.md has each rule in one line (a test compares the names).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.actions import Action
from terminalbench.analytics.findings.behaviour import loop_steps
from terminalbench.analytics.findings.failed_checks import ERROR_LINE, CtrfTest, agent_outputs, failed_check, last_said
from terminalbench.analytics.findings.trial import read_ctrf
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.faults import ErrorClass
from terminalbench.files import tail_plain
from terminalbench.harbor.read.notes import read_seen
from terminalbench.records.trial import AgentStatus, Finding, Outcome, Trial
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import duration, plural, some
from terminalbench.workflow.history import read_history

FEW_CALLS = 3
STUCK_TAIL = 10
STUCK_REPEATS = 4
SILENT_SHARE = 0.5
LOOP_REPEATS = 5
_TAIL_BYTES = 16 * 1024
STEPS_SHOWN = 20
_LETTERS = 160

_NAMED_FILE = re.compile(
    r"(?<![\w/.:-])(?:/?(?:[\w.-]+/)+[\w-]+\.\w{1,8}|/(?:[\w.-]+/)*[\w.-]+|[\w-]+\.(?:py|js|ts|c|h|cpp|rs|go|java|rb|sh|txt|json|csv|toml|yaml|yml|md|html|sql|R|cfg|ini|xml|db))(?![\w/])"
)


_TOP_FOLDER = re.compile(r"/[\w-]+")


@dataclass(frozen=True)
class FailureVerdict:
    """A class of failure, why, and the steps that show it."""

    name: str
    reason: str
    steps: tuple[int, ...] = ()


class FailureAnalyzer:
    """One class and one signature for each trial that did not pass."""

    name = "failure"
    version = "7"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:
        """The class with its evidence; None for a trial that passed."""
        me = (self.name, self.version)
        if trial.record is not None and trial.record.outcome is Outcome.PASSED:
            yield trial.finding(me, "failure_class", None, "it passed")
            yield trial.finding(me, "failure_signature", None, "it passed")
            return
        verdict = classify(trial, trajectory)
        yield trial.finding(me, "failure_class", verdict.name, verdict.reason, list(verdict.steps)[:STEPS_SHOWN])
        tests = read_ctrf(trial)
        sign = signature(trial, tests if isinstance(tests, list) else None)
        yield trial.finding(me, "failure_signature", sign, None if sign else "neither an error nor any output")


def classify(trial: TrialFiles, trajectory: Trajectory | None) -> FailureVerdict:
    """The first rule that holds."""
    record = trial.record
    if record is None:
        there = (trial.folder / "result.json").exists()
        return FailureVerdict("unreadable" if there else "unfinished", trial.reason or "the trial has no result")
    if record.outcome in (Outcome.ERRORED, Outcome.CANCELLED):
        return FailureVerdict(str(record.error_class or ErrorClass.UNKNOWN), _said(record), _last_step(trial))
    if record.outcome is Outcome.NOT_RUN:
        return FailureVerdict("not_run", _said(record))
    if record.agent_status is AgentStatus.TIMED_OUT:
        return _timeout(trial, None if trajectory is None or trajectory.untold else trajectory, record)
    untold = trajectory is None or trajectory.untold
    if record.error_class is not None and record.error_class.of_profile:
        why = [_said(record), *(_checked(trial) if untold else ())]
        return FailureVerdict(str(record.error_class), "; ".join(why), _last_step(trial))
    history = read_history(trial.folder)
    if history is not None and history.failed_step is not None:
        where = f"{history.failed_step}, at {history.failed_guard}" if history.failed_guard else history.failed_step
        return FailureVerdict("given_up", f"its workflow gave up step {where}, and left no patch", _last_step(trial))
    if trajectory is None or trajectory.untold:
        return _without_calls(trial, record)
    actions = trial.story.actions
    for rule in _RULES:
        found = rule(actions, trajectory)
        if found is not None:
            return found
    return FailureVerdict("wrong_answer", "the agent worked, finished, and the verifier failed it", _last_step(trial))


def _without_calls(trial: TrialFiles, record: Trial) -> FailureVerdict:
    """Judge by what there is, where nothing tells what the agent called."""
    said, checked, commands = _printed(trial), _checked(trial), read_seen(trial.folder).commands
    if commands == 0 and not said:
        return FailureVerdict("never_acted", "; ".join(["it ran no command in its environment", *checked]))
    ended = "it ended with exit 0" if record.agent == "command" else "it ended without an error"
    silent = not said and bool(agent_outputs(trial.folder))
    parts = [f"{ended} after {plural(commands, 'command')}" if commands else ended]
    parts += [*(["it printed nothing"] if silent else said), *(checked or ["the verifier said nothing"])]
    known = "no_output" if silent else "wrong_answer" if said or checked or commands else "unexplained"
    return FailureVerdict(known, "; ".join(parts))


def _printed(trial: TrialFiles) -> list[str]:
    """The last line of each output of the agent."""
    return [f'{name} ends "{line}"' for name, line in last_said(trial.folder, trial.secrets).items()]


def _checked(trial: TrialFiles) -> list[str]:
    """The first check that failed, or else the verifier's last words; none where it left neither."""
    check = failed_check(trial.folder, trial.secrets)
    if check is None:
        return []
    name, said = flat(check.name, _LETTERS), flat(check.message, _LETTERS)
    return [f"{name} failed{said and f': {said}'}" if name else f'the verifier said "{said}"']


type _Rule = Callable[[tuple[Action, ...], Trajectory], FailureVerdict | None]


def _never_acted(actions: tuple[Action, ...], trajectory: Trajectory) -> FailureVerdict | None:
    if any(acts(action) for action in actions):
        return None
    steps = tuple(head.id for head in trajectory.heads if head.source == "agent" and not head.copied)
    return FailureVerdict("never_acted", "the agent made no call that does anything", steps)


def acts(action: Action) -> bool:
    """Return whether an action does anything at all."""
    return action.kind not in ("plan", "finish", "wait")


def _loop(actions: tuple[Action, ...], _trajectory: Trajectory) -> FailureVerdict | None:
    tail = actions[-2 * STUCK_TAIL :]
    steps = loop_steps(tail)
    why = f"{len(steps)} of the last {len(tail)} calls repeat an earlier one unchanged"
    return FailureVerdict("loop", why, tuple(steps)) if len(steps) >= LOOP_REPEATS else None


def _lost_passing_state(actions: tuple[Action, ...], _trajectory: Trajectory) -> FailureVerdict | None:
    good = [i for i, action in enumerate(actions) if action.passed]
    edits = [action.step for action in actions[good[-1] + 1 :] if action.changes] if good else []
    if not edits:
        return None
    why = "its own tests passed, but it kept editing and never passed them again"
    return FailureVerdict("lost_passing_state", why, (actions[good[-1]].step, *edits))


def _wrong_target(actions: tuple[Action, ...], trajectory: Trajectory) -> FailureVerdict | None:
    """The instruction names files, the agent changed others, and no call ever mentions a named one."""
    named = _named_files(trajectory)
    changed = [action for action in actions if action.changed]
    if not named or not changed:
        return None
    words = " ".join(action.words for action in actions)
    if any(name in words for name in named):
        return None
    shown = ", ".join(sorted(named)[:5])
    other = ", ".join(dict.fromkeys(path for action in changed for path in action.changed))
    steps = tuple(action.step for action in changed)
    return FailureVerdict(
        "wrong_target", f"the task names {shown}; the agent changed {other[:200]} and never touched those", steps
    )


def _named_files(trajectory: Trajectory) -> set[str]:
    said = (trajectory.steps[at].text for at, head in enumerate(trajectory.heads) if head.source == "user")
    return files_named_in(next(filter(None, said), ""))


def files_named_in(asked: str) -> set[str]:
    """The names of the files that an instruction names, without their folders."""
    paths = _NAMED_FILE.findall(asked[:20_000])
    return {path.rsplit("/", 1)[-1] for path in paths if not _TOP_FOLDER.fullmatch(path)}


def _gave_up_early(actions: tuple[Action, ...], trajectory: Trajectory) -> FailureVerdict | None:
    """Few calls, or none that does anything. Who changed a file that the task names has worked on it, however short."""
    changing = any(does_something(action) for action in actions)
    if changing and len(actions) > FEW_CALLS:
        return None
    if _named_files(trajectory) & {path.rsplit("/", 1)[-1] for action in actions for path in action.changed}:
        return None
    short = f"it finished after {plural(len(actions), 'call')}"
    what = short if changing else "it only looked: no call changed or ran anything"
    return FailureVerdict("gave_up_early", what, tuple(action.step for action in actions))


def does_something(action: Action) -> bool:
    """Return whether an action does more than look."""
    return action.changes or action.kind in ("run", "build", "install", "mcp", "delegate", "test", "other")


def _own_tests(actions: tuple[Action, ...], _trajectory: Trajectory) -> FailureVerdict | None:
    runs = [action for action in actions if action.did("test")]
    known = [action for action in runs if action.passed is not None]
    if known:
        good = ("own_tests_passed", "its own last test run passed; the verifier's tests did not")
        bad = ("finished_with_failing_tests", "its own last test run failed, and it finished")
        return FailureVerdict(*(good if known[-1].passed else bad), (known[-1].step,))
    if not runs and any(action.changes for action in actions):
        steps = tuple(action.step for action in actions if action.changes)
        return FailureVerdict("untested", "it changed files and ran no test", steps)
    return None


_RULES: tuple[_Rule, ...] = (_never_acted, _loop, _lost_passing_state, _wrong_target, _gave_up_early, _own_tests)

FAILURE_CLASSES: tuple[str, ...] = (
    *(kind.value for kind in ErrorClass),
    "unreadable", "unfinished", "not_run", "timeout_stuck", "timeout_working", "given_up", "unexplained", "no_output",
    "never_acted", "loop", "lost_passing_state", "wrong_target", "gave_up_early", "finished_with_failing_tests",
    "own_tests_passed", "untested", "wrong_answer",
)  # fmt: skip
"""Every class there is: those of errors, and what failures show. A time-out is told by what the agent did till then,
where that is known."""


def _timeout(trial: TrialFiles, trajectory: Trajectory | None, record: Trial) -> FailureVerdict:
    if record.tool_calls == 0 or (trajectory is not None and not trial.story.actions):
        return FailureVerdict("never_acted", "time ran out, and the agent had called no tool", _last_step(trial))
    if trajectory is None:
        if not record.tool_calls:
            said = "; ".join([f"time ran out, and {trial.story.missing}", *_printed(trial)])
            return FailureVerdict(str(ErrorClass.AGENT_TIMEOUT), said)
        calls = plural(record.tool_calls, "call")
        return FailureVerdict("timeout_working", f"time ran out after {calls}, and {trial.story.missing}")
    actions = trial.story.actions
    tail = actions[-STUCK_TAIL:]
    repeats = loop_steps(tail)
    if len(repeats) >= STUCK_REPEATS:
        return FailureVerdict(
            "timeout_stuck", f"{len(repeats)} of the last {len(tail)} calls repeat an earlier one", tuple(repeats)
        )
    times = [head.time for head in trajectory.heads if head.time is not None and not head.copied]
    agent_sec = record.phases.agent_sec
    if len(times) > 1 and agent_sec:
        silent = agent_sec - (max(times) - min(times)).total_seconds()
        if silent > SILENT_SHARE * agent_sec:
            reason = f"no step in the last {duration(silent)} of {duration(agent_sec)}"
            return FailureVerdict("timeout_stuck", reason, _last_step(trial))
    return FailureVerdict(
        "timeout_working", "time ran out while it was still making progress", tuple(a.step for a in tail[-3:])
    )


def signature(trial: TrialFiles, tests: list[CtrfTest] | None) -> str | None:
    """Return what went wrong, equal for equal causes: the error, the failing tests, or the verifier's last line.

    An error that left the agent time to work, as a time-out does, is the last to be named.
    """
    record = trial.record
    if record is None:
        return normalised(trial.reason or "")[:200] or None
    error = normalised(": ".join(filter(None, (record.error_type, record.error_message))))[:200] or None
    if error and (record.outcome is not Outcome.FAILED or record.error_class is ErrorClass.AGENT_CRASH):
        return error
    failing = sorted(test.name for test in tests or () if test.status == "failed")
    if failing:
        return f"failing: {some(failing)}"[:300]
    last = _verifier_words(trial)
    if last or error:
        return f"verifier: {normalised(last)}"[:200] if last else error
    said = [f"{name}: {normalised(line)}" for name, line in last_said(trial.folder, trial.secrets).items()]
    return "; ".join(said)[:200] or None


_REPLACEMENTS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{4,27}\b", re.I), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,64}\b", re.I), "<hex>"),
    (re.compile(r"(?<![\w<])(?:[\w.~-]*/){2,}[\w.+-]*|(?<![\w<])/[\w.+-]+"), "<path>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "N"),
    (re.compile(r"\s+"), " "),
)


def normalised(text: str) -> str:
    """The text without numbers, paths, ids and addresses: equal for equal causes."""
    for pattern, by in _REPLACEMENTS:
        text = pattern.sub(by, text)
    return text.strip()


def _verifier_words(trial: TrialFiles) -> str | None:
    lines = (tail_plain(trial.folder / "verifier" / "test-stdout.txt", _TAIL_BYTES) or "").splitlines()
    last = [line.strip() for line in reversed(lines) if any(c.isalpha() for c in line)]
    return next((line for line in last if ERROR_LINE.match(line)), last[0] if last else None)


def _said(record: Trial) -> str:
    return ": ".join(filter(None, (record.error_type, record.error_message))) or str(record.outcome)


def _last_step(trial: TrialFiles) -> tuple[int, ...]:
    heads = trial.story.trajectory.heads if trial.story.trajectory is not None else ()
    return (heads[-1].id,) if heads else ()
