"""What an agent might try, each tried: against the host, its files, its processes, its kernel. As root and not."""

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.driving import PATIENCE_SEC, SECRET, Box, Driver, Raised
from terminalbench.sandbox.helper import find_bwrap

DOCKER_DEFAULT_CAPABILITIES = 0xA80425FB
SYSCALLS = {  # name: (x86_64, aarch64, arguments)
    "unshare user": (272, 97, (0x10000000,)),
    "unshare mounts": (272, 97, (0x00020000,)),
    "clone3": (435, 435, (0, 0)),
    "setns": (308, 268, (0, 0)),
    "mount": (165, 40, (b"tmpfs", b"/mnt", b"tmpfs", 0, 0)),
    "umount": (166, 39, (b"/proc/sys", 2)),
    "pivot_root": (155, 41, (b"/", b"/mnt")),
    "fsopen": (430, 430, (b"tmpfs", 0)),
    "open_tree": (428, 428, (-100, b"/", 1)),
    "move_mount": (429, 429, (-100, b"/mnt", -100, b"/srv", 0)),
    "mount_setattr": (442, 442, (-100, b"/", 0, 0, 0)),
    "keyctl": (250, 219, (0, -3, 0)),
    "add_key": (248, 217, (b"user", b"x", b"y", 1, -3)),
    "request_key": (249, 218, (b"user", b"x", 0, -3)),
    "bpf": (321, 280, (0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (0,)),
    "io_uring_setup": (425, 425, (1, 0)),
    "open_by_handle_at": (304, 265, (-100, 0, 0)),
    "init_module": (175, 105, (0, 0, b"")),
    "finit_module": (313, 273, (0, b"", 0)),
    "kexec_load": (246, 104, (0, 0, 0, 0)),
    "reboot": (169, 142, (0xFEE1DEAD, 672274793, 0x1234567)),
    "swapon": (167, 224, (b"/tmp/x", 0)),
    "settimeofday": (164, 170, (0, 0)),
    "syslog": (103, 116, (3, 0, 0)),
    "acct": (163, 89, (0,)),
}


@pytest.fixture
def canary(driver: Driver) -> Iterator[str]:
    """A file on the host that no sandbox may find, in a folder everybody may read."""
    folder = Path(tempfile.mkdtemp(prefix="tbench-canary-"))
    folder.chmod(0o755)
    name = f"canary-{uuid.uuid4().hex}"
    (folder / name).write_text("found")
    yield str(folder / name)
    (folder / name).unlink()
    folder.rmdir()


def test_nothing_of_the_host_but_its_system_folders(box: Box, canary: str) -> None:
    name = Path(canary).name
    assert box.run(f"cat {canary}")["return_code"] == 1
    assert (
        box.out(f"find / -xdev -name '{name}' 2>/dev/null; find /usr /dev /sys -name '{name}' 2>/dev/null; true") == ""
    )
    for folder in (
        "/root",
        "/home",
        "/opt",
        "/srv",
        "/mnt",
        "/media",
        "/tmp",
        "/var/tmp",
        "/var/log",
        "/var/lib",
        "/boot",
    ):
        assert box.out(f"ls -A {folder}") == "", folder
    assert box.out("ls -A /run") == "lock"
    assert str(Path(__file__).parents[2]) not in box.out("cat /proc/self/mountinfo /proc/mounts")


def test_no_secret_of_the_host_in_etc(box: Box) -> None:
    assert (
        box.out("ls /etc/shadow /etc/gshadow /etc/ssh /etc/machine-id /etc/sudoers /etc/apt 2>/dev/null || true") == ""
    )
    assert box.out("find /etc -perm /o=w -type f; find / -xdev -name '*key*.pem' -o -name 'ssh_host*'") == ""
    users = {line.split(":")[0] for line in box.out("cat /etc/passwd").splitlines()}
    assert users <= {"root", "daemon", "bin", "sys", "games", "man", "mail", "www-data", "backup", "nobody"}
    private = {str(path) for path in Path("/etc").rglob("*") if path.is_file() and not path.stat().st_mode & 0o004}
    assert private, "nothing to hide on this machine: the test proves nothing"
    assert not private & set(box.out("find /etc").splitlines())


def test_no_secret_of_the_host_in_any_environment(box: Box) -> None:
    """The process that holds the sandbox has one; no process inside may show it, while commands come and go."""
    box.out("setsid sleep 20 >/dev/null 2>&1 &")
    watch = "for i in $(seq 200); do cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; done | tr '\\0' '\\n' | sort -u"
    answers = box.do("together", [watch, *["sleep 0.05; env"] * 20])
    assert not any(SECRET in answer["stdout"] + answer["stderr"] for answer in answers)
    assert SECRET not in box.out("env; cat /proc/1/environ | tr '\\0' '\\n'")


def test_only_its_own_processes_are_there(box: Box) -> None:
    lines = box.out("ps -e -o pid=,comm=").splitlines()
    assert lines[0].split() == ["1", "bwrap"]
    assert {line.split()[1] for line in lines} <= {"bwrap", "bash", "ps"}


def test_host_processes_cannot_be_signalled(box: Box) -> None:
    """Not by number, not all at once; not even those of the same user."""
    user = box.driver.command(sys.executable, "-c", "import time; time.sleep(60)")
    with subprocess.Popen(user, start_new_session=True) as sentinel:
        try:
            box.run(f"kill -9 {sentinel.pid}")
            box.run("kill -9 -1")
            box.run("for i in $(seq 2 40000); do kill -9 $i; done 2>/dev/null")
            assert sentinel.poll() is None
            assert box.driver.process.poll() is None
            assert box.out("echo still here") == "still here"
        finally:
            sentinel.kill()


def test_rights_are_dockers_at_most(box: Box) -> None:
    status = dict(line.split(":\t") for line in box.out("cat /proc/self/status").splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) & ~DOCKER_DEFAULT_CAPABILITIES == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def called(box: Box) -> dict[str, list[str]]:
    """What each call answered, and the number of its error, in one process."""
    column = 0 if os.uname().machine == "x86_64" else 1
    lines = ["import ctypes; libc = ctypes.CDLL(None, use_errno=True)"]
    for name, call in SYSCALLS.items():
        lines += ["ctypes.set_errno(0)", f"result = libc.syscall({call[column]}, *{call[2]!r})"]
        lines += [f"print({name!r}, result, ctypes.get_errno(), sep=':')"]
    answers = [line.split(":") for line in box.python("\n".join(lines)).splitlines()]
    return {name: answer for name, *answer in answers}


def test_dangerous_system_calls_are_refused(box: Box) -> None:
    assert called(box) == {name: ["-1", "38" if name == "clone3" else "1"] for name in SYSCALLS}


def test_no_other_namespace_can_be_entered_or_made(box: Box) -> None:
    for command in (
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "nsenter -t 1 -m true",
        "unshare -p -f true",
    ):
        assert box.run(command)["return_code"] != 0, command


def test_chroot_leads_nowhere(box: Box, canary: str) -> None:
    code = f"""
import os
os.makedirs("/tmp/x", exist_ok=True); here = os.open("/", os.O_RDONLY)
os.chroot("/tmp/x"); os.fchdir(here)
for _ in range(100): os.chdir("..")
os.chroot(".")
print(os.path.exists({canary!r}), sorted(os.listdir("/"))[:2])"""
    assert box.python(code) == "False ['app', 'bin']"


def _whose(device: str) -> tuple[int, int, int]:
    status = Path(f"/dev/{device}").stat()
    return status.st_mode, status.st_uid, status.st_gid


def test_devices_cannot_be_made_or_changed(box: Box) -> None:
    before = {name: _whose(name) for name in ("null", "zero", "urandom", "tty")}
    for command in ("mknod /tmp/disk b 259 0", "mknod /tmp/mem c 1 1", "mknod /dev/x c 1 3"):
        assert box.run(command)["return_code"] != 0, command
    for name in before:
        assert box.run(f"chmod 000 /dev/{name}")["return_code"] != 0
        assert box.run(f"rm -f /dev/{name} || mv /dev/{name} /dev/y")["return_code"] != 0
        box.run(f"chown 12345 /dev/{name}")  # where there is one user only, it says that it did
    assert {name: _whose(name) for name in before} == before
    assert box.out("echo x > /dev/null; head -c 4 /dev/zero | wc -c; ls /dev | tr '\\n' ' '").split() == [
        *(
            "4",
            "fd",
            "full",
            "null",
            "ptmx",
            "pts",
            "random",
            "shm",
            "stderr",
            "stdin",
            "stdout",
            "tty",
            "urandom",
            "zero",
        )
    ]


def test_the_kernel_cannot_be_configured(box: Box) -> None:
    """No file of /proc outside the process folders, and none of /sys, takes a write: EIO means it cannot."""
    code = """
import os, stat
found = []
for top in ["/proc", "/sys"]:
    for folder, folders, names in os.walk(top):
        if folder == "/proc":
            folders[:] = [n for n in folders if not n.isdigit() and n not in ("self", "thread-self")]
        for name in names:
            path = folder + "/" + name
            try:
                if not stat.S_ISREG(os.lstat(path).st_mode): continue
                handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.write(handle, b"")
                found.append(path)
            except OSError as error:
                if error.errno not in (1, 2, 5, 13, 30): found.append((path, error.errno))
print(found)"""
    assert box.python(code) == "[]"
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    assert box.run("echo '|/tmp/x' > /proc/sys/kernel/core_pattern")["return_code"] != 0
    assert box.run("echo b > /proc/sysrq-trigger")["return_code"] != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before
    assert box.out("cat /proc/keys /proc/kmsg /proc/timer_list 2>/dev/null | wc -c") == "0"
    assert box.out("ls /sys; ls /sys/devices/system").split() == ["devices", "cpu"]


def test_setuid_programs_gain_nothing(driver: Driver) -> None:
    box = driver.box(
        files={"Dockerfile": "FROM debian:12\nRUN cp /usr/bin/python3 /root-python && chmod 4755 /root-python\n"}
    )
    if box.do("about")["ids"] == "one":
        assert box.out("/root-python -c 'import os; print(os.geteuid())'") == "0"  # there is no other user to gain from
    else:
        assert box.out("/root-python -c 'import os; print(os.getuid(), os.geteuid())'", user="nobody") == "65534 65534"
    box.call("stop", True)


def test_a_program_named_after_its_interpreter_opens_no_door(box: Box) -> None:
    """`#!/proc/self/exe` makes the helper's Python run inside, where root could write to its file (CVE-2019-5736)."""
    programs = [Path(sys.executable).resolve(), find_bwrap()]
    before = [_fingerprint(path) for path in programs if path]
    box.call("upload_file", __file__, "/tmp/upload")  # the helper's other way in
    code = """
import os, time
held, results = {}, set()
def tell():
    with open("/tmp/held", "w") as stream: stream.write(str(len(held)))
tell()
while not os.path.exists("/tmp/over"):
    for name in os.listdir("/proc"):
        if not name.isdigit() or name in held or int(name) == os.getpid(): continue
        try:
            fd = os.open(f"/proc/{name}/exe", os.O_RDONLY)
        except OSError: continue
        where = os.readlink(f"/proc/self/fd/{fd}")
        if where.startswith(("/usr/bin/", "/tmp/")): os.close(fd); continue
        held[name] = fd
        tell()
        for _ in range(200):
            try:
                os.close(os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)); results.add("OPENED " + where)
            except OSError as e:
                results.add(f"{e.errno}")
                if e.errno != 26: break
            time.sleep(0.002)
print(len(held), sorted(results))
"""
    box.call("upload_file", str(_script(box, code)), "/tmp/attack.py")
    box.out("cp /bin/bash /tmp/bash && (setsid python3 /tmp/attack.py > /tmp/result 2>&1 &)")
    box.until("cat /tmp/held", "0")
    box.out(
        "printf '#!/proc/self/exe\\n' > /usr/bin/trap && chmod 755 /usr/bin/trap && cp /usr/bin/trap /tmp/evil-bash"
    )
    box.out("/tmp/bash -c 'cp /tmp/evil-bash /usr/bin/bash.new && mv /usr/bin/bash.new /usr/bin/bash'")
    deadline, rounds = time.monotonic() + PATIENCE_SEC, 0
    while rounds < 30 or _read_out(box, "/tmp/held") in ("", "0"):  # no command starts there any more
        box.run("import time; time.sleep(0.1)")  # what the helper's Python would make of "bash -c ..."
        rounds += 1
        assert time.monotonic() < deadline, "the attack never saw the helper's program; it proves nothing"
    box.call("upload_file", __file__, "/tmp/over")
    while not (result := _read_out(box, "/tmp/result")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert int(result.split()[0]) > 0
    assert "OPENED" not in result
    assert [_fingerprint(path) for path in programs if path] == before


def test_the_helpers_programs_are_read_only_to_it(box: Box) -> None:
    """The lasting defence behind the test above, which a running program alone would pass."""
    tasks = Path(f"/proc/{box.driver.process.pid}/task").iterdir()
    children = [pid for task in tasks for pid in (task / "children").read_text().split()]
    helpers = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "tbench-sandbox\n"]
    assert len(helpers) == 1
    mounts = {
        line.split()[4]: line.split()[5] for line in Path(f"/proc/{helpers[0]}/mountinfo").read_text().splitlines()
    }
    for program in (Path(sys.executable).resolve(), find_bwrap()):
        assert mounts[str(program)].split(",")[0] == "ro", program


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_out(box: Box, path: str) -> str:
    """A file of the sandbox, without a command in it."""
    box.call("download_file", path, str(box.driver.folder / "work" / "read-out"))
    return (box.driver.folder / "work" / "read-out").read_text().strip()


def _script(box: Box, code: str) -> Path:
    path = box.driver.folder / f"script-{uuid.uuid4().hex}.py"
    path.write_text(code)
    path.chmod(0o644)
    return path


def test_no_working_folder_leads_out(box: Box, canary: str) -> None:
    """A descriptor left open across the border would (CVE-2024-21626)."""
    for number in range(3, 24):
        for way in (f"/proc/self/fd/{number}", f"/proc/self/fd/{number}/../../../../.."):
            done = box.run(f"ls {canary.lstrip('/')} ../../../../..{canary} 2>/dev/null; ls /proc/self/fd", cwd=way)
            assert "canary" not in done["stdout"]
    assert box.out("ls /proc/self/fd | tr '\\n' ' '") == "0 1 2 3"  # 3 is ls itself reading the folder


def test_names_are_not_looked_up_by_the_sandboxs_libraries(box: Box) -> None:
    """A planted name-service library or /etc/passwd must not get at the helper while it still has its rights."""
    box.out("rm /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group; echo 'passwd: evil' > /etc/nsswitch.conf")
    assert box.out("echo fine") == "fine"
    box.out("rm /etc/passwd; head -c 3000000 /dev/zero > /etc/passwd")
    assert box.out("echo fine") == "fine"
    box.out("rm /etc/passwd; printf 'root:x:4294967295:-1:::\\nroot:x:0:0::/evil/home:\\n' > /etc/passwd")
    assert box.out("id -u; echo $HOME").split() == ["0", "/evil/home"]


def test_core_dumps_do_not_reach_the_hosts_handler(box: Box) -> None:
    assert box.out("ulimit -Hc; ulimit -c").split() == ["0", "0"]
    assert box.out("awk '/core file/ {print $5, $6}' /proc/self/limits") == "1 1"


def test_a_traced_process_is_never_one_with_more_rights(box: Box) -> None:
    """Commands are born with more rights than they end with: in that moment nobody may look into them."""
    code = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True); seen = set()
