"""What the tests run of the agent's work is confined, without their help; honest programs do not notice."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.driving import Box, Driver
from sandbox.test_first_process import put
from terminalbench.sandbox.engine.views import SYSTEM
from terminalbench.sandbox.engine.whose import FileOwnership, is_builder, is_interpreter, is_shell, is_work

pytestmark = pytest.mark.any_user

REWARD = "/logs/verifier/reward.txt"


def run_tests(box: Box, command: str) -> dict[str, Any]:
    return box.do("tests", command=command)


def judge(box: Box, program: str, *, by: str = "python3 /app/prog.py", then: str = "") -> dict[str, Any]:
    """Run a program of the agent's in tests that find it wanting."""
    box.out("mkdir -p /app")
    put(box, "/app/prog.py", program)
    box.do("hand")
    box.out(
        "mkdir /tests/data; echo {} | tee /tests/test_outputs.py /tests/data/expected.json > /tests/data/input.json"
    )
    put(box, "/tests/test.sh", f"{by}\n{then}\necho 0 > {REWARD}\n")
    return run_tests(box, f"cd /app && bash /tests/test.sh; cat {REWARD}")


MARK = "=== "


def judge_all(driver: Driver, parts: Mapping[str, tuple[str, str, str]]) -> tuple[dict[str, str], dict[str, Any]]:
    """Run many programs of the agent's in one run of tests: of each its text, how the tests run it, and what they do then.

    What was printed for each, after it what the reward was before the tests wrote their own; and what the run told.
    """
    box = driver.box()
    files = [
        f"cat > /app/prog{number}.py <<'END_OF_FILE'\n{part[0]}\nEND_OF_FILE"
        for number, part in enumerate(parts.values())
    ]
    box.out("\n".join(["mkdir -p /app", *files, "chmod +x /app/*"]))
    box.do("hand")
    box.out(
        "mkdir /tests/data; echo {} | tee /tests/test_outputs.py /tests/data/expected.json > /tests/data/input.json"
    )
    each = [
        f"echo; echo {shlex.quote(MARK + name)}; {by.replace('PROG', f'prog{number}')}\n{then}\necho; cat {REWARD} 2>/dev/null || echo none\necho 0 > {REWARD}; rm {REWARD}"
        for number, (name, (_, by, then)) in enumerate(parts.items())
    ]
    put(box, "/tests/test.sh", "\n".join(each))
    done = run_tests(box, "cd /app && bash /tests/test.sh")
    pieces = (piece.split("\n", 1) for piece in done["out"].split(f"\n{MARK}")[1:])
    return dict(pieces), done


ATTACKS = {
    "writes": f"open('{REWARD}', 'w').write('1')",
    "renames": f"import os; open('/app/r', 'w').write('1'); os.rename('/app/r', '{REWARD}')",
    "links": f"import os; open('/app/r', 'w').write('1'); os.link('/app/r', '{REWARD}')",
    "makes a folder": "import os; os.mkdir('/logs/verifier/reward.txt')",
    "edits the script": "open('/tests/test.sh', 'a').write('echo 1 > /logs/verifier/reward.txt')",
    "replaces a tool": "open('/usr/bin/cat', 'w').write('#!/bin/sh\\necho 1\\n')",
    "changes a mode": "import os; os.chmod('/usr/bin/cat', 0)",
    "changes the mode of an open file": "import os; os.fchmod(os.open('/usr/bin/cat', os.O_RDONLY), 0)",
    "changes an owner": "import os; os.chown('/usr/bin/cat', 1, 1)",
    "changes times": "import os; os.utime('/tests/test.sh', (0, 0))",
    "sets an attribute": "import os; os.setxattr('/tests/test.sh', 'user.x', b'y')",
    "goes by a link": "import os; os.symlink('/usr/bin', '/app/l'); os.chmod('/app/l/cat', 0)",
    "goes by another folder": "import os; os.chdir('/usr/bin'); os.chmod('cat', 0)",
    "goes by the root of another": "import os; os.chmod('/proc/self/root/usr/bin/cat', 0)",
    "stops the tests": "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "traces the tests": "import ctypes, os; e = ctypes.CDLL(None, use_errno=True);"
    " assert e.ptrace(16, os.getppid(), 0, 0) == 0",
    "reaches into the tests": "import os; open(f'/proc/{os.getppid()}/mem', 'r+b')",
    "writes to the tests' home": "import os; open(f'/.tbench/home/{os.getuid()}/.bashrc', 'w')",
    "reads the tests": "print(open('/tests/test_outputs.py').read())",
    "reads what they expect": "print(open('/tests/data/expected.json').read())",
    "executes another": f"import os; os.execvp('bash', ['bash', '-c', 'echo 1 > {REWARD}'])",
}


