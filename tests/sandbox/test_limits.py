"""Bombs end in the sandbox: memory, processes, files. Where there are control groups, and where there are none."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from sandbox.driving import Box, Driver, Raised

MEMORY_BOMB = "python3 -c 'x = bytearray()\nwhile True: x += b\"y\" * (4 << 20)'"
MANY_MEMORY_BOMBS = f"for i in $(seq 6); do {MEMORY_BOMB} & done; wait"
FORK_BOMB = "python3 - <<'END'\nimport os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.5)\nEND"
"""Those that are refused wait a moment: hundreds that spin leave nothing of a small machine to what counts them."""
SHELL_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 5"

pytestmark = pytest.mark.heavy


FEW = 200
"""Processes of a sandbox that is bombed: thousands that all want to run leave nothing of a small machine to the tests."""


@pytest.fixture
def tight(driver: Driver) -> Box:
    """A sandbox with small limits: of root with control groups, of an ordinary user, who has none here, without."""
    return small_box(driver, groups=driver.user == "root")


@pytest.fixture
def bombed(driver: Driver) -> Box:
    """The same with few processes."""
    return small_box(driver, groups=driver.user == "root", processes=FEW)


def small_box(driver: Driver, *, groups: bool, **more: Any) -> Box:
    options = {"cpus": 1, "memory_mb": 200, "storage_mb": 64}
    box = driver.box(config=options, no_groups=not groups, **more)
    by = box.do("about")["limits_by"]
    assert (by["memory"] == "watch") == (not groups), by
    return box


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """No two fork bombs at once: an ordinary user's processes would wait minutes for their turn beside root's."""
    with (tmp_path_factory.getbasetemp().parent / "bombs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def available_mb() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) // 1024


def works_again(box: Box) -> bool:
    box.call("kill_processes")
    return box.out("echo fine; rm -rf /tmp/* /dev/shm/*; python3 -c 'print(6*7)'").split() == ["fine", "42"]


@pytest.mark.parametrize("bomb", [MEMORY_BOMB, MANY_MEMORY_BOMBS], ids=["one", "many"])
def test_a_memory_bomb_ends_and_the_sandbox_goes_on(bombed: Box, bomb: str) -> None:
    before = available_mb()
    done = bombed.run(bomb, timeout_sec=120)
    assert done["return_code"] in (137, 0, 1)
    assert "memory limit of 200 MB reached" in done["stderr"] or bombed.do("counts")["memory"] > 0
    assert available_mb() > before - 3000
    assert works_again(bombed)


@pytest.mark.parametrize("no_groups", [False, True], ids=["groups", "no groups"])
def test_only_the_guilty_process_ends(driver: Driver, no_groups: bool) -> None:
    """Its memory is given back while the watch looks again."""
    if not no_groups and driver.user == "ordinary":
        pytest.skip("no control group is writable for this user")
    box = driver.box(config={"memory_mb": 600, "storage_mb": 600}, no_groups=no_groups)
    agent = "x = bytearray(60 << 20); open('/tmp/ready', 'w').close(); import time; time.sleep(1000)"
    box.out(f'setsid python3 -c "{agent}" > /dev/null 2>&1 &')
    box.until("test -e /tmp/ready && echo ready", "ready")
    assert box.run(MEMORY_BOMB, timeout_sec=120)["return_code"] == 137
    assert box.out("pgrep -cx python3") == "1"


def test_a_memory_bomb_without_its_first_thread_ends(tight: Box) -> None:
    """To the kernel's lists it has no memory at all."""
    code = """
import ctypes, threading, time
def bomb():
    while open("/proc/self/stat").read().split()[2] != "Z": time.sleep(0.01)
    x = b"y" * (600 << 20)
    time.sleep(1000)
threading.Thread(target=bomb).start()
ctypes.CDLL(None).syscall({"aarch64": 93, "x86_64": 60}[__import__("os").uname().machine], 0)"""
    assert tight.run(f"python3 - <<'END'\n{code}\nEND", timeout_sec=120)["return_code"] == 137
    assert works_again(tight)


def test_memory_within_the_limit_is_not_touched(tight: Box) -> None:
    assert tight.out("python3 -c 'x = bytearray(120 << 20); import time; time.sleep(1); print(len(x) >> 20)'") == "120"


SHARED_BOMB = """python3 - <<'END'
import mmap
shared = mmap.mmap(-1, 600 << 20)
for at in range(0, 600 << 20, 1 << 20):
    shared[at : at + (1 << 20)] = b"x" * (1 << 20)
print("has it all", flush=True)
import time; time.sleep(20)
END"""
FILE_BOMB = """python3 - <<'END'
import os
handle = os.memfd_create("x")
for _ in range(600):
    os.write(handle, b"x" * (1 << 20))
print("has it all", flush=True)
END"""


@pytest.mark.parametrize("bomb", [SHARED_BOMB, FILE_BOMB], ids=["shared", "file"])
def test_memory_that_is_no_processs_own_is_limited_too(tight: Box, bomb: str) -> None:
    done = tight.run(bomb, timeout_sec=60)
    assert done["return_code"] != 0
    assert "has it all" not in done["stdout"] or "memory limit of 200 MB reached" in done["stderr"]
    assert works_again(tight)


