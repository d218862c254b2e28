"""The helper itself: a fork server that starts guardians, shims and transfers on request."""

import codecs
import gc
import os
import shutil
import signal
import socket
import sys
from typing import Any

from terminalbench.sandbox.engine import guardian, kernel, porter, seccomp, wire


def serve(control: int, kind: str) -> None:
    """Answer the requests that come over `control` until it is closed; `kind` says which ids there are."""
    channel = socket.socket(fileno=control)
    kernel.set_name("tbench-sandbox")
    os.chdir("/")
    program = seccomp.program()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the caller's to handle; we go when it goes
        signal.signal(number, signal.SIG_IGN)
    # From here on nothing may be imported: in a child the path may lead into a sandbox.
    for name in ("utf-8", "ascii", "latin-1"):
        codecs.lookup(name)
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    gc.disable()
    gc.freeze()  # forks then share these pages for longer
    wire.send(channel, {"ids": kind})
    porter.serve(channel, kind, program, _OPERATIONS)


def _remove(request: dict[str, Any], reply: socket.socket, _: list[int], __: bytes) -> None:
    """Remove folders whose files may belong to the sandbox's other users."""
    for path in request["paths"]:
        shutil.rmtree(path, ignore_errors=True)
    wire.send(reply, {"left": [path for path in request["paths"] if os.path.lexists(path)]})


_OPERATIONS = {**porter.OPERATIONS, "start": guardian.guard, "remove": _remove}