def attacked(driver: Driver) -> tuple[dict[str, str], dict[str, Any]]:
    then = "stat -c %a:%U /usr/bin/cat; stat -c %Y /tests/test.sh"
    by = "stat -c %a:%U /usr/bin/cat; python3 /app/PROG.py"
    return judge_all(driver, {name: (f"{code}\nprint('done')", by, then) for name, code in ATTACKS.items()})


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.both_users
def test_a_program_of_the_work_changes_nothing_of_the_tests(driver: Driver, name: str) -> None:
    said, done = driver.once(attacked)
    if name != "changes an owner":  # with one user only, that is answered and not done
        assert "done" not in said[name], said[name]
    before, *_, after, time, reward = said[name].split()
    assert (before, reward) == (after, "none")
    assert int(time) > 0
    assert (done["confined"], done["free"]) == (len(ATTACKS), 0)


@pytest.mark.both_users
def test_a_program_of_the_work_reads_what_the_tests_hand_to_it(box: Box) -> None:
    """Data that say nothing of the answers it reads in any case."""
    program = "import sys; print(open((sys.argv[1:] or ['/tests/data/input.json'])[0]).read())"
    by = "python3 /app/prog.py && python3 /app/prog.py /tests/data/expected.json"
    assert judge(box, program, by=by)["out"].split() == ["{}", "{}", "0"]


@pytest.mark.both_users
def test_a_program_of_the_work_has_no_way_to_write_to_files_that_the_tests_have_open(box: Box) -> None:
    program = "import os\nfor n in range(3, 10):\n  try: os.pwrite(n, b'1', 0)\n  except OSError: pass"
    done = judge(box, program, by=f"exec 5> {REWARD} 6> /app/log\npython3 /app/prog.py", then="cat /app/log; exit")
    assert (done["out"].strip(), done["confined"]) == ("1", 1), "its own file it may write, the reward not"


DAEMON = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for handle in range(3):
            os.close(handle)
        while True:
            try:
                if open('{REWARD}').read().strip() == '0':
                    open('{REWARD}', 'w').write('1')
            except OSError:
                pass
    os._exit(0)
