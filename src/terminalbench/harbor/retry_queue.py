"""The tries of the trials of one job: how often each was tried, what was seen of its agent, whether it is tried again.

Harbor tries again by the name of an exception, whatever the verifier said. Here the class of the error decides
(`terminalbench.faults`): what a profile does is never tried again by itself, and nothing that has a verdict. The
decision reaches Harbor by its own setting: the exceptions that it shall not try again.

Harbor's hooks tell of a trial by its configuration and its result. Nothing that Harbor offers gives its agent, which is
to be told its attempt, and whose commands and exits are to be seen. So the job gets a queue that we make, of a subclass
of Harbor's: it shows each trial before it runs, and changes nothing else.

Harbor deletes the folder of a failed try: before that it is set aside, as hard links.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, override

from harbor.trial.queue import TrialQueue

from terminalbench.faults import RetryRule
from terminalbench.files import special_files
from terminalbench.harbor.agent_watch import AgentWatch
from terminalbench.harbor.attempt_numbers import tell_agent
from terminalbench.harbor.read.notes import HostActivity
from terminalbench.harbor.read.outcome import TrialEnding
from terminalbench.modes import make_folder
from terminalbench.records.event import Progress


class _HookedQueue(TrialQueue):
    """Harbor's queue, with the hooks that the job's own had; `meet` is called with each trial before it runs."""

    def __init__(self, job: Any, meet: Callable[[Any], None]) -> None:
        super().__init__(job.config.n_concurrent_trials, job.config.retry, job._trial_queue._hooks)
        self._meet = meet

    @override
    def _setup_hooks(self, trial: Any) -> None:
        self._meet(trial)
        super()._setup_hooks(trial)


class _NotAgain(set[str]):
    """The names of exceptions after which Harbor does not try again, as they were set; what was decided counts."""

    def __init__(self, names: set[str], again: Callable[[], bool]) -> None:
        super().__init__(names)
        self._again = again

    def __bool__(self) -> bool:
        return True

    @override
    def __contains__(self, name: object) -> bool:
        return not self._again()


class JobTries:
    """Follows one Harbor job."""

    def __init__(self) -> None:
        self._most = 1
        self._count: Counter[str] = Counter()
        self._watches: dict[str, AgentWatch] = {}
        self._again: dict[asyncio.Task[Any] | None, bool] = {}

    def follow(self, job: Any, attempts: dict[str, int], at: Callable[[str, Progress], None]) -> None:
        """Follow the trials of `job` from here on, tell each its attempt, and decide which are tried again.

        `at` hears of a trial whose agent says where it is.
        """
        retry = job.config.retry
        self._most = 1 + retry.max_retries
        # Harbor's queue asks in the task that has run the trial.
        retry.exclude_exceptions = _NotAgain(
            retry.exclude_exceptions or set(), lambda: self._again.pop(asyncio.current_task(), False)
        )

        def meet(trial: Any) -> None:
            name = trial.config.trial_name
            tell_agent(trial.agent, attempts[name])
            if isinstance(trial.agent, TellsProgress):
                trial.agent.tell, trial.agent.limit_sec = partial(at, name), trial.agent_timeout_sec
            self._watches[name] = AgentWatch(trial)

        job._trial_queue = _HookedQueue(job, meet)

    def began(self, trial: str) -> None:
        """A try of `trial` begins."""
        self._count[trial] += 1

    def number(self, trial: str) -> int:
        """Return which try of `trial` it is."""
        return self._count[trial]

    def seen(self, trial: str) -> HostActivity:
        """Return what was seen of the agent in this try."""
        watch = self._watches.get(trial)
        return watch.seen() if watch is not None else HostActivity()

    def at_first_act(self, trial: str, tell: Callable[[HostActivity], None]) -> None:
        """Have `tell` hear what is seen of the agent before it acts, and when it first does."""
        watch = self._watches.get(trial)
        if watch is not None:
            watch.at_first_act(tell)

    def decide(self, trial: str, ending: TrialEnding) -> bool:
        """Return whether `trial`, whose try ended so, is tried again: called in the task that runs it."""
        found = ending.error_class
        again = found is not None and found.again is RetryRule.AT_ONCE and not ending.outcome.measured
        again = again and self._count[trial] < self._most
        self._again[asyncio.current_task()] = again
        return again


SUPERSEDED = "superseded"
"""The folder of failed tries, beside the events of a batch."""


def set_aside(trial_dir: Path, superseded: Path, number: int) -> Path:
    """Keep `trial_dir` as `<superseded>/<job>/<trial>-try<number>`; return the copy."""
    kept = superseded / trial_dir.parent.name / f"{trial_dir.name}-try{number}"
    make_folder(kept.parent)
    partial = kept.with_name(f".{kept.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # Links stay links, and pipes or devices an agent left are passed over: they are no evidence and could block.
    shutil.copytree(trial_dir, partial, symlinks=True, copy_function=_link, ignore=special_files)
    partial.rename(kept)
    return kept


def _link(source: str, destination: str) -> str:
    os.link(source, destination, follow_symlinks=False)
    return destination


class TellsProgress:
    """An agent that can say where it is. The plugin, where there is one, sets both before the agent runs."""

    limit_sec: float | None = None
    """How long it may run; None: not known."""
    tell: Callable[[Progress], None] | None = None
    """Hears of each change."""
