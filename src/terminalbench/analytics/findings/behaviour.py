"""The analyzers `behaviour`, what the agent did, and `tripwires`, what it should have left alone: from its calls."""

import itertools
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from terminalbench.analytics.atif import Trajectory, TrajectoryStep
from terminalbench.analytics.findings.actions import Action
from terminalbench.analytics.findings.analyzers import BEHAVIOUR, MIX, TRIPWIRES
from terminalbench.analytics.findings.trial import as_table
from terminalbench.analytics.findings.trial_files import TrialFiles, Value
from terminalbench.records.trial import TAMPERING, Finding, Outcome
from terminalbench.workflow.trace import trace_file

LOOP_WINDOW = 5
BACKTRACK_WINDOW = 3
_PATHS_SHOWN = 12
_LOOKS = frozenset({"read", "search", "list"})


class BehaviourAnalyzer:
    """Findings from the trajectory."""

    name = "behaviour"
    version = "3"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:
        """Every measure of the trajectory; None with the reason when there is no trajectory."""
        me = (self.name, self.version)
        if trajectory is None or trajectory.untold:
            return [trial.finding(me, name, None, trial.story.missing) for name in BEHAVIOUR]
        notes = _Notes()
        actions = trial.story.actions
        _count(notes, trajectory, actions)
        _errors(notes, actions)
        _files(notes, actions)
        _first_edit(notes, trajectory, actions)
        _repeats(notes, actions)
        if trace_file(trial.folder).is_file():
            notes.say("backtracks", None, "a workflow changes files by whole patches: see its escalations")
        _tests(notes, actions, trial)
        _context(notes, trajectory)
        found = [trial.finding(me, name, *notes.found[name]) for name in BEHAVIOUR if name != MIX]
        mix = Counter(action.kind for action in actions)
        return found + [trial.finding(me, f"{MIX}.{kind}", count) for kind, count in mix.most_common()]


@dataclass
class _Notes:
    found: dict[str, tuple[Value, str | None, list[int]]] = field(default_factory=dict)

    def say(self, name: str, value: Value, reason: str | None = None, steps: Iterable[int] = ()) -> None:
        self.found[name] = (value, reason, list(dict.fromkeys(steps))[:_STEPS_SHOWN])


def _count(notes: _Notes, trajectory: Trajectory, actions: Sequence[Action]) -> None:
    steps = list(trajectory.own_steps())
    spoken = [step for step in steps if step.source == "agent"]
    tools = Counter(action.tool for action in actions)
    mcp = [action for action in actions if action.mcp]
    times = [step.time for step in steps if step.time is not None]
    minutes = (max(times) - min(times)).total_seconds() / 60 if len(times) > 1 else 0
    notes.say("steps", len(steps))
    notes.say("agent_steps", len(spoken))
    notes.say("tool_calls", len(actions))
    notes.say("distinct_tools", len(tools))
    none_spoken = "the agent never spoke"
    notes.say("calls_per_step", len(actions) / len(spoken) if spoken else None, None if spoken else none_spoken)
    timed = None if minutes else "the steps have no times"
    notes.say("steps_per_minute", len(spoken) / minutes if minutes else None, timed)
    notes.say("tools", as_table(tools))
    notes.say("mcp_tools", ", ".join(sorted({action.tool for action in mcp})))
    notes.say("mcp_calls", len(mcp), steps=(action.step for action in mcp))
    notes.say("native_calls", len(actions) - len(mcp))
    notes.say("subagents", len(trajectory.subagents))
    shown = "; ".join(trajectory.problems[:3]) or None
    notes.say("trajectory_problems", len(trajectory.problems), shown)


def _errors(notes: _Notes, actions: Sequence[Action]) -> None:
    known = [action for action in actions if action.failed is not None]
    if actions and not known:
        reason = "the trajectory of this agent has neither error flags nor exit codes"
        notes.say("tool_errors", None, reason)
        notes.say("tool_success_rate", None, reason)
    else:
        failed = [action.step for action in known if action.failed]
        unknown = len(actions) - len(known)
        note = f"the outcome of {unknown} of {len(actions)} calls is unknown" if unknown else None
        notes.say("tool_errors", len(failed), note, failed)
        rate = 1 - len(failed) / len(known) if known else None
        notes.say("tool_success_rate", rate, note if known else "no calls")
    cut = [action.step for action in actions if action.truncated]
    notes.say("truncated_outputs", len(cut), steps=cut)


