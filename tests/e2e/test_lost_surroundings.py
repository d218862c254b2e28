"""A run that loses its folder or its streams is still the run it was, and ends with its own exit code."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_run import LIMIT_SEC, at_work, scripted, wait_for

from support.tasks import SOLVE
from terminalbench.cli.app import _os_error


def test_a_run_whose_folder_and_streams_are_gone_ends_with_its_own_code(lab) -> None:
    """Its folder goes while it runs, between two profiles; then resumes with one stream closed, and with all."""
    profiles = scripted("p", script=SOLVE, free=0) + scripted("q", script=SOLVE)
    file = lab.experiment(profiles, tasks=("a",), run="profiles_parallel = 1")
    place = lab.root / "gone soon"
    place.mkdir()
    command = [*lab.command(), "run", str(file)]
    with subprocess.Popen(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], cwd=place, env=lab.env, stderr=subprocess.PIPE, text=True
    ) as run:
        wait_for(lambda: at_work(lab) == 1, run)
        place.rmdir()
        lab.go()
        _, err = run.communicate(timeout=LIMIT_SEC)
    assert run.returncode == 0, err
    assert lab.outcomes() == {("p", "a"): ["passed"], ("q", "a"): ["passed"]}
    assert "Traceback" not in err
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        again = [*lab.command(), "resume", str(lab.batch().folder)]
        ran = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *again],
            cwd=lab.root, env=lab.env, capture_output=True, text=True, timeout=LIMIT_SEC, check=False,
        )  # fmt: skip
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), closed
    for command in ("resume", "list"):  # a full disk is no reader that has left: the words are missed
        said = [*lab.command(), command, *([str(lab.batch().folder)] if command == "resume" else [])]
        ran = subprocess.run(
            ["sh", "-c", 'exec "$@" >/dev/full', "sh", *said],
            cwd=lab.root, env=lab.env, capture_output=True, text=True, timeout=LIMIT_SEC, check=False,
        )  # fmt: skip
        assert (ran.returncode, "Traceback" in ran.stderr) == (1, False), ran.stderr
        assert "error: standard output: No space left on device (" in ran.stderr
    for name in ("plan.json", "events.jsonl", "index.json"):  # what was written to a closed stream went into no file
        assert all(b"nothing was missing" not in path.read_bytes() for path in lab.batch().folder.rglob(name))


def test_a_start_in_a_folder_that_is_gone_says_so_and_leaves_nothing(lab) -> None:
    file = lab.experiment(scripted("p"), tasks=("a",))
    place = lab.root / "gone"
    place.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    ran = subprocess.run(
        ["sh", "-c", script, "sh", str(place), *lab.command(fresh=True), "run", str(file)],
        env=lab.env | {"PYTHONSAFEPATH": "1"}, capture_output=True, text=True, timeout=LIMIT_SEC, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "error: the current folder no longer exists (change to a folder that exists: cd ..)"
    )
    assert not (lab.root / "results").exists()


def test_commands_in_hints_can_be_typed_where_a_folder_has_a_space(done, tmp_path: Path) -> None:
    lab = done.lab
    spaced = lab.root / "my results"
    (lab.root / "results").rename(spaced)
    shown = lab.tbench("watch", spaced / "s" / "0").stdout
    assert "tbench compare 'my results/s/0'\n" in shown
    assert "tbench analyze 'my results/s/0'\n" in shown
    assert "tbench list 'my results/s/0'\n" in shown
    assert "tbench view 'my results'\n" in shown
    (spaced / "s" / "0" / "plan.json").rename(tmp_path / "plan.json")
    for command in ("resume", "watch", "compare"):
        ran = lab.tbench(command, spaced / "s" / "0")
        assert ran.returncode == 2
        assert "is a batch without its plan.json, so its planned trials are unknown (restore plan.json" in ran.stderr
        assert "tbench compare 'my results/s/0/runs' reads its trials as Harbor jobs)" in ran.stderr
    assert lab.tbench("compare", spaced / "s" / "0" / "runs").returncode == 0


def test_a_file_system_without_inodes_is_said_to_be_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=1000, f_favail=0))
    said = _os_error(OSError(28, os.strerror(28), str(tmp_path / "a" / "b")))
    assert "cannot hold more files, though" in said
    assert "it has no free inodes" in said
    assert "choose a shorter results_root" in _os_error(OSError(36, os.strerror(36), "x"))
