"""What the kernel has once for all, or counts by user, a sandbox cannot take from the host."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from sandbox.driving import Box, Driver
from terminalbench.sandbox.engine import inside, proc
from terminalbench.sandbox.engine.cgroups import ControlGroup, GroupLimits
from terminalbench.sandbox.engine.watch import SandboxWatch


def number(path: str) -> int:
    return int(Path(path).read_text())


def test_who_goes_first_when_memory_runs_out_cannot_be_changed_inside(box: Box) -> None:
    code = """
import os
for value in ("0", "-1000", "999"):
    for name in ("oom_score_adj", "oom_adj"):
        for pid in (os.getpid(), os.getppid()):
            try: open(f"/proc/{pid}/{name}", "w").write(value)
            except OSError: pass
print(*(open(f"/proc/{pid}/oom_score_adj").read().strip() for pid in (os.getpid(), os.getppid())))"""
    assert box.python(code) == "1000 1000"


def test_file_watchers_leave_the_host_its_own(box: Box) -> None:
    """The host counts the instances of a user over all namespaces; its own service manager is one of them."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
count = 0
while libc.inotify_init1(0) >= 0: count += 1
print(count, ctypes.get_errno())"""
    count, code_of = map(int, box.python(code).split())
    assert 8 <= count <= max(8, number("/proc/sys/user/max_inotify_instances") // 8)
    assert code_of == 24  # EMFILE
    watches = box.out("cat /proc/sys/user/max_inotify_watches")
    assert int(watches) <= number("/proc/sys/user/max_inotify_watches") // 8
    assert box.run("echo 100000 > /proc/sys/user/max_inotify_instances")["return_code"] != 0


def test_terminals_messages_and_waiting_signals_are_few(box: Box) -> None:
    code = """
import os, resource
count = 0
try:
    while count < 2000: os.openpty(); count += 1
except OSError: pass
print(count, *(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_MSGQUEUE, resource.RLIMIT_SIGPENDING)))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[1])"""
    terminals, messages, signals, files = map(int, box.python(code).split())
    assert 64 <= terminals <= 256
    assert 0 < messages <= 819200 // 8
    assert signals > 0
    assert 1024 <= files <= 1 << 16


def test_system_v_objects_are_few_where_no_group_counts_them(driver: Driver) -> None:
    box = driver.box(no_groups=True)
    if box.out("cat /proc/sys/kernel/msgmni") == Path("/proc/sys/kernel/msgmni").read_text().strip():
        pytest.skip("this kernel does not let a namespace have its own")
    assert int(box.out("cat /proc/sys/kernel/msgmni")) * 16384 <= 4 << 20
    most, in_all, _, sets = map(int, box.out("cat /proc/sys/kernel/sem").split())
    assert min(most * sets, in_all) * 128 <= 8 << 20
    box.call("stop", True)


@pytest.mark.any_user
def test_only_plain_sockets_can_be_made(box: Box) -> None:
    """The buffers of a packet socket are no process's memory, and no group's."""
    families = [17, 38, 40, 44, 15, 29, 30, 31]
    code = f"""
import socket
for f in {families}:
    try: socket.socket(f, socket.SOCK_RAW)
    except OSError as e: print(f, e.errno)"""
    assert box.python(code).splitlines() == [f"{family} 1" for family in families]
    code = "import socket\nfor f in (1, 2, 10): socket.socket(f, socket.SOCK_STREAM)\nsocket.socket(16, 3, 0); print('fine')"
    assert box.python(code) == "fine"


@pytest.mark.any_user
def test_asynchronous_requests_are_the_hosts(box: Box) -> None:
    """There is one number of them for the whole machine."""
    before = number("/proc/sys/fs/aio-nr")
    call = {"aarch64": 0, "x86_64": 206}[box.out("uname -m")]
    code = f"""
import ctypes
libc, at = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(0)
print(libc.syscall({call}, 1000, ctypes.byref(at)), ctypes.get_errno())"""
    assert box.python(code) == "-1 38"
    assert number("/proc/sys/fs/aio-nr") <= before


def test_the_hosts_numbers_stay_as_they_were(driver: Driver) -> None:
    names = ("kernel/msgmni", "kernel/sem", "kernel/shmall", "kernel/pid_max", "user/max_inotify_instances")
    before = [Path("/proc/sys", name).read_text() for name in names]
    box = driver.box(no_groups=True)
    assert re.fullmatch(r"\d+", box.out("cat /proc/sys/kernel/shmall"))
    assert [Path("/proc/sys", name).read_text() for name in names] == before
    box.call("stop", True)


def test_open_files_of_the_machine_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has one number for all; the sandbox that holds most of it gives them back."""
    used, ended = "400 0 1000", []
    monkeypatch.setattr(proc, "read", lambda *_: used.encode())
    monkeypatch.setattr(inside, "visit", lambda *_: ended.append(used) or 0)
    watching = SandboxWatch(-1, None, ControlGroup(), GroupLimits(1 << 30, 1 << 30, 100, None), [])
    watching.check()
    assert not ended
    used = "600 0 1000"
    watching.check()
    assert ended


def test_who_holds_most_open_files_is_found() -> None:
    code = "import os, sys\nfor _ in range(1500): os.open('/dev/null', 0)\nprint('ready', flush=True); sys.stdin.read()"
    limit = ["prlimit", "--nofile=4096:4096", sys.executable, "-S", "-c", code]
    with subprocess.Popen(limit, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        table = {holder.pid: proc.ProcessStat(1, 1, 1), os.getppid(): proc.ProcessStat(1, 1, 1)}
        with mock.patch.object(proc, "processes", return_value=table):
            assert proc.most_open_files(1024) == holder.pid
            assert proc.most_open_files(1 << 20) is None
        holder.communicate("")
