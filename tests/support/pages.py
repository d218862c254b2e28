"""The commands that a page of the documentation shows."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path


def commands_of(page: Path, group: str) -> list[list[str]]:
    """The lines `$ tbench GROUP ...` of a page, each as arguments; at least one."""
    found = re.findall(rf"^\$ tbench ({group} .+)$", page.read_text(), re.MULTILINE)
    assert found, f"{page} shows no tbench {group}"
    return [shlex.split(line) for line in found]


def shell_blocks(text: str) -> list[str]:
    """The blocks of a page that are typed into a shell: those marked `sh`; at least one."""
    found = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, "the page has no block of commands"
    return found


def typed(blocks: Iterable[str]) -> list[list[str]]:
    """The words of each command of some blocks, comments and the texts of here-documents left out."""
    commands, end = [], None
    for line in (line for block in blocks for line in block.splitlines()):
        if end is not None:
            end = None if line == end else end
            continue
        if words := shlex.split(line, comments=True):
            commands.append(words)
        if found := re.search(r"<<'?(\w+)'?$", line):
            end = found.group(1)
    return commands
