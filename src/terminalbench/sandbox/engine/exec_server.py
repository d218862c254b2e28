"""The porter: a fork server in all of a sandbox's namespaces but that of processes: none of them sees or reaches it.

It is in the sandbox's control group (moving a process into one takes the kernel milliseconds), has given up what no
command may have, and its children are born in the sandbox's process namespace: each answers one request. They differ
from the sandbox's other processes by one capability, so that none of those may trace them or take their descriptors.
Each generation of a sandbox has a porter of its own. Should it be gone, a child of the helper serves in its place.

Beside it is a carrier: a process like it that does transfers itself, one after the other, since a fork for each costs
ten times what it does. A transfer that comes meanwhile is the porter's; so are all once the carrier is gone.
"""

# ruff: noqa: PTH102, PTH103, S606

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import (
    DEFAULT_PATH,
    files,
    ids,
    inside,
    kernel,
    net,
    notices,
    overseer,
    proc,
    whose,
    wire,
)
from terminalbench.sandbox.engine.cgroups import ControlGroup

_COMMANDS = ("run", "test")
_LAST_MOMENT_SEC = 0.1

CANNOT_RUN = 126
NOT_FOUND = 127


class Porter(NamedTuple):
    """A running porter, or carrier: its process, and the socket that takes requests."""

    pid: int
    door: socket.socket

    def kill(self) -> None:
        """Kill it; its parent still has to wait for it."""
        os.kill(self.pid, signal.SIGKILL)

    def alive(self) -> bool:
        """Return whether it still runs; only its parent can tell."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def admit(self, pidfd: int) -> None:
        """Let it into the generation whose first process `pidfd` holds."""
        with contextlib.suppress(OSError):  # it is gone, and will be replaced
            socket.send_fds(self.door, [b"enter"], [pidfd], socket.MSG_NOSIGNAL)


def start(
    group: ControlGroup,
    sandbox: dict[str, Any],
    program: bytes,
    *,
    carries: bool = False,
    network: dict[str, Any] | None = None,
) -> Porter:
    """Fork one that joins `group` and waits to be admitted. It ends when every copy of its door is closed.

    With a wanted `network` it prepares that, while it still may, and tells by its door (`net.open_way`).
    """
    ours, theirs = wire.socket_pair()
    child = os.fork()
    if child == 0:
        try:
            kernel.set_name("tbench-carrier" if carries else "tbench-porter")
            inside.close_others(theirs.fileno())  # the guardian's: its caller waits for them to close
            inside.join(group.procs())
            host_proc = inside.open_proc()
            _, descriptors = wire.take(theirs, 8)
            if not descriptors:
                os._exit(0)
            desk = None if carries else _RequestDesk(sandbox, host_proc, os.memfd_create("clock"))
            inside.enter(descriptors[0], network=False)
            os.close(descriptors[0])
            if network is not None:
                net.prepare(theirs, host_proc, network)
            _confine(sandbox, program)
            if desk is not None:
                desk.serve(theirs)
            else:
                inside.prefer_as_victim(host_proc)
                files.carry(theirs, sandbox)
        finally:
            os._exit(0)
    theirs.close()
    return Porter(child, ours)


def once(request: dict[str, Any], reply: socket.socket, descriptors: list[int], program: bytes) -> None:
    """Serve one request in the porter's place, from a child of the helper. Descriptors: the sandbox's pidfd, others."""
    kernel.set_name("tbench-porter")
    inside.join(request["join"])
    host_proc = inside.open_proc()
    pidfd, *rest = descriptors
    clock = os.memfd_create("clock")
    inside.enter(pidfd, network=request.get("network", False))
    os.close(pidfd)
    _confine(request["sandbox"], program)
    desk = _RequestDesk(request["sandbox"], host_proc, clock)
    desk.begin(request["op"], request, reply, rest)
    desk.serve(None)


def _confine(sandbox: dict[str, Any], program: bytes) -> None:
    inside.hide_groups()
    inside.confine(sandbox, program)


class _RequestProcess(NamedTuple):
    """A process that answers a request, and the socket whose other end is the caller's."""

    kind: str
    pid: int
    reply: socket.socket


