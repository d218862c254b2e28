"""Layers of images, unpacked as an overlay takes them: what archives may hold, and what hostile ones try."""

import io
import os
import stat
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from support.registry import layer_of, member, packed
from support.tools import need_root
from terminalbench.sandbox.engine.tar_stream import BadArchive, TarStream
from terminalbench.sandbox.engine.unpack import LayerUnpacking

DIR, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture(autouse=True)
def _as_root() -> None:
    """Owners, whiteouts and attributes of the kernel; other users unpack in the helper's namespace (test_images)."""
    need_root("layers hold files of several users")


def unpack(archive: bytes, folder: Path, *lower: Path, keep_free: int = 0, most: int = 1_000_000) -> LayerUnpacking:
    """Unpack an archive into a new folder, above others (the top one first)."""
    folder.mkdir()
    read, write = os.pipe()

    def feed() -> None:
        try:
            with os.fdopen(write, "wb") as stream:
                stream.write(archive)
        except BrokenPipeError:
            pass

    feeding = threading.Thread(target=feed)
    feeding.start()
    work = LayerUnpacking(
        str(folder), [str(one) for one in lower], private=False, keep_free=keep_free, most_entries=most
    )
    try:
        work.run(TarStream(read))
    finally:
        os.close(read)
        feeding.join()
    return work


def refused(archive: bytes, folder: Path, *lower: Path, **limits: int) -> str:
    with pytest.raises(BadArchive) as caught:
        unpack(archive, folder, *lower, **limits)
    return str(caught.value)


