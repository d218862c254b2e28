"""Finding one's way through a trajectory: which steps failed or changed files, and which hold a text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.findings.actions import actions_of
from terminalbench.dashboard.pages.steps import StepPage, StepView, pieces, step_views

ONLY = ("errors", "edits")
MOST_FOUND = 200


@dataclass(frozen=True)
class MarkedSteps:
    """The ids of the steps of a trajectory that failed, and of those that changed files."""

    errors: frozenset[int] = frozenset()
    edits: frozenset[int] = frozenset()


def marked(trajectory: Trajectory, agent: str | None) -> MarkedSteps:
    """Return what its calls did; a result that says so itself is an error too."""
    actions = actions_of(replace(trajectory, subagents=()), agent)
    errors = {action.step for action in actions if action.failed}
    errors |= {step.id for step in trajectory.steps if any(result.failed for result in step.results)}
    return MarkedSteps(frozenset(errors), frozenset(action.step for action in actions if action.changes))


@dataclass(frozen=True)
class StepFilter:
    """Which steps a reader looks for: those that hold a text, `only` those with errors or edits."""

    text: str = ""
    only: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.only)


def found_steps(trajectory: Trajectory, wanted: StepFilter, marks: MarkedSteps) -> StepPage:
    """The steps that are wanted, on one page: the first of them, where there are very many."""
    ids = {"errors": marks.errors, "edits": marks.edits}.get(wanted.only)
    text = wanted.text.lower()
    positions = [
        position
        for position, step in enumerate(trajectory.steps)
        if (ids is None or step.id in ids)
        and (not text or any(text in label.lower() or text in words.lower() for _, label, words, _ in pieces(step)))
    ]
    return StepPage(1, 1, len(positions), _views(trajectory, positions[:MOST_FOUND]))


def _views(trajectory: Trajectory, positions: Sequence[int]) -> list[StepView]:
    chosen = set(positions)
    views = step_views(trajectory, positions[0], positions[-1] + 1) if positions else ()
    return [view for view in views if view.position - 1 in chosen]
