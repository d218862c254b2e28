"""Reading a tar stream entry by entry: names, kinds, owners, times as GNU tar, PAX and ustar write them; sparse files.

The standard library's reader takes more than twice as long for an entry. All names are bytes.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = 512
_CHUNK = 1 << 20
_MOST_HEADER_BYTES = 8 << 20
_ATTRIBUTE = b"SCHILY.xattr."


class BadArchive(OSError):
    """The stream is no archive that may be unpacked."""

    def __init__(self, text: str) -> None:
        super().__init__(0, text)

    def __str__(self) -> str:
        return self.args[1]


class TarStream:
    """The bytes of an archive, read in order from a descriptor."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._held, self._at = b"", 0

    def take(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        end = self._at + size
        if end <= len(self._held):
            found = self._held[self._at : end]
            self._at = end
            return found
        parts, missing = [self._held[self._at :]], end - len(self._held)
        self._held, self._at = b"", 0
        while missing > 0:
            more = self._more()
            if len(more) > missing:
                self._held, self._at = more, missing
                more = more[:missing]
            parts.append(more)
            missing -= len(more)
        return b"".join(parts)

    def pour(self, size: int, into: int | None) -> None:
        """Write exactly so many bytes to a descriptor, or skip them."""
        while size:
            if self._at == len(self._held):
                self._held, self._at = self._more(), 0
            part = memoryview(self._held)[self._at : self._at + size]
            size -= len(part)
            self._at += len(part)
            while into is not None and part:
                part = part[os.write(into, part) :]

    def drain(self) -> None:
        """Read to the end: what fills the stream waits for that."""
        while os.read(self._handle, _CHUNK):
            pass

    def _more(self) -> bytes:
        found = os.read(self._handle, _CHUNK)
        if not found:
            raise BadArchive("the archive of the layer ends too early")
        return found


class Member(NamedTuple):
    """An entry of an archive: its name as it stands there, its kind, and what is known of it."""

    name: bytes
    kind: bytes
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    link: bytes
    parts: tuple[tuple[int, int], ...] | None = None
    full_size: int = 0
    attributes: tuple[tuple[bytes, bytes], ...] = ()


def members(stream: TarStream) -> Iterator[Member]:
    """Yield the entries; the data of each has to be taken before the next is asked for."""
    everywhere: dict[bytes, bytes] = {}
    own: dict[bytes, bytes] = {}
    sparse: list[tuple[int, int]] = []
    name = link = None
    while (block := stream.take(BLOCK)).strip(b"\0"):
        _check(block)
        kind, size = block[156:157], _number(block[124:136])
        if kind in b"LKxgX":
            text = stream.take(_header_size(size))
            stream.pour(-size % BLOCK, None)
            if kind == b"L":
                name = text.rstrip(b"\0")
            elif kind == b"K":
                link = text.rstrip(b"\0")
            elif kind == b"g":
                everywhere |= _records(text, [])
            else:
                own = _records(text, sparse)
            continue
        member = _member(block, kind, size, name, link)
        if kind == b"S":
            member = _old_sparse(stream, block, member)
        if told := everywhere | own:
            member = _told(stream, member, told, sparse)
        if member.size < 0 or member.full_size < 0:
            raise BadArchive(f"{os.fsdecode(member.name)!r} of the layer has less than no bytes")
        yield member
        own, sparse, name, link = {}, [], None, None


def _check(block: bytes) -> None:
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 256:
        raise BadArchive("the layer is no tar archive, or a damaged one")


def _header_size(size: int) -> int:
    if size > _MOST_HEADER_BYTES:
        raise BadArchive(f"a header of the layer has {size} bytes")
    return size


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:])
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise BadArchive("the layer is no tar archive, or a damaged one") from None


