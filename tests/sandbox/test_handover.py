"""From the agent to the verifier: nothing that the agent started runs, the system is the image's, the work is there."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.driving import Box, Driver, Raised
from sandbox.test_first_process import PROGRAM, put
from terminalbench.sandbox.engine import tidy
from terminalbench.sandbox.system import system_folders

pytestmark = pytest.mark.any_user

IMAGE = {"Dockerfile": "FROM debian:12\nENV PATH=/opt/venv/bin:/usr/bin:/bin\nWORKDIR /app\n"
         "RUN mkdir -p /opt/venv/bin /data && printf '#!/bin/sh\\necho image\\n' > /opt/venv/bin/tool && chmod 755 /opt/venv/bin/tool"
         " && cp /opt/venv/bin/tool /usr/local/bin/built && echo old > /data/kept && echo old > /data/gone\n"}  # fmt: skip


def hand(box: Box, **options: Any) -> dict[str, Any]:
    return json.loads(box.do("hand", **options))


@pytest.mark.both_users
def test_nothing_of_the_agent_runs_whatever_it_was(box: Box) -> None:
    """Also what traces the first process, changes its session, or is reborn for ever."""
    put(box, "/tmp/attack.py", PROGRAM)
    box.run("python3 /tmp/attack.py takeover /tmp/attack.py")
    box.run(
        "(setsid sleep 1000 >/dev/null 2>&1 &); printf 'sh /tmp/again.sh & exit\\n' > /tmp/again.sh;"
        " (setsid sh /tmp/again.sh >/dev/null 2>&1 &)"
    )
    for pristine in (False, True):
        hand(box, pristine=pristine)
        names = {line for line in box.out("ps -e -o comm=").split() if line != "ps"}
        assert names <= {"bwrap", "bash"}


@pytest.mark.both_users
def test_the_verifiers_system_is_the_images(driver: Driver) -> None:
    box = driver.box(files=IMAGE)
    box.out(
        "echo answer > /app/answer; mkdir -p /work /home/me; echo w > /work/w; echo h > /root/h; echo m > /home/me/m"
    )
    box.out("echo new > /data/kept; rm /data/gone; mkdir -p /var/lib/app; echo v > /var/lib/app/v; echo t > /tmp/t")
    box.out(
        "printf '#!/bin/sh\\necho agent\\n' | tee /opt/venv/bin/tool /opt/venv/bin/grep /usr/local/bin/built >/dev/null"
    )
    box.out(
        "chmod 755 /opt/venv/bin/grep; cp /opt/venv/bin/grep /usr/local/bin/cat; rm /usr/bin/wc; rm -f /etc/profile; echo x > /etc/profile"
    )
    box.out("echo 'import os' > /usr/lib/python3/sitecustomize.py")
    told = hand(box)
    work = box.out("cat /app/answer /work/w /root/h /home/me/m /data/kept /var/lib/app/v /tmp/t; ls /data").split()
    assert work == ["answer", "w", "h", "m", "new", "v", "t", "kept"]
    assert box.out("tool; /usr/local/bin/built; grep -c answer /app/answer; wc -l < /app/answer").split() == [
        "image",
        "image",
        "1",
        "1",
    ]
    assert box.out("ls /usr/local/bin/cat /opt/venv/bin/grep /usr/lib/python3/sitecustomize.py 2>&1 | wc -l") == "3"
    flagged = {one["path"] for one in told["changes"]["changes"] if one["flagged"]}
    assert flagged >= {"/usr/local/bin/built", "/usr/bin/wc", "/usr/local/bin/cat", "/etc/profile"}
    assert "/usr/lib/python3/sitecustomize.py" in flagged
    assert "/opt/venv/bin/tool" in flagged
    box.call("hand_to_agent")
    assert box.out("/usr/local/bin/built; /opt/venv/bin/tool; /usr/local/bin/cat", user="root").split() == ["agent"] * 3


def test_an_honest_agent_is_not_accused(box: Box) -> None:
    """Software that it installs is listed; compiled Python is not even that."""
    box.out(
        "mkdir -p /usr/lib/tool /usr/lib/python3/dist-packages/nice; echo x > /usr/bin/newtool; cp /usr/bin/ls /ls; mv /ls /usr/bin/ls"
    )
    box.out("echo 'svc:x:999:999::/:/bin/sh' >> /etc/passwd; mkdir -p /usr/lib/tool/__pycache__; ldconfig || true")
    box.out(
        "echo x > /usr/lib/tool/__pycache__/a.pyc; echo 1.2.3.4 host >> /etc/hosts; echo src > /usr/lib/python3/p.pth"
    )
    listed = hand(box)["changes"]
    assert listed["flagged"] == 0
    paths = [one["path"] for one in listed["changes"]]
    assert paths == ["/etc/hosts", *(["/etc/ld.so.cache"] if "/etc/ld.so.cache" in paths else []), "/etc/passwd",
                     "/usr/bin/newtool", "/usr/lib/python3/p.pth"]  # fmt: skip


def test_a_name_that_is_no_text_is_listed_all_the_same(box: Box) -> None:
    box.out("touch $'/usr/bin/\\xff\\nx' /usr/bin/ü")
    assert [one["path"] for one in hand(box)["changes"]["changes"]] == ["/usr/bin/ü", "/usr/bin/\\xff\nx"]


def test_a_link_in_the_way_of_a_mount_is_removed(driver: Driver, work: Path) -> None:
    mounts = [{"type": "bind", "source": str(work), "target": "/data/deep/shown", "read_only": True}]
    box = driver.box(mounts=mounts)
    (work / "file").write_text("content")
    box.out("mv /data/deep /data/other; ln -s /app /data/deep")
    for pristine in (True, False):
        hand(box, pristine=pristine)
        assert box.out("cat /data/deep/shown/file") == "content"
        box.call("hand_to_agent")


def test_what_a_package_manager_wrote_down_is_not_held_against_the_agent(box: Box) -> None:
    box.out(
        "mkdir -p /var/lib/dpkg/info /usr/local/lib/python3.9/dist-packages/a.dist-info; rm /usr/bin/wc; echo newer > /usr/bin/wc"
    )
    box.out(
        "cd / && md5sum usr/bin/wc > /var/lib/dpkg/info/x.md5sums; printf '/etc/profile.d/x.sh\\n' > /var/lib/dpkg/info/x.list"
    )
    box.out("mkdir -p /etc/profile.d; echo true > /etc/profile.d/x.sh; rm /usr/bin/sort; echo fake > /usr/bin/sort")
    listed = hand(box)["changes"]
    assert [one["path"] for one in listed["changes"] if one["flagged"]] == ["/usr/bin/sort"]


def test_the_verifiers_home_and_variables_are_its_own(box: Box) -> None:
    box.out("mkdir -p /root/.local/lib; echo 'echo evil' > /root/.bashrc; cp /root/.bashrc /root/.profile")
    box.out("sed -i 's,/root:,/app:,' /etc/passwd; echo 'FOO=bar' > /etc/environment")
    before = set(box.out("env | cut -d= -f1").split())
    hand(box)
    home = box.out("echo $HOME")
    assert home.startswith("/.tbench/")
    assert box.out("ls -A $HOME | wc -l; bash -lc 'echo fine'").split() == ["0", "fine"]
    assert set(box.out("env | cut -d= -f1").split()) == before


@pytest.mark.both_users
def test_the_tests_folders_are_new_whatever_the_agent_made_of_them(box: Box) -> None:
    box.out(
        "mkdir -p /tests; echo mine > /tests/test.sh; rm -rf /logs/verifier; ln -s /app /logs/verifier; echo 1 > /app/reward.txt"
    )
    box.out(
        "ln -s /tests/expected /app/a; ln -s ../tests /app/b; ln -s /app/b/x $'/app/with\\nbreak'; ln -s /nowhere /app/c"
    )
    box.out("ln -s /proc/self/cwd/expected /app/d; ln -s /proc/thread-self /app/e; ln -s e/root/tests/x /app/f")
    box.out("cd /app; ln -s /dev/fd/3 g; ln -s /dev/stdin h; ln -s /proc/self/fd i; ln -s i/4 j; ln -s /dev/stderr k")
    led = [f"/app/{name}" for name in ("a", "b", "d", "f", "g", "h", "j", "with\\nbreak")]
    for pristine in (True, False):
        told = hand(box, pristine=pristine)
        assert sorted(told["links"]) == (led if pristine else [])
        assert box.out("ls -A /tests /logs/verifier; test -L /logs/verifier || echo real").split() == [
            "/logs/verifier:", "/tests:", "real"
        ]  # fmt: skip
        box.call("hand_to_agent")
    assert box.out("ls -A /app").split() == ["c", "e", "i", "k", "reward.txt"]


def test_a_link_that_cannot_be_judged_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.12 raises where `/proc/self` leads nowhere."""
    work, tests, known = tmp_path / "work", tmp_path / "tests", os.path.realpath
    (work / "below").mkdir(parents=True)
    for number in range(20):
        (work / f"{number}").symlink_to("/proc/self/fd/5")
    (work / "a").symlink_to(tests / "expected")
    (work / "below" / "b").symlink_to(tests)

    def real(path: str) -> str:
        if path.startswith("/proc/"):
            raise FileNotFoundError(path)
        return known(path)

    monkeypatch.setattr(os.path, "realpath", real)
    found = tidy._links_into((str(tests),), str(work), work.stat().st_dev)
    assert {str(work / "a"), str(work / "below" / "b")} <= set(found)
    assert len(found) == 22, "what cannot be judged counts"


