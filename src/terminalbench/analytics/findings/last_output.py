"""The ends of what the programs of a trial printed: concealed, and fit to be shown, for an agent can write anything."""

import os
from pathlib import Path

from terminalbench.files import is_plain, open_plain
from terminalbench.secrets.values import Secrets
from terminalbench.text.foreign import flat, printable

_TAIL_BYTES = 64 * 1024
_MOST_OUTPUTS = 6
_LETTERS = 160


def agent_outputs(folder: Path) -> list[Path]:
    """Return the texts that the agent of a trial left in its log folders, whatever it calls them."""
    runs = [folder, *sorted(path for path in folder.glob("steps/*") if not path.is_symlink())]
    found = [sorted([*(run / "agent").glob("*.txt"), *(run / "agent").glob("*.log")])[:_MOST_OUTPUTS] for run in runs]
    return [path for paths in found for path in paths if is_plain(path)]


def last_said(folder: Path, secrets: Secrets) -> dict[str, str]:
    """Return the last line of each output of the agent that has one, by the name of its file."""
    found = {file.name: last_lines(file, secrets)[0] for file in agent_outputs(folder)}
    last = {name: next((line for line in reversed(lines) if line.strip()), "") for name, lines in found.items()}
    return {name: flat(line, _LETTERS) for name, line in last.items() if line}


def last_lines(file: Path, secrets: Secrets) -> tuple[list[str], bool]:
    """The last lines of a file of a trial, fit to be printed; and whether they are all. None without the file."""
    with open_plain(file) as stream:
        if stream is None:
            return [], True
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - _TAIL_BYTES))
        text = stream.read(_TAIL_BYTES).decode(errors="replace")
    lines = secrets.conceal(text).splitlines()[1 if size > _TAIL_BYTES else 0 :]
    return [printable(line) for line in lines], size <= _TAIL_BYTES
