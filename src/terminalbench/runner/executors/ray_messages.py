"""Messages between the runner and its bridge to a Ray cluster: a JSON object in each line of a pipe."""

import os
import socket
import time
from pathlib import Path

import msgspec

from terminalbench.runner.executors.base import JobRun

HOW_TO_JOIN = "ray start --head starts one, ray start --address=HOST:PORT makes this machine one of its nodes"
_ANSWER_SEC = 6.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
"""What a server of HTTP/2 sends first, as the head of a Ray cluster does: a frame of this type, of no stream."""


class JoinRequest(msgspec.Struct, tag="Join", frozen=True):
    """The first line: which cluster, what a trial takes of a node, and for how long to try: `again` and again, or once.

    Without an address it is one of its own.
    """

    address: str | None
    cpus_per_trial: float
    memory_mb_per_trial: int
    trials: int
    patience_sec: float
    again: bool = False

    def obstacle(self) -> str | None:
        """Return why no cluster can be at the address, as far as a connection tells without Ray; None: maybe one."""
        host, _, port = (self.address or "").rpartition(":")
        if self.address is None:
            return None
        if not host or not port.isdecimal():
            return "an address is HOST:PORT"
        deadline = time.monotonic() + _ANSWER_SEC
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SEC) as connection:
                return None if _encrypted() or _speaks_http2(connection, deadline) else "it answers, but is not Ray"
        except TimeoutError:
            return "it does not answer"
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or str(error)


class StartOrder(msgspec.Struct, tag="Start", frozen=True):
    """A job, with `trials` at once."""

    name: str
    profile: str
    argv: list[str]
    env: dict[str, str]
    folder: str
    log: str
    trials: int

    def job(self) -> JobRun:
        """It, as an executor takes it."""
        return JobRun(self.name, self.profile, self.argv, self.env, Path(self.folder), Path(self.log))


class StopOrder(msgspec.Struct, tag="Stop", frozen=True):
    """Interrupt a job, or end it at once."""

    name: str
    now: bool


class ClusterReady(msgspec.Struct, tag="Joined", frozen=True):
    """The cluster is there. `places`: so many of the largest jobs have room at once."""

    places: int


class ClusterRefusal(msgspec.Struct, tag="Refused", frozen=True):
    """The cluster cannot be used, and why; the bridge ends."""

    what: str
    hint: str


class JobStart(msgspec.Struct, tag="Began", frozen=True):
    """A job has found a node."""

    name: str
    host: str


class JobEnd(msgspec.Struct, tag="Ended", frozen=True):
    """A job has ended, as `Executor.poll` tells it. `said` is for its log."""

    name: str
    code: int
    said: str = ""


type Order = JoinRequest | StartOrder | StopOrder
type News = ClusterReady | ClusterRefusal | JobStart | JobEnd


def _encrypted() -> bool:
    return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")


def _speaks_http2(connection: socket.socket, deadline: float) -> bool:
    connection.sendall(_PREFACE)
    frame = b""
    while len(frame) < 9:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        more = connection.recv(9 - len(frame))
        if not more:
            return False
        frame += more
    return frame[3] == _SETTINGS and not any(frame[5:])
