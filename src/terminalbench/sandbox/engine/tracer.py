"""Making system calls in the place of a process that has just executed a program, before the program's first step.

So a program is confined that knows nothing of it, by calls that only the process itself can make. The process is
traced for this moment alone.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from terminalbench.sandbox.engine import proc
from terminalbench.sandbox.engine.notices import Memory

_SEIZE, _INTERRUPT, _GET_REGISTERS, _SET_REGISTERS = 0x4206, 0x4207, 0x4204, 0x4205
_CONTINUE, _DETACH, _TO_SYSCALL = 7, 17, 24
_STATUS = 1
_OPTIONS = 1 | 1 << 4  # tell system calls from signals; tell of an exec
_EXEC, _STOP, _SYSCALL = 4, 128, signal.SIGTRAP | 0x80
_ALL_KINDS = 0x40000000  # __WALL
_MOST_STOPS = 100
_BELOW_STACK = 4096
_ENVIRONMENT = 47  # of what follows the name in /proc/PID/stat


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

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


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
                self._call(_CONTINUE, data=number)
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
                self._call(_CONTINUE)
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
            self._call(_CONTINUE)
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
