"""The overseer of the tests: what they run of the agent's work is confined, without their help.

It is told of every program that a process of the tests is about to execute. One of the work's (`whose`) is confined
before its first step, with all that it starts: it may write nowhere but in the work, neither trace nor signal the
tests, nor read their sources and what they expect, unless it is handed something of theirs. Those that ask are trusted,
so what they say is what they do; whoever is confined stays so, whatever it executes.

Such a program has the home of its account, which is the agent's; that of the tests is theirs. Builds keep the latter,
for what the tests have installed there, and may write its caches.

It also makes the changes of modes, owners, times and attributes that confined programs ask for, where these are theirs
to make: Landlock does not judge them. So it does for the programs that the tests run by `$TBENCH_RUN_PROGRAM`.
"""

# ruff: noqa: PTH208

import contextlib
import errno
import mmap
import os
import re
import select
import struct
import time
from typing import Any

from terminalbench.sandbox import run_program
from terminalbench.sandbox.engine import inside, kernel, metadata, notices, proc
from terminalbench.sandbox.engine.notices import Memory, SeccompListener, SyscallNotice
from terminalbench.sandbox.engine.whose import FileOwnership, is_builder, is_shell, is_work

_EXECS = {"x86_64": {59: "execve", 322: "execveat"}, "aarch64": {221: "execve", 281: "execveat"}}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CLOSE = {"x86_64": 3, "aarch64": 57}
CACHES = (".cache", ".npm", ".cargo", ".m2", ".gradle", "go")
"""Folders in the tests' home that a build needs, and that lead no other program astray."""
_SHARED = ("proc", "dev", "run")
"""Folders that come with every sandbox, of which programs of the work write parts."""
_COUNTS = struct.Struct("=3I")
_ASKED_FOR = re.compile(
    r"(?:(?:run[_-]?)?tests?|checks?|verif\w*|grad\w*)\.(?:sh|py)|conftest\.py|test[_-].*\.\w+|.*[_.-](?:test|spec)\.\w+|"
    r".*(?:expected|golden|solution|answer|oracle|ground[_-]?truth).*"
)
"""Names in the tests' folder of what says which answers are right."""


def watched() -> tuple[int, ...]:
    """The calls that the overseer is asked about; none where it cannot do its work."""
    machine = os.uname().machine
    if machine not in _EXECS or run_program.landlock_version() < 1:
        return ()
    return (*_EXECS[machine], *metadata.numbers())


