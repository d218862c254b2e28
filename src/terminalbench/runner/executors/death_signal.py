"""Ties a process to the life of another: a script that takes the place of its command when all is arranged.

    python -I -S tie.py <pid of the parent> <signal> <command> ...

The process gets the signal when its parent dies, so that a killed runner leaves nothing that goes on spending. One that
can be caught is not enough: an agent may swallow it, block the thread that would hear it, or hold the interpreter's
lock, and a stopped process hears nothing. So a process beside it waits for both to end. An agent may also have started
processes that left its group: they are known by a mark in their environment, and end with it. What of it runs elsewhere
(containers) is ended then by the command in `ORPHANED`, if there is one.

It is run for every process that we start: it imports what it needs of the standard library, and nothing of ours.
"""

# ruff: noqa: PTH123, PTH208 - pathlib takes longer to load than all the rest

import ctypes
import json
import os
import select
import signal
import sys
import time

ORPHAN_SEC = 20.0
"""What Harbor has to record its trials when its runner is gone; then it is killed with all that it has started."""

ORPHANED = "TBENCH_WHEN_ORPHANED"
"""The variable with a command, as JSON, to run when both are gone and the parent went first."""

MARK = "TBENCH_JOB_MARK"
"""The variable by which what the process has started is known, in whatever group and session it is."""

LEFT_SEC = 3.0
"""What processes that it has left behind have to end by themselves."""

_SET_DEATH_SIGNAL = 1


def guard(parent: int, mark: str | None = None) -> None:
    """Start the process that kills our group, `ORPHAN_SEC` after the parent is gone, unless we end before.

    When we have ended, it ends what of us bears the mark.
    """
    try:
        ends = [os.pidfd_open(parent), os.pidfd_open(os.getpid())]
    except OSError:  # the parent is gone, or an old kernel: the signal has to do
        return
    if os.fork() != 0:
        for end in ends:
            os.close(end)
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    group, after = os.getpgrp(), json.loads(os.environ.pop(ORPHANED, "[]"))
    if after or mark is not None:
        os.setsid()  # what ends the group must leave us
    either, theirs, ours = select.poll(), select.poll(), select.poll()
    for end in ends:
        either.register(end, select.POLLIN)
    theirs.register(ends[0], select.POLLIN)
    ours.register(ends[1], select.POLLIN)
    either.poll()
    orphaned = theirs.poll(0)
    if not ours.poll(int(ORPHAN_SEC * 1000)):
        os.killpg(group, signal.SIGKILL)
    if mark is not None:
        _end_marked(f"{MARK}={mark}".encode())
    if orphaned and after:
        os.execv(after[0], after)  # noqa: S606
    os._exit(0)


def _end_marked(mark: bytes) -> None:
    """Kill the processes that bear the mark, once they had time to end by themselves; more may be born meanwhile."""
    deadline = time.monotonic() + LEFT_SEC
    while left := [int(name) for name in os.listdir("/proc") if name.isdecimal() and _bears(name, mark)]:
        for pid in left if time.monotonic() > deadline else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has ended
                continue
        if time.monotonic() > 2 * LEFT_SEC + deadline:
            return  # a process that cannot be killed
        time.sleep(0.1)


def _bears(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # of another user, or gone
        return False


def _main(parent: int, number: int, argv: list[str]) -> None:
    # What a shell script starts in the background ignores SIGINT, and so would its children: Harbor has to hear it.
    # A thread that is not Python's own, as those of Ray's workers, starts processes that hold signals back.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it died before we asked for the signal
        os._exit(1)
    if number != signal.SIGKILL:
        mark = os.urandom(16).hex()
        guard(parent, mark)
        os.environ[MARK] = mark
    os.environ.pop(ORPHANED, None)
    os.execv(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
