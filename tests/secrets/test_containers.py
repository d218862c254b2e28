"""Archives, compressed files and databases: none that holds a secret, or may hold one unseen, is exported."""

import bz2
import gzip
import io
import lzma
import sqlite3
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from terminalbench.secrets.containers import OmissionReason, exportable
from terminalbench.secrets.values import NONE, Secrets

VALUE = "s3cr-t0ken_At-rest"
KNOWN = Secrets.of([VALUE])
ZSTD = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def zipped(data: bytes, name: str = "file.txt", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("first.txt", "first")
        archive.writestr(name, data)
    return made.getvalue()


def tarred(data: bytes, name: str = "file.txt") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def database(data: bytes, *, wal: bool = False) -> bytes:
    """As a text that is longer than a page, among others, so that no part of the file holds it in one piece."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE first (a, b)")
    connection.execute('CREATE TABLE "sec\'on""d" (a TEXT, b BLOB)')
    connection.execute("CREATE VIEW seen AS SELECT * FROM first")
    connection.executemany("INSERT INTO first VALUES (?, ?)", [(number, "x" * 300) for number in range(50)])
    connection.execute('INSERT INTO "sec\'on""d" VALUES (?, ?)', ("text", data))
    connection.commit()
    made = connection.serialize()
    return made[:18] + b"\2\2" + made[20:] if wal else made


type Pack = Callable[[bytes], bytes]
PACKS: list[Pack] = [
    gzip.compress,
    zlib.compress,
    bz2.compress,
    lzma.compress,
    lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    ZSTD.compress,
    zipped,
    lambda data: zipped(data, method=zipfile.ZIP_BZIP2),
    lambda data: b"#!/bin/sh\nexit\n" + zipped(data),
    tarred,
    lambda data: gzip.compress(tarred(data)),
    lambda data: lzma.compress(tarred(data)),
    lambda data: gzip.compress(b"one") + gzip.compress(data),
    lambda data: zipped(gzip.compress(tarred(zipped(data)))),
    database,
    lambda data: database(data, wal=True),
    lambda data: database(gzip.compress(data)),
    lambda data: gzip.compress(database(data)),
    lambda data: tarred(b"plain") + gzip.compress(data),
]


@pytest.mark.parametrize("pack", PACKS)
def test_a_container_is_exported_as_it_is_unless_it_holds_a_secret(pack: Pack) -> None:
    honest = b"an honest text\n" * 900
    harmless, leaky = pack(honest), pack(honest + f"the key is {VALUE}\n".encode() + honest)
    assert exportable(harmless, KNOWN) == harmless
    assert exportable(leaky, KNOWN) is OmissionReason.HOLDS
    assert exportable(leaky, NONE) == leaky, "the test tests something: nothing else is wrong with it"


@pytest.mark.parametrize("pack", [gzip.compress, zipped, database])
@pytest.mark.parametrize("said", [VALUE[::-1], VALUE[:6] + "\n> " + VALUE[6:], VALUE.encode().hex()])
@pytest.mark.parametrize("form", ["utf-8", "utf-16", "utf-16-be"])
def test_a_disguised_secret_is_found_inside(pack: Pack, said: str, form: str) -> None:
    text = f"some text\n{said}\nand more of it\n".encode(form)
    assert exportable(pack(text), KNOWN) is OmissionReason.HOLDS


@pytest.mark.parametrize("pack", [gzip.compress, zipped, database])
def test_a_key_that_nobody_told_us_is_found_inside(pack: Pack) -> None:
    """Text outside of an archive is looked at in the same way."""
    assert exportable(pack(b"ghp_0123456789abcdefABCD and more"), NONE) is OmissionReason.HOLDS
    honest = pack(b"a key-value-store-of-names, sk-learn-and-others")
    assert exportable(honest, NONE) == honest


def test_a_value_that_a_database_scatters_over_pages_is_found() -> None:
    for before in range(3000, 8200, 9):  # somewhere between them, a page ends inside of the value
        made = database(b"x" * before + VALUE.encode() + b"y" * (13_000 - before))
        if VALUE.encode() not in made:
            assert exportable(made, KNOWN) is OmissionReason.HOLDS
            return
    pytest.fail("the value was never split")


def test_names_and_comments_are_looked_at() -> None:
    assert exportable(zipped(b"", name=f"{VALUE}.txt"), KNOWN) is OmissionReason.HOLDS
    assert exportable(gzip.compress(tarred(b"", name=f"{VALUE}.txt")), KNOWN) is OmissionReason.HOLDS


def encrypted() -> bytes:
    made = bytearray(zipped(b"honest", method=zipfile.ZIP_STORED))
    for mark, at in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        place = made.rindex(mark)
        made[place + at] |= 1
    return bytes(made)


def unlisted() -> bytes:
    """An archive whose directory does not name its first member."""
    hidden, listed = zipped(VALUE.encode() * 3), zipped(b"honest")
    return hidden[: hidden.index(b"PK\1\2")] + listed


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(b"honest " * 900)[:-9], OmissionReason.BROKEN),
        (gzip.compress(b"honest") + b"and more", OmissionReason.BROKEN),
        (lzma.compress(b"honest") + b"and more", OmissionReason.BROKEN),
        (zipped(b"honest")[:-30], OmissionReason.BROKEN),
        (encrypted(), OmissionReason.BROKEN),
        (unlisted(), OmissionReason.BROKEN),
        (database(b"honest")[:5000], OmissionReason.BROKEN),
        (b"7z\xbc\xaf\x27\x1c\0\4 and so on", OmissionReason.UNKNOWN),
        (zipped(b"Rar!\x1a\x07\1\0 and so on"), OmissionReason.UNKNOWN),
        (b"\x37\x7f\x06\x82\0\0 a log of SQLite", OmissionReason.UNKNOWN),
        (zipped(bytes(80 << 20)), OmissionReason.LARGE),
        (gzip.compress(bytes(80 << 20)), OmissionReason.LARGE),
        (zipped(zipped(bytes(40 << 20)) + zipped(bytes(40 << 20))), OmissionReason.LARGE),
    ],
)
def test_what_cannot_be_looked_into_is_not_exported(data: bytes, why: OmissionReason) -> None:
    assert exportable(data, NONE) is why
    assert exportable(data, KNOWN) is why


def test_archives_in_archives_are_looked_into_to_a_depth() -> None:
    data = b"honest"
    for _ in range(8):
        data = gzip.compress(data)
    assert exportable(data, KNOWN) == data
    assert exportable(gzip.compress(data), KNOWN) is OmissionReason.DEEP


def test_many_members_have_an_end() -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for number in range(12_000):
            archive.writestr(str(number), b"")
    assert exportable(made.getvalue(), NONE) is OmissionReason.LARGE


def test_text_is_concealed_and_other_bytes_without_a_value_stay() -> None:
    for text in (b"x^2 + 1 = y\n", b"BZhello\n", b"PACKAGE\n", b"PK is no archive\n", b"070701 is a number\n", b"]\n"):
        assert exportable(text + VALUE.encode(), KNOWN) == text + b"[redacted]"
    program = b"\x7fELF\0\1\2" * 100
    assert exportable(program, KNOWN) == program
    assert exportable(program + VALUE.encode(), KNOWN) is OmissionReason.HOLDS
    assert exportable(f"\ufeffin two bytes: {VALUE}".encode("utf-16-le"), KNOWN) == (
        "\ufeffin two bytes: [redacted]".encode("utf-16-le")
    )


def test_on_disk_an_archive_stays_what_it_is(tmp_path: Path) -> None:
    """Evidence is kept: what cannot be rewritten is not exported."""
    for number, pack in enumerate(PACKS):
        (tmp_path / str(number)).write_bytes(pack(b"honest" * 99 + VALUE.encode()))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert KNOWN.scrub_folder(tmp_path) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
