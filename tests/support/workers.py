"""Tests side by side (`--workers N`): all are collected once, then run by processes that are forked from the one that did.

A worker takes a share of tests at a time, and the next one before it runs the last of it: pytest must know the next test to
see which fixtures it may end. What a worker reports is logged here as if the test had run here. A worker that dies has failed
the test that it ran, and another one takes its place.
"""

import contextlib
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest

from support import cpu
from support.warm import FOLDER, NUMBER

PARTS = pytest.StashKey[cpu.Parts]()
"""What the tests of each folder took, in the stash of a configuration."""
FINISHED = "_finished"
"""The fixture of tests/e2e that runs a batch once in each worker that has a test of it."""
SHARE = 12
"""How many short tests of one module are given to a worker at once."""
DRIVEN = 100
"""How many tests of sandboxes are."""
CALM = (
    "analytics", "archivist", "cli", "experiments", "index", "judge", "live", "overnight", "report", "secrets",
    "simulate", "swebench_pro", "text", "trainer", "watch", "workflow",
)  # fmt: skip
"""Folders of tests that wait for little: they run with what the others, which wait for much, leave of the processors."""


GUESSES = (60.0, 30.0, 2.0, 0.0)
"""Seconds that a part is thought to take before it has run: of long tests that share something, of one, of whole batches, of others."""


