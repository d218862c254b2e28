"""The relay process: one per caller, outside of every sandbox. Ends when its caller does.

The caller sends a message for each sandbox over the channel it was started with: what may be reached, and the sockets
that were made inside. Another channel, sent along, changes the policy later; closing it ends the sandbox's way.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from typing import Any

from terminalbench.sandbox.engine import kernel, wire
from terminalbench.sandbox.network.egress import EgressLog
from terminalbench.sandbox.network.egress_proxy import ProxiedSandbox
from terminalbench.sandbox.network.policy import EgressPolicy
from terminalbench.sandbox.network.upstream import Upstream


def main() -> None:
    """`relay CONTROL`: serve until the channel is closed."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    kernel.set_name("tbench-relay")
    kernel.hide_memory()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the caller's to handle; we go when it goes
        signal.signal(number, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.chdir("/")
    gc.freeze()
    asyncio.run(_serve(channel))


async def _serve(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    upstream = Upstream(loop)
    boxes: set[asyncio.Task[None]] = set()
    while True:
        message, handles = await _receive(channel)
        if message is None:
            os._exit(0)  # whoever is still served is no longer there; threads may wait for a name server
        task = loop.create_task(_keep(message, handles, upstream))
        boxes.add(task)
        task.add_done_callback(boxes.discard)


async def _receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return wire.receive(channel)
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_reader(channel, lambda ready=ready: ready.done() or ready.set_result(None))
            try:
                await ready
            finally:
                loop.remove_reader(channel)


async def _keep(about: dict[str, Any], handles: list[int], upstream: Upstream) -> None:
    """Serve one sandbox until its caller lets go of it."""
    link, *rest = handles
    log = EgressLog(rest.pop(0)) if about["logged"] else EgressLog(None)
    with socket.socket(fileno=link) as channel:
        channel.setblocking(False)
        box = ProxiedSandbox(about, [socket.socket(fileno=handle) for handle in rest], log, upstream)
        try:
            wire.send(channel, {"done": True})
            while True:
                message, handles = await _receive(channel)
                if message is None:
                    break
                if "policy" in message:
                    about |= message
                    box.enter(EgressPolicy.of(message["policy"]), message["phase"])
                elif "way" in message:
                    about |= message
                    await box.close()
                    box = ProxiedSandbox(about, [socket.socket(fileno=handle) for handle in handles], log, upstream)
                else:
                    await box.close()
                    log.close()
                wire.send(channel, {"done": True})
        except OSError:
            pass  # the caller has gone meanwhile
        finally:
            await box.close()
            log.close()