def _files(notes: _Notes, actions: Sequence[Action]) -> None:
    def say(name: str, pick: str) -> None:
        touching = [(action.step, found) for action in actions if (found := getattr(action.effects, pick))]
        paths = dict.fromkeys(path for _, found in touching for path in found)
        steps = [step for step, _ in touching]
        shown = ", ".join(list(paths)[:_PATHS_SHOWN]) + (", ..." if len(paths) > _PATHS_SHOWN else "")
        notes.say(name, len(paths), shown or None, steps)

    say("files_read", "reads")
    say("files_edited", "edits")
    say("files_written", "writes")
    looked = {
        place for a in actions if not _LOOKS.isdisjoint(a.effects.kinds) for place in (a.effects.reads or (a.target,))
    }
    notes.say("places_explored", len(looked))


def _first_edit(notes: _Notes, trajectory: Trajectory, actions: Sequence[Action]) -> None:
    names = ("searched_before_edit", "looks_before_edit", "first_edit_step", "first_edit_sec")
    position = next((i for i, action in enumerate(actions) if action.changes), None)
    if position is None:
        for name in names:
            notes.say(name, None, "the agent edited nothing")
        return
    first, before = actions[position], actions[:position]
    searches = [action.step for action in before if action.did("search")]
    looks = [action.step for action in before if not _LOOKS.isdisjoint(action.effects.kinds)]
    notes.say("searched_before_edit", bool(searches), steps=searches or [first.step])
    notes.say("looks_before_edit", len(looks), steps=looks)
    notes.say("first_edit_step", first.step, first.target, [first.step])
    start = next((step.time for step in trajectory.own_steps() if step.time is not None), None)
    if first.time is None or start is None:
        notes.say("first_edit_sec", None, "the steps have no times")
    else:
        notes.say("first_edit_sec", max(0.0, (first.time - start).total_seconds()), steps=[first.step])


def loop_steps(actions: Sequence[Action]) -> list[int]:
    """The steps of calls identical to one of the few before, with no edit in between. Waiting is no loop."""
    recent: deque[bytes] = deque(maxlen=LOOP_WINDOW)
    steps: list[int] = []
    for action in actions:
        if action.kind in ("wait", "plan", "finish"):
            continue
        if action.same in recent:
            steps.append(action.step)
        if action.changes:
            recent.clear()
        recent.append(action.same)
    return steps


def _repeats(notes: _Notes, actions: Sequence[Action]) -> None:
    loops = loop_steps(actions)
    notes.say("loops", len(loops), steps=loops)
    recent: deque[tuple[str, ...]] = deque(maxlen=BACKTRACK_WINDOW)
    again: list[int] = []
    for action in actions:
        if not action.changed:
            continue
        if any(path in changed for changed in recent for path in action.changed):
            again.append(action.step)
        recent.append(action.changed)
    notes.say("backtracks", len(again), steps=again)


def _tests(notes: _Notes, actions: Sequence[Action], trial: TrialFiles) -> None:
    runs = [(i, action) for i, action in enumerate(actions) if action.did("test")]
    edits = [i for i, action in enumerate(actions) if action.changes]
    notes.say("test_runs", len(runs), steps=(action.step for _, action in runs))
    last_edit = edits[-1] if edits else -1
    after = [action.step for i, action in runs if i >= last_edit]
    notes.say("tested_before_finish", bool(after), None if runs else "it ran no tests", after)
    known = [(i, action) for i, action in runs if action.passed is not None]
    if not known:
        reason = "no test run shows how it ended" if runs else "it ran no tests"
        notes.say("own_tests_passed", None, reason)
        notes.say("lost_passing_state", None if runs else False, reason)
        return
    notes.say("own_tests_passed", known[-1][1].passed, steps=[known[-1][1].step])
    good = [(i, action.step) for i, action in known if action.passed]
    passed_trial = trial.record is not None and trial.record.outcome is Outcome.PASSED
    later = [actions[i].step for i in edits if good and i > good[-1][0]]
    lost = bool(good and later) and not passed_trial
    notes.say("lost_passing_state", lost, steps=[good[-1][1], *later] if lost else ())


