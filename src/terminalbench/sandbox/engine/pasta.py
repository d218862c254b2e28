"""A sandbox's network by pasta (of the package passt), for a task that needs UDP or raw addresses.

pasta runs outside, in the network of the host, and serves an interface that it makes in the sandbox's network
namespace. Rules of the kernel in that namespace, which nothing inside may change, keep what goes out there away from
this machine and from private networks (`net.open_way` makes them, before pasta starts).

It ends with its guardian, whatever ends that one: it is in a process namespace whose first process is ours, and the
kernel ends that when its parent is gone.
"""

# ruff: noqa: S606

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import inside, kernel, proc, wire

INTERFACE = "tap0"
_PATIENCE_SEC = 15.0
_LOOK_SEC = 0.01
_ANYWHERE = ("192.0.2.1", 9)


class Pasta(NamedTuple):
    """A running pasta: the first process of its namespace, and that one's parent."""

    pidfd: int
    keeper: int

    def end(self) -> None:
        """End it; it and its interface are gone when this returns."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.waitpid(self.keeper, 0)  # which waits for it
        os.close(self.pidfd)


def start(pidfd: int, wanted: dict[str, Any]) -> Pasta:
    """Give the sandbox that `pidfd` holds an interface; raises OSError with what pasta said if it does not."""
    complaint = os.memfd_create("complaint", os.MFD_CLOEXEC)
    try:
        running = _forked(_command(pidfd, wanted), complaint)
        if _comes_up(pidfd, running.pidfd):
            return running
        running.end()
        said = os.pread(complaint, 4096, 0).decode("utf-8", "replace").strip().splitlines()
        raise OSError(f"pasta gives the sandbox no network: {said[-1] if said else 'it does not answer'}")
    finally:
        os.close(complaint)


def _command(pidfd: int, wanted: dict[str, Any]) -> list[str]:
    first = proc.pid_of(pidfd)
    return [
        *(wanted["program"], "--foreground", "--quiet", "--ipv4-only", "--config-net", "--ns-ifname", INTERFACE),
        *("--address", wanted["address"], "--netmask", "255.255.255.252", "--gateway", wanted["gateway"]),
        # Neither the gateway nor any port stands for this machine; only questions for names go to its name server.
        *("--no-map-gw", "--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none", "--udp-ns", "none"),
        *("--dns-forward", wanted["gateway"]),
        # Its rights end with those over the sandbox: root of nothing else. Another user could not enter it.
        *("--runas", "0:0", "--userns", f"/proc/{first}/ns/user", "--netns", f"/proc/{first}/ns/net"),
    ]


def _comes_up(pidfd: int, keeper: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_SEC
    while time.monotonic() < deadline:
        if inside.in_sandbox(lambda: _leads_out(pidfd)) == 1:
            return True
        if select.select([keeper], [], [], _LOOK_SEC)[0]:
            break
    return False


def _leads_out(pidfd: int) -> bool:
    kernel.hide_memory()
    os.setns(pidfd, os.CLONE_NEWUSER | os.CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
        except OSError:
            return False
    return True


def _forked(command: list[str], complaint: int) -> Pasta:
    ours, theirs = wire.socket_pair()
    guardian, keeper = os.getpid(), os.fork()
    if keeper == 0:
        try:
            os.dup2(complaint, 2)
            door = os.dup2(theirs.fileno(), 3, inheritable=False)
            os.closerange(4, 1024)  # the guardian's: its caller waits for them to close
            kernel.set_name("tbench-pasta")
            kernel.die_with_parent()
            if os.getppid() == guardian:
                _keep(command, socket.socket(fileno=door))
        finally:
            os._exit(1)
    theirs.close()
    with ours:
        _, handles = wire.take(ours, 1)
    if not handles:
        os.waitpid(keeper, 0)
        raise OSError("no process namespace for pasta")
    return Pasta(handles[0], keeper)


def _keep(command: list[str], door: socket.socket) -> None:
    """Fork the first process of a new process namespace, hand out what holds it, and wait for its end."""
    os.unshare(os.CLONE_NEWPID)
    alive, ours = os.pipe()
    first = os.fork()
    if first == 0:
        kernel.die_with_parent()
        os.close(ours)
        if select.select([alive], [], [], 0)[0]:  # the parent has gone before
            return
        child = os.fork()
        if child == 0:
            inside.default_signals()
            os.execve(command[0], command, {})
        os.waitpid(child, 0)
        return
    with door:
        socket.send_fds(door, [b"p"], [os.pidfd_open(first)], socket.MSG_NOSIGNAL)
    os.waitpid(first, 0)
