"""The process between a runner and a Ray cluster: takes orders on its input, tells on its output (`ray_messages`).

    python -P -m terminalbench.runner.executors.ray_bridge

It ends with the runner. Ray then ends the actors that it has started, and with them the Harbor processes on the nodes;
a cluster of its own ends too.
"""

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import write_text
from terminalbench.json_files import read_json
from terminalbench.runner.executors.base import NO_ROOM, NODE_FENCED, NODE_LOST, NODE_UNFIT
from terminalbench.runner.executors.ray_inbox import JobInbox
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
from terminalbench.runner.executors.ray_node import LEASE_SEC, NodeJob
from terminalbench.runner.executors.ray_payload import local_tasks
from terminalbench.version import __version__

SLOTS = ("sandboxes", "models")
"""Resources of which a trial takes one each, on the nodes of a cluster where some node declares them."""
_STORE_BYTES = 80_000_000
_REACH_SEC = 5.0
_SILENT_SEC = 40.0
UNHEARD_SEC = 60.0
"""A node that has not answered for so long is lost, whether or not Ray has noticed."""
NO_ROOM_SEC = 90.0
"""A job waits for so long while no node of the cluster could ever have room for it: another node may come."""
_MB = 1 << 20
_NOT_MADE = re.compile(r"error raised in its creation task.*?\bip=([^,)\s]+)", re.DOTALL)
"""What Ray says of an actor that could not be made. What ours does when it is made cannot fail."""
_turn = threading.Lock()


def say(news: News) -> None:
    """Tell the runner; without one there is nothing left to do."""
    data = msgspec.json.encode(news) + b"\n"
    with _turn:
        try:
            os.write(_out, data)
        except BrokenPipeError:
            os._exit(1)


def refuse(what: str, hint: str) -> NoReturn:
    """Tell why there is no cluster, and end."""
    say(ClusterRefusal(what, hint))
    os._exit(2)


def join(order: JoinRequest) -> None:
    """Join the cluster, or make one; ends the process when that takes too long or cannot be."""
    where = (
        f"no Ray cluster can be joined at {order.address}" if order.address else "no Ray cluster can be started here"
    )
    unanswered = f"{where}: no answer within {order.patience_sec:g} s"
    late = threading.Timer(order.patience_sec, refuse, (unanswered, HOW_TO_JOIN))
    late.daemon = True
    late.start()
    deadline = time.monotonic() + order.patience_sec - _REACH_SEC
    while (why := order.obstacle() or _try(order.address)) is not None:
        if not order.again or time.monotonic() > deadline:
            refuse(f"{where}: {why}", HOW_TO_JOIN)
        time.sleep(1.0)
    late.cancel()


def _try(address: str | None) -> str | None:
    """Return why it does not work now; None: it does."""
    if address is None:  # Ray would write a token to the user's home, for all to read
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        more = own if address is None else {}
        ray.init(
            address=address or "local",
            namespace="terminalbench",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **more,
        )
    except OSError as error:  # ray's ConnectionError too
        return error.strerror or str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001  Ray raises many kinds; it is told in one way
        return str(error).splitlines()[0]
    return None


def watch(address: str, jobs: "ClusterJobs") -> None:
    """End this process when its cluster is gone, or is another one by now: what it asks would never be answered.

    A head that was started anew does not know the node that we joined. Jobs that wait are told which nodes there are.
    """
    node, seen = ray.get_runtime_context().get_node_id(), time.monotonic()

    def look() -> None:
        nonlocal seen
        while True:
            try:
                nodes = [one for one in ray.nodes() if one["Alive"]]
                known = any(one["NodeID"] == node for one in nodes)
                jobs.see([one["Resources"] for one in nodes])
            except Exception:  # noqa: BLE001  whatever it is, this cluster does not answer
                known = False
            if not known:
                break
            seen = time.monotonic()
            time.sleep(_REACH_SEC)
        refuse(gone, hint)

    gone, hint = f"the Ray cluster at {address} is gone or was restarted", "tbench resume continues when it is back"
    threading.Thread(target=look, name="cluster", daemon=True).start()
    while time.monotonic() - seen < _SILENT_SEC:
        time.sleep(1.0)
    refuse(gone, hint)


