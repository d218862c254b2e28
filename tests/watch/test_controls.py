"""Keys."""

import pytest

from terminalbench.watch.terminal import Controls, ScreenMode, ViewEnd, keys

TRIALS = [("j", "a"), ("j", "b"), ("j", "c")]


def pressed(*names: str, owner: bool = False) -> Controls:
    controls = Controls(owner=owner)
    for name in names:
        controls = controls.press(name, TRIALS)
    return controls


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"q", ["q"]),
        (b"jk\x1b[A\x1b[B\x1bOA", ["j", "k", "up", "down", "up"]),
        (b"\r\n\x7f", ["enter", "enter", "backspace"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[5~\x1b[6~", ["page_up", "page_down"]),
        (b"\x1b[1;5Cq", ["q"]),
        (b"\x1b[<0;10;10M", []),
        (b"\xff\xfe", []),
        ("é".encode(), ["é"]),
    ],
)
def test_keys(data: bytes, found: list[str]) -> None:
    assert keys(data) == found


def test_choosing_stays_within_the_list() -> None:
    assert pressed("j").chosen == TRIALS[0]
    assert pressed("j", "down", "j", "j", "j").chosen == TRIALS[2]
    assert pressed("k", "up", "k").chosen == TRIALS[0]
    assert Controls(chosen=("j", "gone")).press("j", TRIALS).chosen == TRIALS[0]
    assert Controls().press("j", []).chosen is None
    assert Controls().press("enter", []).mode is ScreenMode.TABLE


def test_enter_opens_a_log_and_escape_leaves_it() -> None:
    tail = pressed("j", "j", "enter")
    assert (tail.mode, tail.chosen) == (ScreenMode.TAIL, TRIALS[1])
    assert tail.press("k", TRIALS).scroll == 1
    assert tail.press("j", TRIALS).scroll == 0
    assert (tail.press("l", TRIALS).file, tail.press("left", TRIALS).file) == (1, -1)
    for key in ("escape", "enter", "q"):
        assert tail.press(key, TRIALS).mode is ScreenMode.TABLE


def test_leaving_ends_only_the_view() -> None:
    assert pressed("q").wish is ViewEnd.LEFT


def test_a_run_is_stopped_only_by_an_answer() -> None:
    asked = pressed("q", owner=True)
    assert (asked.mode, asked.wish) == (ScreenMode.ASK, None)
    assert asked.press("d", TRIALS).wish is ViewEnd.LEFT
    assert asked.press("s", TRIALS).wish is ViewEnd.STOP
    for key in ("q", "escape", "enter", "x"):
        assert (asked.press(key, TRIALS).wish, asked.press(key, TRIALS).mode) == (None, ScreenMode.TABLE)
    assert pressed("s", owner=True).wish is None


def test_help_opens_and_any_key_closes_it() -> None:
    assert pressed("?").mode is ScreenMode.HELP
    assert pressed("?", "x").mode is ScreenMode.TABLE
    assert pressed("?", "q").wish is None
