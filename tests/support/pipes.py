"""Commands in pipes whose reader has left."""

import os
import subprocess
import sys
from pathlib import Path


def unread(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`tbench` whose output goes to a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "terminalbench.cli.main", *arguments]
    try:
        return subprocess.run(
            command, cwd=cwd, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    finally:
        os.close(writer)
