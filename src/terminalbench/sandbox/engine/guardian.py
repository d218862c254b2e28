"""The guardian: brings one sandbox up, keeps it within its limits, and cleans up after it.

It lives exactly as long as the caller holds the other end of its socket. When that closes (stop, crash or
SIGKILL of the caller) it ends every process of the sandbox and removes what it made on the host. Should the
guardian itself be killed, the kernel still ends the sandbox with it (`--die-with-parent`).
"""

# ruff: noqa: S606, PTH108, PTH123, PTH208

import contextlib
import os
import select
import shutil
import signal
import socket
from typing import Any

from terminalbench.sandbox.engine import cgroups, ids, inside, kernel, porter, root, run, wire
from terminalbench.sandbox.engine.watch import Watch

_START_PATIENCE_SEC = 30
_STOP_PATIENCE_SEC = 10
_NOTE = "groups"


def guard(request: dict[str, Any], reply: socket.socket, _: list[int], program: bytes) -> None:
    """Start a sandbox, answer with its pidfd, watch it until the caller lets go. Holds the caller's lock files."""
    os.setsid()
    kernel.set_name("tbench-guardian")
    kernel.hide_memory()
    limits = cgroups.Limits(**request["limits"])
    privileged = request["ids"] == "all"
    # Files in a memory scratch are memory of the group too.
    grouped = limits if request["scratch"] == "memory" else limits._replace(scratch_bytes=0)
    group = cgroups.create(f"{cgroups.PREFIX}{request['name']}", grouped) if request["use_groups"] else cgroups.Group()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = pidfd = helper = None
    try:
        _note_groups(request["run_dir"], group)
        helper = porter.start(group, request["ids"], program)
        child, pidfd, scratch = _bring_up(request, program, privileged=privileged)
        proc = None if {"memory", "pids"} <= group.folders.keys() else _proc_of(pidfd)
        sandbox = _describe(request, group, limits, scratch)
        if sandbox["memory_by_process"]:
            held = inside.set_kernel_limits(pidfd, limits.processes, limits.memory_bytes)
            if not held:
                inside.go_first()
        wire.send(reply, {"sandbox": sandbox, "limits_by": _limits_by(group)}, (pidfd, helper.door.fileno()))
        helper.door.close()
        disk = [*request["measure"], *([f"{request['run_dir']}/s"] if scratch == "disk" else [])]
        _keep(reply, pidfd, Watch(pidfd, proc, group, limits, disk))
    finally:
        if helper is not None:
            _end(helper.pid)
        _take_down(child, pidfd, group, request["run_dir"])


def _note_groups(run_dir: str, group: cgroups.Group) -> None:
    """So that the collector, which finds the folder after a crash, can remove the groups too."""
    with open(f"{run_dir}/{_NOTE}", "w", encoding="utf-8") as stream:
        stream.write("".join(f"{folder}\n" for folder in sorted(set(group.folders.values()))))


def _describe(request: dict[str, Any], group: cgroups.Group, limits: cgroups.Limits, scratch: str) -> dict[str, Any]:
    """What each later command needs to know of the sandbox."""
    rlimits = {}
    if "pids" not in group.folders:
        rlimits["RLIMIT_NPROC"] = limits.processes
    if scratch == "disk":
        rlimits["RLIMIT_FSIZE"] = limits.scratch_bytes
    processors: list[int] = []
    if limits.cpus and "cpu" not in group.folders:
        available = sorted(os.sched_getaffinity(0))
        count = min(len(available), max(1, round(limits.cpus)))
        first = os.getpid() % len(available)
        processors = [available[(first + i) % len(available)] for i in range(count)]
    return {
        "procs": group.procs(),
        "rlimits": rlimits,
        "processors": processors,
        "ids": request["ids"],
        "scratch": scratch,
        "memory_by_process": "memory" not in group.folders,
    }


def _limits_by(group: cgroups.Group) -> dict[str, str]:
    kind = f"cgroup{group.version}"
    watched = {"memory": "watch", "pids": "watch", "cpu": "affinity"}
    return {name: kind if name in group.folders else other for name, other in watched.items()}


