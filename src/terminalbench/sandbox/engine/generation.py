"""One generation of a sandbox: its first process and all that comes after it, over one view of its files.

Ending the first process ends all of them, whatever they are: the kernel takes its process namespace down. The next
generation then starts over the same files, or over those that the verifier is to see.

The first process is bwrap itself, held at the last moment before it would execute a program: no program and no library
of the sandbox, which the agent may have replaced, takes part. It keeps one capability that no other process inside
has, so that none of them may trace it, write to its memory or take its descriptors.
"""

# ruff: noqa: S606

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import ids, inside, kernel, proc, root, wire

_START_PATIENCE_SEC = 30
_END_PATIENCE_SEC = 60  # thousands of processes on a busy machine have to run to end
_LOOK_SEC = 0.001
_MADE = b"made"
_WORD = 8


class Generation(NamedTuple):
    """A running generation: bwrap outside, the first process inside, and what holds that one where it is."""

    child: int
    pidfd: int
    hold: int

    def end(self) -> bool:
        """End every process of it; whether all of them are gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        gone = bool(select.select([self.pidfd], [], [], _END_PATIENCE_SEC)[0])  # its whole process namespace is
        end(self.child)
        os.close(self.hold)
        os.close(self.pidfd)
        return gone


def start(request: dict[str, Any], view: str) -> Generation:
    """Fork the process that becomes bwrap; give its user namespace its ids; wait until the root is in place."""
    ours, theirs = socket.socketpair()
    info_read, info_write = os.pipe()
    hold_read, hold_write = os.pipe()
    child = os.fork()
    if child == 0:
        ours.close()
        os.close(hold_write)
        _become_bwrap(request, view, theirs, hold_read, info_write)
    theirs.close()
    for handle in (info_write, hold_read):
        os.close(handle)
    ours.settimeout(_START_PATIENCE_SEC)
    pidfd = None
    try:
        said = ours.recv(_WORD)
        if said != _MADE:  # it is the beginning of why not
            raise OSError(_complaint(ours, said))
        ids.write_identity_maps(child)
        ours.send(b"go")
        data = b""
        while chunk := os.read(info_read, 4096):
            data += chunk
        if b'"child-pid":' not in data:
            raise OSError(_complaint(ours))
        pid = int(data.split(b'"child-pid":')[1].split(b",")[0].strip(b" }\n"))
        with contextlib.suppress(ProcessLookupError):  # it has ended by now, and says why
            pidfd = os.pidfd_open(pid)
        if pidfd is None or not _is_in_place(pid, pidfd):
            os.kill(child, signal.SIGKILL)  # it does not see its child end, and holds what that has complained by
            raise OSError(_complaint(ours))
        return Generation(child, pidfd, hold_write)
    except BaseException:
        end(child)
        os.close(hold_write)
        if pidfd is not None:
            os.close(pidfd)
        raise
    finally:
        ours.close()
        os.close(info_read)


def _is_in_place(pid: int, pidfd: int) -> bool:
    """Wait for the first process: it has given up all capabilities but its own once its root is in place."""
    deadline = time.monotonic() + _START_PATIENCE_SEC
    while time.monotonic() < deadline:
        if kernel.permitted_capabilities(proc.read(f"/proc/{pid}/status")) == 1 << kernel.CAP_WAKE_ALARM:
            return True
        if select.select([pidfd], [], [], _LOOK_SEC)[0]:
            break
    return False


def _complaint(channel: socket.socket, data: bytes = b"") -> str:
    """Return what the child wrote before it gave up, which begins with what was read of it already."""
    with contextlib.suppress(OSError):
        while chunk := channel.recv(4096):
            data += chunk
    return data.decode("utf-8", "replace").strip() or "bwrap ended without a message"


def _become_bwrap(request: dict[str, Any], view: str, channel: socket.socket, hold: int, info: int) -> None:
    """Make the root, enter a user namespace that holds no further ones, and execute bwrap. Does not return."""
    try:
        inside.default_signals()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # the guardian may have gone first
        kernel.unshare(os.CLONE_NEWNS)
        folder = root.mount_overlays(request, view)
        kernel.unshare(os.CLONE_NEWUSER)
        channel.send(_MADE)
        if channel.recv(8) != b"go":
            os._exit(1)
        with contextlib.suppress(OSError):  # no user namespace below this one; the seccomp filter says the same
            kernel.write("/proc/sys/user/max_user_namespaces", "0")
        inside.limit_counts_by_user()
        # By a file: the sandbox can read the command line of its first process, and these name folders of the host.
        options = root.bwrap_arguments(request, folder, info)
        arguments = wire.memory_file(b"".join(os.fsencode(option) + b"\0" for option in options))
        os.dup2(hold, 0)
        os.dup2(os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC), 1)
        os.dup2(channel.fileno(), 2)
        for handle in (info, arguments):
            os.set_inheritable(handle, True)
        # Inherited by the first process. bwrap itself then does not see its child end; the guardian watches that.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        # Should the hold break, the first process ends: /dev/null cannot be executed, whatever the agent does.
        os.execve(request["bwrap"], ["bwrap", "--args", str(arguments), "--block-fd", "0", "--", "/dev/null"], {})
    except BaseException as error:  # noqa: BLE001 - the parent reads it and raises
        with contextlib.suppress(OSError):
            channel.send(f"{error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(1)


def end(child: int) -> None:
    """End a child of ours; what bwrap started ends with it."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