def test_the_reward_found_before_the_tests_is_told(box: Box) -> None:
    box.out("echo 1 > /logs/verifier/reward.txt")
    assert hand(box)["rewards"] == ["/logs/verifier/reward.txt"]
    box.out("echo 1 > /logs/verifier/reward.json")
    assert hand(box, pristine=False)["rewards"] == ["/logs/verifier/reward.json"]


@pytest.mark.both_users
def test_a_full_disk_leaves_room_for_the_verifier(driver: Driver) -> None:
    box = driver.box(config={"storage_mb": 16})
    box.run(
        "head -c 64M /dev/zero > /tmp/full; mkdir /tmp/many; cd /tmp/many; for i in $(seq 40000); do : > $i || break; done 2>/dev/null"
    )
    assert box.run("echo x > /app/x && test -s /app/x")["return_code"] != 0
    hand(box)
    assert (
        box.out("echo 1 > /logs/verifier/reward.txt; head -c 20M /dev/zero > /app/y; cat /logs/verifier/reward.txt")
        == "1"
    )


def test_very_many_links_are_no_obstacle(driver: Driver) -> None:
    box = driver.box(config={"storage_mb": 1024})
    box.python(
        "import os\nfor i in range(20000): os.symlink(f'/nowhere/{i}', f'/app/{i}')\nos.symlink('/tests/x', '/app/x')"
    )
    assert hand(box)["links"] == ["/app/x"]


