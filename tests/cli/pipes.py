"""Commands in pipes whose reader has left."""

import os
import subprocess
import sys
from pathlib import Path


def unread(*arguments: str | Path, cwd: Path, messages: bool = False) -> subprocess.CompletedProcess[str]:
    """`tbench` whose output, and its messages if told so, goes to a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = writer if messages else subprocess.PIPE
    command = [sys.executable, "-m", "terminalbench.cli.main", *arguments]
    try:
        return subprocess.run(command, cwd=cwd, stdout=writer, stderr=errors, text=True, check=False, timeout=600)
    finally:
        os.close(writer)
