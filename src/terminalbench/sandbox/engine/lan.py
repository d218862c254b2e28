"""The private network of the sandboxes of one trial: a bridge in a network namespace of its own, a cable to each."""

import contextlib
import os
import socket
from typing import Any

from terminalbench.sandbox.engine import inside, kernel, net, netlink, proc, wire

_BRIDGE = "lan"
_INSIDE = "eth0"


def make(_: dict[str, Any], reply: socket.socket, __: list[int], ___: bytes) -> None:
    """Make a network; it lives as long as the descriptor that is answered with, and the sandboxes in it."""
    os.unshare(os.CLONE_NEWNET)
    netlink.add_bridge(_BRIDGE)
    netlink.raise_link(_BRIDGE)
    wire.send(reply, {}, (os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC),))


def plug(hub: int, pidfd: int, seat: dict[str, Any]) -> None:
    """Connect the sandbox that `pidfd` holds to the network, in place of what had its seat before.

    Its hardware address comes from its own: others need not ask for it again when it starts anew.
    """
    common, number = bytes(seat["common"]), seat["number"]
    address = ".".join(map(str, (*common, number)))
    pid = proc.pid_of(pidfd)

    def visit(reply: socket.socket) -> None:
        try:
            kernel.hide_memory()
            os.setns(hub, os.CLONE_NEWNET)
            name = f"seat{number}"
            with contextlib.suppress(OSError):  # of a generation that has ended
                netlink.remove_link(name)
            netlink.add_cable(name, _BRIDGE, _INSIDE, pid, b"\x02\0" + common + bytes([number]))
            os.setns(pidfd, os.CLONE_NEWUSER | os.CLONE_NEWNET)
            net.open_ports(inside.open_proc())
            netlink.take_address(_INSIDE, address, common)
            reply.send(b"done")
        except OSError as error:
            reply.send(str(error).encode()[:1000])

    said, _ = inside.handed_out(visit)
    if said != b"done":
        raise OSError(
            0, f"no network between the sandboxes of a trial: {said.decode('utf-8', 'replace') or 'no answer'}"
        )