"""


def test_what_outlives_the_tests_is_ended_and_has_not_written_the_reward(box: Box) -> None:
    done = judge(box, DAEMON)
    assert done["out"].strip() == "0"
    assert (done["left"], done["confined"]) == (0, 1)
    assert box.out("ps -e -o comm= | grep -c python || true") == "0"


def test_code_in_the_tests_own_process_that_outlives_them_is_told(box: Box) -> None:
    """The work that they import runs as they do: it is ended with them, and counted."""
    put(box, "/app/prog.py", DAEMON.replace("'0'", "'never'"))
    box.do("hand")
    put(box, "/tests/check.py", "import sys\nsys.path.insert(0, '/app')\nimport prog\n")
    done = run_tests(box, "python3 /tests/check.py; sleep 1000 >/dev/null 2>&1 &")
    assert done["left"] >= 1, done  # what started it may be there for a moment, too
    assert done["confined"] == 0


EDITS = {
    "another script": ("open('/tests/test.sh', 'a').write('echo 1 > {reward}')", ["test.sh"]),
    "and it is put back": (
        "import os; s = os.stat('/tests/test.sh'); old = open('/tests/test.sh').read(); open('/tests/test.sh', 'w').write('x');"
        " open('/tests/test.sh', 'w').write(old); os.utime('/tests/test.sh', ns=(s.st_atime_ns, s.st_mtime_ns))",
        ["test.sh"],
    ),
    "a test is removed": ("import os; os.unlink('/tests/check.py')", ["check.py"]),
    "files of its own, modes": ("import os; open('/tests/report.py', 'w'); os.chmod('/tests/test.sh', 0o755)", []),
    "data": ("open('/tests/data.json', 'w').write('{{}}')", []),
    "a tool that they use": (
        "import os; os.unlink('/usr/bin/diff'); open('/usr/bin/diff', 'w'); open('/usr/local/bin/grep', 'w'); open('/usr/local/bin/new', 'w')",
        ["/usr/local/bin/grep", "/usr/bin/diff"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_code_in_the_tests_own_process_that_rewrites_them_is_told(box: Box, name: str) -> None:
    code, found = EDITS[name]
    put(box, "/app/prog.py", code.format(reward=REWARD))
    box.do("hand")
    put(box, "/tests/check.py", "import sys\nsys.path.insert(0, '/app')\nimport prog\n")
    put(box, "/tests/data.json", "[]")
    put(box, "/tests/test.sh", f"python3 /tests/check.py\necho 0 > {REWARD}\n")
    assert run_tests(box, "bash /tests/test.sh")["rewritten"] == found


LATE = f"""
import os, time
shell = os.getppid()
if os.fork() == 0:
    for handle in range(3):
        os.close(handle)
    while open(f'/proc/{{shell}}/stat').read().rpartition(')')[2].split()[0] != 'Z':
        pass
    time.sleep(0.02)  # past the tick of the clock that files are stamped with
    open('{REWARD}', 'w').write('1')
    os._exit(0)
