"""The same command once more, in the background: a session of its own, no terminal, its output in a log."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from terminalbench.errors import EXIT_OK
from terminalbench.files import lock_owner
from terminalbench.live.processes import announced_batches

_START_SEC = 900.0


def run_detached() -> int:
    """Start this very command without --detach; return when it runs, or with its exit code when it was refused."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    handle, name = tempfile.mkstemp(prefix="tbench-run-", suffix=".log")
    with os.fdopen(handle, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "terminalbench.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            click.echo(Path(name).read_text(errors="replace"), nl=False, err=code != EXIT_OK)
            return code
        batch = _batch_of(process.pid)
        if batch is not None:
            click.echo(f"running in the background: pid {process.pid}, batch {batch}\nlog: {name}")
            click.echo("tbench status shows how far it is, tbench kill ends it")
            return EXIT_OK
        time.sleep(0.1)
    click.echo(f"still preparing: pid {process.pid}, log: {name}")
    return EXIT_OK


def _batch_of(pid: int) -> Path | None:
    for batch in announced_batches():
        owner = lock_owner(batch.lock)
        if owner is not None and owner.pid == pid:
            return batch.folder
    return None
