"""Ending a command's processes: nobody is forgotten, and who would not go is told."""

import asyncio
import os
import signal
from typing import Any

import pytest

from terminalbench.sandbox.engine import inside, wire
from terminalbench.sandbox.engine.proc import ProcessStat
from terminalbench.sandbox.session import Sandbox

SHELL, CHILD, OTHER = 10, 11, 20


class Kernel:
    """Processes of a sandbox. A killed one stays for as many looks as `lingers` says; its children go to the first."""

    def __init__(self, lingers: dict[int, int], table: dict[int, ProcessStat] | None = None) -> None:
        first = {1: ProcessStat(0, 1, 1), OTHER: ProcessStat(1, OTHER, 3)}
        self.table = first | (table or {SHELL: ProcessStat(1, SHELL, 5), CHILD: ProcessStat(SHELL, CHILD, 6)})
        self.lingers, self.killed = lingers, set[int]()

    def processes(self) -> dict[int, ProcessStat]:
        for pid in self.killed & self.table.keys():
            self.lingers[pid] = self.lingers.get(pid, 0) - 1
            if self.lingers[pid] < 0:
                del self.table[pid]
        for pid, process in self.table.items():
            if pid != 1 and process.parent not in self.table:
                self.table[pid] = process._replace(parent=1)
        return dict(self.table)

    def signal(self, pids: set[int], number: int) -> None:
        if number == signal.SIGKILL:
            self.killed |= pids


def use(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(inside.os, "killpg", lambda *_: None)
    monkeypatch.setattr(inside.proc, "processes", kernel.processes)
    monkeypatch.setattr(inside, "send", kernel.signal)
    return kernel


def test_a_child_with_a_session_of_its_own_is_waited_for_after_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = use(Kernel({CHILD: 5}), monkeypatch)
    assert inside.kill_tree(SHELL) == 0
    assert kernel.table.keys() == {1, OTHER}
    assert kernel.killed == {SHELL, CHILD}


def test_who_would_not_go_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_KILL_PATIENCE_SEC", 0.01)
    use(Kernel({CHILD: 1 << 30}), monkeypatch)
    assert inside.kill_tree(SHELL) == 1


def test_another_process_with_the_number_of_an_ended_one_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = use(Kernel({SHELL: 3}), monkeypatch)
    looks: list[int] = []

    def processes() -> dict[int, ProcessStat]:
        found = kernel.processes()
        looks.append(len(found))
        if CHILD in kernel.killed and CHILD not in found:
            kernel.killed.discard(CHILD)
            kernel.table[CHILD] = ProcessStat(1, CHILD, 99)
        return dict(kernel.table)

    monkeypatch.setattr(inside.proc, "processes", processes)
    assert inside.kill_tree(SHELL) == 0
    assert kernel.table[CHILD].started == 99
    assert CHILD not in kernel.killed


def test_who_is_stopped_from_inside_goes_on() -> None:
    """Else the sandbox's root could hold whoever comes to end it, and with it the guardian."""

    def stopped() -> int:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGSTOP)
        return 7

    assert inside.in_sandbox(stopped) == 7


class Stubborn(Sandbox):
    """A sandbox whose guardian answers that some processes are left, `left` times."""

    def __init__(self, left: int) -> None:
        self.left, self.asked = left, list[str]()

    async def _ask(self, message: dict[str, Any], *given: int) -> dict[str, Any]:
        self.asked.append(message["which"])
        self.left -= 1
        return {"left": int(self.left >= 0)}


@pytest.mark.parametrize(("left", "asked"), [(0, ["tree"]), (1, ["tree", "all"]), (2, ["tree", "all"])])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_tree_that_would_not_end_takes_the_others_with_it(left: int, asked: list[str], how: str) -> None:
    """And whoever ran the command still sees its own timeout or cancellation."""
    box = Stubborn(left)

    async def end() -> BaseException:
        ours, theirs = wire.socket_pair()
        with ours, theirs:
            ours.setblocking(False)
            wire.send(theirs, {"root": 7})
            task = asyncio.ensure_future(box._exit_of(ours, 0.01 if how == "timeout" else None, None))
            await asyncio.sleep(0)
            if how == "cancel":
                task.cancel()
            await asyncio.wait([task])
            try:
                task.result()
            except (asyncio.CancelledError, TimeoutError) as error:
                return error
        raise AssertionError("it ended by itself")

    error = asyncio.run(end())
    assert type(error) is (TimeoutError if how == "timeout" else asyncio.CancelledError)
    assert box.asked == asked
    if how == "timeout":
        notes = {
            0: [],
            1: ["a command could not be ended, so every process of the sandbox was ended"],
            2: ["1 processes of the sandbox would not end"],
        }
        assert getattr(error, "__notes__", []) == notes[left]


@pytest.mark.parametrize(("seconds_each", "left"), [(20, 0), (None, 5)], ids=["slowly fewer", "never fewer"])
def test_processes_that_get_fewer_are_waited_for(monkeypatch, seconds_each: int | None, left: int) -> None:
    now = [0.0]
    there = lambda: 5 if seconds_each is None else max(0, 5 - int(now[0] // seconds_each))  # noqa: E731
    monkeypatch.setattr(inside.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(inside.time, "sleep", lambda _: now.__setitem__(0, now[0] + 0.5))
    monkeypatch.setattr(inside.os, "kill", lambda *_: None)
    monkeypatch.setattr(inside.proc, "processes", lambda: dict.fromkeys(range(-1, -1 - there(), -1)))
    assert inside.kill_all() == left
    assert now[0] < 120
