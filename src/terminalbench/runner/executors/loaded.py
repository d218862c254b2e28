"""A process that has loaded Harbor, and forks from itself what needs it: loading takes longer than a small job.

`python -P -u -m terminalbench.runner.executors.loaded LISTENER OWNER [MODULE ...]` serves who connects to a listening
socket until its owner ends; further modules are loaded too. A forked process is made what a fresh one would be:
session, files, mounts, folder, environment, umask, limits, signals, `sys.argv` and `sys.path`. Where that cannot be
(`why_not`) it is refused, and who asked starts an ordinary process. See `local` for the other side.

This process has one thread and keeps nothing of those that it has forked. When it dies they are killed; when the
process that asked for one ends, that one gets the signal it was asked for with, and has a guard as with `death_signal`.

The socket lies in a folder of /tmp that is named after the process that made it, and goes with its owner. What is left
when both were killed at once is taken away by the next one that is made: only a folder of this user, whose owner is
gone, whose socket nobody listens on, and that holds nothing else.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import re
import resource
import runpy
import selectors
import signal
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from terminalbench.decode import decode
from terminalbench.harbor.load import load
from terminalbench.locks import start_ticks
from terminalbench.modes import child_umask
from terminalbench.runner.executors import death_signal

_AT_START = {"sitecustomize", "usercustomize"}
"""Modules that Python loads by itself when it starts."""


def added_folders(asked: str, own: str) -> list[str] | None:
    """The folders that the path `asked` has before all of `own`; None where it is not `own` with folders before it."""
    if asked == own:
        return []
    before = asked.removesuffix(os.pathsep + own) if own else asked
    folders = before.split(os.pathsep)
    return folders if before != asked or not own else None


def why_not_added(folder: str) -> str | None:
    """Return why a process that has loaded its modules would be another with a folder before all on its path."""
    if not Path(folder).is_absolute():
        return f"the folder {folder!r} on Python's path is not absolute"
    if any(Path(folder).glob("*.*-info")):
        return f"packages are installed in {folder}"
    for name in {name.partition(".")[0] for name in sys.modules} | _AT_START:
        found = PathFinder.find_spec(name, [folder])
        if found is not None and found.loader is not None:
            return f"a module named {name} in {folder}"
    return None


def add_folders(folders: list[str]) -> None:
    """Put folders before all on the path of this process, as if it had been started with them."""
    first = [os.path.abspath(folder) for folder in folders]  # noqa: PTH100  as Python does at its start
    for folder in first:
        sys.path_importer_cache.pop(folder, None)  # what `why_not_added` saw there
    sys.path[:] = [*dict.fromkeys(first), *(folder for folder in sys.path if folder not in first)]


HEAD = struct.Struct("!I")
"""Before a request: how long it is. As an answer: a pid, `REFUSED` or `FAILED`. As an end: the status of a process."""
REFUSED, FAILED = 0, 2**32 - 1
"""A fork would not be the same as a fresh process; there was no room for a process."""
_DEATH_SIGNAL, _SET_NAME = 1, 15
_CREDENTIALS = struct.Struct("3i")
_NAMES = ("HOME", "TZ", "LANG", "LANGUAGE", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
_NO_BYTECODE, _PATH = "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"
_PREFIXES = ("PYTHON", "HARBOR_", "LITELLM_", "LC_", "SSL_CERT_")


class ForkRequest(msgspec.Struct, frozen=True):
    """A process that is asked for. Its standard files, and where its end is told, come as descriptors."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    signal: int
    open_files: int


def why_not(asked: ForkRequest, own: Mapping[str, str]) -> str | None:
    """Return why a fork would differ from a fresh process: by its program, or variables read while modules load."""
    if asked.argv[1:2] != ["-m"] and (Path(asked.argv[0]).name, *asked.argv[1:2]) != ("harbor", "run"):
        return "neither a run of Harbor nor a known module"
    compared = {*own, *asked.env} - {_NO_BYTECODE, _PATH}
    names = (name for name in compared if name.startswith(_PREFIXES) or name in _NAMES)
    other = {name for name in names if own.get(name) != asked.env.get(name)}
    added = added_folders(asked.env.get(_PATH, ""), own.get(_PATH, ""))
    if other or added is None:
        return f"another {', '.join(sorted(other if added is not None else other | {_PATH}))}"
    return next((why for folder in added if (why := why_not_added(folder)) is not None), None)


