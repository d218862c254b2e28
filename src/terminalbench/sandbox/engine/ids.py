"""User and group ids: which ones a sandbox may use, and who a name in its /etc/passwd is.

As root every id of the host exists in the sandbox under its own number. An ordinary user gets the ids of
/etc/subuid and /etc/subgid if `newuidmap` is installed, else one single id: root inside, the user outside.
"""

# ruff: noqa: PTH123

import errno
import os
import signal
import stat
from typing import NamedTuple

from terminalbench.sandbox.engine import kernel

_SEARCH = ("/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin")
_MAX_FILE_BYTES = 1 << 20
_MOST_IDS = 65536


def write_identity_maps(pid: int) -> None:
    """Give the new user namespace of `pid` every id this process has, under its own number."""
    for kind in ("uid_map", "gid_map"):
        with open(f"/proc/self/{kind}", encoding="utf-8") as stream:
            ranges = [line.split() for line in stream]
        kernel.write(f"/proc/{pid}/{kind}", "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges))


def enter_user_namespace() -> str:
    """Become root of a new user and mount namespace; says which ids it holds: "range" or "one"."""
    uid, gid = os.getuid(), os.getgid()
    commands = _range_commands(uid, gid)
    if commands:
        _unshare_with(commands)
        kind = "range"
    else:
        kernel.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
        kernel.write("/proc/self/setgroups", "deny")
        kernel.write("/proc/self/uid_map", f"0 {uid} 1")
        kernel.write("/proc/self/gid_map", f"0 {gid} 1")
        kind = "one"
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    if kind == "range":
        os.setgroups([])
    return kind


def _range_commands(uid: int, gid: int) -> list[list[str]]:
    """The two commands that map the user's own ids and the subordinate ones; none where that cannot be done.

    Of a process that may gain no rights, as in a container started so, a setuid program gains none either.
    """
    if "NoNewPrivs:\t1" in _lines("/proc/self/status"):
        return []
    commands = []
    for tool, path, own in (("newuidmap", "/etc/subuid", uid), ("newgidmap", "/etc/subgid", gid)):
        program = next((f"{folder}/{tool}" for folder in _SEARCH if os.access(f"{folder}/{tool}", os.X_OK)), None)
        found = _subordinate(path, uid)
        if program is None or found is None:
            return []
        first, count = found
        commands.append([program, "{pid}", "0", str(own), "1", "1", str(first), str(min(count, _MOST_IDS))])
    return commands


def _subordinate(path: str, uid: int) -> tuple[int, int] | None:
    names = {str(uid)}
    for line in _lines("/etc/passwd"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(uid):
            names.add(fields[0])
    for line in _lines(path):
        fields = line.strip().split(":")
        if len(fields) == 3 and fields[0] in names and fields[1].isdigit() and fields[2].isdigit():
            return int(fields[1]), int(fields[2])
    return None


def _lines(path: str) -> list[str]:
    """The lines of a small regular file; none when it is anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return []
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            return []
        return os.read(handle, _MAX_FILE_BYTES).decode("utf-8", "replace").split("\n")
    finally:
        os.close(handle)


def _unshare_with(commands: list[list[str]]) -> None:
    """Unshare while a child, still outside, has the setuid tools write our maps."""
    pid = os.getpid()
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(go)
        if not os.read(ready, 1):  # there is no new namespace
            os._exit(1)
        for command in commands:
            argv = [part.format(pid=pid) for part in command]
            tool = os.posix_spawn(argv[0], argv, {})
            if os.waitpid(tool, 0)[1] != 0:
                os._exit(1)
        os._exit(0)
    os.close(ready)
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS)
    os.write(go, b"x")
    os.close(go)
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGCHLD, before)
    if status != 0:
        raise OSError(errno.EPERM, "newuidmap or newgidmap refused the ids of /etc/subuid and /etc/subgid")


class UserAccount(NamedTuple):
    """Who a command runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    name: str


def find_account(user: str) -> UserAccount:
    """The account that `user` (name or id, optionally `:group`) names in the sandbox's own files.

    Parsed by hand: the C library would load name-service modules from the sandbox.
    """
    wanted, _, wanted_group = user.partition(":")
    name, uid, gid, home = wanted, None, 0, "/"
    for fields in (line.split(":") for line in _lines("/etc/passwd")):
        if len(fields) >= 6 and wanted in (fields[0], fields[2]) and fields[2].isdigit() and fields[3].isdigit():
            name, uid, gid, home = fields[0], int(fields[2]), int(fields[3]), fields[5] or "/"
            break
    if uid is None:
        if wanted in ("", "root", "0"):
            name, uid, home = "root", 0, "/root"
        elif wanted.isdigit():
            uid = int(wanted)
        else:
            raise LookupError(f"no user {wanted} in the sandbox's /etc/passwd")
    groups = []
    for fields in (line.split(":") for line in _lines("/etc/group")):
        if len(fields) >= 4 and fields[2].isdigit():
            if wanted_group and wanted_group in (fields[0], fields[2]):
                gid = int(fields[2])
                wanted_group = ""
            elif name in fields[3].split(","):
                groups.append(int(fields[2]))
    if wanted_group:
        if not wanted_group.isdigit():
            raise LookupError(f"no group {wanted_group} in the sandbox's /etc/group")
        gid = int(wanted_group)
    return UserAccount(uid, gid, tuple(sorted({gid, *groups})), home, name)
