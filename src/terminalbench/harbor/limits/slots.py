"""The slots of one Harbor process: how many trials it takes in at once, and more of them while it runs.

Harbor gives out a fixed number of slots, by a semaphore of its queue: one release of it is a slot more.
"""

import asyncio
from typing import Any


class Slots:
    """The slots of a job. Only for the thread of Harbor's event loop."""

    def __init__(self, job: Any, *, fixed: bool = False) -> None:
        """Count the places; with `fixed`, nobody may add any: a job that looks for the task that breaks it runs one at
        a time."""
        self.count: int = job.config.n_concurrent_trials
        self._planned = len(job)
        self._fixed = fixed
        self._semaphore: asyncio.Semaphore = job._trial_queue._semaphore  # Harbor has no public way to add one
        if not isinstance(self._semaphore, asyncio.Semaphore):
            raise TypeError("Harbor's queue has no semaphore")

    def grow_to(self, wanted: int | None) -> None:
        """Add slots until there are `wanted`, or one for each planned trial. There are never fewer again."""
        if wanted is None or self._fixed:
            return
        for _ in range(self.count, min(wanted, self._planned)):
            self._semaphore.release()
            self.count += 1
