"""Finding and filling control groups, on folders that look like them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from terminalbench.sandbox.engine import cgroups
from terminalbench.sandbox.engine.cgroups import GroupLimits

LIMITS = GroupLimits(memory_bytes=100, scratch_bytes=20, processes=7, cpus=1.5)


def group(folder: Path, controllers: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(controllers)
    (folder / "cgroup.procs").write_text("")
    return folder


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A session deep in the tree; the user's own part of it hands memory and pids down."""
    group(tmp_path / "user", "cpu memory pids")
    group(tmp_path / "user" / "app", "memory pids")
    group(tmp_path / "user" / "app" / "terminal", "")
    group(tmp_path, "cpu memory pids").chmod(0o555)
    monkeypatch.setattr(cgroups, "mounts", lambda: [(None, str(tmp_path), "/")])
    monkeypatch.setattr(cgroups, "_own_groups", lambda: {"": "/user/app/terminal"})
    yield tmp_path
    tmp_path.chmod(0o755)


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What would be written; such files appear by themselves in a real group."""
    written: list[tuple[str, str]] = []
    real = cgroups._write

    def write(path: str, text: str) -> bool:
        if Path(path).parent.name.startswith("tbench-"):
            written.append((str(Path(path).relative_to(folder)), text))
            return True
        return real(path, text)

    monkeypatch.setattr(cgroups, "_write", write)
    return written


def test_an_ordinary_user_uses_the_nearest_group_that_hands_down(
    version_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(cgroups.os, "access", lambda path, _: "user" in str(path))
    written = made(version_2, monkeypatch)
    found = cgroups.create("tbench-x", LIMITS)
    assert found.version == 2
    assert set(found.folders) == {"memory", "pids"}
    assert found.procs() == [f"{version_2}/user/app/tbench-x/cgroup.procs"]
    assert written == [
        ("user/app/tbench-x/memory.max", "120"),
        ("user/app/tbench-x/memory.swap.max", "0"),
        ("user/app/tbench-x/pids.max", "7"),
    ]
    assert found.remove(0)
    assert not (version_2 / "user/app/tbench-x").exists()


def test_root_uses_the_top(version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups.os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroups.os, "access", lambda *_: True)
    version_2.chmod(0o755)
    written = made(version_2, monkeypatch)
    found = cgroups.create("tbench-x", LIMITS)
    assert found.procs() == [f"{version_2}/tbench-x/cgroup.procs"]
    assert ("tbench-x/cpu.max", "150000 100000") in written


def test_nothing_writable_means_no_group(version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups.os, "access", lambda *_: False)
    found = cgroups.create("tbench-x", LIMITS)
    assert not found.folders
    assert found.memory_used() is None
    assert found.out_of_memory_kills() == 0


def test_numbers_are_read(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text("anon 4096\nfile 10\n")
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "pids.events").write_text("max 5\n")
    two = cgroups.ControlGroup(2, {"memory": str(tmp_path), "pids": str(tmp_path)})
    assert (two.memory_used(), two.out_of_memory_kills(), two.process_refusals()) == (4096, 2, 5)
    (tmp_path / "memory.stat").write_text("rss 1\ntotal_rss 8192\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    one = cgroups.ControlGroup(1, {"memory": str(tmp_path)})
    assert (one.memory_used(), one.out_of_memory_kills()) == (8192, 4)
