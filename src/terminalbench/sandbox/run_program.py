"""Run a program of the agent's from the tests: `$TBENCH_RUN_PROGRAM PROGRAM ARGUMENT...`

It runs as any program does, with three things out of its reach: the folders of the tests and of the reward, the files
of the system (it may read and execute them), and the processes of the tests (it may neither trace nor limit nor, from
Linux 6.12 on, signal them). What the tests have open of those folders is closed to it, but for its standard streams. So
it cannot write the reward while the tests run it, nor read what they expect. In Python a test may call `confine` in the
child instead (`preexec_fn`), which saves the start of an interpreter.

The kernel holds it (Landlock, Linux 5.13). Where it has none, the program runs as the user `nobody`. Where there is no
other user either, the tests are not told of this program, and the result is marked.

What is run so carries a mark that it cannot take off, and that all it starts inherits: a filter of system calls. It
refuses one, which sets the resource limits of another process: tests that may open no file write no reward. The bench
sees by it, should the tests not end in time, whether they waited for such a program.

It runs in a sandbox, by the Python of its image: standard library only, any Python from 3.6 on.
"""

# ruff: noqa: PTH115, PTH208, S108, S606, UP031

import ctypes
import os
import stat
import struct
import sys

HIDDEN = ("tests", "logs", ".tbench")
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "boot", "sys")
NOBODY = 65534
_READ, _FILE, _ALL = 0b1101, 0b100000000000111, (1 << 15) - 1  # execute, read a file, read a folder; of files; of all
WRITES, READ_FILE = _ALL & ~_READ, 0b100
_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1}
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_KEPT = sum(1 << number for number in (0, 1, 3, 4, 6, 7, 10))  # chown, files of others, ids, low ports
_libc = ctypes.CDLL(None, use_errno=True)


def confine():
    """Give up, for this process and its children, what a program of the agent's must not have."""
    _libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    if _landlock():
        _drop_capabilities()
    else:
        _become_nobody()
    _mark()
    _close_hidden()
    if os.environ.get("HOME", "").startswith("/.tbench/"):
        os.environ["HOME"] = "/root"  # the agent's; that of the tests is theirs


def landlock_version():
    """The version of Landlock that this kernel has; at most 0 if it has none."""
    return _libc.syscall(_CREATE, None, 0, 1)


def make_ruleset(rules, judged, root=None):
    """A set of rules: of what is `judged`, a process may do what is said of a path, and signal none but its own.

    Paths are below the open folder `root`, if that is given.
    """
    abi = landlock_version()
    handled = _BY_ABI.get(abi, _ALL) & judged
    attributes = struct.pack("=QQQ", handled, 0, 2 if abi >= 6 else 0)[: 24 if abi >= 6 else 8]  # 2: no signals
    ruleset = _libc.syscall(_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    for path, access in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        except OSError:
            continue
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISDIR(mode):
                access &= _FILE
            rule = struct.pack("=Qi", access & handled, handle)
            if not stat.S_ISLNK(mode) and _libc.syscall(_ADD, ruleset, 1, rule, 0) != 0:
                raise OSError(ctypes.get_errno(), "landlock " + path)
        finally:
            os.close(handle)
    return ruleset


def _landlock():
    if landlock_version() < 1:
        return False
    try:
        ruleset = make_ruleset(_rules(), _ALL)
    except OSError:
        return False
    done = _libc.syscall(_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _rules():
    """(path, what may be done at it and below)."""
    for name in os.listdir("/"):
        if name in SYSTEM:
            yield "/" + name, _READ
        elif name in ("proc", "dev"):
            yield "/" + name, _READ | 0b10
        elif name not in HIDDEN:
            yield "/" + name, _ALL
    yield "/dev/shm", _ALL
    yield "/dev/pts", _READ | 0b10


def mark_program(address):
    """The filter that marks a program, for a process that has it at `address` of its memory."""
    steps = [(6, 0, 0, 0x7FFF0000)]  # allow
    number = _PRLIMIT.get(os.uname().machine)
    if number is not None:  # of which process is its first argument; 0: of its own
        steps = [(32, 0, 0, 0), (21, 0, 3, number), (32, 0, 0, 16), (21, 1, 0, 0), (6, 0, 0, 0x50001), *steps]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    return struct.pack("@HP", len(steps), address + 16) + code


def _mark():
    program = ctypes.create_string_buffer(512)
    program.raw = mark_program(ctypes.addressof(program)).ljust(512, b"\0")
    _libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)


def _close_hidden():
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink("/proc/self/fd/" + name).split("/")[1:2] in ([one] for one in HIDDEN):
                os.close(int(name))
        except OSError:  # that of the list itself, which is closed by now
            continue


def _drop_capabilities():
    header = struct.pack("=Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    if _libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    low = struct.unpack("=6I", data.raw)[1] & _KEPT
    if _libc.capset(header, struct.pack("=6I", low, low, 0, 0, 0, 0)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _become_nobody():
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    else:
        raise OSError(1, "this kernel has no Landlock, and there is no other user")


if __name__ == "__main__":
    try:
        confine()
    except OSError as error:
        sys.stderr.write("run-program: cannot confine it: %s\n" % error)
        sys.exit(125)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.stderr.write("run-program: %s: %s\n" % (sys.argv[1], error.strerror))
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
