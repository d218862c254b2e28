"""What is said of a Harbor process that ended before its job did."""

import re
from pathlib import Path

from terminalbench.files import tail_plain
from terminalbench.secrets.values import Secrets

_FRAME = " │╭╮╰╯─\t"
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Exit|Interrupt): .+")


def how_it_ended(code: int, last_words: str) -> str:
    """How a Harbor process ended before its job was done, by its exit code (negative: a signal) and last words."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended its job (code {code})"
    return f"Harbor {how}" + (f": {last_words}" if last_words else "")


def log_tail(log: Path, secrets: Secrets, lines: int = 3) -> str:
    """The last words of a job, for a message: what it raised, else its last lines."""
    text = tail_plain(log, 64 * 1024) or ""
    kept = [line.strip(_FRAME) for line in text.splitlines() if line.strip(_FRAME)]
    raised = [line for line in kept if _RAISED.fullmatch(line)]
    return secrets.one_line(raised[-1] if raised else " ".join(kept[-lines:]))
