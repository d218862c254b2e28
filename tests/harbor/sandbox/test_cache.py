"""Claiming a folder while another process removes what dead ones left."""

import fcntl
import os
from pathlib import Path

import pytest

from terminalbench.harbor.sandbox import cache


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "root", lambda: tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_what_was_left_is_held_until_it_is_gone(parent: Path) -> None:
    for name in ("a", "b"):
        (parent / name).mkdir()
        (parent / f"{name}.lock").touch()
    found = []
    for folder in cache._dead(parent):
        with folder.with_name(f"{folder.name}.lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        found.append(folder.name)
    assert found == ["a", "b"]
    with (parent / "b.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_what_is_in_use_is_left_alone(parent: Path) -> None:
    claimed = cache.claim("run")
    assert list(cache._dead(parent)) == []
    assert claimed.folder.is_dir()
    os.close(claimed.lock)
    assert list(cache._dead(parent)) == [claimed.folder]


def test_a_lock_that_is_collected_before_it_is_held_is_claimed_anew(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[str] = []

    class Racing:
        """`fcntl`, with a collector that comes between the making of a lock file and its locking."""

        LOCK_SH, LOCK_EX, LOCK_NB = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB

        @staticmethod
        def flock(handle: int, how: int) -> None:
            if how == fcntl.LOCK_SH and not collected:
                collected.extend(path.name for path in parent.iterdir())
                assert list(cache._dead(parent)) == []
            fcntl.flock(handle, how)

    monkeypatch.setattr(cache, "fcntl", Racing)
    claimed = cache.claim("run")
    assert len(collected) == 1
    assert {path.name for path in parent.iterdir()} == {claimed.folder.name, f"{claimed.folder.name}.lock"}
    assert claimed.folder.name not in collected[0]
    os.close(claimed.lock)