LOCAL_BUFFERS = """
import socket
keep = []
while len(keep) < 3000:  # 600 MB, where none stops it
    keep += socket.socketpair()
    for one in keep[-2:]:
        one.setblocking(False)
        try:
            while True: one.send(b"x" * 65536)
        except BlockingIOError: pass
"""
TCP_BUFFERS = """
import socket
keep, server, taken = [], socket.create_server(("127.0.0.1", 0)), 0
while len(keep) < 400:
    keep += [socket.create_connection(server.getsockname()), server.accept()[0]]
    keep[-2].setblocking(False)
    try:
        while True: taken += keep[-2].send(b"x" * 65536)
    except BlockingIOError: pass
if taken < 250 << 20: raise SystemExit("held")  # a group of version 1 lets no more in, and ends no process
"""
PAGE_TABLES = """
import mmap
space = mmap.mmap(-1, 300 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
for at in range(0, 300 << 30, 2 << 20): space[at]  # 600 MB of tables for pages that are all one empty page
"""


@pytest.mark.parametrize("bomb", [LOCAL_BUFFERS, TCP_BUFFERS, PAGE_TABLES], ids=["local", "tcp", "tables"])
def test_memory_that_the_kernel_holds_for_processes_is_limited_too(tight: Box, bomb: str) -> None:
    program = f"{bomb}\nimport time; time.sleep(20); print('has it all')"
    done = tight.run(f"python3 - <<'END'\n{program}\nEND", timeout_sec=120)
    assert "has it all" not in done["stdout"]
    assert "memory limit of 200 MB reached" in done["stderr"] or done["stderr"] == "held\n", done
    assert works_again(tight)


def test_pages_cannot_be_hidden_in_pipes(driver: Driver) -> None:
    """A page that was given to a pipe is no process's memory any more."""
    box = driver.box(no_groups=True)
    number = {"aarch64": 75, "x86_64": 278}[box.out("uname -m")]
    code = f"libc.syscall({number}, 1, 0, 0, 0), ctypes.get_errno()"
    assert box.python(f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); print({code})") == "-1 38"
    box.call("stop", True)


def test_memory_that_many_processes_share_counts_once(tight: Box) -> None:
    code = """
import mmap, os, time
shared = mmap.mmap(-1, 80 << 20)
for at in range(0, 80 << 20, 4096): shared[at] = 1
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        sum(shared[at] for at in range(0, 80 << 20, 4096)); time.sleep(1.5); os._exit(0)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children])"""
    assert tight.python(code) == "[0, 0, 0, 0, 0, 0]"


def test_a_folder_too_deep_to_measure_is_beyond_the_limit(tmp_path: Path) -> None:
    from terminalbench.sandbox.engine import watch

    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= watch._disk_bytes(str(tmp_path)) < 1_000_000
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=handle)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    assert watch._disk_bytes(str(tmp_path)) > 1 << 50


def test_files_do_not_eat_the_memory_of_processes(tight: Box) -> None:
    """They are memory too; a task that fills its storage may still use all of its memory."""
    tight.out("head -c 60000000 /dev/zero > /tmp/file")
    assert tight.out("python3 -c 'x = bytearray(150 << 20); import time; time.sleep(1); print(len(x) >> 20)'") == "150"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("bomb", [FORK_BOMB, SHELL_BOMB], ids=["python", "shell"])
def test_a_fork_bomb_stays_small_and_can_be_ended(bombed: Box, bomb: str) -> None:
    before = processes_here()
    for patience in (3, 10, 30):  # a slow machine takes longer to reach a limit
        with contextlib.suppress(Raised):  # it may be over before its time
            bombed.run(bomb, timeout_sec=patience)
        assert processes_here() < before + 2 * (
            FEW + 352
        )  # the kernel gives 300 more to the first; two test processes run
        if bombed.do("counts")["processes"] + bombed.do("counts")["memory"] > 0:
            break
    assert bombed.do("counts")["processes"] + bombed.do("counts")["memory"] > 0
    assert works_again(bombed)


def test_the_kernel_holds_the_number_of_processes_where_it_can(driver: Driver) -> None:
    """A bomb on a busy machine is faster than anybody who watches it."""
    box = driver.box(no_groups=True)
    most = int(box.out("cat /proc/sys/kernel/pid_max"))
    if most == int(Path("/proc/sys/kernel/pid_max").read_text()):
        pytest.skip("this kernel has one number for all")
    assert most == 2048 + 300
    code = """
import threading, time
threads = []
try:
    while len(threads) < 3000:
        threads.append(threading.Thread(target=time.sleep, args=(1000,), daemon=True))
        threads[-1].start()
except RuntimeError:
    print(1900 < len(threads) < 2400)"""
    assert box.python(code, timeout_sec=60) == "True"
    box.call("stop", True)


THREAD_HOG = """python3 - <<'END'
import threading, time
threading.stack_size(1 << 18)
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError:
    open("/tmp/full", "w").close()
time.sleep(1000)
END"""


