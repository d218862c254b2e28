"""The network of a sandbox: sockets made in its network namespace and handed out to the relay, which serves them.

A socket belongs to the namespace it was made in, for good. So the carrier makes what is needed when it has entered, and
keeps nothing of it: no process of ours runs inside that could be killed, traced or replaced.

The sandboxes of one trial share a private network: a bridge in a network namespace of its own, a cable to each.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

from terminalbench.sandbox.engine import inside, kernel, netlink, proc, wire

WAY_PORT = 61353
"""Where redirected connections, and questions for names, arrive: neither a port of programs nor one that the kernel
gives out by itself."""
PROXY_PORT = 3128
WAYS = ("redirect", "redirect6", "proxy", "pasta")
_BACKLOG = 256

_BRIDGE = "lan"
_INSIDE = "eth0"


def open_way(carrier: socket.socket, wanted: dict[str, Any] | None) -> tuple[str, list[int]]:
    """Return how the sandbox that a carrier enters gets out (one of `WAYS`, or "none"), and the sockets for the relay.

    With "redirect" the first two are for connections and for names, and with "redirect6" a third for connections by
    IPv6; with "proxy", for kernels that have no rules to redirect, the first is an HTTP proxy; with "pasta", which is
    still to be started, the relay has none of these. Then one for each of the wanted forwards.
    """
    if wanted is None:
        return "none", []
    data, handles = wire.take(carrier, 4096)
    said = data.decode("utf-8", "replace")
    if said not in WAYS:
        raise OSError(f"the sandbox's network cannot be prepared: {said or 'no answer'}")
    return said, handles


def prepare(door: socket.socket, host_proc: int, wanted: dict[str, Any]) -> None:
    """Prepare the network that this process has just entered, and tell the other side of its door: see `open_way`."""
    try:
        open_ports(host_proc)
        sockets = list[socket.socket]()
        if wanted["pasta"] is not None:
            kind = "pasta"
            netlink.keep_away(wanted["pasta"]["away"], wanted["pasta"]["gateway"])
        elif wanted["redirect"] and _done(netlink.redirect, bytes(wanted["beside"])):
            kind = "redirect"
            sockets = [_listener("127.0.0.1", WAY_PORT), _bound(socket.SOCK_DGRAM, "127.0.0.1", WAY_PORT)]
            if _done(netlink.redirect_six):
                kind = "redirect6"
                sockets.append(_listener("::1", WAY_PORT))
        else:
            kind = "proxy"
            sockets = [_listener("127.0.0.1", PROXY_PORT)]
        sockets += [_listener(address, port) for address, port in wanted["forwards"]]
        socket.send_fds(door, [kind.encode()], [one.fileno() for one in sockets], socket.MSG_NOSIGNAL)
        for one in sockets:
            one.close()
    except OSError as error:
        door.send(str(error).encode()[:1000])


def open_ports(host_proc: int) -> None:
    """Let every user of this network namespace listen on any port, as in Docker's containers.

    Said by the host's /proc: that of a sandbox takes no writes.
    """
    with contextlib.suppress(OSError):
        kernel.write("sys/net/ipv4/ip_unprivileged_port_start", "0", host_proc)


def _done(redirect: Callable[..., None], *more: bytes) -> bool:
    """Redirect what goes out; False where the kernel cannot, and then nothing is changed."""
    try:
        redirect(WAY_PORT, *more)
    except OSError:
        return False
    return True


def _bound(kind: int, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    socket.inet_pton(family, address)  # a name is an error: files of the sandbox would say where it leads
    made = socket.socket(family, kind)
    if kind == socket.SOCK_STREAM:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    return made


def _listener(address: str, port: int) -> socket.socket:
    made = _bound(socket.SOCK_STREAM, address, port)
    made.listen(_BACKLOG)
    return made


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
            open_ports(inside.open_proc())
            netlink.take_address(_INSIDE, address, common)
            reply.send(b"done")
        except OSError as error:
            reply.send(str(error).encode()[:1000])

    said, _ = inside.handed_out(visit)
    if said != b"done":
        raise OSError(
            0, f"no network between the sandboxes of a trial: {said.decode('utf-8', 'replace') or 'no answer'}"
        )