@pytest.mark.parametrize("damage", ["rm -f /usr/bin/bash", "cd /; rm -rf /app", "cd /; rm -rf /app; ln -s /tests /app"])
def test_what_the_agent_broke_is_told_from_what_the_bench_broke(box: Box, damage: str) -> None:
    box.run(damage)
    broken = box.driver("breakage", box.number, pristine=False)
    assert broken == "BrokenContent"
    pristine = box.driver("breakage", box.number, pristine=True)
    assert pristine == (None if "bash" in damage else "BrokenContent")


def test_a_sandbox_that_has_ended_is_not_the_agents_doing(own_driver: Driver) -> None:
    box = own_driver.box()
    box.do("kill_first")
    box.do("until_ended")
    with pytest.raises(Raised, match="SandboxError"):
        hand(box)


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({"PATH": "/opt/venv/bin:/usr/bin"}, ["opt/venv"]),
        (
            {"PATH": "/root/.local/bin:/home/me/bin", "VIRTUAL_ENV": "/srv/env"},
            ["root/.local", "home/me/bin", "srv/env"],
        ),
        ({"PATH": "/app/bin:bin:/bin:", "PYTHONPATH": "/app:/lib/x:/root"}, []),
        ({"LD_LIBRARY_PATH": "/data/../usr:/data/lib"}, ["data/lib"]),
    ],
)
def test_where_the_images_programs_are_is_system_too(env: dict[str, str], found: list[str]) -> None:
    plain = system_folders({}, "/app", "/tests")
    assert system_folders(env, "/app", "/tests")[len(plain) :] == found
    assert "tests" in plain


