"""The terminal is put back on every way out."""

import os
import pty
import signal
import sys
import termios
import threading

import pytest

from terminalbench.watch.terminal import Terminal, usable


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch):
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield master
    os.close(master)


def test_settings_and_signals_are_as_before_after_an_error(keyboard: int) -> None:
    before = termios.tcgetattr(sys.stdin)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGTSTP)]

    def fail() -> None:
        with Terminal():
            assert termios.tcgetattr(sys.stdin)[3] & (termios.ICANON | termios.ECHO) == 0
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        fail()
    assert termios.tcgetattr(sys.stdin) == before
    assert handlers == [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGTSTP)
    ]
    assert signal.set_wakeup_fd(-1) == -1


def test_keys_signals_and_the_channel_are_heard(keyboard: int) -> None:
    theirs, ours = os.pipe()
    with Terminal(theirs) as terminal:
        os.write(keyboard, b"j")
        assert terminal.wait(10).data == b"j"
        os.kill(os.getpid(), signal.SIGWINCH)
        assert terminal.wait(10).signals == {signal.SIGWINCH}
        os.write(ours, b".")
        assert not terminal.wait(10).closed
        os.close(ours)
        heard = terminal.wait(10)
        assert (heard.closed, terminal.last_words) == (True, b".")
        assert terminal.wait(0).data == b""
    os.close(theirs)


def test_a_hang_up_waits_for_the_channel_that_may_close_with_it(keyboard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("terminalbench.watch.terminal._HANG_UP_SEC", 60)
    theirs, ours = os.pipe()
    with Terminal(theirs) as terminal:
        os.kill(os.getpid(), signal.SIGHUP)
        closing = threading.Timer(0.2, os.close, [ours])
        closing.start()
        heard = terminal.wait(10)
        assert (heard.signals, heard.closed) == ({signal.SIGHUP}, True)
        closing.join()
    os.close(theirs)


def test_a_dumb_or_missing_terminal_is_not_used(keyboard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not usable()
    monkeypatch.setenv("TERM", "xterm")
    assert not usable()  # standard output is no terminal here, or this process is not in front of it