def _member(block: bytes, kind: bytes, size: int, name: bytes | None, link: bytes | None) -> Member:
    found = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and block[345]:
        found = block[345:500].split(b"\0", 1)[0] + b"/" + found
    return Member(
        name if name is not None else found,
        b"0" if kind == b"\0" else kind,
        size if kind in b"\x000S7" else 0,
        _number(block[100:108]) & 0o7777,
        _number(block[108:116]),
        _number(block[116:124]),
        _number(block[136:148]) * 10**9,
        link if link is not None else block[157:257].split(b"\0", 1)[0],
    )


def _records(text: bytes, sparse: list[tuple[int, int]]) -> dict[bytes, bytes]:
    """Return the records of an extended header; those of a sparse file that stand several times are added to a list."""
    found: dict[bytes, bytes] = {}
    offset = 0
    while text:
        length, _, _ = text.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(text):
            raise BadArchive("an extended header of the layer cannot be read")
        key, _, value = text[len(length) + 1 : int(length) - 1].partition(b"=")
        text = text[int(length) :]
        if key == b"GNU.sparse.offset":
            offset = int(value)
        elif key == b"GNU.sparse.numbytes":
            sparse.append((offset, int(value)))
        found[key] = value
    return found


def _told(stream: TarStream, member: Member, told: dict[bytes, bytes], sparse: list[tuple[int, int]]) -> Member:
    """Return an entry with what extended headers say of it."""
    attributes = tuple((key[len(_ATTRIBUTE) :], told[key]) for key in told if key.startswith(_ATTRIBUTE))
    mtime_ns = member.mtime_ns
    if b"mtime" in told:
        whole, _, part = told[b"mtime"].partition(b".")
        mtime_ns = int(whole) * 10**9 + int(part[:9].ljust(9, b"0") or b"0")
    size = int(told.get(b"size", member.size)) if member.kind in b"07" else member.size
    member = member._replace(
        name=told.get(b"GNU.sparse.name", told.get(b"path", member.name)),
        link=told.get(b"linkpath", member.link),
        uid=int(told.get(b"uid", member.uid)),
        gid=int(told.get(b"gid", member.gid)),
        size=size,
        mtime_ns=mtime_ns,
        attributes=attributes,
    )
    full = told.get(b"GNU.sparse.realsize") or told.get(b"GNU.sparse.size")
    if full is None:
        return member
    if told.get(b"GNU.sparse.major") == b"1":
        sparse, used = _sparse_map(stream)
        member = member._replace(size=member.size - used)
    elif b"GNU.sparse.map" in told:
        numbers = [int(number) for number in told[b"GNU.sparse.map"].split(b",")]
        sparse = list(zip(numbers[::2], numbers[1::2], strict=True))
    return member._replace(parts=tuple(sparse), full_size=int(full))


def _sparse_map(stream: TarStream) -> tuple[list[tuple[int, int]], int]:
    """Return where the parts of a sparse file lie, as its data begins, and how many bytes that took."""
    text = stream.take(BLOCK)
    while (lines := text.split(b"\n")) and (len(lines) < 2 or len(lines) < 2 + 2 * int(lines[0])):
        text += stream.take(BLOCK)
        _header_size(len(text))
    numbers = [int(line) for line in lines[1 : 1 + 2 * int(lines[0])]]
    return list(zip(numbers[::2], numbers[1::2], strict=True)), len(text)


def _old_sparse(stream: TarStream, block: bytes, member: Member) -> Member:
    parts, more = _old_parts(block[386:482], 4), block[482]
    while more:
        following = stream.take(BLOCK)
        parts += _old_parts(following[:504], 21)
        more = following[504]
        _header_size(24 * len(parts))
    return member._replace(kind=b"0", parts=tuple(parts), full_size=_number(block[483:495]))


def _old_parts(text: bytes, most: int) -> list[tuple[int, int]]:
    fields = (text[24 * number : 24 * number + 24] for number in range(most))
    return [(_number(field[:12]), _number(field[12:])) for field in fields if field[0]]
