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
from terminalbench.runner.executors.ray_outbox import Outbox, Questions
from terminalbench.runner.executors.ray_payload import PROJECT, SOCKET
from terminalbench.runner.executors.ray_scratch import JobScratch
from terminalbench.runner.executors.ray_wire import entries
from terminalbench.version import __version__

LEASE_SEC = 18.0
"""A node that has not heard of the runner for so long ends its job, which the runner may start elsewhere by then."""
_POLL_SEC = 0.1


class NodeJob:
    """An actor with one job. Harbor is a child of its process, and ends with it."""

    def __init__(self) -> None:
        self._local = LocalExecutor()
        self._stop: threading.Event = threading.Event()
        self._now = False
        self._place: JobScratch | None = None
        self._outbox: Outbox | None = None
        self.renew()

    def renew(self) -> None:
        """The runner is there."""
        self._heard_at = time.monotonic()

    def _end_unheard(self) -> None:
        if time.monotonic() - self._heard_at > LEASE_SEC:
            os._exit(1)  # Harbor, which is tied to us, has its time to record

    def host(self, version: str) -> str:
        """Return where it is. An error where terminalbench is another one."""
        if version != __version__:
            raise TbenchError(f"terminalbench is {__version__} on {os.uname().nodename} and {version} at the runner")
        return os.uname().nodename

    def sees(self, token: str, file: str, paths: list[str]) -> bool:
        """Return whether it sees the runner's disk: a random text in a file of the batch, and all that a job names."""
        try:
            return Path(file).read_text() == token and all(Path(path).exists() for path in paths)
        except OSError:
            return False

    def run(self, job: JobRun) -> int:
        """Run the job to its end; its exit code."""
        self.renew()  # it may have waited for long since it was made
        worker = self._local.start(replace(job, argv=[harbor_program(), *job.argv[1:]]))
        while (code := self._local.poll(worker)) is None:
            self._end_unheard()
            if self._stop.wait(_POLL_SEC):
                self._stop.clear()
                self._local.stop(worker, now=self._now)
        self._local.stop(worker, now=True)  # what it has left behind
        return code

    def stop(self, now: bool) -> None:
        """Interrupt it, or end it at once."""
        self._now = self._now or now
        self._stop.set()

    def place(self, batch: str) -> str:
        """Make a place for a job that does not see the runner's disk; its folder."""
        self._place = JobScratch(batch)
        return str(self._place.folder)

    def lacking(self, needed: bytes) -> list[str]:
        """The digests of what is not here yet of a job's files."""
        return self._there.lacking(entries.decode(needed))

    def put(self, digest: str, data: bytes, more: bool) -> None:
        """Take the next bytes of such a file."""
        self._there.put(digest, data, more)

    def run_apart(self, job: JobRun, needed: bytes, moved: dict[str, str]) -> None:
        """Begin the job in its place, from where everything is fetched by `exchange`."""
        place = self._there
        place.build(entries.decode(needed))
        questions = Questions(place.folder / SOCKET)
        self._outbox = outbox = Outbox(place.batch, job.name, moved, questions)
        os.chdir(place.folder / PROJECT)
        here = replace(
            job,
            env=place.environment(job.env, job.name),
            folder=place.batch.job_folder(job.name),
            log=place.batch.job_log(job.name),
        )

        def work() -> None:
            try:
                outbox.end(self.run(here))
            except Exception as error:  # noqa: BLE001  whatever it is, the runner's side waits for it
                outbox.fail(f"{type(error).__name__}: {error}")
                outbox.drained.set()
            while not outbox.drained.wait(_POLL_SEC):
                self._end_unheard()
            questions.close()
            os.chdir("/")
            place.close()
            outbox.closed.set()

        threading.Thread(target=work, name="job", daemon=True).start()

    def exchange(self, replies: bytes) -> bytes:
        """Answers for the job, for what it has to say; see `ray_outbox`."""
        if self._outbox is None:
            raise TbenchError("the job has not started")
        return self._outbox.exchange(replies)

    @property
    def _there(self) -> JobScratch:
        if self._place is None:
            raise TbenchError("the job has no place")
        return self._place