@pytest.mark.both_users
def test_a_program_run_by_the_tests_reaches_its_own_files_and_no_others(box: Box) -> None:
    hand(box)
    box.out("echo secret > /tests/x; echo 0 > /logs/verifier/reward.txt; mkdir -p /app/in; echo in > /app/in/file")
    run = "/.tbench/run-program"
    does = "cat /app/in/file; cd /app && mv in out && ln -s out in && echo new > out/new && cat /tmp/../app/in/new; id -u; echo $HOME"
    assert box.out(f"{run} bash -c '{does}'").split() == ["in", "new", "0", "/root"]
    assert (
        box.out(f"{run} python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 80)); print(1)'") == "1"
    )
    for command in (
        "cat /tests/x", "ls /tests", "echo 1 > /logs/verifier/reward.txt", "rm /logs/verifier/reward.txt", "ls /.tbench/home",
        "echo x > /.tbench/run-program", "echo x > /usr/bin/new", "rm /usr/bin/wc", "mv /logs/verifier /app/moved",
        "ln /logs/verifier/reward.txt /app/hard", "cat /proc/$PPID/environ", "truncate -s 0 /logs/verifier/reward.txt",
    ):  # fmt: skip
        assert box.run(f"{run} bash -c '{command}'")["return_code"] != 0, command
    assert box.out("cat /logs/verifier/reward.txt /tests/x").split() == ["0", "secret"]
    code = "import subprocess, sys; print(subprocess.run(sys.argv[1:], capture_output=True, text=True).stdout)"
    traced = "import ctypes, os; print(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0))"
    assert box.out(f"python3 -c '{code}' {run} python3 -c '{traced}'") == "-1"
    assert box.out(f"{run} no-such-program; echo $?") == "127"
    limited = "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))"
    own = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9)); print(*resource.prlimit(0, resource.RLIMIT_NOFILE))"
    for started in (run, "/bin/env"):  # plainly, the attack works: tests that can open nothing write no reward
        did = box.out(f"{started} python3 -c '{limited}' 2>/dev/null; cat /logs/verifier/reward.txt || echo no")
        assert did == ("0" if started == run else "no")
    assert box.out(f"{run} python3 -c '{own}'") == "9 9"
    kept = "exec 8</tests/x 9>>/logs/verifier/reward.txt"
    tried = "bash -c 'cat <&8; echo 1 >&9' 2>/dev/null"
    assert box.out(f"{kept}; {run} {tried}; {run} cat <(echo piped); cat /logs/verifier/reward.txt").split() == [
        "piped",
        "0",
    ]


@pytest.mark.both_users
def test_without_landlock_a_program_run_by_the_tests_is_another_users(box: Box) -> None:
    """Where there is another user; else the tests are told of no such program, and what they run can write the reward."""
    handed = hand(box, landlock=False)
    if box.do("about")["ids"] == "one":
        assert handed["run_program"] is None
        return
    run = handed["run_program"]
    box.out("echo secret > /tests/x; echo 0 > /logs/verifier/reward.txt; echo in > /app/in; chmod 755 /app")
    assert box.out(f"{run} bash -c 'cat /app/in; id -u; echo x > /tmp/new; cat /tmp/new'").split() == [
        "in",
        "65534",
        "x",
    ]
    for command in (
        "cat /tests/x", "ls /tests", "echo 1 > /logs/verifier/reward.txt", "rm /logs/verifier/reward.txt", "ls /.tbench/home/0",
        "echo x > /.tbench/run-program", "echo x > /usr/bin/new", "mv /logs/verifier /tmp/moved", "kill -9 $PPID",
        "ln /logs/verifier/reward.txt /tmp/hard", "cat /proc/$PPID/environ", "su -c true", "python3 -c 'import os; os.setuid(0)'",
    ):  # fmt: skip
        assert box.run(f'{run} bash -c "{command}"')["return_code"] != 0, command
    assert box.out("cat /logs/verifier/reward.txt /tests/x").split() == ["0", "secret"]


@pytest.mark.parametrize("landlock", [True, False])
def test_a_program_that_the_tests_wait_for_is_known(box: Box, landlock: bool) -> None:
    """By a mark that it cannot take off, with all that it leaves behind; what the tests run by themselves has none."""
    run = hand(box, landlock=landlock)["run_program"]
    if run is None:
        pytest.skip("neither Landlock nor a second user")
    box.out("setsid sleep 1000 >/dev/null 2>&1 &")
    assert not box.call("runs_programs")
    box.out(f'{run} bash -c "(setsid env -i sleep 1001 >/dev/null 2>&1 &)"')
    box.until("pgrep -c -f 'sleep 100[01]'", "2")
    assert box.call("runs_programs")
    box.out("pkill -f 'sleep 1000'")
    box.until("pgrep -c -f 'sleep 100[01]'", "1")
    assert box.call("runs_programs"), "also where nothing else runs"
    box.out("pkill -f 'sleep 1001'")
    box.until("pgrep -c -f 'sleep 100[01]' || true", "0")
    assert not box.call("runs_programs")


