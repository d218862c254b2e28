"""Messages between the runner's machine and a node that does not see its disk, while a job runs there.

The runner's side asks for everything (`exchange`): a node can neither call it nor reach one of its files. Both encode
lists of these as MessagePack. What comes from a node may hold what an agent has made up: names, sizes, contents.
"""

from typing import Literal

import msgspec

from terminalbench.harbor.limits.remote_gate import RemoteCall, RemoteReply

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

    file: Literal["log", "errors"]
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
    """From here on a folder comes: that of a trial, or of a try of it that was set aside."""

    kind: Literal["trial", "try"]
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
