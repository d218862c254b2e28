"""What a run needs of this machine is said before anything runs: files that can be made and opened, paths that fit."""

import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from terminalbench.errors import UserError
from terminalbench.runner import preflight


def test_a_disk_without_inodes_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.refuse_a_full_disk(tmp_path / "results")
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: SimpleNamespace(f_files=100_000, f_favail=12))
    monkeypatch.setattr(preflight, "free_mb", lambda _: 100_000)
    with pytest.raises(UserError, match=r"only 12 more files can be created there \(it has no free inodes\).*4096"):
        preflight.refuse_a_full_disk(tmp_path)
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: SimpleNamespace(f_files=0, f_favail=0))
    preflight.refuse_a_full_disk(tmp_path)  # a file system that counts none


def test_a_long_results_root_is_said(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    preflight.refuse_a_long_root(tmp_path / "results", file)
    for long in (tmp_path.joinpath(*["d" * 200] * 20), tmp_path / ("d" * 256)):
        with pytest.raises(UserError, match=r"exp.toml: run.results_root is too long.*short path"):
            preflight.refuse_a_long_root(long, file)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[1])))
from terminalbench.errors import UserError
from terminalbench.runner.preflight import allow_open_files
try: allow_open_files(int(sys.argv[2]))
except UserError as error: print("; ".join(error.lines()))
else: print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("hard", "parallel", "said"),
    [
        (4096, 4, "512"),
        (4096, 16, "1280"),
        (
            1024,
            16,
            "a run with 16 trials at once needs 1280 "
            "(raise the limit (ulimit -n 1280, or LimitNOFILE), or lower run.parallel)",
        ),
    ],
)
def test_open_files_are_allowed_as_far_as_they_may_be(hard: int, parallel: int, said: str) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= hard
    command = [sys.executable, "-c", LIMITED, str(hard), str(parallel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert said in done.stdout
