"""The lines of memory.jsonl: each begins with its key, a digest of the rest, and names the key of the one before it.

So an entry that was edited, and one that is missing, are found; and two logs that went different ways can be merged
line by line, as `git merge` with `merge=union` does: what both have is the same line. Lines of earlier versions have no
key: theirs is the digest of the whole line.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from terminalbench.archivist.entries import MemoryEntry
from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.json_files import encode_line

_KEY = b'{"key":"'
_DIGITS = 24
_START = len(_KEY) + _DIGITS + 2
_DECODER = decoder(MemoryEntry)


@dataclass(frozen=True)
class LogLine:
    """A line of the log. `edited`: it is not the one that its key was made for. `reason`: why it cannot be read."""

    number: int
    key: str
    text: bytes
    entry: MemoryEntry | None = None
    edited: bool = False
    reason: str = ""

    @property
    def cut_off(self) -> bool:
        """Return whether it ends in the middle of a value, as a writer that was killed leaves it."""
        return "truncated" in self.reason  # so msgspec says it; it has no type of its own for that


@dataclass
class LogPart:
    """The complete lines of a log from some byte on, and where they end."""

    lines: list[LogLine] = field(default_factory=list)
    offset: int = 0

    def mark_after(self, mark: str) -> str:
        """Return the mark of a log that had this one before these lines: the same only for the same lines."""
        for line in self.lines:
            mark = _digest(mark.encode() + line.text)
        return mark


def written(entry: MemoryEntry) -> tuple[str, bytes]:
    """Return the key of an entry, and its line."""
    body = encode_line(entry).rstrip(b"\n")[1:]
    key = _digest(body)
    return key, b'{"key":"%b",%b\n' % (key.encode(), body)


def read_part(log: Path, offset: int = 0, end: int | None = None) -> LogPart:
    """Return the complete lines of a log from a byte on, or up to another one; none of a log that is not there."""
    try:
        with log.open("rb") as stream:
            stream.seek(offset)
            data = stream.read() if end is None else stream.read(end - offset)
    except FileNotFoundError:
        return LogPart(offset=offset)
    complete = data.rfind(b"\n") + 1
    return LogPart(list(_lines(data[:complete])), offset + complete)


def _lines(data: bytes) -> Iterator[LogLine]:
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        keyed = text.startswith(_KEY) and text[_START - 2 : _START] == b'",'
        key = text[len(_KEY) : _START - 2].decode(errors="replace") if keyed else _digest(text)
        try:
            entry = _DECODER.decode(text)
        except NOT_DECODED as error:
            yield LogLine(number, key, text, reason=str(error))
            continue
        yield LogLine(number, key, text, entry, edited=keyed and _digest(text[_START:]) != key)


def missing_before(lines: Iterable[LogLine], is_known: Callable[[str], bool]) -> Iterator[LogLine]:
    """Yield the lines before which others are missing: the entry that their writer saw last stands nowhere above.

    `is_known` says whether an entry of this key was read earlier.
    """
    seen, previous = set[str](), None
    for line in lines:
        entry = line.entry
        if entry is not None:
            gap = not entry.after and previous is not None and entry.seq > previous + 1
            if gap or (entry.after and entry.after not in seen and not is_known(entry.after)):
                yield line
            previous = entry.seq
        if entry is not None or not line.cut_off:
            seen.add(line.key)


def chained(entries: Iterable[MemoryEntry]) -> bytes:
    """Return a log of these entries, each with its key and after the one before it."""
    after, data = "", []
    for seq, entry in enumerate(entries, start=1):
        after, text = written(replace(entry, seq=seq, after=after))
        data.append(text)
    return b"".join(data)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGITS // 2).hexdigest()
