"""What the tests of each folder take of the processors, with what they start: its children, and what is forked for it elsewhere.

Where root may make accounts of the kernel (control groups, version 1), each worker is one with all that it starts, and what is
forked for it elsewhere joins it (`support.forks`): that is all of it. Elsewhere a process that a loaded one forked for a test is
waited for there, which notes what it took beside the worker's number, and what nobody waits for is not counted.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHARED = "for many of them"
"""What processes took that a worker ends last, as those that hold sandboxes for the tests of tests/sandbox."""

NAMED = int(os.environ.get("TBENCH_TESTS_NAMED", "10"))
"""How many of the costliest tests are named at the end."""


DEAR, LONG = "tbench/dear", "tbench/long"
"""What pytest remembers of earlier runs: the tests that took much processor time, and those that took long by the clock."""
DEAR_SEC = 0.5
"""A test that took more is left out by `--fast`."""
LONG_SEC = 2.0
"""A test that took more starts before others that took less."""


def remembered(config: Any, name: str) -> Mapping[str, float]:
    """Return what pytest remembers under that name: seconds by the name of a test."""
    cache = getattr(config, "cache", None)
    return cache.get(name, {}) if cache else {}


def file_of(folder: str, worker: str) -> Path:
    """Return the file in which loaded processes note what they forked for a worker took, a line of seconds each."""
    return Path(folder) / f"cpu-{worker}"


ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
"""Groups of processes whose time the kernel adds up, whoever waits for them."""


def join(name: str) -> Path | None:
    """Put this process into an account of its own, with all that it starts; None where there are none.

    Accounts of sessions that have ended are removed.
    """
    folder = ACCOUNTS / name
    for old in ACCOUNTS.glob("tbench-tests-*"):
        if not Path(f"/proc/{old.name.split('-')[2]}").exists():
            with contextlib.suppress(OSError):
                old.rmdir()
    try:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text("0")
    except OSError:
        return None
    return folder


class Meter:
    """The processor time of a worker and of all that it started, as far as it is known."""

    def __init__(self, notes: Path, number: str = "0") -> None:
        self._group = join(f"tbench-tests-{os.getppid()}-{number}")
        self._notes, self._read, self._last = notes, 0, self._own()

    def used(self) -> float:
        """Return the seconds since this was asked last."""
        now, elsewhere = self._own(), 0.0
        if self._group is None and self._notes.exists():
            with self._notes.open() as file:
                file.seek(self._read)
                elsewhere = sum(map(float, file.readlines()))
                self._read = file.tell()
        used, self._last = now - self._last + elsewhere, now
        return used

    def _own(self) -> float:
        if self._group is not None:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        return sum(os.times()[:4])


@dataclass
class Parts:
    """The tests of each folder and their processor time."""

    tests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    each: dict[str, float] = field(default_factory=dict)
    """The seconds of each test."""
    lasted: dict[str, float] = field(default_factory=dict)
    """How long each took by the clock."""

    def add(self, item: Any, used: float, lasted: float) -> None:
        """Count one test of pytest."""
        name = "/".join(item.path.parent.relative_to(item.config.rootpath).parts[:2])
        self.tests[name] += 1
        self.seconds[name] += used
        self.each[item.nodeid], self.lasted[item.nodeid] = used, lasted

    def remember(self, config: Any) -> None:
        """Have pytest remember the tests that took long: of these, and those known that did not run now."""
        if cache := getattr(config, "cache", None):
            for name, took, least in ((DEAR, self.each, DEAR_SEC), (LONG, self.lasted, LONG_SEC)):
                found = {test: seconds for test, seconds in remembered(config, name).items() if test not in took}
                found |= {test: round(seconds, 1) for test, seconds in took.items() if seconds > least}
                cache.set(name, found)

    def lines(self) -> Iterator[str]:
        """Yield a line for each folder, the costliest first, and one for all."""
        folders = sorted(self.seconds, key=self.seconds.__getitem__, reverse=True)
        for name in folders:
            yield f"{name:24}{self.tests[name]:6} tests{self.seconds[name]:8.1f} s"
        costly = sorted(self.each, key=self.each.__getitem__, reverse=True)[:NAMED]
        yield from (f"  {self.each[name]:8.1f} s  {name}" for name in costly)
        yield f"{'all':24}{sum(self.tests.values()):6} tests{sum(self.seconds.values()):8.1f} s"
