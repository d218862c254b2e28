"""The helper itself: a fork server that starts guardians on request."""

import codecs
import contextlib
import gc
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from terminalbench.sandbox.engine import cgroups, exec_server, guardian, inside, kernel, net, seccomp, unpack, wire

Operation = Callable[[dict[str, Any], socket.socket, list[int], bytes], None]


def serve(control: int, kind: str) -> None:
    """Answer the requests that come over `control` until it is closed; `kind` says which ids there are."""
    channel = socket.socket(fileno=control)
    kernel.set_name("tbench-sandbox")
    os.chdir("/")
    program = seccomp.program()
    inside.ignore_signals()
    cgroups.mounts()  # once, and not in each fork
    # From here on nothing may be imported: in a child the path may lead into a sandbox.
    for name in ("utf-8", "ascii", "latin-1"):
        codecs.lookup(name)
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    gc.disable()
    gc.freeze()  # forks then share these pages for longer
    wire.send(channel, {"ids": kind})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps our children
    while True:
        data, descriptors = wire.take(channel, 16)
        if not data:
            return
        try:
            child = os.fork()
        except OSError as error:
            _refuse(descriptors, f"cannot start another process: {error.strerror}")
            child = -1
        if child == 0:
            try:
                channel.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(descriptors, kind, program)
            finally:
                os._exit(1)
        for handle in descriptors:
            with contextlib.suppress(OSError):
                os.close(handle)


def _refuse(descriptors: list[int], text: str) -> None:
    with contextlib.suppress(OSError), wire.adopt(os.dup(descriptors[1])) as reply:
        wire.send(reply, {"error": text})


def _answer(descriptors: list[int], ids: str, program: bytes) -> None:
    reply = wire.adopt(descriptors[1])
    try:
        request = wire.unpack_request(descriptors[0])
        request["ids"] = ids
        _OPERATIONS[request["op"]](request, reply, descriptors[2:], program)
    except BaseException as error:  # noqa: BLE001 - told to the caller, who raises
        with contextlib.suppress(OSError):
            wire.send(reply, {"error": str(error), "kind": type(error).__name__})
        os._exit(1)
    os._exit(0)


def _remove(request: dict[str, Any], reply: socket.socket, _: list[int], __: bytes) -> None:
    """Remove folders whose files may belong to the sandbox's other users."""
    for path in request["paths"]:
        shutil.rmtree(path, ignore_errors=True)
    wire.send(reply, {"left": [path for path in request["paths"] if os.path.lexists(path)]})


def _mount_memory(request: dict[str, Any], reply: socket.socket, _: list[int], __: bytes) -> None:
    """Show a file system in memory on a folder, to all sandboxes that are started from now on."""
    options = f"size={request['bytes']},nr_inodes={request['files']},mode=755"
    kernel.mount("tmpfs", request["path"], "tmpfs", kernel.MS_NODEV, options)
    wire.send(reply, {})


def _unmount(request: dict[str, Any], reply: socket.socket, _: list[int], __: bytes) -> None:
    kernel.umount(request["path"])
    wire.send(reply, {})


_OPERATIONS: dict[str, Operation] = {
    "lan": net.make,
    "start": guardian.guard,
    "mount": _mount_memory,
    "remove": _remove,
    "run": exec_server.once,
    "test": exec_server.once,
    "transfer": exec_server.once,
    "unmount": _unmount,
    "unpack": unpack.unpack,
}