@dataclass(frozen=True)
class _Child:
    """A forked process: where its end is told, who asked for it, and the signal it gets when that one ends."""

    told: int
    client: socket.socket
    signal: int


class _ForkServer:
    def __init__(self, listener: socket.socket, owner: int) -> None:
        self.listener, self.owner, self.env = listener, os.pidfd_open(owner), dict(os.environ)
        self.running: dict[int, _Child] = {}
        self.said: set[str] = set()
        self.pid = os.getpid()
        self.ending = False
        self.ready = selectors.DefaultSelector()
        self.woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # its owner decides when this process ends
        for file in (listener, self.owner, self.woken):
            self.ready.register(file, selectors.EVENT_READ)

    def serve(self) -> Callable[[], Any]:
        """Fork what is asked for; returns in each forked process, with its program."""
        while self.running or not self.ending:
            for key, _ in self.ready.select():
                if key.fileobj == self.owner:
                    self._end()
                elif key.fileobj == self.woken:
                    os.read(self.woken, 4096)
                    self._tell()
                elif key.fileobj is self.listener:
                    self._accept()
                elif (program := self._answer(key.fileobj)) is not None:
                    return program
        return lambda: None

    def _accept(self) -> None:
        client = self.listener.accept()[0]
        if _credentials(client)[1] == os.geteuid():
            self.ready.register(client, selectors.EVENT_READ)
        else:
            client.close()

    def _answer(self, client: Any) -> Callable[[], Any] | None:
        received = _receive(client)
        if received is None:
            self._leave(client)
            return None
        asked, descriptors = received
        why = why_not(asked, self.env) if len(descriptors) == 4 else "its files were not passed along"
        if why is not None:
            self._note(f"not forked: {why}")
            pid = REFUSED
        elif (pid := self._fork()) == 0:
            asker = _credentials(client)[0]
            for key in self.ready.get_map().values():
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.detach()  # closed with all others; the object must not close the number again
            self.ready.close()
            return _become(asked, descriptors, asker, self.pid)
        elif pid != FAILED:
            self.running[pid] = _Child(descriptors.pop(), client, asked.signal)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # its end is seen at the next turn
            client.sendall(HEAD.pack(pid))
        return None

    def _fork(self) -> int:
        """Fork; `FAILED` where there is no room for one more process now: those that run must not end by it."""
        try:
            return os.fork()
        except OSError as error:
            self._note(f"a process could not be forked: {error.strerror}")
            return FAILED

    def _note(self, text: str) -> None:
        """Say something in the log, once."""
        if text not in self.said:
            self.said.add(text)
            print(text, file=sys.stderr, flush=True)

    def _leave(self, client: socket.socket) -> None:
        """End the processes of an asker that has ended. None of them is reaped yet: their numbers are theirs."""
        self.ready.unregister(client)
        client.close()
        for pid, child in self.running.items():
            if child.client is client:
                os.kill(pid, child.signal)

    def _tell(self) -> None:
        while self.running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self.running.pop(pid)
            with contextlib.suppress(OSError):
                os.write(child.told, HEAD.pack(status))
            os.close(child.told)

    def _end(self) -> None:
        """The owner is gone: so are its connections, and what it asked for has its signal. Who was started goes on."""
        self.ready.unregister(self.owner)
        self.ready.unregister(self.listener)
        self.ending = True
        remove(Path(self.listener.getsockname()).parent)


