"""Jobs on the nodes of a Ray cluster (docs/scaling.md). Ray itself is loaded by another process only, the bridge.

Ray ends a process whose cluster is gone, so the bridge stands between (`ray_bridge`): should it end, its jobs are lost
as those of a lost node are, and the next one that starts joins the cluster anew. What is recorded of a job is the
process of the bridge: whoever kills that ends its jobs, on every node.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError
from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.experiments.tables import RayTable, RunTable
from terminalbench.files import append_lines
from terminalbench.json_files import decode_plain
from terminalbench.live.processes import Worker
from terminalbench.locks import start_ticks
from terminalbench.modes import make_folder
from terminalbench.runner.environment import process_environment
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.base import CLUSTER_GONE, NODE_FENCED, NODE_LOST, JobRun
from terminalbench.runner.executors.local import LocalExecutor, tied
from terminalbench.runner.executors.ray_messages import (
    HOW_TO_JOIN,
    ClusterReady,
    ClusterRefusal,
    JobEnd,
    JobStart,
    JoinRequest,
    News,
    Order,
    StartOrder,
    StopOrder,
)
from terminalbench.runner.executors.ray_node import LEASE_SEC

ADDRESS = "RAY_ADDRESS"
"""The variable that names a cluster where the experiment names none."""
JOIN_SEC = 40.0
_LOAD_SEC = 30.0
"""How long loading Ray may take on a busy machine, before anything is asked."""
AGAIN_SEC = 90.0
"""For how long a run that had a cluster tries to join it again: its head may be starting anew. It tries once."""
WAVES_OF = 8
_ROUNDS = 6
"""So many waves each place of a cluster gets: each costs an actor and a start of Harbor; the smaller the last ones are,
the less they keep the run waiting."""
_LOCAL_SEC = 90.0
_BRIDGE = "terminalbench.runner.executors.ray_bridge"
_CONFIG_LIMIT = 64 << 20


class _JobConfig(msgspec.Struct):
    n_concurrent_trials: int = HARBOR_PARALLEL


class ClusterBridge:
    """The process that speaks with the cluster. A thread takes what it says."""

    def __init__(self, join: JoinRequest) -> None:
        self.joined: ClusterReady | None = None
        self.refused: ClusterRefusal | None = None
        self.began: set[str] = set()
        self.ended: dict[str, JobEnd] = {}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it is read when the process has ended
        passed = {name: value for name, value in os.environ.items() if name.startswith("RAY_") and name != ADDRESS}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            tied([sys.executable, "-P", "-m", _BRIDGE], signal.SIGTERM),  # with what of it it leaves behind
            env=process_environment((), None, None, os.environ) | {"RAY_USAGE_STATS_ENABLED": "0"} | passed,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd="/",
            start_new_session=True,
        )
        self.ticks = start_ticks(self.process.pid)
        self._changed = threading.Condition()
        self._over = False
        threading.Thread(target=self._listen, args=(self.process.stdout,), name="ray", daemon=True).start()
        self.say(join)

    def say(self, order: Order) -> None:
        """Give it an order; one that has ended hears nothing."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self.process.stdin.write(msgspec.json.encode(order) + b"\n")
                self.process.stdin.flush()

    @property
    def alive(self) -> bool:
        """Return whether it may still say something."""
        return not self._over

    def await_cluster(self, seconds: float) -> None:
        """Wait until it has joined. Raises a `UserError` when it has not."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self.joined or self._over, max(0.0, deadline - time.monotonic()))
        if self.joined is None:
            self.end()
            said = self.refused or ClusterRefusal(
                self._last_words() or f"no answer within {seconds:g} s", "tbench validate"
            )
            raise UserError(said.what, where="run.executor", hint=said.hint)

    def end(self) -> None:
        """End it, and with it all that it runs; a cluster of its own too."""
        if self.joined is None:
            self.process.kill()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _listen(self, output: IO[bytes]) -> None:
        for line in output:
            try:
                news = decode(line, News)
            except NOT_DECODED:
                continue  # a library that prints
            with self._changed:
                if isinstance(news, ClusterReady):
                    self.joined = news
                elif isinstance(news, ClusterRefusal):
                    self.refused = news
                elif isinstance(news, JobStart):
                    self.began.add(news.name)
                else:
                    self.ended[news.name] = news
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


class RayExecutor:
    """Runs jobs on a Ray cluster, by one bridge at a time."""

    afterlife_sec = LEASE_SEC + death_signal.ORPHAN_SEC + 2 * death_signal.LEFT_SEC

    def __init__(self) -> None:
        self._local = LocalExecutor()
        self._bridge: ClusterBridge | None = None
        self._settings = RunTable(executor="ray")
        self._logs: dict[str, Path] = {}
        self._bridges: dict[str, ClusterBridge] = {}

    def ready(self, settings: RunTable) -> None:
        """Join the cluster, if no bridge has."""
        self._settings = settings
        if self._bridge is not None and self._bridge.alive:
            return
        if find_spec("ray") is None:
            hint = 'pip install "terminalbench[ray]"'
            raise UserError("executor ray needs the extra ray, which is not installed", where="run.executor", hint=hint)
        join = self._join(JOIN_SEC if self._address else _LOCAL_SEC)
        if (why := join.obstacle()) is not None:
            what = f"no Ray cluster can be joined at {join.address}: {why}"
            raise UserError(what, where="run.executor", hint=HOW_TO_JOIN)
        self._bridge = ClusterBridge(join)
        self._bridge.await_cluster(JOIN_SEC + _LOAD_SEC if self._address else _LOCAL_SEC + _LOAD_SEC)

    def wave_trials(self, settings: RunTable, trials: int) -> int:
        """As `[run.ray]` says, else as many as make `_ROUNDS` waves for each place, and not less than `WAVES_OF`."""
        table, joined = settings.ray or RayTable(), self._bridge.joined if self._bridge is not None else None
        least = WAVES_OF * (settings.parallel or HARBOR_PARALLEL)
        return table.wave_trials or max(least, trials // (_ROUNDS * max(1, joined.places if joined is not None else 1)))

    def start(self, job: JobRun) -> Worker:
        """Have it begin as soon as a node has room for it."""
        make_folder(job.log.parent)
        bridge = self._bridges[job.name] = self._current()
        self._logs[job.name] = job.log
        config = decode_plain(Path(job.argv[job.argv.index("-c") + 1]), _JobConfig, _CONFIG_LIMIT) or _JobConfig()
        trials = config.n_concurrent_trials
        bridge.say(StartOrder(job.name, job.profile, job.argv, job.env, str(job.folder), str(job.log), trials))
        return Worker(
            job=job.name,
            profile=job.profile,
            pid=bridge.process.pid,
            group=bridge.process.pid,
            host=os.uname().nodename,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            start_ticks=bridge.ticks,
            command=job.argv,
            reference=f"ray {self._address or 'on this machine'}",
        )

    def poll(self, worker: Worker) -> int | None:
        """Return the exit code of a job that has ended; `NODE_LOST` when its node, or the cluster, is gone.

        The cluster is joined again at once; when it cannot be, jobs that were to run there end with `CLUSTER_GONE`.
        """
        bridge = self._bridges[worker.job]
        found = bridge.ended.get(worker.job)
        if found is None and bridge.alive:
            return None
        if found is None:
            found = bridge.ended[worker.job] = _fate(bridge, worker.job)
            if bridge is self._bridge:
                self._current()
        if found.said and (log := self._logs.pop(worker.job, None)) is not None:
            append_lines(log, f"{found.said}\n".encode())
        return found.code

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        """Tell the bridge; one of another process is interrupted or killed, and then does so with all its jobs."""
        bridge = self._bridges.get(worker.job)
        if bridge is None:
            self._local.stop(worker, now=now)
        elif worker.job not in bridge.ended:
            bridge.say(StopOrder(worker.job, now))

    def alive(self, worker: Worker) -> bool:
        """Return whether it has not ended; for a job of another process, whether its bridge is there."""
        return self.poll(worker) is None if worker.job in self._bridges else self._local.alive(worker)

    def user(self, worker: Worker) -> int | None:
        """Whose bridge it is."""
        return self._local.user(worker)

    def waits(self, worker: Worker) -> bool:
        """Return whether no node has room for it yet."""
        bridge = self._bridges[worker.job]
        return worker.job not in bridge.began and worker.job not in bridge.ended

    def leave(self) -> None:
        """End the bridge, and a cluster of its own with it."""
        if self._bridge is not None:
            self._bridge.end()
            self._bridge = None

    def _current(self) -> ClusterBridge:
        """Return the bridge: another one where it had joined and is gone, not where it could not join."""
        if self._bridge is None or (self._bridge.joined is not None and not self._bridge.alive):
            self._bridge = ClusterBridge(self._join(AGAIN_SEC, again=True))
        return self._bridge

    @property
    def _address(self) -> str | None:
        table = self._settings.ray or RayTable()
        return table.address or os.environ.get(ADDRESS) or None

    def _join(self, patience_sec: float, *, again: bool = False) -> JoinRequest:
        table = self._settings.ray or RayTable()
        at_once = self._settings.parallel or HARBOR_PARALLEL
        taken = (table.cpus_per_trial, table.memory_mb_per_trial)
        return JoinRequest(self._address, *taken, at_once, patience_sec, again)


def _fate(bridge: ClusterBridge, job: str) -> JobEnd:
    """Return how a job ended whose bridge is gone and has not said so."""
    said = bridge.refused.what if bridge.refused is not None else "the Ray cluster is gone"
    if bridge.joined is None:
        return JobEnd(job, CLUSTER_GONE, said)
    return JobEnd(job, NODE_LOST if job in bridge.began else NODE_FENCED, said)
