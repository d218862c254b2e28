"""Claiming and using folders while another process removes what dead ones left and what is old."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from terminalbench.sandbox import cache
from terminalbench.sandbox.cache import exclusive
from terminalbench.sandbox.engine import guardian
from terminalbench.sandbox.engine.cgroups import ControlGroup


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


class Helper:
    """Removes folders; what `meanwhile` does comes first."""

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], object]] = []

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        for work in self.meanwhile:
            work()
        for path in message["paths"]:
            shutil.rmtree(path)
        return {"left": []}


@pytest.fixture
def remover(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Helper:
    remover = Helper()
    monkeypatch.setattr("terminalbench.sandbox.helper.helper", lambda: remover)
    return remover


def published(parent: Path, name: str, *, days_ago: int) -> Path:
    """A layer or base that was last used so long ago."""
    folder = parent.parent / name
    (folder / "root").mkdir(parents=True)
    (folder / "meta.json").write_text('{"image": "debian:12"}')
    (folder / "lock").touch()
    at = time.time() - days_ago * 86400
    os.utime(folder / "lock", (at, at))
    return folder


@pytest.mark.parametrize("kind", ["layers", "base"])
def test_what_was_not_used_for_a_month_goes_and_what_is_held_stays(parent: Path, remover: Helper, kind: str) -> None:
    old, held, new = (
        published(parent, f"{kind}/{name}", days_ago=days) for name, days in [("old", 40), ("held", 40), ("new", 20)]
    )
    lock = (held / "lock").open()
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert cache.collect_leftovers().layers == 1
    assert {path.name for path in (parent.parent / kind).iterdir()} == {"held", "new"}
    lock.close()
    assert cache.collect_leftovers().layers == 1
    assert not old.exists()
    assert not held.exists()
    assert new.exists()


def test_what_is_used_again_is_young_again(parent: Path, remover: Helper) -> None:
    folder = published(parent, "layers/old", days_ago=40)
    lock = cache.keep(folder)
    assert lock is not None
    os.close(lock)
    assert cache.collect_leftovers().layers == 0
    assert cache.keep(parent.parent / "layers" / "nothing") is None


def test_nobody_starts_on_a_layer_that_is_being_removed(parent: Path, remover: Helper) -> None:
    """Neither who looks for it in the middle, nor who had it open and waited for its lock."""
    folder = published(parent, "layers/old", days_ago=40)
    handle = (folder / "lock").open()
    seen: list[object] = []

    def look() -> None:
        seen.append(cache.keep(folder))
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)

    remover.meanwhile = [look]
    assert cache.collect_leftovers().layers == 1
    assert seen == [None]
    assert os.fstat(handle.fileno()).st_nlink == 0
    handle.close()


def test_a_lock_that_was_removed_before_it_is_held_holds_nothing(
    parent: Path, remover: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = published(parent, "layers/old", days_ago=40)

    class Racing:
        """`fcntl`, with a collector that comes between the opening of a lock file and its locking."""

        LOCK_SH, LOCK_EX, LOCK_NB = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_NB

        @staticmethod
        def flock(handle: int, how: int) -> None:
            if how == fcntl.LOCK_SH:
                assert cache.collect_leftovers().layers == 1
            fcntl.flock(handle, how)

    monkeypatch.setattr(cache, "fcntl", Racing)
    assert cache.keep(folder) is None
    assert list((parent.parent / "layers").iterdir()) == []


def test_what_another_process_removes_meanwhile_is_passed_over(
    parent: Path, remover: Helper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        published(parent, f"layers/{name}", days_ago=40)
    real = cache._locked

    @contextlib.contextmanager
    def locked(path: Path) -> Generator[bool]:
        with real(path) as free:
            if path.parent.name == "b":
                shutil.rmtree(path.parent)
            yield free

    monkeypatch.setattr(cache, "_locked", locked)
    assert cache.collect_leftovers().layers == 2
    assert list((parent.parent / "layers").iterdir()) == []


def test_a_base_of_an_older_version_gets_its_month(parent: Path, remover: Helper) -> None:
    folder = published(parent, "base/old", days_ago=40)
    (folder / "lock").unlink()
    assert cache.collect_leftovers().layers == 0
    assert (folder / "lock").exists()


def test_a_lock_of_a_build_goes_with_its_layer_unless_it_is_built_anew(parent: Path, remover: Helper) -> None:
    for name in ("idle", "building"):
        published(parent, f"layers/{name}", days_ago=40)
        (parent.parent / "layers" / f"{name}.lock").touch()
    with (parent.parent / "layers" / "building.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cache.collect_leftovers().layers == 2
        assert [path.name for path in (parent.parent / "layers").iterdir()] == ["building.lock"]


def test_a_lock_of_a_build_that_was_removed_before_it_is_held_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "layer.lock"

    async def hold() -> bool:
        async with exclusive(path):
            waiting = asyncio.create_task(second())
            await asyncio.sleep(0)  # it has opened the file and found it locked
            path.unlink()
        return await waiting

    async def second() -> bool:
        async with exclusive(path):
            return path.exists()

    assert asyncio.run(hold())


def test_all_who_start_wait_for_the_one_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, finish = threading.Event(), threading.Event()
    collections: list[int] = []

    def collect() -> None:
        collections.append(1)
        begun.set()
        assert finish.wait(60)

    monkeypatch.setattr(cache, "_collected", False)
    monkeypatch.setattr(cache, "collect_leftovers", collect)
    starters = [threading.Thread(target=cache.collect_once) for _ in range(3)]
    starters[0].start()
    assert begun.wait(60)
    for starter in starters[1:]:
        starter.start()
        starter.join(0.05)
    assert all(starter.is_alive() for starter in starters)
    assert cache._collected is False, "who starts now would not wait"
    finish.set()
    for starter in starters:
        starter.join(60)
    assert collections == [1]
    assert cache._collected is True


def crashed(parent: Path, group: Path) -> Path:
    """What a sandbox left whose control group still has a process."""
    (group / "process").mkdir(parents=True)
    folder = parent / "dead"
    folder.mkdir()
    (folder / "groups").write_text(f"{group}\n")
    (parent / "dead.lock").touch()
    return folder


def test_a_control_group_in_use_is_not_forgotten(
    parent: Path, remover: Helper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_GROUP_PATIENCE_SEC", 0.01)
    folder = crashed(parent, tmp_path / "group")
    assert cache.collect_leftovers() == cache.CollectedGarbage()
    assert (folder / "groups").exists()
    assert (parent / "dead.lock").exists()
    (tmp_path / "group" / "process").rmdir()
    assert cache.collect_leftovers() == cache.CollectedGarbage(sandboxes=1, groups=1)
    assert not (tmp_path / "group").exists()
    assert list(parent.iterdir()) == []


def test_a_stopped_sandbox_leaves_its_busy_group_to_the_collector(
    parent: Path, remover: Helper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_GROUP_PATIENCE_SEC", 0.01)
    claimed = cache.claim("run")
    (tmp_path / "group" / "process").mkdir(parents=True)
    (claimed.folder / "s").mkdir()

    class Impatient(ControlGroup):
        def remove(self, patience_sec: float = 0.01) -> bool:
            return super().remove(patience_sec)

    group = Impatient(2, {"memory": str(tmp_path / "group")})
    guardian._note_groups(str(claimed.folder), group)
    guardian._take_down(None, group, str(claimed.folder))
    assert [path.name for path in claimed.folder.iterdir()] == ["groups"]
    cache.release(claimed)
    assert cache.collect_leftovers() == cache.CollectedGarbage()
    (tmp_path / "group" / "process").rmdir()
    assert cache.collect_leftovers() == cache.CollectedGarbage(sandboxes=1, groups=1)
    assert list(parent.iterdir()) == []


def test_a_stopped_sandbox_leaves_nothing_when_its_group_goes(parent: Path, remover: Helper, tmp_path: Path) -> None:
    claimed = cache.claim("run")
    (tmp_path / "group").mkdir()
    group = ControlGroup(2, {"memory": str(tmp_path / "group")})
    guardian._note_groups(str(claimed.folder), group)
    guardian._take_down(None, group, str(claimed.folder))
    cache.release(claimed)
    assert not (tmp_path / "group").exists()
    assert list(parent.iterdir()) == []


def test_a_disk_that_is_nearly_full_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.no_room() is None
    monkeypatch.setattr(cache, "KEEP_FREE_BYTES", 1 << 60)
    said = cache.no_room()
    assert said is not None
    assert said.endswith("(free some space there, run tbench images prune, or set XDG_CACHE_HOME to a larger disk)")
