"""Ties a process to the life of another: a script that takes the place of its command when all is arranged.

    python -I -S tie.py <pid of the parent> <signal> <command> ...

The process gets the signal when its parent dies, so that a killed runner leaves nothing that goes on spending. One that
can be caught is not enough: an agent may swallow it, block the thread that would hear it, or hold the interpreter's
lock, and a stopped process hears nothing. So a process beside it, in its group, waits for both to end. What of it runs
elsewhere (containers) it ends then by the command in `ORPHANED`, if there is one.

It is run for every process that we start: it imports what it needs of the standard library, and nothing of ours.
"""

import ctypes
import json
import os
import select
import signal
import sys

ORPHAN_SEC = 20.0
"""What Harbor has to record its trials when its runner is gone; then it is killed with all that it has started."""

ORPHANED = "TBENCH_WHEN_ORPHANED"
"""The variable with a command, as JSON, to run when both are gone and the parent went first."""

_SET_DEATH_SIGNAL = 1


def guard(parent: int) -> None:
    """Start the process that kills our group, `ORPHAN_SEC` after the parent is gone, unless we end before."""
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
    if after:
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
    if orphaned and after:
        os.execv(after[0], after)  # noqa: S606
    os._exit(0)


def _main(parent: int, number: int, argv: list[str]) -> None:
    # What a shell script starts in the background ignores SIGINT, and so would its children: Harbor has to hear it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:  # it died before we asked for the signal
        os._exit(1)
    if number != signal.SIGKILL:
        guard(parent)
    os.environ.pop(ORPHANED, None)
    os.execv(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
