"""Driving sandboxes of root and of an ordinary user by the same tests."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.pace import seconds

HERE = Path(__file__).parent
SECRET = "tbench-test-secret-7f3a"  # in the environment of the process that holds the sandboxes
ORDINARY_UID = 65534
PATIENCE_SEC = seconds(120)


class Raised(Exception):
    """What the driver's side raised: its type by name, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class Forked:
    """What the tests use of `subprocess.Popen`, of a driver that is forked (see `driver.fork_drivers`)."""

    def __init__(self, loaded: socket.socket, environment: dict[str, str]) -> None:
        (read, ours), (mine, write), (told, tell) = os.pipe(), os.pipe(), os.pipe()
        socket.send_fds(loaded, [json.dumps(environment).encode()], [read, write, tell])
        for handle in (read, write, tell):
            os.close(handle)
        self.stdin, self.stdout = os.fdopen(ours, "w"), os.fdopen(mine)
        self._told = os.fdopen(told)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a driver", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._told.readline()))
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


type Process = subprocess.Popen[str] | Forked
_loaded: dict[str, socket.socket] = {}
"""The way to the process of each user that has loaded what a driver loads; it ends when this is closed."""


class Driver:
    """A process of one user that holds sandboxes."""

    def __init__(self, user: str, before: tuple[str, ...] = ()) -> None:
        self.user, self._before = user, before
        self.uid = ORDINARY_UID if user == "ordinary" and os.geteuid() == 0 else os.geteuid()
        self.gid = ORDINARY_UID if self.uid == ORDINARY_UID else os.getegid()
        self.folder = Path(tempfile.mkdtemp(prefix="tbench-sandbox-"))
        self.folder.chmod(0o755)
        for name in ("home", "cache", "work"):
            (self.folder / name).mkdir()
            os.chown(self.folder / name, self.uid, self.gid)
        self.process = self.start()
        self._found: dict[Any, Any] = {}

    def once[T](self, find: Callable[["Driver"], T]) -> T:
        """Return what `find` finds with this driver: once, for all tests that look at it."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]

    def command(self, *argv: str) -> list[str]:
        """`argv` as this driver's user, started by the command `before` if there is one."""
        if self.user == "ordinary" and os.geteuid() == 0:
            return [*self._before, sys.executable, str(HERE / "ordinary.py"), *argv]
        return [*self._before, *argv]

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "TBENCH_TEST_SECRET": SECRET,
            "HARBOR_TELEMETRY": "off",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def start(self) -> "Process":
        """A process of its own where a command comes before it, else one that is forked from a loaded one."""
        if self._before:
            return self._popen(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.user not in _loaded:
            ours, theirs = socket.socketpair()
            with theirs:
                self._popen("fork", stdin=theirs.fileno())
            _loaded[self.user] = ours
        return Forked(_loaded[self.user], self.environment())

    def _popen(self, *arguments: str, **files: Any) -> subprocess.Popen[str]:
        command = self.command(sys.executable, str(HERE / "driver.py"), *arguments)
        return subprocess.Popen(command, env=self.environment(), start_new_session=True, **files)

    def __call__(self, do: str, *args: Any, **options: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, "args": args, "options": options}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BaseException:  # a test's timeout: the answer would be taken for that of the next request
            self.process.kill()
            self.process.wait()
            raise
        assert line, "the driver died"
        answer = json.loads(line)
        if "raised" in answer:
            raise Raised(answer["raised"], answer["message"])
        return answer["value"]

    def box(self, **options: Any) -> "Box":
        return Box(self, self("new", str(self.folder / "work"), **options))

    @property
    def kept(self) -> Path:
        """Where its sandboxes keep what they keep."""
        return self.folder / "cache" / "terminalbench" / f"sandbox-{self.uid}"

    def share_base(self, other: "Driver") -> None:
        """Use the base that another driver of this user has made: to make and remove one takes long."""
        if not (other.kept / "base").exists():
            other.box().call("stop", True)
        self.kept.mkdir(parents=True)
        for folder in (self.kept.parent, self.kept):
            os.chown(folder, self.uid, self.gid)
            folder.chmod(0o700)
        (self.kept / "base").symlink_to(other.kept / "base")

    def restart(self) -> None:
        """A new process in place of one that was killed."""
        self.process.wait(seconds(30))
        self.process = self.start()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(seconds(60))
        remove_tree(self.folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder in which files may be of the subordinate ids of an ordinary user."""
    if os.getuid() != 0:
        as_all = ["unshare", "--map-root-user", "--map-auto", "rm", "-rf", str(folder)]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # it looks for newuidmap there
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(as_all, check=False, capture_output=True, timeout=seconds(60), env=env)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=os.getuid() != 0)


class Box:
    """One sandbox of a driver."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver, self.number = driver, number

    def run(self, command: str, **options: Any) -> dict[str, Any]:
        return self.driver("execute", self.number, command, **options)

    def out(self, command: str, **options: Any) -> str:
        """What a command that must succeed printed."""
        done = self.run(command, **options)
        assert done["return_code"] == 0, done
        return done["stdout"].strip()

    def until(self, command: str, answer: str) -> None:
        """Ask until a command prints `answer`: what was started needs its time, whoever waits for it."""
        deadline = time.monotonic() + PATIENCE_SEC
        while (said := self.run(command)["stdout"].strip()) != answer:
            assert time.monotonic() < deadline, f"{command}: {said!r}, not {answer!r}"
            time.sleep(0.02)

    def python(self, code: str, **options: Any) -> str:
        """What a Python program in the sandbox printed."""
        return self.out(f"python3 - <<'END_OF_PROGRAM'\n{code}\nEND_OF_PROGRAM", **options)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        return self.driver("call", self.number, method, *args, **options)

    def do(self, do: str, *args: Any, **options: Any) -> Any:
        return self.driver(do, self.number, *args, **options)
