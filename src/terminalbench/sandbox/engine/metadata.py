"""Changes of a file's mode, owner, times and attributes, made in the place of a confined program.

Landlock does not judge these. They are made here, on the very file that was looked at, with the rights of the caller's
user: what the program has in its memory meanwhile is of no importance.
"""

# ruff: noqa: PTH101, PTH115

import ctypes
import errno
import os
import posixpath
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from terminalbench.sandbox.engine import proc
from terminalbench.sandbox.engine.notices import Memory, SyscallNotice

# Name, number on x86_64, number on aarch64; 0 where the architecture has no such call.
_CALLS = """
    chmod 90 0, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 0, fchown 93 55, lchown 94 0,
    fchownat 260 54, utime 132 0, utimes 235 0, futimesat 261 0, utimensat 280 88, setxattr 188 5, lsetxattr 189 6,
    fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, setxattrat 463 463,
    removexattrat 466 466, file_setattr 469 469
"""
_COLUMNS = {"x86_64": 1, "aarch64": 2}
_HERE, _NO_FOLLOW, _EMPTY_PATH = -100 & 0xFFFFFFFF, 0x100, 0x1000
_OPENAT2, _IN_ROOT = 437, 0x10
_LARGEST_VALUE = 1 << 16
_OWN_FILE = re.compile(rb"/proc/(?:thread-)?self/fd/(\d{1,9})")
_ATTRIBUTES = (b"user.", b"system.posix_acl_")

_libc = ctypes.CDLL(None, use_errno=True)


def numbers() -> dict[int, str]:
    """The names of these calls by their numbers on this machine."""
    column = _COLUMNS[os.uname().machine]
    found = (fields.split() for fields in _CALLS.split(","))
    return {int(fields[column]): fields[0] for fields in found if int(fields[column])}


def open_in(root: int, path: bytes | str, *, follow: bool = True) -> int:
    """A handle of `path` as a process sees it whose root folder is open as `root`; raises OSError."""
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    how = ctypes.create_string_buffer(struct.pack("=QQQ", flags, 0, _IN_ROOT))
    handle = _libc.syscall(_OPENAT2, root, ctypes.c_char_p(os.fsencode(path)), how, 24)
    if handle < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return handle


def place_of(handle: int) -> str:
    """Return where an open file is, seen from the root folder that it was found by."""
    return os.readlink(f"/proc/self/fd/{handle}")


class MetadataCall(NamedTuple):
    """What a call is to do to a file that is open here."""

    handle: int
    apply: Callable[[int], None]

    def make(self, pid: int) -> None:
        """Make it as the user that the process `pid` is."""
        status = proc.read(f"/proc/{pid}/status")
        uid, gid = (int(status.partition(name)[2].split()[3]) for name in (b"\nUid:", b"\nGid:"))
        try:
            _libc.setfsgid(gid)
            _libc.setfsuid(uid)
            self.apply(self.handle)
        finally:
            _libc.setfsuid(os.geteuid())
            _libc.setfsgid(os.getegid())


def asked(notice: SyscallNotice, name: str, root: int) -> MetadataCall:
    """The change that a call asks for; raises OSError with which the call is to fail."""
    if name.endswith("xattrat") or name == "file_setattr":
        raise OSError(errno.ENOSYS, name)  # as before these calls were: everybody knows the older ones
    with Memory(notice.pid) as memory:
        handle, rest = _target(notice, name, root, memory)
        try:
            return MetadataCall(handle, _work(name, rest, memory))
        except BaseException:
            os.close(handle)
            raise


def _target(notice: SyscallNotice, name: str, root: int, memory: Memory) -> tuple[int, tuple[int, ...]]:
    """The file that is meant, open, and the arguments after it."""
    first, second, *_ = notice.arguments
    if name in ("fchmod", "fchown", "fsetxattr", "fremovexattr"):
        return _open_number(notice.pid, first), notice.arguments[1:]
    if not name.endswith(("at", "at2")):
        return _open(notice.pid, root, _HERE, memory.text(first), follow=name[0] != "l"), notice.arguments[1:]
    flags = {"fchmodat2": 3, "fchownat": 4, "utimensat": 3}.get(name)
    given = notice.arguments[flags] if flags is not None else 0
    path = memory.text(second) if second else b""
    if not path and ((name in ("utimensat", "futimesat") and not second) or given & _EMPTY_PATH):
        return _open_number(notice.pid, first), notice.arguments[2:]
    return _open(notice.pid, root, first, path, follow=not given & _NO_FOLLOW), notice.arguments[2:]


def _open_number(pid: int, number: int) -> int:
    return os.open(f"/proc/{pid}/fd/{number & 0x7FFFFFFF}", os.O_PATH | os.O_CLOEXEC)


def _open(pid: int, root: int, folder: int, path: bytes, *, follow: bool) -> int:
    if not path:
        raise OSError(errno.ENOENT, "no path")
    if not path.startswith(b"/"):
        number = "cwd" if folder & 0xFFFFFFFF == _HERE else f"fd/{folder & 0x7FFFFFFF}"
        path = posixpath.join(os.readlink(os.fsencode(f"/proc/{pid}/{number}")), path)
    own = _OWN_FILE.fullmatch(path)
    if own:  # as C libraries do it for calls that a kernel does not have
        return _open_number(pid, int(own[1]))
    if path.startswith((b"/proc/self", b"/proc/thread-self")):
        raise OSError(errno.EACCES, "it would lead to ourselves")
    return open_in(root, path, follow=follow)


def _work(name: str, rest: tuple[int, ...], memory: Memory) -> Callable[[int], None]:
    if "chmod" in name:
        return lambda handle: os.chmod(f"/proc/self/fd/{handle}", rest[0] & 0o7777)
    if "chown" in name:
        owner, group = (ctypes.c_int(part & 0xFFFFFFFF) for part in rest[:2])
        return lambda handle: _check(_libc.fchownat(handle, b"", owner, group, _EMPTY_PATH))
    if "utime" in name:
        times = _times(name, rest[0], memory)
        return lambda handle: _check(_libc.utimensat(handle, b"", times, _EMPTY_PATH))
    key = memory.text(rest[0])
    if not key.startswith(_ATTRIBUTES):
        raise OSError(errno.EOPNOTSUPP, name)
    if "remove" in name:
        return lambda handle: os.removexattr(f"/proc/self/fd/{handle}", key)
    if rest[2] > _LARGEST_VALUE:
        raise OSError(errno.E2BIG, name)
    value, flags = memory.read(rest[1], rest[2]), rest[3] & 3
    return lambda handle: os.setxattr(f"/proc/self/fd/{handle}", key, value, flags)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")


def _times(name: str, address: int, memory: Memory) -> bytes | None:
    """The two times in memory as the kernel takes them (seconds, nanoseconds); None: now."""
    if not address:
        return None
    if name == "utimensat":
        return memory.read(address, 32)
    if name == "utime":
        first, second = struct.unpack("=2q", memory.read(address, 16))
        return struct.pack("=4q", first, 0, second, 0)
    values = struct.unpack("=4q", memory.read(address, 32))  # microseconds
    return struct.pack("=4q", values[0], values[1] * 1000, values[2], values[3] * 1000)
