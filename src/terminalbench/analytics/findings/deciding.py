"""The few actions and steps of a long trial that decide why it failed, gathered as its steps are read."""

from collections import deque
from dataclasses import dataclass, field, replace

from terminalbench.analytics.atif import Trajectory, TrajectoryStep
from terminalbench.analytics.findings.actions import Action, Taxonomy, actions_of_step, taxonomy_for
from terminalbench.analytics.findings.failure import STUCK_TAIL, acts, does_something, files_named_in
from terminalbench.analytics.findings.trial_files import UNTOLD, Story

_PATHS_SHOWN = 200
_FIRSTS = frozenset({"acts", "does", "changes"})
type _Placed = tuple[int, Action]


@dataclass
class DecidingActions:
    """Gathers what the rules of `failure.classify` ask for, so that its verdict and reason are those of all actions.

    Those are the last calls, and the first or the last of each sort that a rule looks for; a call that can be neither
    is not taken apart. `late`: the user spoke after the first call, so that what it named was not looked for from the
    start; nothing is known then.
    """

    agent: str | None = None
    late: bool = False
    _count: int = 0
    _kept: dict[str, _Placed] = field(default_factory=dict)
    _changed: list[_Placed] = field(default_factory=list)
    _paths: set[str] = field(default_factory=set)
    _letters: int = 0
    _tail: deque[tuple[int, TrajectoryStep, Taxonomy]] = field(default_factory=lambda: deque(maxlen=2 * STUCK_TAIL))
    _named: frozenset[str] = frozenset()
    _steps: dict[str, TrajectoryStep] = field(default_factory=dict)

    def see(self, step: TrajectoryStep, agent: str | None) -> None:
        """One more step, of a document of that agent."""
        steps = self._steps
        steps["last"] = step
        if "asked" not in steps and step.source == "user" and step.text:
            steps["asked"], self._named, self.late = step, frozenset(files_named_in(step.text)), self._count > 0
        if step.copied:
            return
        if step.time is not None:
            earliest, latest = (steps.get(name, step).time or step.time for name in ("earliest", "latest"))
            if "earliest" not in steps or step.time < earliest:
                steps["earliest"] = step
            if step.time >= latest:
                steps["latest"] = step
        if step.calls:
            taxonomy = taxonomy_for(agent or self.agent)
            self._tail.append((self._count, step, taxonomy))
            if self._matters(step, taxonomy):
                for placed in _placed(self._count, step, taxonomy):
                    self._take(placed)
            self._count += len(step.calls)

    def story(self, document: Trajectory) -> Story | None:
        """Return what is known of the trial, with the actions and the steps that decide; None where that is not
        enough."""
        if self.late:
            return None
        tail = [placed for last in self._tail for placed in _placed(*last)][-2 * STUCK_TAIL :]
        placed = dict([*self._kept.values(), *self._changed, *tail])
        actions = tuple(placed[at] for at in sorted(placed))
        first = [step for name, step in self._steps.items() if name != "last"]
        alone = {id(step): step for step in [*first, *([self._steps["last"]] if self._steps else [])]}
        return Story(replace(document, steps=tuple(alone.values())), actions, UNTOLD if document.untold else None)

    def _matters(self, step: TrajectoryStep, taxonomy: Taxonomy) -> bool:
        """Return whether a call of the step may be one that a rule looks for, besides the last ones."""
        kept = self._kept
        if (
            self._letters <= _PATHS_SHOWN
            or not kept.keys() >= _FIRSTS
            or ("passed" in kept and "edited on" not in kept)
        ):
            return True
        names = frozenset() if "mentions" in kept and "changed named" in kept else self._named
        return any(taxonomy.says(call, names) for call in step.calls)

    def _take(self, placed: _Placed) -> None:
        """One more action."""
        action, kept = placed[1], self._kept
        if "acts" not in kept and acts(action):
            kept["acts"] = placed
        if "does" not in kept and does_something(action):
            kept["does"] = placed
        if self._named and "mentions" not in kept and any(name in action.words for name in self._named):
            kept["mentions"] = placed
        if action.did("test"):
            kept.setdefault("test", placed)
            if action.passed is not None:
                kept["told"] = placed
            if action.passed:
                kept["passed"] = placed
                kept.pop("edited on", None)
        if action.changes:
            kept.setdefault("changes", placed)
            if "passed" in kept and kept["passed"] is not placed:
                kept.setdefault("edited on", placed)
        if action.changed:
            self._take_changed(placed)

    def _take_changed(self, placed: _Placed) -> None:
        """An action that changed files: the first that touched each, as far as their names are shown."""
        action = placed[1]
        if any(path.rsplit("/", 1)[-1] in self._named for path in action.changed):
            self._kept.setdefault("changed named", placed)
        if self._letters <= _PATHS_SHOWN and not self._paths.issuperset(action.changed):
            new = set(action.changed) - self._paths
            self._paths |= new
            self._letters += sum(map(len, new))
            self._changed.append(placed)


def _placed(first: int, step: TrajectoryStep, taxonomy: Taxonomy) -> list[_Placed]:
    """The calls of a step as actions, numbered from `first`."""
    return list(enumerate(actions_of_step(step, taxonomy), first))
