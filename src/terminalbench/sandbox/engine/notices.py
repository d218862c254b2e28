"""System calls that wait for our word: the kernel's notifications of a filter (`SECCOMP_RET_USER_NOTIF`).

The process that installs the filter hands out its listener; who holds that is asked about each call. Whoever may still
be changed by the caller's other threads (a path in memory, the file behind a descriptor) is judged safely only if the
call is then made in the caller's place, or if the caller is trusted.

And system calls that are made in the place of a process which has just executed a program, before the program's first
step: so it is confined and knows nothing of it. The process is traced for this moment alone.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from terminalbench.sandbox.engine import proc

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _ANSWER, _HAND = 0xC0502100, 0xC0182101, 0x40182103
_NOTICE = struct.Struct("=QIIiIQ6Q")
_CONTINUE = 1
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_LONGEST = 4096
_MOST_ARGUMENTS = 1000

_libc = ctypes.CDLL(None, use_errno=True)

_SEIZE, _INTERRUPT, _GET_REGISTERS, _SET_REGISTERS = 0x4206, 0x4207, 0x4204, 0x4205
_RESUME, _DETACH, _TO_SYSCALL = 7, 17, 24
_STATUS = 1
_OPTIONS = 1 | 1 << 4  # tell system calls from signals; tell of an exec
_EXEC, _STOP, _SYSCALL = 4, 128, signal.SIGTRAP | 0x80
_ALL_KINDS = 0x40000000  # __WALL
_MOST_STOPS = 100
_BELOW_STACK = 4096
_ENVIRONMENT = 47  # of what follows the name in /proc/PID/stat
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


class SyscallNotice(NamedTuple):
    """A system call that waits: which one, of which thread, with which arguments."""

    key: int
    pid: int
    number: int
    arguments: tuple[int, ...]


def listen(numbers: Sequence[int]) -> int:
    """Have these calls of this process, and of all that it starts, wait for who holds the listener that is returned."""
    if not numbers:
        raise OSError(errno.ENOSYS, "nothing to listen to")
    steps = [(0x20, 0, 0, 0)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (6, 0, 0, _NOTIFY)]
    steps.append((6, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):  # the first since Linux 5.19
        handle = _libc.syscall(_SECCOMP[os.uname().machine], _SET_FILTER, flags, program)
        if handle >= 0:
            return handle
    raise OSError(ctypes.get_errno(), "no listener for system calls")


class SeccompListener:
    """Where notices come in, and answers go out."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def take(self) -> SyscallNotice | None:
        """The next notice; None if its caller is gone by now."""
        data = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self.handle, _RECEIVE, data, True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        key, pid, _, number, _, _, *arguments = _NOTICE.unpack(data)
        return SyscallNotice(key, pid, number, tuple(arguments))

    def proceed(self, notice: SyscallNotice) -> bool:
        """Let the call be made; False if its caller is gone."""
        return self._answer(notice, 0, _CONTINUE)

    def finish(self, notice: SyscallNotice, error: int = 0) -> bool:
        """The call has been made in the caller's place: it returns 0, or fails with `error`."""
        return self._answer(notice, -error, 0)

    def _answer(self, notice: SyscallNotice, error: int, flags: int) -> bool:
        try:
            fcntl.ioctl(self.handle, _ANSWER, struct.pack("=QqiI", notice.key, 0, error, flags))
        except OSError as problem:
            if problem.errno == errno.ENOENT:
                return False
            raise
        return True

    def hand(self, notice: SyscallNotice, handle: int) -> int:
        """Give the caller a descriptor, which stays open when it executes a program; returns its number there."""
        return fcntl.ioctl(self.handle, _HAND, bytearray(struct.pack("=QIIII", notice.key, 0, handle, 0, 0)), True)


class Memory:
    """The memory of a process, as far as it can be read; close it."""

    def __init__(self, pid: int) -> None:
        self.handle = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    def text(self, address: int) -> bytes:
        """The bytes up to a zero; of very long ones the start."""
        found = b""
        while len(found) < _LONGEST:
            size = min(256, _LONGEST - len(found), 4096 - (address + len(found)) % 4096)
            with contextlib.suppress(OSError):
                chunk, zero, _ = os.pread(self.handle, size, address + len(found)).partition(b"\0")
                found += chunk
                if not zero and chunk:
                    continue
            break
        return found

    def texts(self, address: int) -> list[bytes]:
        """Return what a list of addresses, which ends with a zero, points to."""
        found = list[bytes]()
        while len(found) < _MOST_ARGUMENTS:
            data = os.pread(self.handle, 8, address + 8 * len(found))
            pointer = struct.unpack("=Q", data)[0] if len(data) == 8 else 0
            if not pointer:
                break
            found.append(self.text(pointer))
        return found

    def read(self, address: int, size: int) -> bytes:
        """Read so many bytes."""
        return os.pread(self.handle, size, address)

    def write(self, address: int, data: bytes) -> None:
        """Write, also where the process itself may not."""
        if os.pwrite(self.handle, data, address) != len(data):
            raise OSError(errno.EFAULT, "cannot write to the process's memory")


