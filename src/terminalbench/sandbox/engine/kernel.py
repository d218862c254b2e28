"""System calls that Python's `os` lacks: mounts, capabilities, process controls, seccomp.

The first step of each helper loads this and no more, so it imports next to nothing itself.
"""

# ruff: noqa: PTH123

import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 32, 1024, 2048, 4096, 16384
MS_SLAVE, MS_RELATIME = 1 << 19, 1 << 21

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP = 22, 23, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
SECCOMP_MODE_FILTER = 2

CAP_SYS_ADMIN, CAP_WAKE_ALARM = 21, 35
OTHER_USER = 65534
_CAP_VERSION_3 = 0x20080522
_SIGKILL = 9

# Docker's default set without MKNOD: no device can be made in a user namespace anyway.
ALLOWED_CAPABILITIES = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "net_raw": 13,
    "sys_chroot": 18,
    "audit_write": 29,
    "setfcap": 31,
}

_libc = ctypes.CDLL(None, use_errno=True)
_mount = _libc.mount
_mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_umount2 = _libc.umount2
_umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_capset = _libc.capset
_setfsuid, _setfsgid = _libc.setfsuid, _libc.setfsgid


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def write(path: str, text: str, folder: int | None = None) -> None:
    """Write to a file of the kernel (below the open `folder`) in one call; raises OSError, which names the file, when
    it refuses."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(handle, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(handle)


def unshare(flags: int) -> None:
    """unshare(2); the error names it, since its number alone says "No space left on device" of a limit."""
    try:
        os.unshare(flags)
    except OSError as error:
        raise OSError(error.errno, f"unshare {flags:#x}: {error.strerror}") from None


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    encoded = [os.fsencode(text) if text is not None else None for text in (source, target, kind, options)]
    _check(_mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]), f"mount {kind or source} on {target}")


def umount(target: str) -> None:
    """Detach what is mounted on `target`."""
    _check(_umount2(os.fsencode(target), 2), f"umount {target}")


def bind_read_only(path: str) -> None:
    """Mount `path` over itself, read-only."""
    mount(path, path, None, MS_BIND)
    make_read_only(path)


def make_read_only(path: str) -> None:
    """Make what is mounted on `path` read-only there, keeping its other flags."""
    status = os.statvfs(path).f_flag
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY
    for bit, flag in (
        (os.ST_NOSUID, MS_NOSUID),
        (os.ST_NODEV, MS_NODEV),
        (os.ST_NOEXEC, MS_NOEXEC),
        (os.ST_NOATIME, MS_NOATIME),
        (os.ST_NODIRATIME, MS_NODIRATIME),
        (os.ST_RELATIME, MS_RELATIME),
    ):
        flags |= flag if status & bit else 0
    mount(None, path, None, flags)


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """prctl(2) with integer arguments."""
    _check(_prctl(option, first, second, 0, 0), f"prctl {option}")


def set_name(name: str) -> None:
    """Set what `ps` shows for this process."""
    text = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(PR_SET_NAME, ctypes.addressof(text), 0, 0, 0)


def hide_memory() -> None:
    """Let no process without CAP_SYS_PTRACE look into this one (until its next exec)."""
    prctl(PR_SET_DUMPABLE, 0)


def die_with_parent() -> None:
    """End with the process that forked this one (as long as this one keeps its user and its rights)."""
    prctl(PR_SET_PDEATHSIG, _SIGKILL)


def effective_capabilities() -> int:
    """The bit set of this process's effective capabilities."""
    with open("/proc/self/status", "rb") as stream:
        for line in stream:
            if line.startswith(b"CapEff:"):
                return int(line.split()[1], 16)
    return 0


def permitted_capabilities(status: bytes) -> int | None:
    """The bit set of permitted capabilities that a `/proc/PID/status` tells; None if it does not."""
    found = status.partition(b"CapPrm:")[2].split()
    return int(found[0], 16) if found else None


def is_privileged() -> bool:
    """Return whether this process may mount without a user namespace of its own."""
    return os.geteuid() == 0 and bool(effective_capabilities() >> CAP_SYS_ADMIN & 1)


def limit_capabilities() -> None:
    """Give up every capability that `ALLOWED_CAPABILITIES` does not name, for good."""
    keep = set(ALLOWED_CAPABILITIES.values())
    for number in range(64):
        if _prctl(PR_CAPBSET_READ, number, 0, 0, 0) < 0:
            break  # the kernel knows no more
        if number not in keep:
            prctl(PR_CAPBSET_DROP, number)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def set_capabilities(bits: int) -> None:
    """Make `bits` the effective and permitted capabilities; nothing is inheritable."""
    header = _CapHeader(_CAP_VERSION_3, 0)
    data = (_CapData * 2)(_CapData(bits & 0xFFFFFFFF, bits & 0xFFFFFFFF, 0), _CapData(bits >> 32, bits >> 32, 0))
    _check(_capset(ctypes.byref(header), ctypes.byref(data)), "capset")


class AsOtherUser:
    """Look at files as a user who owns none and is in no group, and without the rights over them that root has.

    Where this process has one id only, there is no other user: it keeps its own.
    """

    def __enter__(self) -> None:
        self._groups = os.getgroups()
        _set_groups([])
        _setfsgid(OTHER_USER)
        _setfsuid(OTHER_USER)

    def __exit__(self, *_: object) -> None:
        _setfsuid(os.geteuid())
        _setfsgid(os.getegid())
        _set_groups(self._groups)


def _set_groups(groups: list[int]) -> None:
    try:
        os.setgroups(groups)
    except PermissionError:
        pass  # a user namespace may forbid it


def allowed_bits() -> int:
    """`ALLOWED_CAPABILITIES` as a bit set."""
    return sum(1 << number for number in ALLOWED_CAPABILITIES.values())


def no_new_privileges() -> None:
    """No program this process starts can gain rights by setuid or file capabilities."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def install_filter(program: bytes) -> None:
    """Install a seccomp filter (classic BPF); `program` may be empty on an architecture we have none for."""
    if not program:
        return
    buffer = ctypes.create_string_buffer(program, len(program))
    loaded = _FilterProgram(len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(loaded))