class Overseer:
    """An overseer that runs: how many programs it has confined, and how many it could not."""

    def __init__(self) -> None:
        self._counts = mmap.mmap(-1, mmap.PAGESIZE)

    def counts(self) -> tuple[int, ...]:
        """Return how many programs are confined, how many could not be, and how many of the first could read the
        tests."""
        return _COUNTS.unpack_from(self._counts)

    def start(self, listener: int, pidfd: int, about: dict[str, Any], usual_filters: int) -> None:
        """Fork it. It ends when all those are gone that it oversees."""
        if os.fork() != 0:
            return
        try:
            kernel.set_name("tbench-overseer")
            kernel.die_with_parent()
            inside.close_others(listener, pidfd)
            root = os.open(f"/proc/{proc.pid_of(pidfd)}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            _NoticeDesk(listener, root, about, usual_filters, self._counts).serve()
        finally:
            os._exit(0)


class _NoticeDesk:
    """Answers the notices of one listener."""

    def __init__(self, listener: int, root: int, about: dict[str, Any], usual: int, counts: mmap.mmap) -> None:
        self._listener, self._root, self._usual, self._counts = SeccompListener(listener), root, usual, counts
        self._machine, self._began = os.uname().machine, time.time()
        self._changes = metadata.numbers()
        self._ground = FileOwnership(
            frozenset(about["system"]), about["tests"].strip("/"), about["logs"].strip("/"), self._exists, self._is_made
        )
        self._own_home, self._home = about["own_home"], about["home"]
        self._rules: dict[bool, tuple[object, int]] = {}

    def serve(self) -> None:
        """Serve until nobody is left who could ask."""
        poll = select.poll()
        poll.register(self._listener.handle, select.POLLIN)
        while not poll.poll()[0][1] & select.POLLHUP:
            notice = self._listener.take()
            if notice is None:
                continue
            try:
                self._answer(notice)
            except Exception:  # noqa: BLE001 - without an answer every call of the tests would fail from now on
                self._count(1)
                with contextlib.suppress(OSError):
                    self._listener.proceed(notice)

    def _answer(self, notice: SyscallNotice) -> None:
        if notice.number in self._changes:
            self._change(notice)
        elif proc.filters(notice.pid) <= self._usual and (found := self._work(notice)) is not None:
            self._confine(notice, *found)
        else:
            self._listener.proceed(notice)

    def _work(self, notice: SyscallNotice) -> tuple[str, bool] | None:
        """The program of the work that is to be executed, and whether it may read the tests; None if it is theirs."""
        with contextlib.suppress(OSError, ValueError), Memory(notice.pid) as memory:
            at = _EXECS[self._machine][notice.number] == "execveat"
            path = memory.text(notice.arguments[1 if at else 0])
            words = [os.fsdecode(one) for one in memory.texts(notice.arguments[2 if at else 1])]
            folder = os.readlink(f"/proc/{notice.pid}/cwd")  # noqa: PTH115
            if at and not path.startswith(b"/"):
                return None  # tests do not do so
            handle = metadata.open_in(self._root, os.path.join(os.fsencode(folder), path))  # noqa: PTH118
            try:
                program, caller = metadata.place_of(handle), os.fsdecode(proc.read(f"/proc/{notice.pid}/comm").strip())
                own = is_work(program, words, folder, caller, self._ground, _input_of(notice.pid))
                handed = any(f"/{self._ground.tests}" in one for one in words) or self._ground.is_tests(folder)
                return (program, handed or is_builder(program) or is_shell(program)) if own else None
            finally:
                os.close(handle)
        return None

    def _exists(self, path: str) -> bool:
        try:
            os.close(metadata.open_in(self._root, path))
        except (OSError, ValueError):
            return False
        return True

    def _is_made(self, program: str) -> bool:
        """Return whether a program is in a virtual environment that is newer than the overseer."""
        with contextlib.suppress(OSError):
            handle = metadata.open_in(self._root, f"{program.rsplit('/', 2)[0]}/pyvenv.cfg")
            try:
                return os.fstat(handle).st_ctime >= self._began
            finally:
                os.close(handle)
        return False

    def _confine(self, notice: SyscallNotice, program: str, reads_tests: bool) -> None:
        tracee, held = None, None
        try:
            held = self._listener.hand(notice, self._ruleset(reads_tests=reads_tests))
            tracee = notices.Tracee(notice.pid)
        except OSError:  # it is traced by another, or gone
            held = None
        if not self._listener.proceed(notice):
            return
        if tracee is None or held is None:
            self._count(1)
            return
        try:
            if tracee.executes():
                self._count(0 if self._restrict(tracee, held) else 1)
                if reads_tests:
                    self._count(2)
                if not is_builder(program) and not program.startswith(f"{self._own_home}/"):
                    tracee.set_variable("HOME", self._own_home, self._home)
        except notices.TraceeGone:
            return
        except OSError:
            self._count(1)
        tracee.release()

    def _restrict(self, tracee: notices.Tracee, ruleset: int) -> bool:
        closed = [ruleset, *self._handles_of_tests(tracee.pid)]
        calls = [(446, ruleset, 0), (_SECCOMP[self._machine], 1, 0, -1)]
        calls += [(_CLOSE[self._machine], handle) for handle in closed]
        return not any(tracee.make(calls, run_program.mark_program))

    def _handles_of_tests(self, pid: int) -> list[int]:
        """Return what it was left of the tests' files by which it could write to them; not its standard streams."""
        found = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError):
                text = proc.read(f"/proc/{pid}/fdinfo/{name}")
                writes = int(text.partition(b"flags:")[2].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY
                if int(name) > 2 and writes and self._ground.is_tests(os.readlink(f"/proc/{pid}/fd/{name}")):  # noqa: PTH115
                    found.append(int(name))
        return found

    def _count(self, which: int) -> None:
        counts = list(_COUNTS.unpack_from(self._counts))
        counts[which] += 1
        _COUNTS.pack_into(self._counts, 0, *counts)

    def _ruleset(self, *, reads_tests: bool) -> int:
        """Return what a confined program may do; made anew when the root or the tests' folder holds others than
        before."""
        handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
        try:
            names = [(entry.name, entry.inode()) for entry in os.scandir(handle)]
        finally:
            os.close(handle)
        seen = (names, () if reads_tests else sorted(self._list(self._ground.tests)))
        known = self._rules.get(reads_tests)
        if known is None or known[0] != seen:
            if known is not None:
                os.close(known[1])
            places, judged = self._writable([name for name, _ in names]), run_program.WRITES
            if not reads_tests:
                judged |= run_program.READ_FILE
                places += [rule for name, _ in names for rule in self._readable(name)]
            self._rules[reads_tests] = seen, run_program.make_ruleset(sorted(places), judged, self._root)
        return self._rules[reads_tests][1]

    def _readable(self, path: str) -> list[tuple[str, int]]:
        """A folder; of the tests' own those parts that say nothing of the answers."""
        tests = self._ground.tests
        inside = f"{path}/".startswith(f"{tests}/")
        if inside and path != tests and _ASKED_FOR.fullmatch(path.rpartition("/")[2].lower()):
            return []
        if inside or tests.startswith(f"{path}/"):
            parts = self._list(path)
            return [rule for name in parts for rule in self._readable(f"{path}/{name}")] if parts else self._of(path)
        return self._of(path)

    def _of(self, path: str) -> list[tuple[str, int]]:
        return [(path, run_program.READ_FILE)]

    def _writable(self, names: list[str]) -> list[tuple[str, int]]:
        found = [(f"{self._own_home.strip('/')}/{name}", run_program.WRITES) for name in CACHES]
        found += [(name, run_program.WRITES) for name in _SHARED if name in names]
        for name in names:
            if name not in (*_SHARED, "sys"):
                found += self._outside_system(name)
        return found

    def _outside_system(self, path: str) -> list[tuple[str, int]]:
        """A folder, or of one that holds some of the system's those parts that do not."""
        if path in self._ground.system:
            return []
        inner = [one for one in self._ground.system if one.startswith(f"{path}/") and not one.startswith("var/")]
        if not inner:
            return [(path, run_program.WRITES)]
        return [rule for name in self._list(path) for rule in self._outside_system(f"{path}/{name}")]

    def _list(self, path: str) -> list[str]:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)
            try:
                return os.listdir(handle)
            finally:
                os.close(handle)
        return []

    def _change(self, notice: SyscallNotice) -> None:
        """Make a change in the place of a confined program, if the file is not the tests' or the system's."""
        if proc.filters(notice.pid) <= self._usual:
            self._listener.proceed(notice)
            return
        try:
            change = metadata.asked(notice, self._changes[notice.number], self._root)
        except (OSError, OverflowError, ValueError) as error:
            self._listener.finish(notice, getattr(error, "errno", None) or errno.EINVAL)
            return
        try:
            place = metadata.place_of(change.handle)
            if place.startswith("/") and not self._ground.is_work(place) and not place.startswith(("/dev/", "/run/")):
                raise PermissionError(errno.EPERM, place)
            change.make(notice.pid)
            code = 0
        except OSError as error:
            code = error.errno or errno.EPERM
        finally:
            os.close(change.handle)
        self._listener.finish(notice, code)


def _input_of(pid: int) -> str:
    """The file that is a process's standard input; none for a pipe, or for what has no name: a document in a script."""
    with contextlib.suppress(OSError):
        path = os.readlink(f"/proc/{pid}/fd/0")  # noqa: PTH115
        return path if path.startswith("/") and not path.endswith(" (deleted)") else ""
    return ""