def is_whiteout(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def test_kinds_owners_modes_and_times_are_kept(tmp_path: Path) -> None:
    archive = packed(
        member("d", DIR, mode=0o1777, mtime=1_000_000_000),
        (member("d/f", mode=0o4755, uid=7, gid=8, mtime=1_100_000_000), b"content"),
        member("d/l", LINK, linkname="../elsewhere", uid=9, gid=9),
        member("d/h", HARD, linkname="d/f"),
        member("d/p", tarfile.FIFOTYPE, mode=0o620),
        member("d/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
    )
    work = unpack(archive, tmp_path / "l")
    d, f = tmp_path / "l/d", tmp_path / "l/d/f"
    assert stat.S_IMODE(d.stat().st_mode) == 0o1777
    assert d.stat().st_mtime == 1_000_000_000, "also of a folder that files came into"
    assert (f.read_bytes(), stat.S_IMODE(f.stat().st_mode), f.stat().st_uid, f.stat().st_gid) == (
        b"content",
        0o4755,
        7,
        8,
    )
    assert f.stat().st_mtime == 1_100_000_000
    assert (d / "l").readlink() == Path("../elsewhere")
    assert (d / "l").lstat().st_uid == 9
    assert (d / "h").stat().st_ino == f.stat().st_ino
    assert stat.S_ISFIFO((d / "p").stat().st_mode)
    assert work.skipped == ["d/null"]
    assert not (d / "null").exists()


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_large_numbers_are_read_in_every_form(tmp_path: Path, form: int) -> None:
    long, target = "/".join(["x" * 60] * 4), "y" * 200
    archive = packed((member(f"{long}/ü", uid=3_000_000), b"1"), member(f"{long}/l", LINK, linkname=target), form=form)
    unpack(archive, tmp_path / "l")
    assert (tmp_path / "l" / long / "ü").read_bytes() == b"1"
    assert (tmp_path / "l" / long / "ü").stat().st_uid == 3_000_000
    assert str((tmp_path / "l" / long / "l").readlink()) == target


def gnu_tar(folder: Path, *options: str) -> bytes:
    import subprocess

    return subprocess.run(
        ["tar", "c", *options, "-C", str(folder), "."], check=True, capture_output=True, timeout=600
    ).stdout


@pytest.mark.parametrize("form", [["--format=gnu"], ["--format=pax", "--sparse-version=0.0"], ["--format=pax", "--sparse-version=0.1"], ["--format=pax", "--sparse-version=1.0"]])  # fmt: skip
def test_sparse_files_stay_sparse(tmp_path: Path, form: list[str]) -> None:
    (tmp_path / "src").mkdir()
    with (tmp_path / "src/holes").open("wb") as file:
        for number in range(40):
            file.seek(number << 20)
            file.write(b"x" * 5000)
        file.truncate(50 << 20)
    unpack(gnu_tar(tmp_path / "src", "--sparse", *form), tmp_path / "l")
    made = tmp_path / "l/holes"
    assert made.read_bytes() == (tmp_path / "src/holes").read_bytes()
    assert made.stat().st_blocks * 512 < 4 << 20


def test_attributes_are_kept_but_those_of_overlays(tmp_path: Path) -> None:
    info = member("f")
    info.pax_headers = {"SCHILY.xattr.user.note": "hello"}
    unpack(packed((info, b"x")), tmp_path / "l")
    assert os.getxattr(tmp_path / "l/f", "user.note") == b"hello"
    for name in ("trusted.overlay.redirect", "user.overlay.opaque"):
        info = member("d", DIR)
        info.pax_headers = {f"SCHILY.xattr.{name}": "/etc"}
        assert name in refused(packed(info), tmp_path / name)


@pytest.mark.parametrize(
    "entry",
    [
        (member("../out"), b"x"),
        (member("a/../../out"), b"x"),
        (member("/../out"), b"x"),
        member("h", HARD, linkname="../../etc/passwd"),
        member(".wh..."),
        member(".wh."),
    ],
)
def test_names_that_lead_out_are_refused(tmp_path: Path, entry: Any) -> None:
    refused(packed(entry), tmp_path / "l")
    assert not (tmp_path / "out").exists()


def test_absolute_names_are_of_the_image(tmp_path: Path) -> None:
    unpack(packed((member("/etc/x"), b"1"), member("/etc/y", HARD, linkname="/etc/x")), tmp_path / "l")
    assert (tmp_path / "l/etc/y").read_bytes() == b"1"
    assert not Path("/etc/x").exists()


@pytest.mark.parametrize("target", ["/", "/outside", "../../outside", "../" * 40 + "outside"])
def test_nothing_is_written_through_a_link_out_of_the_image(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    archive = packed(member("door", LINK, linkname=target), (member("door/in"), b"x"), member("door/sub", DIR))
    unpack(archive, tmp_path / "l")
    assert list((tmp_path / "outside").iterdir()) == []
    inside = "in" if target == "/" else "outside/in"
    assert (tmp_path / "l" / inside).read_bytes() == b"x", "it is followed as in the image"
    assert not Path("/in").exists()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    archive = packed(member("a", LINK, linkname="b"), member("b", LINK, linkname="a"), (member("a/f"), b"x"))
    assert "too many links" in refused(archive, tmp_path / "l")


def test_the_later_of_two_entries_counts(tmp_path: Path) -> None:
    archive = packed(
        member("x", DIR), (member("x/f"), b"1"), (member("x"), b"2"), (member("y"), b"3"), member("y", DIR),
        member("l", LINK, linkname="a"), member("l", LINK, linkname="b"),
    )  # fmt: skip
    unpack(archive, tmp_path / "l")
    assert (tmp_path / "l/x").read_bytes() == b"2"
    assert (tmp_path / "l/y").is_dir()
    assert (tmp_path / "l/l").readlink() == Path("b")


def test_a_folder_that_only_a_layer_below_describes_is_made_as_there(tmp_path: Path) -> None:
    below = packed(
        member("tmp", DIR, mode=0o1777, uid=5), member("lib", LINK, linkname="usr/lib"), member("usr/lib", DIR)
    )
    unpack(below, tmp_path / "0")
    unpack(layer_of({"tmp/f": "1", "lib/g": "2"}), tmp_path / "1", tmp_path / "0")
    made = tmp_path / "1/tmp"
    assert (stat.S_IMODE(made.stat().st_mode), made.stat().st_uid) == (0o1777, 5)
    assert (tmp_path / "1/usr/lib/g").read_text() == "2", "a link of the layer below is followed, not replaced"
    assert not os.path.lexists(tmp_path / "1/lib")


def test_whiteouts_hide_what_is_below_and_nothing_of_their_own_layer(tmp_path: Path) -> None:
    unpack(layer_of({"a": "1", "b": "1", "d/x": "1", "d/y": "1", "e/x": "1", "l": "-> d"}), tmp_path / "0")
    top = layer_of(
        {
            ".wh.a": "",
            ".wh.none": "",
            "b": "2",
            ".wh.b": "",
            "d/.wh.x": "",
            "e/.wh..wh..opq": "",
            "e/z": "2",
            ".wh.l": "",
        }
    )
    unpack(top, tmp_path / "1", tmp_path / "0")
    layer = tmp_path / "1"
    assert is_whiteout(layer / "a")
    assert is_whiteout(layer / "d/x")
    assert is_whiteout(layer / "l"), "the link itself, not what it leads to"
    assert not os.path.lexists(layer / "none")
    assert (layer / "b").read_text() == "2"
    assert os.getxattr(layer / "e", "trusted.overlay.opaque") == b"y"
    # A third layer sees through all of that what the image has.
    unpack(
        packed((member("e/q"), b"3"), (member("a/new"), b"3"), member("again", HARD, linkname="d/y")),
        tmp_path / "2",
        tmp_path / "1",
        tmp_path / "0",
    )
    assert (tmp_path / "2/a").is_dir()
    assert (tmp_path / "2/again").read_text() == "1", "a link to a file below has its content"
    assert "which is not there" in refused(
        packed(member("h", HARD, linkname="d/x")), tmp_path / "3", tmp_path / "1", tmp_path / "0"
    )
    assert "which is not there" in refused(
        packed(member("h", HARD, linkname="e/x")), tmp_path / "4", tmp_path / "1", tmp_path / "0"
    )


def test_a_whiteout_behind_a_link_is_of_the_image(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/f").write_text("kept")
    unpack(packed(member("door", LINK, linkname=str(tmp_path / "victim"))), tmp_path / "0")
    unpack(packed(member("door/.wh.f"), member("door/.wh..wh..opq")), tmp_path / "1", tmp_path / "0")
    assert (tmp_path / "victim/f").read_text() == "kept"
    assert os.listxattr(tmp_path / "victim") == []


@pytest.mark.parametrize("told", [{"size": "-5"}, {"GNU.sparse.realsize": "9", "GNU.sparse.map": "0,-4"}])
def test_numbers_below_zero_do_not_keep_it_busy_for_ever(tmp_path: Path, told: dict[str, str]) -> None:
    info = member("f")
    info.pax_headers = told
    refused(packed((info, b"123456789")), tmp_path / "l")


def test_archives_that_are_none_are_said(tmp_path: Path) -> None:
    whole = layer_of({"f": "x" * 5000})
    assert "ends too early" in refused(whole[:2000], tmp_path / "0")
    assert "no tar archive" in refused(b"\x7fELF" + bytes(range(256)) * 8, tmp_path / "1")
    damaged = bytearray(whole)
    damaged[3] ^= 1
    assert "damaged" in refused(bytes(damaged), tmp_path / "2")
    assert "is not a folder" in refused(packed((member("f"), b"x"), (member("f/g"), b"x")), tmp_path / "3")


def test_bombs_are_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = member("huge")
        info.size = free
        out.write(info.tobuf(tarfile.GNU_FORMAT))
        archive.offset += 512
    with pytest.raises(OSError, match="no room on the disk"):
        unpack(out.getvalue(), tmp_path / "0", keep_free=1 << 20)
    assert "more than 10 entries" in refused(
        layer_of({f"f{number}": "" for number in range(11)}), tmp_path / "1", most=10
    )


def test_tens_of_thousands_of_entries_are_unpacked(tmp_path: Path) -> None:
    block = bytearray(member("").tobuf(tarfile.USTAR_FORMAT))
    usual, archive = int(block[148:154], 8), bytearray()
    for number in range(20_000):
        name = f"d{number % 300}/f{number}".encode()
        block[:100], block[148:154] = name.ljust(100, b"\0"), b"%06o" % (usual + sum(name))
        archive += block
    assert unpack(bytes(archive + bytes(1024)), tmp_path / "l").entries == 20_000
    assert sum(len(files) for _, _, files in os.walk(tmp_path / "l")) == 20_000
