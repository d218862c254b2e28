"""What the guardian ends when a limit is reached, and whom it leaves alone."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminalbench.sandbox.engine import inside, watch
from terminalbench.sandbox.engine import proc as proc_files
from terminalbench.sandbox.engine.cgroups import ControlGroup, GroupLimits
from terminalbench.sandbox.engine.watch import SandboxWatch

MEGABYTE = 1 << 20


class Kills(list[str]):
    """The names of what was run in the sandbox."""

    def visit(self, _: int, work: object) -> int:
        self.append(getattr(work, "__name__", ""))
        return 0


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Kills:
    kills = Kills()
    monkeypatch.setattr(inside, "visit", kills.visit)
    monkeypatch.setattr(watch, "_DISK_INTERVAL_SEC", 0.0)
    return kills


def test_a_full_disk_ends_what_fills_it_and_not_what_cleans_up(tmp_path: Path, kills: Kills) -> None:
    limits = GroupLimits(memory_bytes=0, scratch_bytes=10 * MEGABYTE, processes=100, cpus=None)
    with_all = list[int]()
    watching = SandboxWatch(-1, None, ControlGroup(), limits, [str(tmp_path)], lambda: with_all.append(1))

    def ended_with(size_mb: int) -> int:
        (tmp_path / "fill").write_bytes(os.urandom(size_mb * MEGABYTE))
        before = len(kills)
        watching.check()
        watching.check()
        return len(kills) - before

    assert ended_with(5) == 0
    assert ended_with(20) == 1
    assert ended_with(20) == 0
    assert ended_with(22) == 0, "a little more is what a file system does by itself"
    assert ended_with(30) == 1
    assert ended_with(5) == 0
    assert ended_with(12) == 1, "it was below the limit in between"
    assert ended_with(40) == 1
    assert ended_with(14) == 0
    assert ended_with(40) == 1, "what was removed may not be filled again"
    assert set(kills) == {"kill_all"}
    assert watching.counts()["disk"] == 5
    assert len(with_all) == 5, "what transfers is no process of the sandbox, and ends with them"


def test_growth_until_the_kill_does_not_count_against_who_comes_after(tmp_path: Path, kills: Kills) -> None:
    """The filler goes on between the measuring and its end."""
    limits = GroupLimits(memory_bytes=0, scratch_bytes=10 * MEGABYTE, processes=100, cpus=None)
    watching = SandboxWatch(-1, None, ControlGroup(), limits, [str(tmp_path)])
    (tmp_path / "fill").write_bytes(os.urandom(20 * MEGABYTE))
    kills.append = lambda _: (tmp_path / "more").write_bytes(os.urandom(20 * MEGABYTE))  # ty: ignore[invalid-assignment]
    watching.check()
    watching.check()
    assert watching.counts()["disk"] == 1


def test_what_cannot_be_measured_is_ended_each_time(
    tmp_path: Path, kills: Kills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_disk_bytes", lambda _: watch._BEYOND)
    limits = GroupLimits(memory_bytes=0, scratch_bytes=10 * MEGABYTE, processes=100, cpus=None)
    watching = SandboxWatch(-1, None, ControlGroup(), limits, [str(tmp_path)])
    for _ in range(3):
        watching.check()
    assert len(kills) == 3
    monkeypatch.setattr(watch, "_disk_bytes", lambda _: 12 * MEGABYTE)
    watching.check()
    assert len(kills) == 3, "it can be measured again, and is no fuller than before"
    monkeypatch.setattr(watch, "_disk_bytes", lambda _: 50 * MEGABYTE)
    watching.check()
    assert len(kills) == 4


class Members:
    """Real processes, of which the watch sees the sizes that a test gives them: 0 for one that is ending."""

    def __init__(self) -> None:
        self.running = {
            name: subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
            for name in ("agent", "hog")
        }
        self.pages = {"agent": 10, "hog": 100}

    def processes(self) -> dict[int, proc_files.ProcessStat]:
        return {self.running[name].pid: proc_files.ProcessStat(1, 1, 1) for name in self.pages}

    def memory(self, process: str) -> list[int]:
        size = next(pages for name, pages in self.pages.items() if process == f"/proc/{self.running[name].pid}")
        return [2 * size, size, 0] if size else []

    def ended(self) -> set[str]:
        """Who was killed; the kernel tells when it is over."""
        return {name for name in self.running if self.running[name].poll() is not None}


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    members = Members()
    monkeypatch.setattr(inside, "visit", lambda _, work: work() or 0)
    monkeypatch.setattr(proc_files, "processes", members.processes)
    monkeypatch.setattr(proc_files, "memory", members.memory)
    yield members
    for process in members.running.values():
        process.kill()
        process.wait()


class Told(ControlGroup):
    """A control group that tells these sizes, one by one, the last for ever."""

    def __init__(self, *used: int) -> None:
        super().__init__(1, {})
        self.used = list(used)

    def memory_used(self) -> int | None:
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]


LIMITS = GroupLimits(memory_bytes=50, scratch_bytes=0, processes=100, cpus=None)


def test_each_gets_its_time_to_end(members: Members) -> None:
    """However long the others took before it."""
    watching = SandboxWatch(-1, None, Told(100), LIMITS, [])
    watching._over_since = time.monotonic() - 1000
    watching.check()
    assert members.running["hog"].wait(60) == -signal.SIGKILL
    members.pages["hog"] = 0
    watching.check()
    assert members.ended() == {"hog"}
    assert watching.counts()["memory"] == 1


def test_the_largest_is_ended(members: Members) -> None:
    watching = SandboxWatch(-1, None, Told(100), LIMITS, [])
    watching.check()
    assert members.running["hog"].wait(60) == -signal.SIGKILL
    assert members.ended() == {"hog"}
    assert watching.counts()["memory"] == 1


def test_nobody_else_is_ended_while_the_guilty_one_gives_its_memory_back(members: Members) -> None:
    watching = SandboxWatch(-1, None, Told(100), LIMITS, [])
    members.pages["hog"] = 0
    for _ in range(5):
        watching.check()
    assert watching.counts()["memory"] == 0
    assert not members.ended()


def test_nobody_is_ended_for_memory_that_was_given_back_meanwhile(members: Members) -> None:
    watching = SandboxWatch(-1, None, Told(100, 100, 20), LIMITS, [])
    del members.pages["hog"]
    watching.check()
    assert watching.counts()["memory"] == 0
    assert not members.ended()


def test_one_that_does_not_end_protects_the_others_only_for_a_while(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = SandboxWatch(-1, None, Told(100), LIMITS, [])
    members.pages["hog"] = 0
    watching.check()
    assert watching.counts()["memory"] == 0
    monkeypatch.setattr(watch, "_DYING_PATIENCE_SEC", 0.0)
    watching.check()
    assert members.running["agent"].wait(60) == -signal.SIGKILL
    assert watching.counts()["memory"] == 1


def test_without_a_group_an_ending_process_counts_no_more(members: Members) -> None:
    """And many at once must not wait for each other."""
    watching = SandboxWatch(-1, watch.Meters(-1, socket.socket()), ControlGroup(), LIMITS, [])
    watching._scan = lambda _: watch._SandboxUse(own=100, processes=2)  # ty: ignore[invalid-assignment]
    members.pages["agent"] = 0
    watching.check()
    assert members.running["hog"].wait(60) == -signal.SIGKILL
    assert watching.counts()["memory"] == 1


def test_a_process_without_its_first_thread_has_its_memory(tmp_path: Path) -> None:
    for path, text in {
        "7/statm": "0 0 0 0 0 0 0\n",
        "7/task/7/statm": "0 0 0 0 0 0 0\n",
        "7/task/8/statm": "900 500 20 0 0 0 0\n",
        "9/statm": "0 0 0 0 0 0 0\n",
        "9/task/9/statm": "0 0 0 0 0 0 0\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    proc = os.open(tmp_path, os.O_RDONLY)
    assert proc_files.memory("7", proc)[:3] == [900, 500, 20]
    assert proc_files.memory("9", proc) == []
    assert proc_files.memory("11", proc) == []
    os.close(proc)
