"""Fork servers: take a request, fork, let the child answer it. The helper is one, and so is each sandbox's porter.

Moving a process into a control group takes the kernel milliseconds; a child of the porter is born in the sandbox's.
Should the porter be gone, the helper itself can serve the same operations.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import files, inside, kernel, run, wire
from terminalbench.sandbox.engine.cgroups import Group

Operation = Callable[[dict[str, Any], socket.socket, list[int], bytes], None]
OPERATIONS: dict[str, Operation] = {"run": run.run, "transfer": files.transfer}


class Porter(NamedTuple):
    """A running porter: its process, and the socket that takes requests."""

    pid: int
    door: socket.socket


def start(group: Group, ids: str, program: bytes) -> Porter:
    """Fork a porter that joins `group`. It ends when every copy of its door is closed."""
    ours, theirs = wire.socket_pair()
    child = os.fork()
    if child == 0:
        try:
            kernel.set_name("tbench-porter")
            os.closerange(3, theirs.fileno())  # the guardian's: its caller waits for them to close
            os.closerange(theirs.fileno() + 1, 1024)
            inside.join([os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in group.procs()])
            serve(theirs, ids, program, OPERATIONS)
        finally:
            os._exit(0)
    theirs.close()
    return Porter(child, ours)


def serve(channel: socket.socket, ids: str, program: bytes, operations: Mapping[str, Operation]) -> None:
    """Answer requests until the caller closes `channel`. Keeps nothing: what a request says dies with its child."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our children
    while True:
        data, descriptors = wire.take(channel, 1)
        if not data:
            return
        try:
            child = os.fork()
        except OSError as error:  # a sandbox at its process limit
            _refuse(descriptors, f"cannot start another process: {error.strerror}")
            child = -1
        if child == 0:
            try:
                channel.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(descriptors, ids, program, operations)
            finally:
                os._exit(1)
        for handle in descriptors:
            with contextlib.suppress(OSError):
                os.close(handle)


def _refuse(descriptors: list[int], text: str) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptors[1])) as reply:
        wire.send(reply, {"error": text})


def _answer(descriptors: list[int], ids: str, program: bytes, operations: Mapping[str, Operation]) -> None:
    reply = socket.socket(fileno=descriptors[1])
    try:
        request = wire.unpack_request(descriptors[0])
        request["ids"] = ids
        operations[request["op"]](request, reply, descriptors[2:], program)
    except BaseException as error:  # noqa: BLE001 - told to the caller, who raises
        with contextlib.suppress(OSError):
            wire.send(reply, {"error": str(error), "kind": type(error).__name__})
        os._exit(1)
    os._exit(0)
