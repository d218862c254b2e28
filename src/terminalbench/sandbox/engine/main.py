"""The helper itself: a fork server that starts guardians, shims and transfers on request.

It runs in a mount namespace of its own in which its program and bwrap are read-only. Otherwise a command
named `#!/proc/self/exe` in a sandbox would hand the agent a way to write to them.
"""

# ruff: noqa: S606, PTH115

import codecs
import contextlib
import gc
import os
import shutil
import signal
import socket
import sys
from typing import Any

from terminalbench.sandbox.engine import guardian, ids, kernel, porter, seccomp, wire

_ENTERED = "--entered="


def main() -> None:
    """`helper CONTROL BWRAP [--entered=IDS]`: enter the namespaces, execute ourselves anew, serve."""
    control, bwrap = int(sys.argv[1]), sys.argv[2]
    channel = socket.socket(fileno=control)
    try:
        if len(sys.argv) < 4:
            _enter(control, bwrap)
        _serve(channel, sys.argv[3].removeprefix(_ENTERED))
    except BaseException as error:
        with contextlib.suppress(OSError):
            wire.send(channel, {"error": str(error), "kind": type(error).__name__})
        raise


def _enter(control: int, bwrap: str) -> None:
    if kernel.is_privileged():
        os.unshare(os.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        kind = "all"
    else:
        kind = ids.enter_user_namespace()
    program = os.readlink("/proc/self/exe")
    for path in {program, os.path.realpath(bwrap)}:
        kernel.bind_read_only(path)
    os.set_inheritable(control, True)
    os.execv(sys.orig_argv[0] if "/" in sys.orig_argv[0] else program, [*sys.orig_argv, f"{_ENTERED}{kind}"])


def _serve(channel: socket.socket, kind: str) -> None:
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
