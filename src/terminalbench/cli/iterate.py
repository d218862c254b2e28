"""`tbench iterate`."""

from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import ListCommand
from terminalbench.cli.overnight import night_options


@click.command("iterate", cls=ListCommand)
@night_options
def command(resume: Path | None, watch: bool, as_json: bool, **asked: Any) -> int:
    """Attempt a suite again and again, one iteration after the other: tbench overnight with one worker.

    Exit code 0: everything was measured; 3: not everything; 1: nothing; 130: interrupted.
    """
    from terminalbench.cli.overnight import run_night

    return run_night(resume, watch=watch, as_json=as_json, workers=1, command="iterate", **asked)