class _RegisterLayout(NamedTuple):
    """Registers by their place, and the instructions for a system call and a stop after it."""

    count: int
    number: int
    arguments: tuple[int, ...]
    result: int
    counter: int
    stack: int
    code: bytes
    reset: dict[int, int]


_MACHINES = {
    "x86_64": _RegisterLayout(27, 10, (14, 13, 12, 7, 8, 9), 10, 16, 19, b"\x0f\x05\xcc", {15: (1 << 64) - 1}),
    "aarch64": _RegisterLayout(
        34, 8, (0, 1, 2, 3, 4, 5), 0, 32, 31, struct.pack("<II", 0xD4000001, 0xD4200000), {7: 0}
    ),
}


class TraceeGone(Exception):
    """The process has ended meanwhile."""


class Tracee:
    """A process that is about to execute a program, and waits for our word to do so."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where it cannot be traced, as by a tracer of its own."""
        self.pid = pid
        self._machine = _MACHINES[os.uname().machine]
        self._signals: list[int] = []
        self._call(_SEIZE, data=_OPTIONS)

    def executes(self) -> bool:
        """Wait until it has executed the program, which it now may: False if it could not."""
        try:
            self._call(_INTERRUPT)  # it stops in any case: at the exec, or when that has failed
            for _ in range(_MOST_STOPS):
                event, number = self._wait()
                if event == _EXEC:
                    self._call(_TO_SYSCALL)
                    while self._wait()[1] != _SYSCALL:  # only there are its registers its own
                        self._call(_TO_SYSCALL)
                    return True
                if event == _STOP:
                    return False
                self._call(_RESUME, data=number)
        except ProcessLookupError:
            raise TraceeGone from None
        raise TraceeGone

    def make(self, calls: Sequence[Sequence[int]], data: Callable[[int], bytes]) -> list[int]:
        """Make these calls (number, arguments...) in its place; what each returned.

        `data`, made for its address, is put below its stack; an argument of -1 becomes that address.
        """
        machine, size = self._machine, 8 * self._machine.count
        buffer = ctypes.create_string_buffer(size)
        about = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(buffer), size))
        self._call(_GET_REGISTERS, _STATUS, ctypes.addressof(about))
        if struct.unpack_from("@PN", about.raw)[1] != size:
            raise OSError(errno.ENOEXEC, "a program for another machine")
        found = struct.unpack(f"={machine.count}Q", buffer.raw)
        before = [machine.reset.get(place, value) for place, value in enumerate(found)]
        counter, address = before[machine.counter], (before[machine.stack] - _BELOW_STACK) & ~15
        results = []
        with Memory(self.pid) as memory:
            code = memory.read(counter, len(machine.code))
            memory.write(address, data(address))
            memory.write(counter, machine.code)
            for number, *arguments in calls:
                wanted = list(before)
                wanted[machine.number] = number
                for register, value in zip(machine.arguments, arguments, strict=False):
                    wanted[register] = address if value == -1 else value
                self._set(buffer, about, wanted)
                self._call(_RESUME)
                self._until_trap()
                self._call(_GET_REGISTERS, _STATUS, ctypes.addressof(about))
                results.append(struct.unpack_from("=q", buffer.raw, 8 * machine.result)[0])
            memory.write(counter, code)
        self._set(buffer, about, before)
        return results

    def set_variable(self, name: str, old: str, new: str) -> None:
        """Give a variable of its environment another value, if it has the `old` one, and the new one is no longer."""
        before, after = (f"{name}={value}\0".encode() for value in (old, new))
        if len(after) > len(before):
            return
        fields = proc.read(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()
        if len(fields) <= _ENVIRONMENT + 1:
            return
        start, end = (int(field) for field in fields[_ENVIRONMENT : _ENVIRONMENT + 2])
        with Memory(self.pid) as memory:
            place = (b"\0" + memory.read(start, end - start)).find(b"\0" + before)
            if place >= 0:
                memory.write(start + place, after)

    def _set(
        self, buffer: "ctypes.Array[ctypes.c_char]", about: "ctypes.Array[ctypes.c_char]", all_: list[int]
    ) -> None:
        buffer.raw = struct.pack(f"={self._machine.count}Q", *all_)
        self._call(_SET_REGISTERS, _STATUS, ctypes.addressof(about))

    def _until_trap(self) -> None:
        for _ in range(_MOST_STOPS):
            event, number = self._wait()
            if not event and number == signal.SIGTRAP:
                return
            if not event:
                self._signals.append(number)
            self._call(_RESUME)
        raise TraceeGone

    def release(self) -> None:
        """Let it go on, with the signals that came meanwhile."""
        try:
            self._call(_DETACH)
            for number in self._signals:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _wait(self) -> tuple[int, int]:
        """Its next stop: of which event (0: none), by which signal."""
        _, status = os.waitpid(self.pid, _ALL_KINDS)
        if not os.WIFSTOPPED(status):
            raise TraceeGone
        return status >> 16, os.WSTOPSIG(status)

    def _call(self, request: int, address: int = 0, data: int = 0) -> None:
        if _ptrace(request, self.pid, address, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"ptrace {request:#x}: {os.strerror(number)}")
