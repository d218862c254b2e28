"""The signature of an error: what stays the same when the same error happens again, and differs for another one. Pure.

Line numbers, addresses, temporary paths, durations, times and process ids go; the exception, its message, the test and
the place stay. Prose around an error is no part of it: two errors in the same frame of words are two.
"""

import hashlib
import re

from terminalbench.text.foreign import flat

LONGEST = 240
"""A longer signature ends with a hash of all of it."""
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\x1b\[[0-9;:]*[A-Za-z]", ""),
        (r"\b0x[0-9a-fA-F]+\b", "0x"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"(?:/private)?(?:/tmp|/var/tmp|/var/folders|/dev/shm)/[^\s'\"`<>()\[\]{},;:]*", "<tmp>"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|sec|secs|seconds|min|minutes)\b", "<duration>"),
        (r"(?i)\b(lines?|column|col|offset|position|pid|goroutine|thread)([ :=#]+)\d+(?:-\d+)?", r"\1\2<n>"),
        (r"(\.\w{1,5})\(\d+(?:,\s?\d+)?\)", r"\1"),
        (r"(\.\w{1,5})(?::\d+){1,2}\b", r"\1"),
        (r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", "@@"),
        (r"\bpytest-\d+\b", "pytest"),
    )
)


def normalised(text: str) -> str:
    """The text as one line without what changes from try to try."""
    for pattern, by in _SUBSTITUTIONS:
        text = pattern.sub(by, text)
    return flat(text)


def signature(what: str, *more: str) -> str:
    """The signature of an error: what happened, then the test and the place it happened in, where known."""
    whole = " | ".join(part for part in map(normalised, (what, *more)) if part)
    if len(whole) <= LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:12]
    return f"{whole[: LONGEST - 13].rstrip()} {digest}"
