"""The log of what went out of a sandbox: one JSON line per connection, bounded.

A refusal that repeats itself is one line, and is counted. What is beyond the bound is counted in the last line.
"""

import json
import os
import time
from typing import Any

FILE = "egress.jsonl"
MOST_LINES = 5000
_MOST_REPEATED = 1000
_LONGEST_HOST = 255


class EgressLog:
    """Writes to an open file; what it cannot write, on a full disk, it counts."""

    def __init__(self, handle: int | None) -> None:
        self._handle = handle
        self._lines = self._left_out = 0
        self._repeated: dict[tuple[str, str, int | None, str], int] = {}

    def connection(self, phase: str, host: str, port: int, **about: Any) -> None:
        """A connection that was made, and is over."""
        self._write({"phase": phase, "host": host[:_LONGEST_HOST], "port": port, **about})

    def refused(self, phase: str, host: str, port: int | None, why: str) -> None:
        """A connection, or a question for a name (without a port), that was refused."""
        host = host[:_LONGEST_HOST]
        key = (phase, host, port, why)
        if key in self._repeated:
            self._repeated[key] += 1
            return
        if len(self._repeated) >= _MOST_REPEATED:
            self._left_out += 1
            return
        self._repeated[key] = 0
        self._write({"phase": phase, "host": host, "port": port, "refused": why})

    def close(self) -> None:
        """Write what was counted."""
        repeated, self._repeated = self._repeated, {}
        for (phase, host, port, why), times in repeated.items():
            if times:
                self._write({"phase": phase, "host": host, "port": port, "refused": why, "times": times})
        if self._left_out and self._handle is not None:
            self._put({"left_out": self._left_out})
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, line: dict[str, Any]) -> None:
        if self._handle is None or self._lines >= MOST_LINES:
            self._left_out += 1
            return
        self._lines += 1
        self._put(line)

    def _put(self, line: dict[str, Any]) -> None:
        text = json.dumps({"time": round(time.time(), 3), **line}, separators=(",", ":")) + "\n"
        try:
            os.write(self._handle, text.encode()) if self._handle is not None else None
        except OSError:
            self._left_out += 1
