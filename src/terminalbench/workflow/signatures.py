"""Errors without what changes from try to try: two of the same signature are the same error."""

import re

_LONGEST = 300
_CHANGING = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,64}\b(?<![g-z])"), "<hex>"),
    (re.compile(r"(?:/tmp|/var/folders|/private/tmp|/dev/shm)(?:/[\w.+-]+)+"), "<path>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?\b"), "<time>"),
    (re.compile(r"\b\d+(?:\.\d+)?\s*(?:ms|s|sec|seconds?|µs|us|ns)\b"), "<duration>"),
    (re.compile(r"\b(lines?|columns?|col|char(?:acter)?|at|position|byte)\s+\d+", re.IGNORECASE), r"\1 <n>"),
    (re.compile(r":\d+(?::\d+)?(?=[:)\s]|$)"), ":<n>"),
    (re.compile(r"[ \t]+"), " "),
)


def normalised(text: str) -> str:
    """The text of an error without addresses, temporary paths, times, durations and places in a file."""
    for pattern, stands_for in _CHANGING:
        text = pattern.sub(stands_for, text)
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)[:_LONGEST]
