"""Ending a run early where its plan allows a verdict at any time (`analysis.looks = "any"`).

A pair of profiles is settled once its difference is shown, and once the rest of its trials will hardly show one: such
a pair stays `inconclusive`, so giving up adds no false verdict. A profile whose pairs are all settled starts no trial
more; what runs is finished. `tbench resume` runs the others all the same.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ExclusionKind, Plan
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.index.plans import plan_or_none
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.control import ControlOrder, note
from terminalbench.runner.run import Listener
from terminalbench.text.numbers import percent

if TYPE_CHECKING:
    from terminalbench.analytics.model import Contrast

HOPELESS = 0.15
"""A pair whose end decides with a smaller chance is given up."""
_LOOKS = 40
"""A run is looked at so many times, twice for each part of its plan."""
_BY = "tbench run"

type Pair = tuple[str, str]


@dataclass
class EarlyStop:
    """Follows a run and orders its profiles to stop; everything that happens is passed on to the listener `told`."""

    told: Listener
    _batch: Batch | None = None
    _plan: Plan | None = None
    _ended: int = 0
    _look_at: int = 0
    _each: int = 1
    _settled: dict[Pair, str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)

    def listener(self) -> Listener:
        """Return what the run is to tell."""
        return replace(self.told, prepared=self._prepared, event=self._event, tick=self._tick)

    def _prepared(self, plan: Plan, batch: Batch, trials: int) -> None:
        if plan.analysis.looks == "any":
            self._batch, self._plan, self._each = batch, plan, max(1, trials // _LOOKS)
            self._look_at = self._each
        self.told.prepared(plan, batch, trials)

    def _event(self, event: Event) -> None:
        self._ended += event.kind == EventKind.TRIAL_ENDED
        self.told.event(event)

    def _tick(self) -> None:
        if self._batch is not None and self._plan is not None and self._ended >= self._look_at:
            self._look_at = self._ended + self._each
            try:
                self._look(self._batch, self._plan)
            except (TbenchError, OSError) as error:
                self._batch = None
                self.told.note(f"the run continues to its end, because its results cannot be read: {error}")
        self.told.tick()

    def _look(self, batch: Batch, plan: Plan) -> None:
        from terminalbench.analytics.compare import compare_views
        from terminalbench.analytics.pool import pool

        contrasts = compare_views(pool([batch]).views).contrasts
        for contrast in contrasts:
            pair = (contrast.new, contrast.old)
            if pair not in self._settled and (why := settled(contrast)) is not None:
                self._settled[pair] = why
        pairs = [(contrast.new, contrast.old) for contrast in contrasts]
        for profile in dict.fromkeys(job.profile for job in plan.jobs):
            own = [pair for pair in pairs if profile in pair]
            if own and profile not in self._stopped and all(pair in self._settled for pair in own):
                self._stopped.add(profile)
                self._stop(batch, profile, "; ".join(self._settled[pair] for pair in own))

    def _stop(self, batch: Batch, profile: str, reason: str) -> None:
        def change(control: Control) -> None:
            control.decided[profile] = reason

        ControlFile(batch.control_json).change(change)
        note(batch, ControlOrder("stop", (), reason), profile, by=_BY)
        self.told.note(f"{profile} starts no more trials: {reason}")


def settled(contrast: "Contrast") -> str | None:
    """Return why a pair needs no more trials, None while it does.

    A pair of which too little was measured, or that some missing trials would undo, is not settled.
    """
    looks = contrast.sequential
    if looks is None:
        return None
    if contrast.verdict in ("better", "worse"):
        return f"{contrast.new} is {contrast.verdict} than {contrast.old} (look {looks.decided_at} of {looks.looks})"
    if contrast.reason is not None or looks.chance is None or looks.chance >= HOPELESS:
        return None
    when = f"{percent(looks.chance)} likely, look {looks.look} of {looks.looks}"
    return f"the remaining trials would probably not separate {contrast.new} from {contrast.old} ({when})"


def ended_early(batch: Batch) -> bool:
    """Return whether trials of a batch were spared: who resumes it wants them."""
    plan = plan_or_none(batch)
    return plan is not None and any(one.kind is ExclusionKind.DECIDED for one in plan.excluded)
