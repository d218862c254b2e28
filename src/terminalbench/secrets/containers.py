"""Looking for secret values inside archives, compressed files and databases, before a file leaves this machine.

None of them can be rewritten safely. A file in which a value is found, or that cannot be looked into whole, is left out
of what is exported, and why is told. What is unpacked stays in memory and is bounded: a bomb is only too large.
"""

import bz2
import lzma
import re
import sqlite3
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from io import BytesIO
from itertools import count
from typing import Any

from terminalbench.secrets.values import Secrets, is_binary

_MOST_BYTES = 64 << 20
_MOST_PARTS = 20_000
_DEEPEST = 8
_MOST_MEMORY = 256 << 20
_CELLS = 1 << 20
_SQLITE_STEPS = 1000
_SQLITE = b"SQLite format 3\0"
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_XZ = re.compile(rb"\xfd7zXZ\0|\x5d\0\0[\0-\xff]{2}(?:\xff{8}|[\0-\xff]{5}\0\0\0)")
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_NOT_OPENED = re.compile(
    rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x04\x22\x4d\x18|\x1f[\x9d\xa0\x1e]|LZIP\x01|\x89LZO\0|MSCF\0|!<arch>\n|PACK\0\0\0"
    rb"|\xed\xab\xee\xdb|07070[12][0-9A-Fa-f]{8}|\xff\x06\0\0sNaPpY|%PDF-|PAR1\x15|xar!\0"
    rb"|\x37\x7f\x06[\x82\x83]|\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
)
"""How archives, compressed files and logs of SQLite begin that nothing here can open."""


class OmissionReason(StrEnum):
    """Why a file is not exported, in words."""

    HOLDS = "holds a secret"
    LARGE = "is too large to be searched"
    DEEP = "archives are nested too deeply to be searched"
    UNKNOWN = "cannot be searched: unsupported format"
    BROKEN = "cannot be searched: damaged or encrypted"


class _RefusedContainer(Exception):
    def __init__(self, why: OmissionReason) -> None:
        super().__init__(why)
        self.why = why


def exportable(data: bytes, secrets: Secrets) -> bytes | OmissionReason:
    """Return a file as an export may hold it: text concealed, another file as it is if no part of it holds a secret."""
    return secrets.conceal_bytes(data) if _is_text(data) else why_left_out(data, secrets) or data


def why_left_out(data: bytes, secrets: Secrets) -> OmissionReason | None:
    """Return why a file must not be exported; None for text, and for what was looked into and holds no secret."""
    if _is_text(data):
        return None
    try:
        _ContainerSearch(secrets.holds_none).look(data, 0)
    except _RefusedContainer as refused:
        return refused.why
    return None


def _is_text(data: bytes) -> bool:
    return not is_binary(data) and _opener(data) is None


@dataclass
class _ContainerSearch:
    """A look through one file, with the room that is left for what is unpacked of it."""

    holds_none: Callable[[bytes], bool]
    room: int = _MOST_BYTES
    parts: int = _MOST_PARTS

    def look(self, data: bytes, depth: int) -> None:
        """Raise _Refused unless all of `data`, and of what it holds, was looked at and holds none of the values."""
        if not self.holds_none(data):
            raise _RefusedContainer(OmissionReason.HOLDS)
        if (opener := _opener(data)) is None:
            return
        if depth == _DEEPEST:
            raise _RefusedContainer(OmissionReason.DEEP)
        try:
            for part in opener(data, self):
                self.look(part, depth + 1)
        except _RefusedContainer:
            raise
        except Exception:  # noqa: BLE001  what reads a damaged or hostile archive may raise anything
            raise _RefusedContainer(OmissionReason.BROKEN) from None

    def take(self, read: Callable[[int], bytes]) -> bytes:
        """Return what `read` gives, as far as there is room for it; one byte too many is refused."""
        data = read(self.room + 1)
        self.room -= len(data)
        self.parts -= 1
        if self.room < 0 or self.parts < 0:
            raise _RefusedContainer(OmissionReason.LARGE)
        return data


type _Opener = Callable[[bytes, _ContainerSearch], Iterator[bytes]]


