"""A job on a node of a Ray cluster: the Harbor process that the local executor would start, started there."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.harbor.jobs import harbor_program
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.local import LocalExecutor
from terminalbench.version import __version__

LEASE_SEC = 12.0
"""A node that has not heard of the runner for so long ends its job, which the runner may start elsewhere by then."""
_POLL_SEC = 0.1


class NodeJob:
    """An actor with one job. Harbor is a child of its process, and ends with it."""

    def __init__(self, version: str) -> None:
        if version != __version__:
            raise TbenchError(f"terminalbench is {__version__} on {os.uname().nodename} and {version} at the runner")
        self._local = LocalExecutor()
        self._stop: threading.Event = threading.Event()
        self._now = False
        self.renew()

    def renew(self) -> None:
        """The runner is there."""
        self._heard_at = time.monotonic()

    def host(self) -> str:
        """Where it is."""
        return os.uname().nodename

    def run(self, job: JobRun) -> int:
        """Run the job to its end; its exit code."""
        config = Path(job.argv[job.argv.index("-c") + 1])
        if not config.is_file():
            raise TbenchError(
                f"node {self.host()} does not see {config.parent}: a results folder that all nodes share is needed"
            )
        worker = self._local.start(replace(job, argv=[harbor_program(), *job.argv[1:]]))
        while (code := self._local.poll(worker)) is None:
            if time.monotonic() - self._heard_at > LEASE_SEC:
                os._exit(1)  # Harbor, which is tied to us, has its time to record
            if self._stop.wait(_POLL_SEC):
                self._stop.clear()
                self._local.stop(worker, now=self._now)
        self._local.stop(worker, now=True)  # what it has left behind
        return code

    def stop(self, now: bool) -> None:
        """Interrupt it, or end it at once."""
        self._now = self._now or now
        self._stop.set()