"""


def test_a_reward_that_changes_when_the_tests_have_ended_is_told(box: Box) -> None:
    put(box, "/app/prog.py", LATE)
    box.do("hand")
    put(box, "/tests/check.py", "import sys\nsys.path.insert(0, '/app')\nimport prog\n")
    done = run_tests(box, f"python3 /tests/check.py; echo 0 > {REWARD}")
    written = box.out(f"cat {REWARD}") == "1"
    assert (done["late"] == ["reward.txt"]) == written
    looked_at = (
        f"for n in 1 2 3; do stat {REWARD} > /dev/null; echo $n > {REWARD}; done"  # then kernels keep exact times
    )
    assert run_tests(box, looked_at)["late"] == []


WAYS = [
    "python3 PROG.py",
    "./PROG.py",
    "python3 -m PROG",
    "python3 -c 'import sys; sys.path.insert(0, \"/app\"); import PROG'",
    "python3 -c 'import PROG'",
    "python3 -c 'import runpy; runpy.run_path(\"./PROG.py\")'",
    "bash -c 'cd /app; timeout 60 python3 PROG.py'",
    "sh -c ./PROG.py",
    "env PYTHONUNBUFFERED=1 nice ./PROG.py",
    "python3 -c 'import subprocess; subprocess.run([\"./PROG.py\"])'",
    'python3 -c \'import os; os.posix_spawn("./PROG.py", ["PROG"], os.environ); os.wait()\'',
    "cp /app/PROG.py /tmp/copy; chmod +x /tmp/copy; /tmp/copy",
    "python3 < PROG.py",
    "python3 - < /app/PROG.py",
    "python3 /dev/stdin < PROG.py",
]
"""How tests run a program: PROG stands for its name."""


def run_in_all_ways(driver: Driver) -> tuple[dict[str, str], dict[str, Any]]:
    program = f"#!/usr/bin/python3\nprint('ran', flush=True)\nopen('{REWARD}', 'w').write('1')"
    return judge_all(driver, {by: (program, by, "") for by in WAYS})


@pytest.mark.parametrize("by", WAYS)
def test_however_the_tests_run_it(driver: Driver, by: str) -> None:
    said, done = driver.once(run_in_all_ways)
    assert said[by].split() == ["ran", "none"], said[by]
    assert done["free"] == 0


@pytest.mark.parametrize(
    "command",
    [
        "psql -q -f /app/x.sql", "mysql -e 'source /app/x.sql'", "psql -U me db < /app/x.sql", "sqlite3 :memory: < /app/x.sql",
        "valgrind -q --error-exitcode=9 /app/prog", "memcheck-amd64-linux /app/prog", "bash < /app/x.sh", "sh -s 1 < /app/x.sh",
        "nginx -c /app/nginx.conf", "m4 /app/x.m4", "m4 < /app/x.m4", "ansible-playbook /app/site.yml", "bats /app/x.bats",
        "terraform -chdir=/app apply", "perl - < /app/x.pl",
    ],
)  # fmt: skip
def test_a_program_that_runs_what_it_is_handed_is_confined(command: str) -> None:
    assert runs_work(command)


@pytest.mark.parametrize(
    "command",
    [
        "bash", "sh -c 'cat' < /app/data", "awk '{print}' < /app/data", "python3 -c 'import sys' < /app/data", "nginx", "bash < /tests/x.sh",
        "psql -c 'select 1'", "nginx -c /etc/nginx/nginx.conf", "pip3 install -r /app/requirements.txt", "cat /app/x.sh",
        "sed s/a/b/ < /app/data", "jq .x < /app/x.json", "pytest /tests/test_outputs.py", "valgrind --log-file=/tests/log ls",
    ],
)  # fmt: skip
def test_the_tests_own_programs_are_not(command: str) -> None:
    assert not runs_work(command)


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("gunicorn -w 2 app:app", True), ("python3 -m gunicorn 'app:create()'", True), ("uvicorn main:app --port 80", False),
        ("python3 -m uvicorn app:app", True), ("flask run", True), ("flask --app=app.web run", True), ("celery -A app worker", True),
        ("waitress-serve app:app", True), ("uvicorn --app-dir /tests mock:app", False), ("python3 -m http.server", False),
    ],
)  # fmt: skip
def test_a_server_that_is_told_a_module_of_the_work_is_confined(command: str, own: bool) -> None:
    program, *words = shlex.split(command)
    ground = FileOwnership(frozenset(SYSTEM), "tests", "logs/verifier", "/app/app.py".__eq__, lambda _: False)
    assert is_work(f"/usr/bin/{program}", [program, *words], "/app", "bash", ground) is own
    assert not is_work(f"/usr/bin/{program}", [program, *words], "/tests", "bash", ground)


def test_programs_are_known_by_their_names_whatever_their_version() -> None:
    known = [
        "/usr/bin/python3.12",
        "perl5.36.0",
        "php8.2.exe",
        "ld-linux-x86-64.so.2",
        "pdflatex",
        "qemu-arm",
        "make4.3",
    ]
    assert [one for one in known if not is_interpreter(one)] == []
    assert [one for one in ("grep", "pythonic", "xmake", "python3.12-config", "4.2", "") if is_interpreter(one)] == []
    assert [is_builder(one) for one in ("cargo", "dotnet8", "python3")] == [True, True, False]
    assert [is_shell(one) for one in ("/bin/bash5.2", "zsh", "bashful")] == [True, True, False]


def runs_work(command: str) -> bool:
    """Whether a command that the tests run in their own folder runs the work; `<` names its standard input."""
    program, *words = shlex.split(command)
    given = words[words.index("<") + 1] if "<" in words else ""
    words = words[: words.index("<")] if given else words
    ground = FileOwnership(frozenset(SYSTEM), "tests", "logs/verifier", lambda _: False, lambda _: False)
    return is_work(f"/usr/bin/{program}", [program, *words], "/tests", "bash", ground, given)


HONEST = {
    "writes its work": ("open('/app/out', 'w').write('1'); open('/tmp/out', 'w').write('2 ')", "cat /app/out /tmp/out", "12"),
    "changes its own files": (
        "import os; open('/app/f', 'w'); os.chmod('/app/f', 0o640); os.utime('/app/f', (1, 2));"
        " os.setxattr('/app/f', 'user.k', b'v'); os.symlink('f', '/app/s'); os.utime('/app/s', (3, 4), follow_symlinks=False);"
        " h = os.open('/app/f', os.O_RDONLY); os.fchmod(h, 0o600); os.chown('/app/f', 0, 0);"
        " d = os.open('/app', os.O_RDONLY); os.chmod('f', 0o644, dir_fd=d); print(os.getxattr('/app/f', 'user.k').decode())",
        "stat -c %a:%Y /app/f",
        "v 644:2",
    ),
    "moves between folders": (
        "import os, shutil; os.makedirs('/app/a/b'); open('/app/a/x', 'w'); os.rename('/app/a/x', '/app/a/b/y');"
        " shutil.copytree('/app/a', '/app/c'); shutil.move('/app/c', '/tmp/c')",
        "ls /app/a/b /tmp/c/b",
        "/app/a/b: y /tmp/c/b: y",
    ),
    "reads the tests' data": ("print(open('/tests/data/input.json').read())", "", "{}"),
    "starts others": ("import subprocess; print(subprocess.run(['id', '-u'], capture_output=True, text=True).stdout)", "", "0"),
    "listens": (
        "import socket; s = socket.create_server(('127.0.0.1', 80)); c = socket.create_connection(s.getsockname()); print('heard')",
        "",
        "heard",
    ),
    "writes to its own home": (
        "import pathlib; p = pathlib.Path.home() / '.prog' / 'x'; p.parent.mkdir(); p.write_text('c'); print(p)",
        "cat /root/.prog/x; echo; ls -A $HOME | grep prog",
        "/root/.prog/x c",
    ),
    "says that it runs": ("import os; open('/run/prog.pid', 'w').write('7'); os.chmod('/run/prog.pid', 0o600)", "cat /run/prog.pid; echo", "7"),
    "changes an open file by its number": (
        "import os; h = os.open('/app/f', os.O_CREAT | os.O_RDONLY); os.chmod(f'/proc/self/fd/{h}', 0o604)", "stat -c %a /app/f", "604",
    ),
    "fails": ("raise SystemExit(7)", "echo $?", "7"),
    "prints much": ("print('x' * 100000)", "", "x" * 100000),
}  # fmt: skip


def run_honest_ones(driver: Driver) -> tuple[dict[str, str], dict[str, Any]]:
    return judge_all(
        driver, {name: (program, "python3 /app/PROG.py", then) for name, (program, then, _) in HONEST.items()}
    )


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_does_not_notice(driver: Driver, name: str) -> None:
    said, done = driver.once(run_honest_ones)
    assert said[name].split() == [*HONEST[name][2].split(), "none"], said[name]
    assert (done["confined"], done["free"]) == (len(HONEST), 0)


GIT = {
    "monitor": "git config core.fsmonitor 'echo 1 > {reward}; touch /app/ran; false'",
    "hook": "printf '#!/bin/sh\\necho 1 > {reward}; touch /app/ran\\n' > .git/hooks/post-index-change; chmod +x .git/hooks/*",
    "filter": "echo '* filter=f' > .gitattributes; git config filter.f.clean 'touch /app/ran; echo 1 > {reward}; cat'",
    "alias": "git config alias.st '!touch /app/ran; echo 1 > {reward}'",
}


@pytest.mark.parametrize("name", GIT)
def test_what_the_works_git_runs_is_confined(box: Box, name: str) -> None:
    box.out("mkdir -p /app && cd /app && git init -q . && echo x > f && git add f")
    box.out(f"cd /app && {GIT[name].format(reward=REWARD)}; echo y >> f")
    box.do("hand")
    by = "st" if name == "alias" else "status"
    done = run_tests(box, f"cd /app; echo 0 > {REWARD}; git {by} >/dev/null 2>&1; git add f; ls ran; cat {REWARD}")
    assert done["out"].split() == ["ran", "0"], done
    assert done["confined"] >= 1


def test_builds_have_the_home_of_the_tests(box: Box) -> None:
    """What the tests have installed there, and its caches, which they may write."""
    box.out(
        "mkdir -p /app; printf 'all:\\n\\techo c > $(HOME)/.cache/x && cat $(HOME)/.cache/x $(HOME)/own\\n' > /app/Makefile"
    )
    box.do("hand")
    done = run_tests(box, "echo mine > ~/own; make -s -C /app; echo x > ~/.cache/y; cat ~/.cache/x")
    assert done["out"].split() == ["c", "mine", "c"], done
    assert done["confined"] == 1


def test_the_tests_themselves_are_free(box: Box) -> None:
    """They install, write the reward from any language, use gdb's calls, and run what they make of their own."""
    put(box, "/app/data.txt", "data")
    box.do("hand")
    put(box, "/tests/check.py", f"import sys\nopen('{REWARD}', 'w').write(open(sys.argv[1]).read())\n")
    done = run_tests(
        box,
        "cd /app; echo x > /etc/made; echo y > /usr/local/bin/z; chmod 700 /usr/local/bin/z; python3 /tests/check.py data.txt;"
        f' cat {REWARD}; python3 -c \'open("/logs/verifier/a", "w").write("/app")\'; cat /logs/verifier/a /etc/made;'
        " nothere; ./data.txt; cp data.txt /etc/copied; cat /etc/copied; stat -c %a /usr/local/bin/z; false",
    )
    assert done["out"].split() == ["data", "/appx", "data", "700"], done
    assert done["code"] == 1
    assert done["confined"] == 0