class _RequestDesk:
    """Takes requests, and keeps an eye on the processes that answer them. Of a request it knows the kind alone."""

    def __init__(self, sandbox: dict[str, Any], host_proc: int, clock: int) -> None:
        """`clock` is a file in memory, which no process inside may make."""
        self._sandbox, self._host_proc, self._clock = sandbox, host_proc, clock
        self._works: dict[int, _RequestProcess] = {}  # by their pidfds
        self._replies: dict[int, int] = {}  # descriptors to pidfds
        self._poll = select.poll()

    def serve(self, channel: socket.socket | None) -> None:
        """Serve until the caller has closed `channel`, and nobody works any more."""
        door = channel.fileno() if channel is not None else -1
        if channel is not None:
            self._poll.register(door, select.POLLIN)
        while self._works or channel is not None:
            handle, _ = self._poll.poll()[0]  # one at a time: the number of another may be in new hands after it
            if handle in self._works:
                self._ended(handle)
            elif handle in self._replies:
                self._let_go(handle)
            elif channel is not None and not self._take(channel):
                self._poll.unregister(door)
                channel = None

    def _take(self, channel: socket.socket) -> bool:
        kind, descriptors = wire.take(channel, 16)
        if not kind:
            return False
        payload, reply, pidfd, *rest = descriptors
        os.close(pidfd)  # we have been admitted
        self.begin(kind.decode(), payload, wire.adopt(reply), rest)
        os.close(payload)
        for handle in rest:
            os.close(handle)
        return True

    def begin(self, kind: str, request: int | dict[str, Any], reply: socket.socket, rest: list[int]) -> None:
        """Have a new process inside answer a request, which is here already or in a file that is its own to read."""
        try:
            child = os.fork()
        except OSError as error:  # a sandbox at its process limit, or at its end
            _say(reply, {"error": f"cannot start another process: {error.strerror}"})
            reply.close()
            return
        if child == 0:
            try:
                self._answer(kind, request, reply, rest)
            finally:
                os._exit(1)
        pidfd = os.pidfd_open(child)
        self._works[pidfd], self._replies[reply.fileno()] = _RequestProcess(kind, child, reply), pidfd
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(reply, 0)  # tells when the other end is closed

    def _answer(self, kind: str, request: int | dict[str, Any], reply: socket.socket, rest: list[int]) -> None:
        given = (request,) if isinstance(request, int) else ()
        inside.close_others(self._host_proc, reply.fileno(), *given, *rest)
        try:
            inside.prefer_as_victim(self._host_proc)
            wanted = wire.unpack_request(request) if isinstance(request, int) else request
            _OPERATIONS[kind](wanted, reply, rest, self._sandbox)
        except BaseException as error:  # noqa: BLE001 - told to the caller, who raises
            _say(reply, {"error": str(error), "kind": type(error).__name__})

    def _ended(self, pidfd: int) -> None:
        """Tell how it went, and only then have the process gone: the end of its namespace waits for that."""
        work = self._works.pop(pidfd)
        self._replies.pop(work.reply.fileno(), None)
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        ended_ns = self._now_of_files()
        code = 1 if found is None else found.si_status + (0 if found.si_code == os.CLD_EXITED else 128)
        if work.kind == "test":
            _say(work.reply, {"exit": code, "left": self._end_rest(), "ended_ns": ended_ns})
        elif work.kind == "run":
            _say(work.reply, {"exit": code})
        elif code != 0:
            _say(work.reply, {"error": "the transfer was killed inside the sandbox"})
        os.waitpid(work.pid, 0)
        self._poll.unregister(pidfd)
        with contextlib.suppress(KeyError):
            self._poll.unregister(work.reply)
        work.reply.close()
        os.close(pidfd)

    def _now_of_files(self) -> int:
        """Return the time that a file gets which changes now: since Linux 6.13 that is ahead of coarse clocks."""
        os.utime(self._clock)
        return os.fstat(self._clock).st_ctime_ns

    def _end_rest(self) -> int:
        """End what the tests have left running, at once; how many ran code, with nothing between it and the reward.

        Not counted are confined ones, and plain servers: those are the tests' own. -1 if it could not be seen.
        """

        def running() -> set[int]:
            usual = proc.filters("self") + 1  # the tests have the one by which their calls are overseen
            left = proc.processes().keys() - {1, os.getpid()}
            return {pid for pid in left if proc.filters(pid) <= usual and whose.is_interpreter(proc.program(pid))}

        def end() -> int:
            left = running()
            if left:  # some are about to end by themselves
                time.sleep(_LAST_MOMENT_SEC)
                left &= running()
            inside.kill_all()
            return len(left)

        with contextlib.suppress(OSError):  # no room for another process: the guardian ends all of them
            return inside.in_sandbox(end)
        return -1

    def _let_go(self, reply: int) -> None:
        """The caller does not want it any more: end a transfer, or a command with its whole tree."""
        self._poll.unregister(reply)
        pidfd = self._replies.pop(reply)
        if self._works[pidfd].kind in _COMMANDS:
            root = proc.innermost_pid(pidfd, self._host_proc)
            with contextlib.suppress(OSError):  # at the process limit we cannot; then the guardian ends everything
                inside.in_sandbox(lambda: inside.kill_tree(root))
        else:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _say(reply: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the caller is gone
        wire.send(reply, message)


def run(request: dict[str, Any], reply: socket.socket, streams: list[int], sandbox: dict[str, Any]) -> None:
    """Say which process this is, already inside the sandbox, and turn it into the command `argv`. Does not return.

    Descriptors: standard output, standard error. If it is to be overseen, the listener of its calls is handed out.
    """
    code = CANNOT_RUN
    try:
        for number, handle in enumerate((os.open("/dev/null", os.O_RDONLY), *streams)):
            os.dup2(handle, number)
        wire.send(reply, {"root": os.getpid()})
        os.setsid()
        inside.default_signals()
        account = ids.find_account(request["user"])
        for handle in (1, 2) if account.uid else ():  # so that the command may open /dev/stdout, as under Docker
            with contextlib.suppress(OSError):  # not a pipe of ours: the command can write to it, only not reopen it
                os.fchown(handle, account.uid, account.gid)
        folders = overseer.CACHES if request["oversee"] else ()
        home = _new_home(request["homes"], account, folders) if request["homes"] else account.home
        # A working folder such as /proc/self/fd/9 must not lead back out: no descriptor may be left.
        inside.close_others(*((reply.fileno(),) if request["oversee"] else ()))
        inside.become(account, sandbox)
        os.chdir(request["cwd"])
        if request["oversee"]:
            _hand_out_listener(reply, {"own_home": home, "home": account.home})
        environment = {"PATH": DEFAULT_PATH, "HOME": home, **request["env"]}
        code = NOT_FOUND
        _execute(request["argv"], environment)
    except BaseException as error:  # noqa: BLE001 - nothing may unwind into the porter from inside a sandbox
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        name = getattr(error, "filename", None)
        os.write(2, f"sandbox: {text}{f': {name}' if name else ''}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _hand_out_listener(reply: socket.socket, homes: dict[str, str]) -> None:
    """Have some calls of this process wait for who is told of it; where that cannot be, they are made as ever."""
    with contextlib.suppress(OSError):
        listener = notices.listen(overseer.watched())
        wire.send(reply, {"root": os.getpid(), "homes": homes}, (listener,))
        os.close(listener)


def _new_home(homes: str, account: ids.UserAccount, folders: Sequence[str]) -> str:
    """A home of this user that no agent has written to, with these folders."""
    os.makedirs(homes, 0o755, exist_ok=True)
    home = f"{homes}/{account.uid}"
    for path in (home, *(f"{home}/{name}" for name in folders)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chown(path, account.uid, account.gid)
    return home


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    name = argv[0]
    folders = [""] if "/" in name else [f"{folder}/" for folder in environment["PATH"].split(":")]
    error: OSError = FileNotFoundError(2, "not found", name)
    for folder in folders:
        try:
            os.execve(f"{folder}{name}", argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            error = problem
    raise error


def kill(pidfd: int, which: str, root: int) -> int:
    """End processes of the sandbox: "all" but the first, one "tree", or the "networked" ones; how many would not go."""
    works = {"all": inside.kill_all, "networked": _kill_networked, "tree": lambda: inside.kill_tree(root)}
    left = -1
    for _ in range(10):
        left = inside.visit(pidfd, works[which])
        if left >= 0:  # else we were killed ourselves, by a limit that was reached
            break
    return left


def _kill_networked() -> int:
    own, ourselves = proc.namespace("self", "net"), {1, os.getpid()}
    victims: set[int] = set()
    for _ in range(500):
        victims = {pid for pid in proc.processes().keys() - ourselves if proc.namespace(pid, "net") != own}
        if not victims:
            break
        inside.send(victims, signal.SIGKILL)
        time.sleep(0.01)  # we may go before them, and they have to run to end
    return len(victims)


Operation = Callable[[dict[str, Any], socket.socket, list[int], dict[str, Any]], None]


_OPERATIONS: dict[str, Operation] = {"run": run, "test": run, "transfer": files.transfer}
