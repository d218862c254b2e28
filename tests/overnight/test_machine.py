"""Reading a machine, from recorded files: a host, a cgroup of version 2 in a slice, a container with version 1."""

import os
import shutil
from pathlib import Path

import pytest

from terminalbench.overnight.scaling import MachineReader, Scale, ScaleLimits, decide

RECORDED = Path(__file__).parents[1] / "data" / "machines"
HOST_MB = 21_775_692 / 1024


def machine(name: str) -> MachineReader:
    return MachineReader(RECORDED / name / "proc", RECORDED / name / "cgroup")


def test_a_host_without_limits() -> None:
    found = machine("host").read()
    assert found.available_mb == HOST_MB
    assert (found.load, found.waits_memory, found.stalls_memory, found.stalls_io) == (7.43, 0.0, 0.0, 0.0)
    assert found.cpus == len(os.sched_getaffinity(0))
    assert found.worker_mb is None


def test_the_tightest_cgroup_on_the_way_up_counts_and_its_pressure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    found = machine("v2").read()
    assert found.available_mb == 3072 - 2560 + 256  # memory.high, less what is used, and its cache
    assert (found.waits_memory, found.stalls_memory, found.stalls_io) == (9.0, 6.0, 12.5)
    assert found.cpus == 1.5
    assert decide(found, Scale(4, -100.0), ScaleLimits(most=8)).workers == 2


def test_a_container_of_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    found = machine("v1").read()
    assert found.available_mb == 2048 - 1536 + 100
    assert (found.waits_memory, found.stalls_memory, found.stalls_io) == (None, None, None)
    assert (found.load, found.cpus) == (0.5, 0.5)


def test_a_container_that_sees_its_own_cgroup_as_the_top(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "v2", tmp_path / "v2")
    group = tmp_path / "v2/cgroup/user.slice/night.scope"
    (tmp_path / "v2/proc/self/cgroup").write_text("0::/not/here\n")
    found = MachineReader(tmp_path / "v2/proc", group).read()
    assert found.available_mb == 768


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = MachineReader(tmp_path, tmp_path).read()
    assert (found.available_mb, found.load, found.waits_memory, found.stalls_io) == (None, None, None, None)


def test_the_memory_of_a_worker_is_that_of_all_it_has_started(tmp_path: Path) -> None:
    for pid, parent, pages in ((10, 1, 300), (11, 10, 2000), (12, 11, 100), (20, 1, 900), (30, 99, 5000)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a (strange) name) S {parent} {pid} 1 0 -1")
        (folder / "statm").write_text(f"99999 {pages + 50} 50 1 0 1 0")
    (tmp_path / "uptime").write_text("1 1")
    page_mb = os.sysconf("SC_PAGE_SIZE") / 1024 / 1024
    assert MachineReader(tmp_path, tmp_path).read([10, 20]).worker_mb == pytest.approx(2400 * page_mb)


def test_this_machine_can_be_read() -> None:
    found = MachineReader().read([os.getpid()])
    assert found.cpus > 0
    assert (found.available_mb or 0) > 0
    assert (found.worker_mb or 0) > 1


def test_the_processes_that_may_still_be_started(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/inner\n")
    inner = tmp_path / "groups/inner"
    inner.mkdir(parents=True)
    here = MachineReader(tmp_path, tmp_path / "groups")
    assert here.processes_left() is None
    for folder, most, now in ((inner, "max", "7"), (inner.parent, "1000", "360")):
        (folder / "pids.max").write_text(f"{most}\n")
        (folder / "pids.current").write_text(f"{now}\n")
    assert here.processes_left() == 640