ROOT = {"Dockerfile": "FROM debian:12\nWORKDIR /app\nRUN echo image > /kept.txt && echo image > /pyproject.toml\n"}


def test_loose_files_of_the_root_folder_are_system_unless_the_task_names_them(driver: Driver) -> None:
    instruction = "Write `/answer.txt`, then look at /usr/share/x.txt and ./y.txt\n"
    box = driver.box(files={**ROOT, "../instruction.md": instruction})
    box.out(
        "for f in answer.txt x.txt y.txt conftest.py pytest.ini .pytest.ini setup.cfg tox.ini; do echo a > /$f; done"
    )
    box.out("echo a > /kept.txt; echo a > /pyproject.toml; mkdir /made; echo a > /made/conftest.py; ln -s /app /link")
    told = hand(box)
    assert box.out("cat /answer.txt /kept.txt /pyproject.toml /made/conftest.py").split() == [
        "a",
        "image",
        "image",
        "a",
    ]
    assert (
        box.out("cd /; ls -d x.txt y.txt conftest.py pytest.ini .pytest.ini setup.cfg tox.ini link 2>/dev/null | wc -l")
        == "0"
    )
    changes = {one["path"]: one["flagged"] for one in told["changes"]["changes"]}
    assert {path for path, flagged in changes.items() if flagged} >= {
        "/conftest.py", "/pytest.ini", "/.pytest.ini", "/setup.cfg", "/tox.ini", "/pyproject.toml", "/kept.txt",
    }  # fmt: skip
    assert changes["/x.txt"] is changes["/y.txt"] is False, "listed, and nothing is said against it"


def test_a_task_that_works_in_the_root_folder_keeps_its_files_but_for_pytests(driver: Driver) -> None:
    box = driver.box(files={"Dockerfile": "FROM debian:12\nWORKDIR /\n"})
    box.out("for f in x.txt package.json conftest.py pytest.ini; do echo a > /$f; done")
    hand(box)
    assert box.out("cd /; ls -d x.txt package.json conftest.py pytest.ini 2>/dev/null; true").split() == [
        "package.json",
        "x.txt",
    ]


LOOK = (
    "cd /app; cat kept; ls -A; readlink link; stat -c '%U %a %h' kept own pipe folder; stat -c %Y folder;"
    " ls /usr/bin/env /etc/marker /tmp/marker /tests/x /opt/gone 2>&1 | sort"
)


@pytest.mark.both_users
def test_tests_that_run_again_find_the_work_as_it_was_handed_to_the_first(box: Box) -> None:
    """Contents, owners, links, times and removals; what the first did anywhere is aside, and there again after that."""
    box.out(
        "mkdir -p /app/folder /opt/gone; cd /app; echo work > kept; ln kept hard; ln -s kept link; mkfifo pipe;"
        " echo x > own; chmod 640 own; chown 7 own 2>/dev/null; touch -d @1000 folder; rm -r /opt/gone"
    )
    assert json.loads(box.do("hand", again=True))["kept"] is True
    handed = box.run(LOOK)["stdout"]
    box.out(
        "cd /app; echo tests > kept; rm link own; mkdir more; touch /tmp/marker /etc/marker /tests/x folder; rm -r folder"
    )
    tested = box.run(LOOK)["stdout"]
    assert tested != handed
    for _ in range(2):
        assert box.call("work_as_handed") is True
        assert box.run(LOOK)["stdout"] == handed
        box.out("echo again > /app/kept; touch /tmp/marker")
    box.call("work_as_tested")
    assert box.run(LOOK)["stdout"] == tested


def test_large_work_is_not_kept(box: Box) -> None:
    box.out("truncate -s 200M /app/large")
    assert json.loads(box.do("hand", again=True))["kept"] is False
    assert box.call("work_as_handed") is False
    assert box.out("ls /app") == "large"