def _opener(data: bytes) -> _Opener | None:
    """Return what opens a file, by its first bytes (a ZIP archive: by its last); None where nothing is packed in it."""
    if data[:3] == b"\x1f\x8b\x08" or _is_zlib(data):
        return _streams(lambda: zlib.decompressobj(47))
    if _BZIP2.match(data):
        return _streams(bz2.BZ2Decompressor)
    if _XZ.match(data):
        return _streams(lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY))
    if _ZSTD.match(data):
        return _streams(_zstd)
    if data.startswith(_SQLITE):
        return _cells
    if _is_tar(data):  # a ZIP archive may be its last member
        return _tar_members
    if data.startswith(b"PK\3\4") or (b"PK\5\6" in data[-(1 << 16) - 22 :] and zipfile.is_zipfile(BytesIO(data))):
        return _zip_members
    return _refuse if _NOT_OPENED.match(data) else None


def _refuse(data: bytes, search: _ContainerSearch) -> Iterator[bytes]:  # noqa: ARG001  has the shape of an opener
    raise _RefusedContainer(OmissionReason.UNKNOWN)


def _is_zlib(data: bytes) -> bool:
    """Return whether a file is compressed by zlib: text may begin with the same two bytes."""
    if data[:1] != b"x" or data[1:2] not in (b"\x01", b"\x5e", b"\x9c", b"\xda"):
        return False
    try:
        return bool(zlib.decompressobj().decompress(data[: 1 << 12], 1 << 12))
    except zlib.error:
        return False


def _zstd() -> Any:
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd").ZstdDecompressor()


def _streams(make: Callable[[], Any]) -> _Opener:
    """Return what unpacks one compressed stream after the other. What follows them must be another, or padding."""

    def unpack(data: bytes, search: _ContainerSearch) -> Iterator[bytes]:
        whole = []
        while data:
            work = make()
            whole.append(search.take(lambda size, work=work, data=data: work.decompress(data, size)))
            if not work.eof:
                raise EOFError
            data = work.unused_data.lstrip(b"\0")
        yield b"".join(whole)

    return unpack


def _zip_members(data: bytes, search: _ContainerSearch) -> Iterator[bytes]:
    """Yield the members of a ZIP archive, and what lies between them: programs of other makers may read it."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        end = 0
        for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
            with archive.open(member) as stream:  # an encrypted one raises
                yield search.take(stream.read)
            yield search.take(lambda _, start=end, stop=member.header_offset: data[start:stop])
            head = member.header_offset + 26
            lengths = (int.from_bytes(data[at : at + 2], "little") for at in (head, head + 2))
            end = max(end, head + 4 + sum(lengths) + member.compress_size)
        yield search.take(lambda _: data[end : archive.start_dir])
        yield archive.comment


def _is_tar(data: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(data[:512], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _tar_members(data: bytes, search: _ContainerSearch) -> Iterator[bytes]:
    with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield search.take(stream.read)
        yield data[archive.offset :].lstrip(b"\0")


def _cells(data: bytes, search: _ContainerSearch) -> Iterator[bytes]:
    """Yield the texts and blobs of a SQLite database: in its file, a long one is scattered over pages."""
    steps = count()
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data[:18] + b"\1\1" + data[20:])  # as if without a write-ahead log, which is another file
        database.text_factory = bytes
        database.execute("PRAGMA trusted_schema = OFF")
        database.set_authorizer(_reads_only)
        database.set_progress_handler(lambda: next(steps) > _SQLITE_STEPS, 100_000)
        known = database.execute("SELECT type, rootpage, name, sql FROM sqlite_master").fetchall()
        queries = [
            b'SELECT * FROM "%b"' % row[2].replace(b'"', b'""') for row in known if row[0] == b"table" and row[1]
        ]
        together = [row[3] or b"" for row in known]
        size = 0
        for query in queries:
            for cell in (cell for row in database.execute(query.decode()) for cell in row if isinstance(cell, bytes)):
                size += len(cell)
                search.room -= len(cell)
                if search.room < 0:
                    raise _RefusedContainer(OmissionReason.LARGE)
                if _opener(cell) is not None:
                    yield cell
                    continue
                together.append(cell)
                if size > _CELLS:
                    yield b" ".join(together)
                    together, size = [], 0
        yield b" ".join(together)


def _reads_only(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) else sqlite3.SQLITE_DENY
