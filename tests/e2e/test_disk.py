"""A disk that fills up and a results folder that cannot be written: a clean message, nothing lost, resumable."""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_resume import finished, slow
from test_run import LIMIT_SEC, at_work, wait_for

from support.tools import need_root


@dataclass
class SmallDisk:
    """A results folder on a disk of its own, in a mount namespace that `lab` works in."""

    enter: list[str]
    place: Path
    seen: Path

    def mount(self, *options: str) -> None:
        subprocess.run([*self.enter, "mount", *options, str(self.place)], check=True, capture_output=True, timeout=600)

    def fill(self, what: str) -> None:
        """Shrink the disk until it is nearly full, quite full, or no file can be made on it any more."""
        for margin in range(
            0, 200, 4
        ):  # more is written meanwhile, and a disk cannot become smaller than what is on it
            status = os.statvfs(self.seen)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            options = {
                "nearly": f"size={used + 40 * 2**20}",
                "quite": f"size={used + margin * 4096}",
                "inodes": f"nr_inodes={status.f_files - status.f_ffree + margin}",
            }
            with contextlib.suppress(subprocess.CalledProcessError):
                self.mount("-o", f"remount,{options[what]}")
                return
        raise AssertionError("the disk could not be made smaller")

    def grow(self) -> None:
        self.mount("-o", "remount,rw,size=2g,nr_inodes=100000")


@pytest.fixture
def small_disk(lab):
    """A tmpfs as results folder. Needs a mount namespace."""
    need_root("no sandbox starts in a user namespace, where an ordinary user could mount a disk")
    place = lab.root / "results"
    place.mkdir()
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo ready; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip("mount namespaces are not permitted here")
        enter = ["nsenter", "-t", str(holder.pid), "-m", f"--wd={lab.root}"]
        seen = Path(f"/proc/{holder.pid}/root") / place.relative_to("/")
        disk = SmallDisk(enter, place, seen)
        try:
            disk.mount("-t", "tmpfs", "-o", "size=2g,nr_inodes=100000", "tmpfs")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a tmpfs cannot be mounted here: {error.stderr.decode().strip()}")
        lab.prefix = enter
        lab.seen_root = seen.parent
        yield disk
    finally:
        holder.communicate(b"end\n", timeout=600)


@pytest.mark.parametrize("what", ["nearly", "quite", "inodes"])
def test_a_disk_that_fills_up_ends_the_run_and_loses_nothing(lab, small_disk, what: str) -> None:
    lab.fresh = what == "quite"
    file = lab.experiment(slow(2), run="attempts = 2\nparallel = 1")
    process = lab.start("run", file)
    wait_for(lambda: at_work(lab) == 3, process)
    small_disk.fill(what)
    if what == "inodes":  # nobody sees that there are none before somebody wants to write
        lab.go()
    out, err = process.communicate(timeout=LIMIT_SEC)
    lab.fresh = False  # what follows runs on a disk with room
    said = out + err
    assert process.returncode in ((3,) if what == "nearly" else (1, 3)), said
    assert ("No space left on device" if what == "inodes" else "stopped: the disk is full: ") in said
    assert "unexpected" not in said
    assert "Traceback" not in said
    before = finished(lab)
    assert 2 <= len(before) < 4
    if what != "inodes":
        refused = lab.tbench("resume", file)
        assert refused.returncode == 2
        assert "a run needs at least 512 MB" in refused.stderr
    small_disk.grow()
    lab.go()
    ran = lab.tbench("resume", file, "--retry-errors", "disk_full")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert before.items() <= finished(lab).items()
    assert all(outcomes == ["failed"] * 2 for outcomes in lab.outcomes().values())


def test_a_results_folder_that_cannot_be_written_is_said(lab, small_disk) -> None:
    file = lab.experiment(slow(9), run="attempts = 1\nparallel = 2")
    small_disk.mount("-o", "remount,ro")
    ran = lab.tbench("run", file)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "run.results_root: cannot write results to " in ran.stderr
    assert "Read-only file system (name another folder in results_root of [run])" in ran.stderr
    small_disk.grow()
    assert lab.tbench("run", file).returncode == 0
    before = finished(lab)
    small_disk.mount("-o", "remount,ro")
    for arguments in (["resume", file], ["resume", file, "--attempts", "2"], ["index"]):
        ran = lab.tbench(*arguments)
        assert ran.returncode == 1, ran.stdout + ran.stderr
        assert "results" in ran.stderr
        assert "unexpected" not in ran.stderr
    assert finished(lab) == before
    small_disk.grow()
    assert lab.tbench("resume", file, "--attempts", "2").returncode == 0
    assert before.items() <= finished(lab).items()
