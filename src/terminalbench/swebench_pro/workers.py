"""One number of workers for all arms: as many trials at once as were asked for, whichever arm they are of.

A batch runs a job for each arm. Each job starts with its part of the workers; when an arm has fewer trials left than
its part, the others get the rest, by the same orders that `tbench ctl` gives.
"""

import logging
import time
from collections.abc import Mapping

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.live.feed import Feed
from terminalbench.live.state import LiveState

_LOOK_SEC = 1.0


def shares(workers: int, left: Mapping[str, int]) -> dict[str, int]:
    """Workers by arm: even, none more than it has trials `left`, the rest to those that can use it. Pure."""
    found = dict.fromkeys((arm for arm, many in left.items() if many > 0), 0)
    free = workers
    while free > 0:
        hungry = [arm for arm in found if found[arm] < left[arm]]
        if not hungry:
            break
        for arm in hungry[:free]:
            found[arm] += 1
        free -= len(hungry[:free])
    return {arm: many for arm, many in found.items() if many}


def at_start(workers: int, arms: int) -> tuple[int, int]:
    """How many arms run side by side, and how many trials each has at once, before anything has ended."""
    side_by_side = max(1, min(workers, arms))
    return side_by_side, max(1, workers // side_by_side)


class WorkerSharing:
    """Hands workers on while a batch runs: call `tick` often."""

    def __init__(self, batch: Batch, workers: int) -> None:
        self._workers = workers
        self._feed = Feed(batch)
        self._control = ControlFile(batch.control_json)
        self._ordered: dict[str, int] = {}
        self._looked = 0.0

    def tick(self) -> None:
        """Look whether an arm can spare workers that another could use."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SEC:
            return
        self._looked = now
        try:
            self._feed.read()
            wanted = orders(self._workers, self._feed.state)
            changed = {arm: many for arm, many in wanted.items() if self._ordered.get(arm) != many}
            if changed:
                self._control.change(lambda control: control.parallel.update(changed))
                self._ordered |= changed
        except (OSError, msgspec.DecodeError) as error:  # each arm goes on with what it has
            logging.getLogger(__name__).warning("workers could not be handed on: %s", error)


def orders(workers: int, state: LiveState) -> dict[str, int]:
    """How many trials of each running arm may run at once; nothing while arms still wait for their turn. Pure."""
    if state.in_line:
        return {}
    running = {job.profile for job in state.jobs.values() if not job.over}
    left = {
        arm: (profile.planned or 0) - profile.done
        for arm, profile in state.profiles.items()
        if arm in running and profile.planned is not None
    }
    return shares(workers, left)