def _credentials(client: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other side."""
    pid, user, group = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user, group


def _receive(client: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """A request with its descriptors; None when the other side has ended."""
    descriptors: list[int] = []
    try:
        head, rights, _, _ = client.recvmsg(HEAD.size, socket.CMSG_SPACE(16))
        descriptors = [number for right in rights for number in array.array("i", right[2])]
        data = exactly(client, HEAD.unpack(head)[0]) if len(head) == HEAD.size else b""
        return decode(data, ForkRequest), descriptors
    except (OSError, EOFError, msgspec.DecodeError):
        for descriptor in descriptors:
            os.close(descriptor)
        return None


def exactly(source: socket.socket, size: int) -> bytes:
    """Read so many bytes from a socket; raises `EOFError` when the other side ends before."""
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError("the other side has ended")
        data += more
    return data


def _become(asked: ForkRequest, descriptors: list[int], asker: int, parent: int) -> Callable[[], Any]:
    """Make this forked process what a fresh one would be; returns its program."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    libc = ctypes.CDLL(None)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked for the signal
        os._exit(1)
    os.setsid()
    _join_mounts(asker)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (asked.open_files, limit))
    if (mask := child_umask()) >= 0:
        os.umask(mask)
    os.chdir(asked.cwd)
    add_folders(added_folders(asked.env.get(_PATH, ""), os.environ.get(_PATH, "")) or [])
    os.environ.clear()
    os.environ.update(asked.env)
    if asked.signal != signal.SIGKILL:
        mark = os.urandom(16).hex()
        death_signal.guard(asker, mark)
        os.environ[death_signal.MARK] = mark
    os.environ.pop(death_signal.ORPHANED, None)
    sys.dont_write_bytecode = bool(asked.env.get(_NO_BYTECODE))
    program, *arguments = asked.argv
    sys.argv = [Path(program).name, *arguments]
    libc.prctl(_SET_NAME, Path(program).name.encode())
    if arguments[0] != "-m":
        sys.path.insert(0, str(Path(program).parent))
        return _HARBOR
    sys.argv = arguments[1:]
    sys.path.insert(0, asked.cwd)
    return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True) and None


def _join_mounts(asker: int) -> None:
    """Have the mounts of the process that asked, which may have made some of its own; as far as the kernel lets us."""
    theirs, own = Path(f"/proc/{asker}/ns/mnt"), Path("/proc/self/ns/mnt")
    with contextlib.suppress(OSError), theirs.open("rb") as file:  # where it has ended, so will this process
        if not theirs.samefile(own):
            os.setns(file.fileno(), os.CLONE_NEWNS)


def _run(program: Callable[[], Any]) -> NoReturn:
    try:
        code = program()
    except SystemExit as error:
        code = error.code
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


_PREFIX = "tbench-loaded"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-\w+")
_SOCKET = "socket"


def make_socket_folder() -> Path:
    """A folder of this user alone, with a short path, as a socket needs; those that dead processes left are removed."""
    sweep()
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{pid}-{start_ticks(pid) or 0}-"))


def socket_in(folder: Path) -> Path:
    """The socket of a folder."""
    return folder / _SOCKET


def remove(folder: Path) -> None:
    """Take away a folder and its socket; one that holds something else stays."""
    with contextlib.suppress(OSError):
        socket_in(folder).unlink(missing_ok=True)
        folder.rmdir()


def sweep() -> None:
    """Take away the folders that nobody uses any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*"):
        if _left_behind(folder):
            remove(folder)


def _left_behind(folder: Path) -> bool:
    named = _NAME.fullmatch(folder.name)
    try:
        about = folder.lstat()
        others = [entry.name for entry in folder.iterdir() if entry.name != _SOCKET]
    except OSError:
        return False
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    if named is None or not ours or others or start_ticks(int(named[1])) == int(named[2]):
        return False
    return not _listens(socket_in(folder))


def _listens(address: Path) -> bool:
    """Return whether a process answers there: also one that this process cannot see, as in another container."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True


if __name__ == "__main__":
    gc.disable()  # what is loaded stays
    _HARBOR = load()
    for name in sys.argv[3:]:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        sys.exit("a loaded module has started a thread, so forks would not be safe")
    gc.freeze()  # a forked process would copy each page that a collection looks at; loading leaves next to no garbage
    gc.enable()
    _run(_ForkServer(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve())
