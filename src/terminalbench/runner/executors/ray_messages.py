"""Messages of a run on a Ray cluster.

Between the runner and its bridge: a JSON object in each line of a pipe. Between the bridge and a node that does not see
the runner's disk: lists as MessagePack. The runner's side asks for everything (`exchange`): a node can neither call it
nor reach one of its files. What comes from a node may hold what an agent has made up: names, sizes, contents.
"""

import os
import socket
import time
from pathlib import Path
from typing import Literal

import msgspec

from terminalbench.harbor.limits.admission import RemoteCall, RemoteReply
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


CHUNK_BYTES = 2 << 20
"""How much is sent at once."""
FOLDER_BYTES = 4 << 30
"""How much a folder may hold that is sent: a task, or what a trial leaves."""
FOLDER_ENTRIES = 200_000
"""The same, of files and folders in it."""


class PayloadEntry(msgspec.Struct, frozen=True, array_like=True):
    """A file (by the digest of its content), a link or a folder that a job needs, by its path below the job's place."""

    path: str
    mode: int = 0o700
    digest: str | None = None
    size: int = 0
    link: str | None = None


type FolderKind = Literal["trial", "try"]
"""A trial, or a try of it that was set aside."""
type OutputFile = Literal["log", "errors"]


class GateQuestion(msgspec.Struct, tag="Asked", frozen=True):
    """A question to the gate of the batch."""

    id: int
    question: RemoteCall


class GateAnswer(msgspec.Struct, frozen=True):
    """The answer to it."""

    id: int
    reply: RemoteReply


class HarborOutput(msgspec.Struct, tag="Printed", frozen=True):
    """A line that Harbor printed, or a fault in its events."""

    file: OutputFile
    data: bytes


class EventLine(msgspec.Struct, tag="Told", frozen=True):
    """A line of events."""

    line: bytes


class LiveLogPiece(msgspec.Struct, tag="Live", frozen=True):
    """A piece of a log of a trial that runs."""

    trial: str
    name: str
    offset: int
    data: bytes


class FolderStart(msgspec.Struct, tag="Opened", frozen=True):
    """From here on a folder comes."""

    kind: FolderKind
    name: str


class FolderPiece(msgspec.Struct, tag="Piece", frozen=True):
    """A part of what is in it: the next bytes of a file, a link, or a folder. Names are what the system has."""

    path: bytes
    kind: Literal["file", "link", "folder"] = "file"
    mode: int = 0o600
    data: bytes = b""
    more: bool = False


class FolderEnd(msgspec.Struct, tag="Closed", frozen=True):
    """The folder is whole, but for so many files that could not be sent."""

    missing: int = 0


class JobFile(msgspec.Struct, tag=True, frozen=True):
    """A file of Harbor's folder of the job."""

    name: str
    data: bytes


class HarborExit(msgspec.Struct, tag="Done", frozen=True):
    """All was sent. The exit code of Harbor."""

    code: int


type Message = (
    GateQuestion
    | HarborOutput
    | EventLine
    | LiveLogPiece
    | FolderStart
    | FolderPiece
    | FolderEnd
    | JobFile
    | HarborExit
)

messages = msgspec.msgpack.Decoder(list[Message])
"""What a node has sent."""
answers = msgspec.msgpack.Decoder(list[GateAnswer])
"""What it is answered."""
entries = msgspec.msgpack.Decoder(list[PayloadEntry])
"""What a job needs."""
