"""Going into a running sandbox: join its namespaces, its group and its limits, give up every other right."""

# ruff: noqa: PTH208

import contextlib
import errno
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from terminalbench.sandbox.engine import kernel, proc, seccomp, wire
from terminalbench.sandbox.engine.ids import UserAccount

_SPACES = os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWIPC | os.CLONE_NEWUTS
_MAX_OPEN_FILES = 1 << 16
_SHARE = 8  # of what the host counts by user, a sandbox gets one part in so many
_LEAST = 8
_MESSAGES, _SEMAPHORES = "256", "250 32000 100 128"  # of System V; by default they may fill gigabytes
_STOP_ROUNDS = 200
_END_PATIENCE_SEC = 30.0  # one of thousands that all want the processor has its next turn after seconds
_KILL_PATIENCE_SEC = 6.0  # a process takes its time to give back gigabytes, or thousands of threads
_RESERVED_PIDS = 300  # the kernel gives these to the first processes only
_OWN_PID_MAX = (6, 14)
_ROOM_ROUNDS = 150
_ROOM_INTERVAL_SEC = 0.02
_NO_ROOM, _FAILED = 254, 255
# Errors to our own code; and the caller's to handle: we go when it goes.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def enter(pidfd: int, *, network: bool) -> None:
    """Join the namespaces of the sandbox that `pidfd` holds; children are born in its process namespace.

    With `network` the process stays in the host's network. Until it gives them up, it has all capabilities
    over the sandbox (and none over the host), and no process inside can look into it.
    """
    kernel.hide_memory()
    os.setns(pidfd, _SPACES if network else _SPACES | os.CLONE_NEWNET)
    os.chdir("/")


def ignore_signals() -> None:
    """Ignore these and no others, whatever this process was started with: all that come from it know which they are."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if number not in _IGNORED and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)


def default_signals() -> None:
    """Undo `ignore_signals`: a program started from here would inherit it."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)


def prefer_as_victim(host_proc: int) -> None:
    """Let this process and its children go first when the machine runs out of memory.

    Said by the host's /proc, which was opened before `enter`, and is closed: that of a sandbox takes no writes, so that
    none of its processes can change it back.
    """
    with contextlib.suppress(OSError):
        handle = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=host_proc)
        os.write(handle, b"1000")
        os.close(handle)
    os.close(host_proc)


def open_proc() -> int:
    """The /proc of where this process is."""
    return os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def join(procs: list[str]) -> None:
    """Move this process into the groups whose `cgroup.procs` files are given."""
    for path in procs:
        kernel.write(path, "0")


def close_others(*kept: int) -> None:
    """Close every descriptor but those of the standard streams and these."""
    first = 3
    for handle in sorted(kept):
        os.closerange(first, handle)
        first = handle + 1
    os.closerange(first, _MAX_OPEN_FILES)


def hide_groups() -> None:
    """Let this process and its children see their control group as the root of all groups."""
    with contextlib.suppress(OSError):
        os.unshare(os.CLONE_NEWCGROUP)


