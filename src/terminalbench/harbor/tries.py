"""The tries of the trials of one job: how often each was tried, what was seen of its agent, whether it is tried again.

Harbor tries again by the name of an exception, whatever the verifier said. Here the class of the error decides
(`terminalbench.faults`): what a profile does is never tried again by itself, and nothing that has a verdict.
"""

import asyncio
from collections import Counter
from typing import Any

from terminalbench.faults import Again
from terminalbench.harbor.agent_watch import AgentWatch
from terminalbench.harbor.read.outcome import Ending
from terminalbench.harbor.read.seen import Seen


class Tries:
    """Follows one Harbor job."""

    def __init__(self) -> None:
        self._most = 1
        self._count: Counter[str] = Counter()
        self._watches: dict[str, AgentWatch] = {}
        self._again: dict[asyncio.Task[Any] | None, bool] = {}

    def follow(self, job: Any) -> None:
        """From here on decide for `job`; Harbor's queue asks in the task that has run the trial."""
        self._most = 1 + job.config.retry.max_retries
        queue = job._trial_queue
        connect = queue._setup_hooks

        def connect_and_watch(trial: Any) -> None:
            self._watches[trial.config.trial_name] = AgentWatch(trial)
            connect(trial)

        queue._setup_hooks = connect_and_watch
        queue._should_retry_exception = lambda _name: self._again.pop(asyncio.current_task(), False)

    def began(self, trial: str) -> None:
        """A try of `trial` begins."""
        self._count[trial] += 1

    def number(self, trial: str) -> int:
        """Which try of `trial` it is."""
        return self._count[trial]

    def seen(self, trial: str) -> Seen:
        """What was seen of the agent in this try."""
        watch = self._watches.get(trial)
        return watch.seen() if watch is not None else Seen()

    def decide(self, trial: str, ending: Ending) -> bool:
        """Whether `trial`, whose try ended so, is tried again: called in the task that runs it."""
        found = ending.error_class
        again = found is not None and found.info.again is Again.AT_ONCE and not ending.outcome.measured
        again = again and self._count[trial] < self._most
        self._again[asyncio.current_task()] = again
        return again