def _bring_up(request: dict[str, Any], program: bytes, *, privileged: bool) -> tuple[int, int, str]:
    """Fork the process that becomes bwrap; give its user namespace its ids; wait until the root is in place."""
    ours, theirs = socket.socketpair()
    info_read, info_write = os.pipe()
    ready_read, ready_write = os.pipe()
    hold_read, hold_write = os.pipe()
    child = os.fork()
    if child == 0:
        ours.close()
        os.close(hold_write)
        _become_bwrap(request, program, theirs, (hold_read, ready_write, info_write), privileged=privileged)
    theirs.close()
    for handle in (info_write, ready_write, hold_read):
        os.close(handle)
    ours.settimeout(_START_PATIENCE_SEC)
    try:
        scratch = ours.recv(64).decode()
        if scratch:
            ids.write_identity_maps(child)
            ours.send(b"go")
            os.write(hold_write, b"\n")
        if not scratch or not _readable(ready_read) or os.read(ready_read, 1) != b"\n":
            raise OSError(0, _complaint(ours) or "the base file system has no working cat")
        data = b""
        while chunk := os.read(info_read, 4096):
            data += chunk
        pid = int(data.split(b'"child-pid":')[1].split(b",")[0].strip(b" }\n"))
        return child, os.pidfd_open(pid), scratch
    except BaseException:
        _end(child)
        raise
    finally:
        ours.close()
        os.close(info_read)
        os.close(ready_read)


def _proc_of(pidfd: int) -> int:
    """The sandbox's own /proc, opened before anything of the agent runs in it."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            inside.enter(pidfd, network=False)
            socket.send_fds(theirs, [b"p"], [os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        _, handles = wire.take(ours, 1)
    os.waitpid(child, 0)
    if not handles:
        raise OSError(0, "cannot watch the sandbox's processes")
    return handles[0]


def _readable(handle: int) -> bool:
    return bool(select.select([handle], [], [], _START_PATIENCE_SEC)[0])


def _complaint(channel: socket.socket) -> str:
    """What the child wrote before it gave up."""
    data = b""
    with contextlib.suppress(OSError):
        while chunk := channel.recv(4096):
            data += chunk
    return data.decode("utf-8", "replace").strip()


def _become_bwrap(
    request: dict[str, Any],
    program: bytes,
    channel: socket.socket,
    pipes: tuple[int, int, int],
    *,
    privileged: bool,
) -> None:
    """Make the root, enter a user namespace that holds no further ones, and execute bwrap. Does not return."""
    try:
        inside.default_signals()
        os.unshare(os.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        scratch = root.make_scratch(request, privileged=privileged)
        folder = root.mount_overlays(request, privileged=privileged)
        os.unshare(os.CLONE_NEWUSER)
        channel.send(scratch.encode())
        if channel.recv(8) != b"go":
            os._exit(1)
        with contextlib.suppress(OSError):  # no user namespace below this one; the seccomp filter says the same
            kernel.write("/proc/sys/user/max_user_namespaces", "0")
        filter_handle = wire.memory_file(program) if program else None
        arguments = root.bwrap_arguments(request, folder, pipes[2], filter_handle)
        os.dup2(pipes[0], 0)
        os.dup2(pipes[1], 1)
        os.dup2(channel.fileno(), 2)
        for handle in (pipes[2], filter_handle):
            if handle is not None:
                os.set_inheritable(handle, True)
        # Inherited by the first process. bwrap itself then does not see its child end; the guardian watches that.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.execve(request["bwrap"], ["bwrap", *arguments], {})
    except BaseException as error:  # noqa: BLE001 - the parent reads it and raises
        with contextlib.suppress(OSError):
            channel.send(f"{error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(1)


def _keep(reply: socket.socket, pidfd: int, watch: Watch) -> None:
    """Until the caller lets go or the sandbox ends; counts and kills for the caller meanwhile."""
    poll = select.poll()
    poll.register(reply, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    while True:
        ready = dict(poll.poll(watch.interval_sec * 1000))
        if reply.fileno() in ready:
            message, _ = wire.receive(reply)
            if message is None:
                return
            answer = {"number": message["number"]}
            if message["do"] == "kill":
                answer["left"] = run.kill(pidfd, message["which"], message["root"])
            with contextlib.suppress(OSError):
                wire.send(reply, {**answer, **watch.counts()})
        if pidfd in ready:
            return
        watch.check()


def _take_down(child: int | None, pidfd: int | None, group: cgroups.Group, run_dir: str) -> None:
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], _STOP_PATIENCE_SEC)  # the whole process namespace ends with it
    if child is not None:
        _end(child)
    if group.remove():
        shutil.rmtree(run_dir, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(f"{run_dir}.lock")
        return
    for name in os.listdir(run_dir):  # the note of its groups stays for the collector
        if name != _NOTE:
            shutil.rmtree(f"{run_dir}/{name}", ignore_errors=True)


def _end(child: int) -> None:
    """End a child of ours; what bwrap started ends with it."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
