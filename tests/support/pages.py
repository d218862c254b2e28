"""The commands that a page of the documentation shows."""

import re
import shlex
from pathlib import Path


def commands_of(page: Path, group: str) -> list[list[str]]:
    """The lines `$ tbench GROUP ...` of a page, each as arguments; at least one."""
    found = re.findall(rf"^\$ tbench ({group} .+)$", page.read_text(), re.MULTILINE)
    assert found, f"{page} shows no tbench {group}"
    return [shlex.split(line) for line in found]