def needs(order: JoinRequest, trials: int) -> dict[str, Any]:
    """Return what a job of so many trials at once takes of its node."""
    declared = ray.cluster_resources()
    return {
        "num_cpus": order.cpus_per_trial * trials,
        "memory": order.memory_mb_per_trial * _MB * trials or None,
        "resources": {slot: trials for slot in SLOTS if slot in declared},
    }


def _wanted(order: JoinRequest, trials: int) -> dict[str, float]:
    """Return the same by the names that the resources of a node have."""
    asked = needs(order, trials)
    return {"CPU": asked["num_cpus"], "memory": asked["memory"] or 0, **asked["resources"]}


def places(order: JoinRequest, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many of the largest jobs nodes of these resources have room for at once."""
    wanted = {name: amount for name, amount in _wanted(order, order.trials).items() if amount}
    return sum(int(min(node.get(name, 0) / amount for name, amount in wanted.items())) for node in nodes)


def why_no_room(order: JoinRequest, trials: int, nodes: Sequence[Mapping[str, float]]) -> str | None:
    """Return why a job of so many trials at once fits no node, of these resources; None when it fits one."""
    wanted = _wanted(order, trials)
    if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return None
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
    short = next((name for name, amount in wanted.items() if most[name] < amount), "CPU")
    unit = f" of {short}" if short != "CPU" else " CPUs"
    return f"{trials} trials at once need {wanted[short]:g}{unit}, but no node has more than {most[short]:g}"


def check_room(order: JoinRequest) -> int:
    """Refuse a job that fits no node, which would wait for ever; return for how many there is room."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    why = why_no_room(order, order.trials, nodes)
    if why is not None:
        refuse(why, "lower parallel of the run or the profile, or cpus_per_trial in [run.ray]")
    return places(order, nodes)


@dataclass
class NodeLease:
    """The renewals of a job: the answer that is awaited, and when the last one came."""

    answer: Any = None
    heard_at: float = field(default_factory=time.monotonic)

    def renew(self, actor: Any) -> bool:
        """Tell the node that its job is wanted; False when it has not answered for too long."""
        if self.answer is not None and ray.wait([self.answer], timeout=0)[0]:
            with contextlib.suppress(RayError):  # who follows the job is told too
                ray.get(self.answer)
                self.heard_at = time.monotonic()
        with contextlib.suppress(RayError):
            self.answer = actor.renew.remote()
        return time.monotonic() - self.heard_at < UNHEARD_SEC


@dataclass
class ClusterJobs:
    """The jobs of the runner: each has an actor on some node, and a thread here that follows it."""

    order: JoinRequest
    waiting: dict[str, StartOrder] = field(default_factory=dict)
    homeless_since: dict[str, float] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    batches: set[Batch] = field(default_factory=set)
    actors: dict[str, Any] = field(default_factory=dict)
    began: set[str] = field(default_factory=set)
    stopped: dict[str, bool] = field(default_factory=dict)
    made_of: Any = field(default_factory=lambda: ray.remote(NodeJob))

    def start(self, start: StartOrder) -> None:
        """Place it, as soon as there is room."""
        asked = needs(self.order, start.trials)
        batch = Batch(Path(start.folder).parent.parent)
        if batch not in self.batches:
            self.batches.add(batch)
            write_text(batch.place, self.token)
            shutil.rmtree(batch.arriving, ignore_errors=True)  # of a bridge that was killed
        actor = self.made_of.options(max_concurrency=4, max_restarts=0, **asked).remote()
        self.waiting[start.name] = start
        self.actors[start.name] = actor
        threading.Thread(target=self._follow, args=(start, actor), name=start.name, daemon=True).start()

    def renew(self) -> None:
        """Renew the leases of all jobs that have begun, for ever: by actor, which needs no head."""
        leases: dict[str, NodeLease] = {}
        while True:
            for name, actor in list(self.actors.items()):
                if name in self.began and not leases.setdefault(name, NodeLease()).renew(actor):
                    self._end(name, NODE_LOST, f"its node was lost: no answer for {UNHEARD_SEC:g} s")
            time.sleep(LEASE_SEC / 6)

    def see(self, nodes: Sequence[Mapping[str, float]]) -> None:
        """End jobs that wait while no node, of which these resources are known, could ever have room for them."""
        for name, start in list(self.waiting.items()):
            why = why_no_room(self.order, start.trials, nodes)
            since = self.homeless_since.setdefault(name, time.monotonic())
            if why is None:
                del self.homeless_since[name]
            elif time.monotonic() - since > NO_ROOM_SEC and (actor := self.actors.get(name)) is not None:
                self._end(name, NO_ROOM, f"{why} since {NO_ROOM_SEC:g} s")
                ray.kill(actor)

    def _end(self, name: str, code: int, said: str) -> None:
        """Tell the end of a job, once: what is heard of it later does not count."""
        self.waiting.pop(name, None)
        if self.actors.pop(name, None) is not None:
            say(JobEnd(name, code, said))

    def stop(self, name: str, now: bool) -> None:
        """Stop it; one that has not begun is taken back."""
        actor = self.actors.get(name)
        if actor is None:
            return
        self.stopped[name] = now
        if name in self.began:
            actor.stop.remote(now)
        else:
            ray.kill(actor)

    def stop_all(self) -> None:
        """Interrupt every job: a person has ended the batch."""
        for name in list(self.actors):
            self.stop(name, now=False)

    def leave(self) -> None:
        """The run is over."""
        for batch in self.batches:
            batch.place.unlink(missing_ok=True)

    def _follow(self, start: StartOrder, actor: Any) -> None:
        said, home, unfenced = "", None, False
        try:
            host = ray.get(actor.host.remote(__version__))
            self.began.add(start.name)
            self.waiting.pop(start.name, None)
            say(JobStart(start.name))
            if start.name in self.stopped:
                actor.stop.remote(self.stopped[start.name])
            job, batch = start.job(), Batch(Path(start.folder).parent.parent)
            paths = [str(batch.job_config(job.name)), *local_tasks(read_json(batch.job_config(job.name)))]
            if ray.get(actor.sees.remote(self.token, str(batch.place), paths)):
                unfenced = True
                code = ray.get(actor.run.remote(job))
            else:
                plan = read_json(batch.plan_json, Plan)
                home = JobInbox(job, batch, plan, lambda name, *given: ray.get(getattr(actor, name).remote(*given)))
                code = home.run(self.token, host)
        except RayTaskError as error:
            code, said = NODE_UNFIT, str(error.cause).splitlines()[0]
        except RayError as error:
            code, said = self._lost(start.name, f" while {home.doing}" if home is not None else "", error)
            code = NODE_LOST if code == NODE_FENCED and unfenced else code
        except Exception as error:  # noqa: BLE001  whatever it is, the runner waits for the end of the job
            code = NODE_UNFIT
            said = str(error) if isinstance(error, TbenchError | OSError) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(RayError, ValueError):
            ray.kill(actor)
        self._end(start.name, code, said)

    def _lost(self, name: str, when: str, error: RayError) -> tuple[int, str]:
        """The exit code of a job whose actor is gone, and why; where none could be made there is no code of ours."""
        text = str(error)
        if (made := _NOT_MADE.search(text)) is not None:
            raised = [line.strip() for line in text.splitlines() if line.strip().startswith("ModuleNotFoundError")]
            why = raised[-1] if raised else "terminalbench cannot be loaded"
            return NODE_UNFIT, f"node {made[1]} has no usable terminalbench: {why}"
        if name in self.stopped:
            return -signal.SIGINT, "it was stopped"
        lines = text.splitlines()
        return NODE_FENCED, f"its node was lost{when}: {' '.join(dict.fromkeys((lines[0], lines[-1])))}"


def main() -> None:
    """Join, then do what is said, to the end of the input."""
    lines = iter(sys.stdin.buffer)
    order = decode(next(lines), JoinRequest)
    join(order)
    room = check_room(order)
    jobs = ClusterJobs(order)
    signal.signal(signal.SIGINT, lambda _number, _frame: threading.Thread(target=jobs.stop_all).start())
    threading.Thread(target=jobs.renew, name="lease", daemon=True).start()
    say(ClusterReady(room))
    if order.address is not None:
        threading.Thread(target=watch, args=(order.address, jobs), name="head", daemon=True).start()
    for line in lines:
        told = decode(line, Order)
        if isinstance(told, StartOrder):
            jobs.start(told)
        elif isinstance(told, StopOrder):
            jobs.stop(told.name, told.now)
    jobs.leave()
    ray.shutdown()
    os._exit(0)


if __name__ == "__main__":
    _out = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not for the runner
    main()
