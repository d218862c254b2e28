"""System calls that wait for our word: the kernel's notifications of a filter (`SECCOMP_RET_USER_NOTIF`).

The process that installs the filter hands out its listener; who holds that is asked about each call. Whoever may still
be changed by the caller's other threads (a path in memory, the file behind a descriptor) is judged safely only if the
call is then made in the caller's place, or if the caller is trusted.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_RECEIVE, _ANSWER, _HAND = 0xC0502100, 0xC0182101, 0x40182103
_NOTICE = struct.Struct("=QIIiIQ6Q")
_CONTINUE = 1
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_LONGEST = 4096
_MOST_ARGUMENTS = 1000

_libc = ctypes.CDLL(None, use_errno=True)


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