def confine(sandbox: dict[str, Any], program: bytes) -> None:
    """Give up, for this process and its children, what no process of the sandbox may have: it cannot be had again.

    Left are Docker's capabilities, and the one that the first process has too.
    """
    os.umask(0o022)
    _limit(resource.RLIMIT_CORE, 1)  # 0 would still hand cores to a program the host has set for them
    _limit(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
    for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE):  # counted by user, over all namespaces
        hard = resource.getrlimit(kind)[1]
        _limit(kind, hard // _SHARE if hard != resource.RLIM_INFINITY else 1 << 16)
    kernel.no_new_privileges()
    kernel.limit_capabilities()
    if sandbox["ids"] != "one":
        os.setgroups([0])
    kernel.set_capabilities(kernel.allowed_bits() | 1 << kernel.CAP_WAKE_ALARM)
    kernel.install_filter(program)
    if program and sandbox["memory_by_process"]:
        kernel.install_filter(seccomp.without_uncounted_memory())
    if program and sandbox["ids"] == "one":
        kernel.install_filter(seccomp.with_one_user())


def limit(sandbox: dict[str, Any]) -> None:
    """Take on the limits that each process of the sandbox has for itself."""
    for name, value in sandbox["rlimits"].items():
        _limit(getattr(resource, name), value)
    if sandbox["processors"]:
        os.sched_setaffinity(0, sandbox["processors"])


def become(account: UserAccount, sandbox: dict[str, Any]) -> None:
    """Become `account` with its limits and Docker's capabilities at most. What is given up cannot be had again.

    Where there is one user only, every account has root's files, but not its capabilities.
    """
    limit(sandbox)
    if sandbox["ids"] != "one":
        os.setgroups(account.groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
    kernel.set_capabilities(kernel.allowed_bits() if account.uid == 0 else 0)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def kill_tree(root: int) -> int:
    """End `root`, its descendants and everything in their sessions; says how many would not go.

    Call it from inside the sandbox. All of them are stopped before the first is killed: a bomb could otherwise refill
    every place that gets free. Its own process group first, in one system call that no fork escapes.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(root, signal.SIGSTOP)
    seen: dict[int, int] = {}  # who is orphaned by our own kill is no descendant any more
    for _ in range(_STOP_ROUNDS):
        fresh = _tree(root, seen).items() - seen.items()
        send({pid for pid, _ in fresh}, signal.SIGSTOP)
        seen |= dict(fresh)
        if not fresh:
            break
    started = time.monotonic()
    while members := _tree(root, seen):
        seen |= members
        send(set(members), signal.SIGKILL)
        waited = time.monotonic() - started
        if waited > _KILL_PATIENCE_SEC:
            break
        time.sleep(0.002 if waited < 0.5 else 0.02)
    return len(members)


def _tree(root: int, seen: dict[int, int]) -> dict[int, int]:
    """`root`, those that were `seen`, their descendants and sessions: the pid of each to when it started."""
    table = proc.processes()
    members = {pid for pid, process in table.items() if pid == root or seen.get(pid) == process.started}
    sessions, size = {root}, -1
    while size != len(members):
        size = len(members)
        members |= {pid for pid, one in table.items() if one.parent in members or one.session in sessions}
        sessions |= {one.session for one in table.values() if one.session in members}
    return {pid: table[pid].started for pid in members - {1, os.getpid()}}


def send(pids: set[int], number: int) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all() -> int:
    """End every process but the first and ourselves; says how many would not go.

    They have to run to end, which takes thousands of them long on a busy machine: it is patient while they get fewer.
    """
    least, deadline = sys.maxsize, 0.0
    while True:
        spent = time.thread_time()
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # one system call: no process can fork its way around it
        left = len(proc.processes().keys() - {1, os.getpid()})
        now = time.monotonic()
        if left < least:
            least, deadline = left, now + _END_PATIENCE_SEC
        if not left or now > deadline:
            return left
        # We may come before them on the processor, and they need it to end.
        time.sleep(min(0.5, max(0.01, 3 * (time.thread_time() - spent))))


def limit_counts_by_user() -> None:
    """Let this new user namespace, which has just been made, have a part of what the host counts by user."""
    for kind, name in (("inotify", "instances"), ("inotify", "watches"), ("fanotify", "groups"), ("fanotify", "marks")):
        with contextlib.suppress(OSError, ValueError):  # a kernel without one of them
            most = int(proc.read(f"/proc/sys/fs/{kind}/max_user_{name}"))
            kernel.write(f"/proc/sys/user/max_{kind}_{name}", str(max(_LEAST, most // _SHARE)))


def set_kernel_limits(pidfd: int, processes: int, shared_bytes: int) -> bool:
    """Let the kernel hold the sandbox's number of processes and its System V objects; says if it does the first.

    They belong to namespaces since Linux 6.14 and 6.11. Before, they are only watched, and a watcher can be outrun.
    An older kernel is not even asked: root of the sandbox is root of the host to it, and would set the host's number.
    """
    own_pid_max = _release() >= _OWN_PID_MAX
    here = proc.namespace("self", "ipc")

    def write(name: str, value: str) -> bool:
        try:
            kernel.write(f"/proc/sys/kernel/{name}", value)
        except OSError:
            return False
        return True

    def go() -> int:
        if proc.namespace("self", "ipc") == here:
            return 0  # still the host's, whose own numbers these would be
        write("shmall", str(max(1, shared_bytes // resource.getpagesize())))
        write("msgmni", _MESSAGES)
        write("sem", _SEMAPHORES)
        return int(own_pid_max and write("pid_max", str(processes + _RESERVED_PIDS)))

    def enter() -> int:
        os.setns(pidfd, os.CLONE_NEWUSER | os.CLONE_NEWIPC | os.CLONE_NEWPID)
        return in_sandbox(go)

    return in_sandbox(enter) == 1


def _release() -> tuple[int, int]:
    """The version of the running kernel, (0, 0) if it does not say."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def go_first() -> None:
    """Take the processor before everybody else, if that is allowed: who ends a fork bomb must not wait for it."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def in_sandbox(work: Any) -> int:
    """Run `work()` in a child of this process, which has entered; what it returned, -1 if it was killed.

    Raises BlockingIOError if there is no room for another process, here or where `work` wanted one.
    """
    child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            result = int(work() or 0)
            code = min(result, _NO_ROOM - 1) if result >= 0 else _FAILED
        except BlockingIOError:
            code = _NO_ROOM
        finally:
            os._exit(code)
    while os.WIFSTOPPED(status := os.waitpid(child, os.WUNTRACED)[1]):
        os.kill(child, signal.SIGCONT)  # a process inside has stopped it
    code = os.waitstatus_to_exitcode(status)
    if code == _NO_ROOM:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return code if 0 <= code < _NO_ROOM else -1


def handed_out(work: Callable[[socket.socket], None]) -> tuple[bytes, list[int]]:
    """Return what `work(reply)`, run in a child that ends with it, sent by `reply`: a packet, and its descriptors."""
    ours, theirs = wire.socket_pair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            work(theirs)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        found = wire.take(ours, 4096)
    os.waitpid(child, 0)
    return found


def visit(pidfd: int, work: Any) -> int:
    """Run `work()` in the sandbox with all rights over it, from a process that stays outside.

    A sandbox whose threads have taken every number has no room for us either: then the process with most of them
    is killed from outside, and should that not help, all of them.
    """

    def go() -> int:
        go_first()
        enter(pidfd, network=False)
        return in_sandbox(work)

    for attempt in range(_ROOM_ROUNDS):
        try:
            return in_sandbox(go)
        except BlockingIOError:
            if attempt % (_ROOM_ROUNDS // 3) == 0:
                _make_room(pidfd, everyone=attempt > 0)
            time.sleep(_ROOM_INTERVAL_SEC)
    return -1


def _make_room(pidfd: int, *, everyone: bool) -> None:
    """Kill the process of the sandbox that has most threads, or all of them; its first one stays."""
    first = str(proc.pid_of(pidfd))
    space = proc.namespace(first, "pid")
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name != first and space is not None and proc.namespace(name, "pid") == space:
            fields = proc.read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            members.append((int(fields[17]) if len(fields) > 17 else 0, int(name)))
    send({pid for _, pid in (members if everyone else sorted(members)[-1:])}, signal.SIGKILL)