def _context(notes: _Notes, trajectory: Trajectory) -> None:
    sizes = [(step.id, size) for step in trajectory.own_steps() if (size := _prompt(step))]
    if not sizes:
        for name in ("context_first_tokens", "context_peak_tokens", "context_growth", "context_resets"):
            notes.say(name, None, "the steps have no token counts")
        return
    first, peak = sizes[0], max(sizes, key=lambda item: item[1])
    resets = [step for (_, before), (step, now) in itertools.pairwise(sizes) if now < before / 2]
    notes.say("context_first_tokens", first[1], steps=[first[0]])
    notes.say("context_peak_tokens", peak[1], steps=[peak[0]])
    notes.say("context_growth", peak[1] / first[1], steps=[first[0], peak[0]])
    notes.say("context_resets", len(resets), steps=resets)


def _prompt(step: TrajectoryStep) -> int | None:
    """Return what the step sent to the model; a subagent's step has a context of its own."""
    return None if step.extra.get("is_sidechain") is True else step.tokens.prompt


_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/|(?:^|/)(?:test_[^/]+|[^/]+_test|[^/]+\.(?:test|spec))\.\w+$|(?:^|/)conftest\.py$"
)
_REWARD = (
    ("/logs/verifier", "reward.", "ctrf.json"),
    re.compile(r"/logs/verifier\b|\breward\.(?:txt|json)\b|\bctrf\.json\b"),
)
_SOLUTION = (
    ("solution", "/oracle"),
    re.compile(r"(?:^|[\s'\"=])/(?:solution|oracle)(?:/|\b)|\bsolution/solve\.sh\b"),
)
"""Each with what it cannot do without: a plain search of all calls is far quicker, and mostly finds nothing."""
_STEPS_SHOWN = 40


class TripwireAnalyzer:
    """Edits of tests, mentions of reward files and solutions, and what the safe verifier removed."""

    name = "tripwires"
    version = "1"

    def analyze(self, trial: TrialFiles, trajectory: Trajectory | None) -> Iterable[Finding]:
        """The four tripwires; those that need a trajectory are None without one."""
        me = (self.name, self.version)
        suspect = trial.record.suspect if trial.record is not None else []
        tampering = [reason.removeprefix(TAMPERING) for reason in suspect if reason.startswith(TAMPERING)]
        yield trial.finding(me, "tampering", ", ".join(tampering), trial.reason if trial.record is None else None)
        if trajectory is None or trajectory.untold:
            yield from (trial.finding(me, name, None, trial.story.missing) for name in TRIPWIRES if name != "tampering")
            return
        actions = trial.story.actions
        tests = [a for a in actions if a.changed and any(_TEST_FILE.search(path) for path in a.changed)]
        paths = dict.fromkeys(path for a in tests for path in a.changed if _TEST_FILE.search(path))
        steps = _steps(tests)
        yield trial.finding(me, "edited_tests", len(tests), ", ".join(list(paths)[:12]) or None, steps)
        words = "\n".join(action.words for action in actions)
        simulated = trial.record is not None and trial.record.simulated
        for name, (needed, pattern) in (("touched_reward", _REWARD), ("touched_solution", _SOLUTION)):
            if simulated and name == "touched_solution":
                yield trial.finding(me, name, None, "a simulated agent works with the solution")
                continue
            mentioned = any(part in words for part in needed)
            hits = [action for action in actions if mentioned and pattern.search(action.words)]
            yield trial.finding(me, name, len(hits), hits[0].target if hits else None, _steps(hits))


def _steps(actions: Sequence[Action]) -> list[int]:
    return list(dict.fromkeys(action.step for action in actions))[:_STEPS_SHOWN]
