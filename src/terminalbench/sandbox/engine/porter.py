"""The porter: a fork server of one sandbox, in its control group if there is one.

Moving a process into a group takes the kernel milliseconds; a child of the porter is born in it. Should the
porter be gone, the helper itself can serve the same operations.
"""

import os
import socket
from dataclasses import dataclass

from terminalbench.sandbox.engine import files, inside, kernel, run, server
from terminalbench.sandbox.engine.cgroups import Group

OPERATIONS: dict[str, server.Operation] = {"run": run.run, "transfer": files.transfer}


@dataclass(frozen=True)
class Porter:
    """A running porter: its process, and the socket that takes requests."""

    pid: int
    door: socket.socket


def start(group: Group, ids: str, program: bytes) -> Porter:
    """Fork a porter that joins `group`. It ends when every copy of its door is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            kernel.set_name("tbench-porter")
            os.closerange(3, theirs.fileno())  # the guardian's: its caller waits for them to close
            os.closerange(theirs.fileno() + 1, 1024)
            inside.join([os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in group.procs()])
            server.serve(theirs, ids, program, OPERATIONS)
        finally:
            os._exit(0)
    theirs.close()
    return Porter(child, ours)
