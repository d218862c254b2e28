"""The few actions of a long trial that decide why it failed, found without taking the others apart."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import cast

from terminalbench.analytics.atif import Trajectory, TrajectoryStep
from terminalbench.analytics.findings.actions import Action, Taxonomy, actions_of_step, names_any, said_by, taxonomy_for
from terminalbench.analytics.findings.failure import STEPS_SHOWN, STUCK_TAIL, acts, does_something, files_named_in
from terminalbench.analytics.findings.shell import summary_of_tests
from terminalbench.analytics.findings.trial_files import UNTOLD, Story, TrialFiles
from terminalbench.analytics.long_trajectory import LongSteps, StepCalls, open_long
from terminalbench.files import open_plain
from terminalbench.records.trial import Outcome

_PATHS_SHOWN = 200
type _Place = tuple[int, int]
"""The number of a step, and of a call in it."""
type _Placed = tuple[_Place, Action]


class DecidingActions:
    """Finds what the rules of `failure.classify` ask for, so that its verdict is that of all actions.

    Those are the last calls, and the first ones or the last of each sort that a rule looks for. `look` notes, as a file
    is passed, which steps call anything, which may run tests or change files, and which may be the first to touch one.
    """

    def __init__(self, agent: str | None) -> None:
        self._agent, self._taxonomy = agent, taxonomy_for(agent)
        self._acting, self._tests, self._changing, self._touching = (array("q") for _ in range(4))
        self._touched: set[tuple[str, ...] | None] = set()
        self._named: frozenset[str] | None = None
        self._unnamed = 0  # acting steps before the names were known
        self._mentioned = False

    def look(self, at: int, step: StepCalls, agent: str | None) -> None:
        """One more step, of a document of that agent."""
        if self._named is None and step.source == "user" and (text := step.as_step().text):
            self._named, self._unnamed = frozenset(files_named_in(text)), len(self._acting)
        if step.copied or not step.calls:
            return
        if not self._acting:
            self._taxonomy = taxonomy_for(agent or self._agent)
        self._acting.append(at)
        tests = changes = names = False
        sought = self._named if self._named and not self._mentioned else ()
        for call in step.calls:
            said = said_by(call)
            may_test, may_change = self._taxonomy.may(call, said)
            tests, changes = tests or may_test, changes or may_change
            names = names or names_any(said, sought)
        if tests:
            self._tests.append(at)
        if changes:
            self._changing.append(at)
            about = {self._taxonomy.about(call) for call in step.calls}
            if None in about or not about <= self._touched:
                self._touching.append(at)
                self._touched |= about
        if names:
            self._mentioned = any(map(self._mentions, actions_of_step(step.as_step(), self._taxonomy)))

    def story(self, trajectory: Trajectory) -> Story:
        """Return what is known of the trial: its trajectory, opened with `look`, and the actions that decide."""
        sought = _Sought(cast("LongSteps", trajectory.steps), self._taxonomy)
        acting = self._acting
        sought.take(acting[-2 * STUCK_TAIL :], last=2 * STUCK_TAIL)
        sought.first(lambda _action: True, acting, most=STEPS_SHOWN)
        sought.first(acts, acting)
        sought.first(does_something, acting)
        if self._named and not self._mentioned and not sought.first(self._mentions, acting[: self._unnamed]):
            sought.changed(self._touching)
            sought.first(lambda action: bool(action.changed), self._changing, most=STEPS_SHOWN)
        told = sought.last(lambda action: action.passed is not None, self._tests)
        good = sought.last(lambda action: action.passed is True, self._tests, _may_have_passed) if told else None
        if good is not None:
            later = (at for at in self._changing if at >= good[0])
            sought.first(lambda action: action.changes, later, after=good, most=STEPS_SHOWN)
        elif told is None and not sought.first(lambda action: action.did("test"), self._tests):
            sought.first(lambda action: action.changes, self._changing, most=STEPS_SHOWN)
        actions = tuple(sought.found[place] for place in sorted(sought.found))
        return Story(trajectory, actions, UNTOLD if trajectory.untold else None)

    def _mentions(self, action: Action) -> bool:
        return any(name in action.words for name in self._named or ())


def story_of_failure(trial: TrialFiles) -> Story | None:
    """Return what `failure.classify` asks for of a trial; None where that is its whole story, which is not long."""
    if trial.record is None or trial.record.outcome is Outcome.PASSED:
        return Story(None)
    if len(trial.trajectory_paths) != 1:
        return None
    deciding = DecidingActions(trial.agent)
    with open_plain(trial.trajectory_paths[0]) as stream:
        found = open_long(stream, lambda data: data, deciding.look) if stream is not None else None
    return deciding.story(found) if found is not None else None


class _Sought:
    """The actions that were found, by the number of their step and of the call in it."""

    def __init__(self, steps: LongSteps, taxonomy: Taxonomy) -> None:
        self.found: dict[_Place, Action] = {}
        self._steps, self._taxonomy = steps, taxonomy

    def first(
        self, wanted: Callable[[Action], bool], places: Iterable[int], after: _Place = (-1, 0), most: int = 1
    ) -> bool:
        """Keep the first actions of that sort in these steps, after a place; return whether there is one."""
        fit = ((place, action) for place, action in self._actions(places) if place > after and wanted(action))
        found = dict(islice(fit, most))
        self.found |= found
        return bool(found)

    def last(
        self,
        wanted: Callable[[Action], bool],
        places: "array[int]",
        may: Callable[[TrajectoryStep], bool] = lambda _step: True,
    ) -> _Place | None:
        """Keep the last action of that sort in these steps, of which only those that `may` have one are taken apart."""
        for at in reversed(places):
            step = self._steps.alone(at)
            found = [one for one in self._actions_of(at, step) if wanted(one[1])] if may(step) else []
            if found:
                self.found.update(found[-1:])
                return found[-1][0]
        return None

    def take(self, places: Iterable[int], last: int) -> None:
        """Keep the last actions of these steps."""
        self.found.update(list(self._actions(places))[-last:])

    def changed(self, places: Iterable[int]) -> None:
        """Keep the first action that touched each file, as far as their names are shown."""
        paths: set[str] = set()
        for place, action in self._actions(places):
            if new := set(action.changed) - paths:
                paths |= new
                self.found[place] = action
            if sum(map(len, paths)) > _PATHS_SHOWN:
                return

    def _actions(self, places: Iterable[int]) -> Iterator[_Placed]:
        return (one for at in places for one in self._actions_of(at, self._steps.alone(at)))

    def _actions_of(self, at: int, step: TrajectoryStep) -> Iterator[_Placed]:
        return (((at, number), action) for number, action in enumerate(actions_of_step(step, self._taxonomy)))


def _may_have_passed(step: TrajectoryStep) -> bool:
    """Return whether a test run of the step may have passed: its summary, where it has one, counts first."""
    return not step.results or any(summary_of_tests(result.text) is not False for result in step.results)
