"""A results folder on a disk that cannot be written: a real read-only mount, for root and for everybody else."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
_EACH = """
import importlib, json, os, sys
from terminalbench.cli.main import main
folder, modules, runs = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
sys.path.append(sys.argv[4])
for module in modules:  # once for all
    importlib.import_module(module)
if [arguments[0] for arguments, _ in runs].count("view") > 1:
    sys.modules["support.warm"].compile_templates()
for number, (arguments, env) in enumerate(runs):
    child = os.fork()
    if child == 0:
        os.environ.update(env)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        code = main(arguments) if arguments[0] != "-c" else exec(arguments[1], {"argument": arguments[2]}) or 0
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
_MODULES = (
    "terminalbench.analytics.compare", "terminalbench.analytics.run", "terminalbench.cli.app", "terminalbench.cli.output",
    "terminalbench.cli.options", "terminalbench.dashboard.answers", "terminalbench.index.results", "terminalbench.lab.analyze",
    "terminalbench.lab.compare", "terminalbench.lab.analyze", "terminalbench.report.export", "terminalbench.lab.analyze",
    "terminalbench.runner.run", "terminalbench.text.screen", "rich.live", "support.warm",
)  # fmt: skip
"""What several commands load."""


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
    if subprocess.run([*command, "true"], capture_output=True, check=False, timeout=600).returncode != 0:
        pytest.skip("mount namespaces are not permitted here")
    return subprocess.run(
        [*command, sys.executable, "-c", code, *arguments],
        env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


type Run = tuple[list[str], dict[str, str]]
"""The arguments of `tbench`, or "-c", Python code and its `argument`; and variables."""


def each_read_only(root: Path, folder: Path, runs: list[Run]) -> list[Ended]:
    """Each in a process of its own that sees `root` as a read-only mount; its words go to `folder`."""
    folder.mkdir()
    typed = any(arguments[0] != "-c" for arguments, _ in runs)
    modules = _MODULES if typed else ("terminalbench.index.results",)
    ran = run_read_only(root, _EACH, str(folder), json.dumps(modules), json.dumps(runs), str(Path(__file__).parents[1]))
    codes = ran.stdout.split()
    assert len(codes) == len(runs), ran.stdout + ran.stderr
    words = [[(folder / f"{number}.{name}").read_text() for name in ("out", "err")] for number in range(len(codes))]
    return [Ended(int(code), out, err) for code, (out, err) in zip(codes, words, strict=True)]
