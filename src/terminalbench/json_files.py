"""JSON on disk: atomic JSON files and append-only JSONL.

A reader never sees half a JSON file. A JSONL file survives a crash in the middle of a line: the torn line is closed by
the next append, and readers count it instead of failing.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode, decoder
from terminalbench.errors import TbenchError
from terminalbench.files import append_lines, read_plain, write_bytes


def encode_json(value: Any) -> bytes:
    """`value` as indented JSON with a final newline: structs, dataclasses, paths and times included."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode_other), indent=2) + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON atomically."""
    write_bytes(path, encode_json(value))


def read_json(path: Path, kind: Any = Any) -> Any:
    """The JSON in `path` decoded as `kind`; a corrupt file is an error that names it."""
    try:
        return decode(path.read_bytes(), kind)
    except NOT_DECODED as error:
        raise TbenchError(f"not readable as JSON: {error}", where=str(path)) from error


def encode_line(value: Any) -> bytes:
    """`value` as one line of a JSONL file."""
    return msgspec.json.encode(value, enc_hook=_encode_other) + b"\n"


def append_jsonl(path: Path, record: Any, *, durable: bool = False) -> None:
    """Append one record as one line; a torn last line left by a crash is closed first."""
    append_lines(path, encode_line(record), durable=durable)


@dataclass(frozen=True)
class BadLine:
    """A line of a JSONL file that could not be read: its number (from 1) and why."""

    number: int
    reason: str

    @property
    def cut_off(self) -> bool:
        """Return whether it ends in the middle of a value, as a writer that was killed leaves it."""
        return "truncated" in self.reason  # so msgspec says it; it has no type of its own for that


@dataclass
class JsonLines:
    """What a JSONL file holds: its records, the lines that could not be read, and where the reading ended."""

    records: list[Any] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    offset: int = 0


def read_log(path: Path, kind: Any, *, whole: bool = False) -> list[Any]:
    """The records of an append-only log; lines that cannot be read are an error, which names all of them.

    A line cut off by the end of its writer never was: the last one without its newline, or one that the next writer has
    closed. In a log that has to be `whole` it is an error too.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    read = [*_decoded(data.split(b"\n"), kind)]
    closed_last = read[-1] if read and data.endswith(b"\n") else None
    bad = [one for one in read if isinstance(one, BadLine) and (whole or not one.cut_off or one is closed_last)]
    if bad:
        what = "; ".join(f"line {one.number} cannot be read: {one.reason}" for one in bad)
        raise TbenchError(what, where=str(path), hint="restore the file, from version control or a copy")
    return [one for one in read if not isinstance(one, BadLine)]


def read_jsonl(path: Path, kind: Any = Any) -> JsonLines:
    """All complete lines of `path` decoded as `kind`; a missing file holds none."""
    return tail_jsonl(path, 0, kind)


def tail_jsonl(path: Path, offset: int, kind: Any = Any) -> JsonLines:
    """The complete lines of `path` from byte `offset` on. Pass the returned `offset` to the next call.

    A line without its newline is still being written (or torn) and is left for the next call. A file
    that became shorter than `offset` was replaced, and is read from its start.
    """
    found = JsonLines(offset=offset)
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size < offset:
                found.offset = 0
            stream.seek(found.offset)
            data = stream.read()
    except FileNotFoundError:
        return found
    end = data.rfind(b"\n") + 1
    for record in _decoded(data[:end].split(b"\n"), kind):
        (found.bad if isinstance(record, BadLine) else found.records).append(record)
    found.offset += end
    return found


def each_jsonl(path: Path, kind: Any = Any) -> Iterator[Any]:
    """The lines of `path` one by one, decoded as `kind`; a line that cannot be read is a `BadLine`."""
    with path.open("rb") as stream:
        yield from _decoded(stream, kind)


def _decoded(lines: Iterable[bytes], kind: Any) -> Iterator[Any]:
    known = decoder(kind)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield known.decode(line)
        except NOT_DECODED as error:
            yield BadLine(number, str(error))


def decode_plain(path: str | Path, kind: Any, limit: int) -> Any:
    """A plain JSON file of at most `limit` bytes decoded as `kind`; None when there is none that can be read so."""
    data = read_plain(path, limit)
    if not data:
        return None
    try:
        return decode(data, kind)
    except NOT_DECODED:
        return None


def _encode_other(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"cannot write {type(value).__name__} as JSON")
