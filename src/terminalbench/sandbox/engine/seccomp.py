"""The system calls no sandboxed process may make, as a classic BPF program.

As Docker's default profile, reduced to what matters without extra capabilities: namespaces and mounts,
kernel keyrings (they are shared with the host), kernel modules and kexec, BPF and perf, io_uring, file
handles, clocks. `clone3` answers ENOSYS because its flags cannot be inspected; C libraries then use `clone`, whose
namespace flags are checked. So does `io_setup`: the host has one number of such requests for all. Sockets are local,
of the internet, or netlink: packet sockets take memory that no limit sees, others reach a hypervisor or rare drivers.
"""

import errno
import os
import struct

_X86_64 = 0xC000003E
_AARCH64 = 0xC00000B7

# Name, number on x86_64, number on aarch64; 0 where the architecture has no such call.
_CALLS = """
    mount 165 40, umount2 166 39, pivot_root 155 41, open_tree 428 428, move_mount 429 429, fsopen 430 430,
    fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_tree_attr 467 467,
    unshare 272 97, setns 308 268, add_key 248 217, request_key 249 218, keyctl 250 219,
    init_module 175 105, delete_module 176 106, finit_module 313 273, kexec_load 246 104, kexec_file_load 320 294,
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426,
    io_uring_register 427 427, fanotify_init 300 262, open_by_handle_at 304 265, lookup_dcookie 212 18,
    adjtimex 159 171, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, syslog 103 116,
    reboot 169 142, iopl 172 0, ioperm 173 0, acct 163 89, swapon 167 224, swapoff 168 225,
    quotactl 179 60, quotactl_fd 443 443
"""
# As above: who a file belongs to, and who a process is.
_OWNERS = """
    chown 92 0, fchown 93 55, lchown 94 0, fchownat 260 54, setuid 105 146, setgid 106 144, setreuid 113 145,
    setregid 114 143, setgroups 116 159, setresuid 117 147, setresgid 119 149, setfsuid 122 151, setfsgid 123 152
"""
_UNCOUNTED = ((319, 279), (447, 447), (278, 75))  # memfd_create, memfd_secret, vmsplice
_IO_SETUP = (206, 0)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone(2) takes
_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def without_uncounted_memory() -> bytes:
    """A further filter for where memory is measured by process: no files in memory, no pages given to a pipe."""
    column = 0 if os.uname().machine in ("x86_64", "amd64") else 1
    code = [_step(_LOAD, _NUMBER)]
    for numbers in _UNCOUNTED:
        code += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def with_one_user(machine: str | None = None) -> bytes:
    """A further filter for where there is one user only: whatever is given to others stays root's, without an error.

    Packages and images name users by the dozen. Their files have to be somebody's; whose matters to few of them.
    """
    column = 0 if (machine or os.uname().machine) in ("x86_64", "amd64") else 1
    code = [_step(_LOAD, _NUMBER)]
    for numbers in _numbers(_OWNERS).values():
        if numbers[column]:
            code += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, _ERRNO)]
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def program(machine: str | None = None) -> bytes:
    """The filter for this machine; empty on an architecture it is not written for."""
    machine = machine or os.uname().machine
    if machine in ("x86_64", "amd64"):
        return _assemble(_X86_64, 0)
    if machine in ("aarch64", "arm64"):
        return _assemble(_AARCH64, 1)
    return b""


def _assemble(architecture: int, column: int) -> bytes:
    refuse = _ERRNO | errno.EPERM
    unknown = _ERRNO | errno.ENOSYS
    code = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, refuse),
        _step(_LOAD, _NUMBER),
    ]
    if architecture == _X86_64:  # the x32 numbers are a second way to every call
        code += [_step(_AT_LEAST, 0x40000000, 0, 1), _step(_RETURN, unknown)]
    for numbers in _numbers(_CALLS).values():
        if numbers[column]:
            code += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, refuse)]
    for numbers in (_CLONE3, _IO_SETUP):
        code += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, unknown)]
    code += [
        _step(_EQUAL, _CLONE[column], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, refuse),
        _step(_LOAD, _NUMBER),
        _step(_EQUAL, _SOCKET[column], 0, 2 + len(_FAMILIES)),
        _step(_LOAD, _FIRST_ARGUMENT),
        *(_step(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)),
        _step(_RETURN, refuse),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(code)


def _numbers(calls: str) -> dict[str, tuple[int, int]]:
    return {name: (int(x86_64), int(aarch64)) for name, x86_64, aarch64 in map(str.split, calls.split(","))}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
