"""A person who types what pages say into one shell, in an empty folder with an empty home."""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.pace import seconds

_MARK = "@@ block "
LIMIT_SEC = seconds(600)


@dataclass(frozen=True)
class Walked:
    """What the shell printed for each block, and its exit code."""

    folder: Path
    code: int
    said: list[str]


def walk(folder: Path, blocks: Iterable[str], env: Mapping[str, str] | None = None) -> Walked:
    """Run blocks of commands one after the other in one bash, which ends at the first command that fails."""
    home = folder.parent / "home"
    home.mkdir()
    script = "".join(f"echo '{_MARK}'\n{block}\n" for block in blocks)
    base = {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    # The folder that is cloned may be another user's.
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    ran = subprocess.run(
        ["/bin/bash", "-e"], input=script, cwd=folder, env={**base, **git, **(env or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SEC, check=False, start_new_session=True,
    )  # fmt: skip
    return Walked(folder, ran.returncode, ran.stdout.split(f"{_MARK}\n")[1:])
