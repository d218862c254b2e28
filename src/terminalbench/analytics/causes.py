"""Why each profile failed, the most frequent causes first, each with one trial that shows it.

The example has the verifier's line and the deciding step, which is where a reader would look first.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.error_groups import FailedTrial
from terminalbench.analytics.findings.failed_checks import failed_check
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.text.failures import failure_advice, failure_words
from terminalbench.text.foreign import flat

MOST = 3
"""Causes of a profile that are told; the list of failures has all."""
LETTERS = 200
_FIRST_COUNTS = ("loop", "timeout_stuck")
"""Classes whose first step is where it went wrong; of others it is the last that shows it."""


class FailureCause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause: `count` of the `of` trials of `profile` that did not pass, and the trial that is shown for it.

    `check` is what the verifier said of it, `did` what its agent did at the deciding `step`; "" where that is unknown.
    """

    profile: str
    what: str
    count: int
    of: int
    trial: str
    task: str
    reason: str = ""
    check: str = ""
    step: int | None = None
    did: str = ""

    @property
    def words(self) -> str:
        """The cause as a clause."""
        return failure_words(self.what)

    @property
    def advice(self) -> str:
        """Return what to try next."""
        return failure_advice(self.what)


def failure_causes(
    failed: Sequence[FailedTrial], files: Callable[[FailedTrial], TrialFiles | None]
) -> list[FailureCause]:
    """Return the `MOST` frequent causes of each profile, in the order in which the profiles stand in `failed`."""
    by_profile: dict[str, dict[str, list[FailedTrial]]] = defaultdict(lambda: defaultdict(list))
    for one in failed:
        by_profile[one.profile][one.failure_class].append(one)
    found = []
    for profile, classes in by_profile.items():
        of = sum(map(len, classes.values()))
        ranked = sorted(classes.items(), key=lambda item: (-len(item[1]), item[0]))
        for what, trials in ranked[:MOST]:
            shown = trials[0]
            cause = FailureCause(
                profile=profile, what=what, count=len(trials), of=of, trial=shown.trial, task=shown.task,
                reason=flat(shown.reason or "", LETTERS), step=deciding_step(what, shown.steps),
            )  # fmt: skip
            told = files(shown)
            found.append(cause if told is None else _with_evidence(cause, told))
    return found


def deciding_step(what: str, steps: Sequence[int]) -> int | None:
    """Return the step at which a failure was decided, of those that show it; None where none does."""
    if not steps:
        return None
    if what == "lost_passing_state" and len(steps) > 1:
        return steps[1]
    return steps[0] if what in _FIRST_COUNTS else steps[-1]


def _with_evidence(cause: FailureCause, files: TrialFiles) -> FailureCause:
    check = failed_check(files.folder, files.secrets)
    said = "" if check is None else ": ".join(filter(None, (check.name, check.message)))
    story = files.story
    did = "" if cause.step is None or story.trajectory is None else _did(story.trajectory, cause.step, files)
    return msgspec.structs.replace(cause, check=flat(said, LETTERS), did=flat(files.secrets.conceal(did), LETTERS))


def _did(trajectory: Trajectory, number: int, files: TrialFiles) -> str:
    """Return what the agent did at a step: its calls, else its words."""
    calls = [
        f"{action.tool}: {action.command or action.target}".rstrip(": ")
        for action in files.story.actions
        if action.step == number
    ]
    step = next((step for step in trajectory.own_steps() if step.id == number), None)
    return "; ".join(calls[:2]) or (step.text or step.reasoning if step is not None else "")