@pytest.mark.both_users
def test_a_program_by_run_program_changes_no_mode_outside_its_work(box: Box) -> None:
    program = """
import os
for path, mode in (('/usr/bin/grep', 0), ('/logs/verifier', 0), ('/tests', 0), ('/etc/passwd', 0), ('/app/own', 0o600)):
    try:
        os.chmod(path, mode)
        print('changed', path)
    except OSError as error:
        print(error.errno)
"""
    put(box, "/app/own", "x")
    put(box, "/app/prog.py", program)
    run = json.loads(box.do("hand"))["run_program"]
    done = run_tests(box, f"cd /app; {run} python3 /app/prog.py; stat -c %a /usr/bin/grep /logs/verifier /app/own")
    lines = done["out"].split()
    assert lines[-3:] == ["755", "755", "600"], done
    assert [line for line in lines if line.startswith("/")] == ["/app/own"]


def test_folders_of_the_system_in_the_work_stay_the_systems(driver: Driver) -> None:
    """What the image's variables lead to, in a folder that is work otherwise."""
    image = (
        "FROM debian:12\nENV PATH=/opt/venv/bin:/usr/bin:/bin\nWORKDIR /app\nRUN mkdir -p /opt/venv/bin /opt/other\n"
    )
    box = driver.box(files={"Dockerfile": image})
    put(box, "/app/prog.py", "import os\nfor f in ('/opt/venv/bin/x', '/opt/other/x', '/var/lib/x'):\n"
        " try:\n  open(f, 'w'); print(f)\n except OSError: print('no')\n")  # fmt: skip
    box.do("hand")
    done = run_tests(box, "python3 /app/prog.py")
    assert done["out"].split() == ["no", "/opt/other/x", "/var/lib/x"], done