def rights(pid): return int(open(f"/proc/{pid}/status").read().split("CapPrm:")[1].split()[0], 16) & ~0xA80425FB
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/over"):
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid(): continue
        try:
            if not rights(name): continue
            seen.add("met")
            if libc.ptrace(16, int(name), 0, 0) == 0:
                os.waitpid(int(name), 0x40000000)
                seen.add("ATTACHED" if rights(name) else "too late")
                libc.ptrace(17, int(name), 0, 0); os.kill(int(name), signal.SIGCONT)
            before = rights(name); open(f"/proc/{name}/mem", "rb").close()
            if before and rights(name): seen.add("READ")
        except OSError: pass
print(sorted(seen - {"too late"}))
"""
    box.call("upload_file", str(_script(box, code)), "/tmp/trace.py")
    answer = box.do("beside", "python3 /tmp/trace.py", ["sleep 0.01"] * 150)
    assert answer["watcher"]["stdout"].strip() in ("['met']", "[]"), answer["watcher"]
    assert set(answer["codes"]) == {0}


def test_two_sandboxes_do_not_see_each_other(driver: Driver) -> None:
    one, two = driver.box(), driver.box()
    one.out("echo secret > /tmp/one; echo x > /dev/shm/one; setsid sleep 500 >/dev/null 2>&1 &")
    one.out("python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.bind('\\0one'); s.listen()\"")
    assert two.run("ls /tmp/one /dev/shm/one")["stdout"] == ""
    assert two.out("pgrep -c -r R,S,D,T sleep || true") == "0"
    two.run("kill -9 -1; rm -rf /usr/lib/python3 /etc /app")
    assert one.out("cat /tmp/one; pgrep -c 'sleep|setsid'").split() == ["secret", "1"]
    for box in (one, two):
        box.call("stop", True)


def test_the_hosts_system_cannot_be_changed(box: Box) -> None:
    before = {path: path.lstat().st_mtime_ns for path in map(Path, ("/usr", "/usr/bin", "/usr/lib", "/etc", "/"))}
    box.run(
        "echo x > /usr/bin/tbench-test; echo x > /etc/tbench-test; echo x > /tbench-test; rm -rf /usr/share/perl5 /usr/lib/python3*"
    )
    assert box.run("ls /usr/share/perl5")["return_code"] != 0
    assert {path: path.lstat().st_mtime_ns for path in before} == before
    assert not Path("/usr/bin/tbench-test").exists()
    assert not Path("/etc/tbench-test").exists()


def test_a_bind_mount_gives_what_it_says_and_no_more(driver: Driver, work: Path) -> None:
    shown, open_folder = work / "shown", work / "open"
    for folder in (shown, open_folder):
        folder.mkdir()
        os.chown(folder, driver.uid, -1)
    (shown / "file").write_text("content")
    (open_folder / "out").symlink_to("/etc/hostname")
    mounts = [
        {"type": "bind", "source": str(shown), "target": "/data/shown", "read_only": True},
        {"type": "bind", "source": str(open_folder), "target": "/data/open"},
    ]
    box = driver.box(mounts=mounts)
    assert box.out("cat /data/shown/file") == "content"
    assert box.run("echo x > /data/shown/file || rm /data/shown/file || chmod 777 /data/shown")["return_code"] != 0
    assert box.out("cat /data/open/out") == "sandbox"  # its own /etc/hostname
    assert box.out("ls /data/shown/.. /data/open/../..").split()[:2] == ["/data/open/../..:", "app"]
    box.out("echo y > /data/open/new; cp /usr/bin/id /data/open/id; chmod 4755 /data/open/id; mknod /data/open/pipe p")
    assert box.run("mknod /data/open/null c 1 3")["return_code"] != 0
    assert "nosuid" in box.out("grep ' /data/open ' /proc/self/mountinfo")
    assert (open_folder / "new").read_text() == "y\n"
    box.call("stop", True)


def test_a_mount_point_behind_a_link_is_refused(driver: Driver, work: Path) -> None:
    """bwrap would follow the link on the host and make the mount point there."""
    files = {"Dockerfile": "FROM debian:12\nRUN ln -s /oldroot/tmp /data\n"}
    with pytest.raises(Raised, match="the image has a link in that path"):
        driver.box(files=files, mounts=[{"type": "bind", "source": str(work), "target": "/data/made-on-the-host"}])
    assert not Path("/tmp/made-on-the-host").exists()


def test_sockets_of_the_hypervisor_are_refused_even_with_network(driver: Driver) -> None:
    box = driver.box(network="public")
    code = "import socket\ntry: socket.socket(40, socket.SOCK_STREAM)\nexcept OSError as e: print(e.errno)"
    assert box.python(code) == "1"
    box.call("stop", True)


def test_the_driver_is_what_it_claims_to_be(driver: Driver) -> None:
    """These tests mean nothing if the ordinary user is not one."""
    owner = Path(f"/proc/{driver.process.pid}").stat().st_uid
    status = Path(f"/proc/{driver.process.pid}/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    is_ordinary = driver.user == "ordinary"
    assert (owner != 0, effective == 0) == (is_ordinary, is_ordinary)
    assert ctypes.sizeof(ctypes.c_void_p) == 8
