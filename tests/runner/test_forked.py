"""Processes forked from one that has loaded Harbor: what a fresh one would be, and gone when it should be."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from support.pace import seconds
from terminalbench.locks import start_ticks
from terminalbench.runner.environment import process_environment
from terminalbench.runner.executors import local
from terminalbench.runner.executors.loaded import ForkRequest, sweep, why_not
from terminalbench.runner.executors.local import ADDRESS, ForkedProcess, LoadedHarbor, fork, harbor_loaded_once

PROBE = """
import json, os, resource, signal, sys, threading, time
def main():
    if sys.argv[1] == "tell":
        print(json.dumps({
            "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "path": sys.path[0],
            "leader": os.getsid(0) == os.getpid() == os.getpgrp(), "said": sys.stdin.read(),
            "files": sorted(os.listdir("/proc/self/fd")), "limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            "umask": os.umask(0), "threads": threading.active_count(), "harbor": [name in sys.modules for name in ("harbor.job", "harbor.cli.main")],
            "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
        }))
    elif sys.argv[1] == "exit":
        sys.exit(int(sys.argv[2]))
    elif sys.argv[1] == "fail":
        raise ValueError("broken")
    elif sys.argv[1] == "wait":
        try:
            print("here", flush=True)
            open(sys.argv[2] + ".begun", "w").close()
            time.sleep(60)
        except KeyboardInterrupt:
            open(sys.argv[2], "w").write("interrupted")
            sys.exit(7)
if __name__ == "__main__":
    main()
"""
ASKER = """
import os, subprocess, sys, time
from terminalbench.runner.executors.local import fork
from terminalbench.runner.environment import process_environment
from terminalbench.sandbox.engine.kernel import is_privileged
if is_privileged():
    os.unshare(os.CLONE_NEWNS)
with open(os.devnull, "r+b") as nowhere:
    process = fork([sys.executable, "-m", "probe", "wait", sys.argv[1]], process_environment((), None, None, os.environ), 2,
                   stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere)
