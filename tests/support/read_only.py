"""A results folder on a disk that cannot be written: a real read-only mount, for root and for everybody else."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
_COMMANDS = """
import json, os, sys
import terminalbench.analytics.compare, terminalbench.dashboard.export, terminalbench.report.write  # once for all
from terminalbench.cli.main import main
folder, commands = sys.argv[1], json.loads(sys.argv[2])
for number, arguments in enumerate(commands):
    child = os.fork()
    if child == 0:
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        code = main(arguments)
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def run_read_only(root: Path, code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Python `code` in a process that sees `root` as a read-only mount."""
    how = ["-m"] if os.getuid() == 0 else ["-U", "-r", "-m"]
    command = ["unshare", *how, "sh", "-c", _MOUNT, str(root)]
    if subprocess.run([*command, "true"], capture_output=True, check=False, timeout=30).returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    return subprocess.run(
        [*command, sys.executable, "-c", code, *arguments],
        env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def tbench_read_only(root: Path, folder: Path, commands: list[list[str]], **env: str) -> list[Ended]:
    """Each command in a process of its own that sees `root` as a read-only mount; its words go to `folder`."""
    ran = run_read_only(root, _COMMANDS, str(folder), json.dumps(commands), **env)
    codes = ran.stdout.split()
    assert len(codes) == len(commands), ran.stdout + ran.stderr
    words = [[(folder / f"{number}.{name}").read_text() for name in ("out", "err")] for number in range(len(codes))]
    return [Ended(int(code), out, err) for code, (out, err) in zip(codes, words, strict=True)]
