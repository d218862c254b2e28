"""Folders that only this user may change, in places that others share."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from terminalbench.modes import NotOurs, make_own_folder
from terminalbench.sandbox import cache
from terminalbench.sandbox.errors import SandboxError


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as /tmp is."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


def link(path: Path) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir(0o700)
    path.symlink_to(elsewhere)


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def foreign(path: Path) -> None:
    path.mkdir(0o700)
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        (link, "is a link"),
        (lambda path: path.symlink_to("nowhere"), "File exists"),
        (lambda path: path.write_text(""), "File exists"),
        (open_to_all, "can be written by other users"),
        pytest.param(
            foreign, "belongs to another user", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can")
        ),
    ],
)
def test_what_was_laid_ready_in_a_shared_folder_is_not_taken(
    shared: Path, monkeypatch: pytest.MonkeyPatch, planted: Callable[[Path], None], why: str
) -> None:
    """By the sandbox's cache neither, which says what to do."""
    planted(shared / "terminalbench")
    with pytest.raises(OSError, match=why):
        make_own_folder(shared / "terminalbench")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    with pytest.raises(SandboxError) as raised:
        cache.root()
    assert "set XDG_CACHE_HOME to" in (raised.value.hint or "")


def test_without_a_home_the_cache_is_a_folder_of_this_user_in_the_temporary_one(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setattr(cache.os, "access", lambda *_: False)
    made = cache.root()
    assert made == shared / f"terminalbench-{os.geteuid()}" / f"sandbox-{os.geteuid()}"
    assert {path.stat().st_mode & 0o777 for path in (made, made.parent)} == {0o700}
    assert cache.root() == made


def test_a_folder_of_ours_is_taken_as_it_is_and_a_link_of_ours_in_our_own(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(0o755)
    make_own_folder(tmp_path / "old")
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o755
    link(tmp_path / "linked")
    make_own_folder(tmp_path / "linked")


def test_a_shared_folder_in_which_others_can_replace_ours_will_not_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(NotOurs, match="lets other users replace"):
        make_own_folder(tmp_path / "ours")