def shares(items: list[pytest.Item], known: Mapping[str, float]) -> list[list[int]]:
    """The tests in parts that one worker runs, by their numbers: those first that take longest, as far as it is `known`.

    One part are: the starter tasks, which share a few large batches; the tests of a module that share what a fixture of it
    makes, or a browser; a hundred of sandboxes; those of a batch that has finished; the heavy ones of one user. Other tests
    of whole batches go one by one.
    """
    parts: dict[object, list[int]] = {}
    for number, item in enumerate(items):
        folder = item.path.parent.name
        if group := item.get_closest_marker("alone"):
            key: object = group.args
        elif folder in ("starter", "e2e", "chaos"):
            key = folder if folder == "starter" else _shared(item) or number
        elif _uses(item, "driver"):
            key = ("driver", number // DRIVEN)
        else:
            key = item.path if _uses(item, "browser") or _shared(item) else (item.path, number // SHARE)
        parts.setdefault(key, []).append(number)

    def guess(part: list[int]) -> float:
        if any(items[number].get_closest_marker("long") for number in part):
            return GUESSES[len(part) == 1]
        first = items[part[0]]
        is_whole = first.path.parent.name in ("starter", "e2e", "chaos", "lab")
        return GUESSES[2 if is_whole or _uses(first, "browser") or _uses(first, "driver") else 3]

    def seconds(part: list[int]) -> float:
        return max(guess(part), sum(known.get(items[number].nodeid, 0.0) for number in part))

    return sorted(parts.values(), key=seconds, reverse=True)


def _uses(item: pytest.Item, fixture: str) -> bool:
    """Whether a test uses one of what takes seconds to start: a browser, or what drives sandboxes."""
    return isinstance(item, pytest.Function) and fixture in item.fixturenames


def _shared(item: pytest.Item) -> Path | str | None:
    """What a test shares with others: what fixtures of its module make, or the finished batch of tests/e2e."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    if any(definitions[-1].scope == "module" for definitions in fixtures.values()):
        return item.path
    return FINISHED if FINISHED in fixtures else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """The number of workers is asked for."""
    parser.addoption("--workers", type=int, default=1, help="run the tests in so many processes")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, if more than one worker was asked for."""
    count = session.config.getoption("--workers")
    if count == 1 or session.config.option.collectonly or session.testsfailed:
        return None
    Workers(session, count).run()
    return True


@dataclass
class Worker:
    """A process that runs tests: its pipe, and the tests that it was given and has not ended."""

    pid: int
    pipe: Connection
    parts: deque[list[int]]
    open: deque[int] = field(default_factory=deque)


class Workers:
    """Runs the tests of a session by a number of workers."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._count = session, count
        self._forked = 0
        self._calm: deque[list[int]] = deque()
        self._workers: dict[Connection, Worker] = {}
        config: Any = session.config
        self._base = config._tmp_path_factory.getbasetemp()
        self._took = config.stash[PARTS] = cpu.Parts()

    def run(self) -> None:
        """Run all of them: the heavy ones first, two at a time, then the others; calm ones beside all of them."""
        items = self._session.items
        heavy, others = deque(), deque()
        for part in shares(items, cpu.remembered(self._session.config, cpu.LONG)):
            first = items[part[0]]
            is_heavy, is_calm = first.get_closest_marker("heavy"), first.path.parent.name in CALM
            (heavy if is_heavy else self._calm if is_calm else others).append(part)
        try:
            self._start(self._calm, self._count // 2)
            for parts, count in ((heavy, min(2, self._count)), (others, self._count)):
                self._start(parts, count)
                while any(worker.parts is parts for worker in self._workers.values()):
                    self._listen()
            while self._workers:
                self._listen()
        finally:
            for worker in self._workers.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _start(self, parts: deque[list[int]], count: int) -> None:
        for _ in range(min(count, len(parts))):
            self._fork(parts)

    def _listen(self) -> None:
        for pipe in wait(list(self._workers)):
            self._hear(self._workers[pipe])  # ty: ignore[invalid-argument-type]

    def _fork(self, parts: deque[list[int]]) -> None:
        self._forked += 1
        ours, theirs = Pipe()
        pid = os.fork()
        if pid:
            theirs.close()
            self._workers[ours] = Worker(pid, ours, parts)
            return
        code = 1
        try:
            if parts is self._calm:
                os.nice(5)
            for pipe in [ours, *self._workers]:
                pipe.close()
            _work(self._session, theirs, self._forked, self._base / f"w{self._forked}")
            code = 0
        except BaseException:  # noqa: BLE001  whatever ends it is told, and never goes on in the copy of the session
            theirs.send(("crashed", traceback.format_exc()))
        os._exit(code)

    def _hear(self, worker: Worker) -> None:
        hook = self._session.config.hook
        try:
            kind, told = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._ended(worker)
            return
        if kind == "next":
            part = worker.parts.popleft() if worker.parts and not self._stopping else []
            worker.open += part
            worker.pipe.send(part)
        elif kind == "started":
            item = self._session.items[told]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif kind == "ended":
            number, used, took = told
            worker.open.remove(number)
            item = self._session.items[number]
            self._took.add(item, used, took)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "rest":
            self._took.seconds[cpu.SHARED] += told
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=told)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            raise RuntimeError(f"a worker ended outside of a test: {told}")

    @property
    def _stopping(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _ended(self, worker: Worker) -> None:
        """It has run all, or has died in a test."""
        _, status = os.waitpid(worker.pid, 0)
        del self._workers[worker.pipe]
        if worker.open:
            item = self._session.items[worker.open.popleft()]
            why = f"the process of this test ended: {os.waitstatus_to_exitcode(status)}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)
        if worker.open and not self._stopping:
            worker.parts.appendleft(list(worker.open))
            self._fork(worker.parts)


class Reporter:
    """Sends what is reported to the process that logs it."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when != "call" and self._config.getoption("durations") is None:
            return  # nothing is said of it
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        told = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        try:
            pickle.dumps(told)
        except Exception:  # noqa: BLE001  a warning may hold anything
            warning_message.message = RuntimeWarning(str(warning_message.message))
            warning_message.category, warning_message.source = RuntimeWarning, None
        self._pipe.send(("warning", told))


def _work(session: pytest.Session, pipe: Connection, number: int, folder: Path) -> None:
    """Run tests until there are no more."""
    config: Any = session.config
    os.environ[NUMBER] = str(number)
    config.workerinput = {}  # as plugins know a process that is not the one that logs
    folder.mkdir()
    config._tmp_path_factory._basetemp, config._tmp_path_factory._exit_stack = folder, contextlib.ExitStack()
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of the process that we are forked from
    capture.start_global_capturing()
    config.pluginmanager.getplugin("terminalreporter")._tw._file = Path(os.devnull).open("w")  # noqa: SIM115
    config.pluginmanager.register(Reporter(config, pipe))
    meter = cpu.Meter(cpu.file_of(os.environ[FOLDER].partition(":")[2], str(number)), str(number))
    for place, following in _following(_given(pipe)):
        item = session.items[place]
        pipe.send(("started", place))
        began = time.monotonic()
        config.hook.pytest_runtest_protocol(item=item, nextitem=None if following is None else session.items[following])
        pipe.send(("ended", (place, meter.used(), time.monotonic() - began)))
    config.hook.pytest_sessionfinish(session=session, exitstatus=0)
    pipe.send(("rest", meter.used()))


def _given(pipe: Connection) -> Iterator[int]:
    while True:
        pipe.send(("next", None))
        part = pipe.recv()
        if not part:
            return
        yield from part


def _following(numbers: Iterator[int]) -> Iterator[tuple[int, int | None]]:
    now = next(numbers, None)
    while now is not None:
        following = next(numbers, None)
        yield now, following
        now = following