os.read(process._files["stdout"], 10)  # it is at work
print(process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Generator[LoadedHarbor]:
    folder = tmp_path_factory.mktemp("loaded")
    git = folder / "git"
    git.write_text(f'#!/bin/sh\necho $PPID $* >> {folder}/asked-git\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        with LoadedHarbor(folder / "log") as server:
            yield server


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the process, with the module that it runs."""
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def usual() -> dict[str, str]:
    return process_environment((), None, None, os.environ)


def started(*arguments: str, number: int = signal.SIGKILL, env: dict[str, str] | None = None) -> ForkedProcess:
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    found = fork([sys.executable, "-m", "probe", *arguments], {**usual(), **(env or {})}, number, **files)
    assert found is not None
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_forked_process_is_what_a_fresh_one_would_be(loaded: LoadedHarbor, place: Path) -> None:
    asked = started("tell", "a b", env={"KEY": "value"}, number=signal.SIGINT)
    out, err = asked.communicate(b"question")
    assert err == b""
    told = json.loads(out)
    assert (told["argv"], told["cwd"], told["path"]) == (["tell", "a b"], str(place), str(place))
    assert told["said"] == "question"
    mark = told["env"].pop("TBENCH_JOB_MARK")
    assert (told["env"], len(mark)) == ({**usual(), "KEY": "value"}, 32)
    assert told["leader"]
    assert told["interrupt"]
    assert told["child"]
    assert (told["threads"], told["harbor"]) == (1, [True, False]), "what a job needs, not Harbor's whole command"
    assert told["files"][:3] == ["0", "1", "2"]
    assert len(told["files"]) == 4, "only the one that lists them"
    assert told["umask"] == 0o077
    assert asked.poll() == 0
    asked_git = Path(told["env"]["PATH"].partition(":")[0]) / "asked-git"
    assert not asked_git.exists(), "no library looks through the commits of the project when it is loaded"


def test_it_ends_as_it_says(loaded: LoadedHarbor, place: Path) -> None:
    assert started("exit", "3").wait(60) == 3
    failing = started("fail")
    assert b"ValueError: broken" in failing.communicate()[1]
    assert failing.returncode == 1
    waiting = started("wait", "x")
    assert waiting.poll() is None
    waiting.kill()
    assert waiting.wait(60) == -signal.SIGKILL


def test_an_interrupt_reaches_it(loaded: LoadedHarbor, place: Path) -> None:
    process = started("wait", str(place / "said"))
    until(lambda: os.read(process._files["stdout"], 10).startswith(b"here"))
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 7
    assert (place / "said").read_text() == "interrupted"


def test_it_gets_its_signal_when_the_process_that_asked_is_killed(loaded: LoadedHarbor, place: Path) -> None:
    asker = subprocess.Popen([sys.executable, "-c", ASKER, str(place / "said")], stdout=subprocess.PIPE)
    assert asker.stdout is not None
    pid = int(asker.stdout.readline())
    assert start_ticks(pid) is not None
    assert Path(f"/proc/{pid}/ns/mnt").readlink() == Path(f"/proc/{asker.pid}/ns/mnt").readlink()
    asker.kill()
    asker.wait()
    asker.stdout.close()
    until(lambda: start_ticks(pid) is None)
    assert (place / "said").read_text() == "interrupted"


@pytest.mark.parametrize(
    ("argv", "env", "reason"),
    [
        (["/bin/harbor", "run"], {}, None),
        (["/bin/python", "-m", "x"], {"ANTHROPIC_API_KEY": "k"}, None),
        (["/bin/python", "-m", "x"], {"HOME": "/elsewhere"}, "another HOME"),
        (["/bin/python", "-m", "x"], {"LITELLM_LOG": "x", "LC_ALL": "C"}, "another LC_ALL, LITELLM_LOG"),
        (["/bin/python", "-m", "x"], {"PYTHONPATH": "/else:/where"}, "another PYTHONPATH"),
        (["/bin/sh", "-c", "x"], {}, "neither a run of Harbor nor a known module"),
        (["/bin/harbor", "view"], {}, "neither a run of Harbor nor a known module"),
    ],
)
def test_what_would_not_be_the_same_is_not_forked(argv: list[str], env: dict[str, str], reason: str | None) -> None:
    own = {"HOME": "/h", "PYTHONPATH": "/p"}
    assert why_not(ForkRequest(argv, {**own, **env}, "/", 9, 1024), {**own, "PATH": "/bin"}) == reason


def test_the_modules_of_a_project_are_found_by_a_fork_unless_they_stand_in_for_loaded_ones(
    loaded: LoadedHarbor, place: Path
) -> None:
    own = place / "own"
    own.mkdir()
    (own / "mine.py").write_text("")
    (place / "probe.py").write_text("import mine, sys; print(sys.path[:2], mine.__file__)")
    path = os.pathsep.join(filter(None, (str(own), os.environ.get("PYTHONPATH"))))
    out, err = started("tell", env={"PYTHONPATH": path}).communicate()
    assert (out.decode(), err) == (f"{[str(place), str(own)]} {own / 'mine.py'}\n", b"")

    def question() -> str | None:
        argv = [sys.executable, "-m", "probe"]
        return why_not(ForkRequest(argv, {**usual(), "PYTHONPATH": path}, str(place), 9, 1024), usual())

    (own / "msgspec").mkdir()
    assert question() is None, "a folder without a module does not stand in for a package"
    (own / "msgspec/__init__.py").write_text("")
    assert question() == f"a module named msgspec in {own}"
    (own / "msgspec/__init__.py").unlink()
    (own / "mine.egg-info").mkdir()
    assert question() == f"packages are installed in {own}"


def test_what_is_not_forked_is_an_ordinary_process(loaded: LoadedHarbor, place: Path) -> None:
    env = {**usual(), "LC_ALL": "C"}
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    ordinary = local.spawn([sys.executable, "-m", "json.tool", "--help"], env, **files)
    assert isinstance(ordinary, subprocess.Popen)
    assert b"json" in ordinary.communicate()[0]


def test_without_the_loaded_process_its_processes_are_gone_and_ordinary_ones_are_started(place: Path) -> None:
    with LoadedHarbor(place / "log") as server:
        process = started("wait", "x")
        assert server._process is not None
        server._process.kill()
        assert process.wait(60) == -signal.SIGKILL
        until(lambda: start_ticks(process.pid) is None)
        assert not server.alive
        files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        assert isinstance(local.spawn([sys.executable, "-c", ""], usual(), **files), subprocess.Popen)
    assert ADDRESS not in os.environ


def test_blocks_that_are_nested_share_the_process_of_the_outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    class Told(LoadedHarbor):
        def start(self) -> None:
            said.append(("start", id(self)))

        def end(self) -> None:
            said.append(("end", id(self)))

    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.setattr(local, "LoadedHarbor", Told)
    with harbor_loaded_once():
        for _ in range(2):  # as the batches of a training
            with harbor_loaded_once():
                assert fork([sys.executable], {}, signal.SIGKILL) is None
    assert said == [("start", said[0][1]), ("start", said[0][1]), ("end", said[0][1])]


def test_it_ends_with_its_owner(place: Path) -> None:
    code = "from pathlib import Path; import time\nfrom terminalbench.runner.executors.local import LoadedHarbor\n"
    code += "server = LoadedHarbor(Path('log')).__enter__(); print(server._process.pid, flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until(lambda: start_ticks(pid) is None)


def test_what_dead_owners_left_in_tmp_is_taken_away_and_nothing_else(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tempfile.TemporaryDirectory(prefix="t-")  # the address of a socket has 107 characters at most
    request.addfinalizer(short.cleanup)
    tmp_path = Path(short.name)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()

    def left(name: str, *, bound: bool = True) -> tuple[Path, socket.socket]:
        folder, listener = tmp_path / name, socket.socket(socket.AF_UNIX)
        folder.mkdir()
        if bound:
            listener.bind(str(folder / "socket"))
        return folder, listener

    dead, closed = left(f"tbench-loaded-{gone.pid}-1-abc")
    closed.close()
    empty = left(f"tbench-loaded-{gone.pid}-1-emp", bound=False)[0]
    here = left(f"tbench-loaded-{os.getpid()}-{start_ticks(os.getpid())}-abc")[0]
    served, listener = left(f"tbench-loaded-{gone.pid}-2-abc")
    listener.listen()  # as seen from another container: the owner is not in our list
    used = left(f"tbench-loaded-{gone.pid}-3-abc", bound=False)[0]
    (used / "notes.txt").write_text("mine")
    other = left("tbench-loaded-notes", bound=False)[0]
    link = tmp_path / f"tbench-loaded-{gone.pid}-4-abc"
    link.symlink_to(other)
    sweep()
    assert not dead.exists()
    assert not empty.exists()
    assert all(folder.exists() for folder in (here, served, used, other, link))


def test_a_loaded_process_that_does_not_answer_is_said_and_an_ordinary_one_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ADDRESS, str(tmp_path / "nobody"))
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    for _ in range(2):
        assert isinstance(local.spawn([sys.executable, "-c", ""], usual(), **files), subprocess.Popen)
    assert [record.message for record in caplog.records] == [
        "nothing is forked from the process that has loaded Harbor: it does not answer ([Errno 2] No such file or directory)"
    ]