def test_threads_that_take_all_room_end_with_their_command(tight: Box) -> None:
    """There is no room for whoever ends them either."""
    for patience in (5, 15, 45):  # a slow machine takes longer to start so many
        with pytest.raises(Raised) as raised:
            tight.run(THREAD_HOG, timeout_sec=patience)
        assert "would not end" not in str(raised.value)
        if tight.run("test -e /tmp/full")["return_code"] == 0:
            break
    assert tight.out("test -e /tmp/full && cat /proc/[0-9]*/task/*/stat | grep -c '(python3) [^ZX]' || true") == "0"
    assert works_again(tight)


def test_a_process_without_its_first_thread_ends_with_its_command(driver: Driver) -> None:
    """To the kernel's lists it looks as if it had ended long ago."""
    box = driver.box()
    code = """
import ctypes, threading, time
threading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(int, 1)]).start()
ctypes.CDLL(None).syscall({"aarch64": 93, "x86_64": 60}[__import__("os").uname().machine], 0)"""
    with pytest.raises(Raised) as raised:
        box.run(f"setsid python3 - <<'END'\n{code}\nEND", timeout_sec=2)
    assert "timed out" in raised.value.message
    assert box.out("cat /proc/[0-9]*/task/*/stat | grep -c '(python3) [^ZX]' || true") == "0"
    box.call("stop", True)


def processes_here() -> int:
    return len([path for path in Path("/proc").iterdir() if path.name.isdigit()])


@pytest.mark.any_user
@pytest.mark.parametrize("place", ["/tmp", "/logs/agent", "/usr/lib", "/dev/shm", "/root", "/app", "/var/tmp", "/etc"])
def test_a_disk_filler_fills_only_its_own(tight: Box, place: str) -> None:
    host = os.statvfs("/").f_bavail
    done = tight.run(f"head -c 2000000000 /dev/zero > {place}/fill")
    assert done["return_code"] != 0
    assert "No space left" in done["stderr"]
    assert int(tight.out(f"stat -c %s {place}/fill")) <= 65 << 20
    assert os.statvfs("/").f_bavail > host - (1 << 30) // os.statvfs("/").f_frsize
    tight.out(f"rm {place}/fill; echo fine > {place}/small && cat {place}/small")


def test_devices_and_proc_take_no_files(tight: Box) -> None:
    for place in ("/dev", "/sys", "/proc", "/dev/pts"):
        assert tight.run(f"echo x > {place}/fill")["return_code"] != 0, place


def test_a_million_small_files_end_too(tight: Box) -> None:
    code = "i = 0\ntry:\n while True: open(f'/tmp/{i}', 'w').close(); i += 1\nexcept OSError as e: print(i, e.errno)"
    count, number = tight.python(code, timeout_sec=120).split()
    assert int(count) < 70_000
    assert number == "28"
    tight.out("find /tmp -type f -delete; echo fine > /tmp/x")


def test_processors_are_limited(driver: Driver) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor")
    box = driver.box(config={"cpus": 1})
    if box.do("about")["limits_by"]["cpu"] == "affinity":
        assert box.out("nproc") == "1"
    else:
        groups = list(Path("/sys/fs/cgroup").rglob(f"tbench-{driver.process.pid}-*/cpu.*"))
        quotas = [path.read_text().split()[0] for path in groups if path.name in ("cpu.max", "cpu.cfs_quota_us")]
        assert quotas == ["100000"]
    clock = "read up _ < /proc/uptime; echo $up; "
    burn = "for i in 1 2 3 4; do timeout 2 python3 -c 'while True: pass' & done; wait; "
    said = box.out(clock + burn + clock + "cut -d' ' -f16,17 < /proc/$$/stat", timeout_sec=60).split()
    used = sum(map(int, said[2:])) / os.sysconf("SC_CLK_TCK")
    assert used > 0
    assert used < 1.5 * (float(said[1]) - float(said[0])), "four processes got more than one processor's time"
    box.call("stop", True)


def test_files_on_disk_are_measured(driver: Driver) -> None:
    box = driver.box(config={"storage_mb": 64}, kwargs={"scratch": "disk"})
    assert box.do("about")["scratch"] == "disk"
    done = box.run("head -c 2000000000 /dev/zero > /tmp/fill")  # one file: the kernel's file size limit
    assert done["return_code"] != 0
    done = box.run(
        "for i in $(seq 1000); do head -c 30000000 /dev/urandom > /tmp/part$i || exit 1; done", timeout_sec=120
    )
    assert done["return_code"] == 137
    assert "storage limit of 64 MB reached" in done["stderr"]
    assert box.out("sleep 1.5; echo fine") == "fine", "it is still full, but this command does not fill it"
    assert works_again(box)
    box.call("stop", True)


def test_what_the_task_does_not_say_is_limited_too(driver: Driver) -> None:
    box = driver.box()
    size_mb = int(box.out("df -m --output=size / | tail -1"))
    machine_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert size_mb <= max(4096, machine_mb // 2)
    assert box.out("ulimit -u; cat /proc/self/oom_score_adj").split()[-1] == "1000"
    box.call("stop", True)
