"""Taking a tar stream from a stranger."""

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.transfer import stays_inside, unpack_file, unpack_folder

LIMIT = 1 << 20


def stream(*members: tuple[str, str, str]) -> io.BytesIO:
    """(kind, name, content or link target) as a tar stream."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind, name, text in members:
            member = tarfile.TarInfo(name)
            member.mode = 0o6777
            if kind == "file":
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
                continue
            member.type = {
                "link": tarfile.SYMTYPE,
                "hard": tarfile.LNKTYPE,
                "dir": tarfile.DIRTYPE,
                "pipe": tarfile.FIFOTYPE,
            }[kind]
            member.linkname = text
            archive.addfile(member)
    buffer.seek(0)
    return buffer


def test_names_stay_below_the_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    members = [("file", "../up", "x"), ("file", "/abs", "x"), ("file", "a/../../b", "x"), ("file", "./fine/ok", "x")]
    unpack_folder(target, LIMIT)(stream(*members))
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == [
        "target",
        "target/fine",
        "target/fine/ok",
    ]


def test_a_link_in_the_stream_redirects_nothing(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    ways = [
        ("link", "d", str(outside)),
        ("file", "d/file", "x"),
        ("link", "e", "../outside"),
        ("dir", "e", ""),
        ("file", "e/f", "x"),
    ]
    unpack_folder(target, LIMIT)(stream(*ways))
    assert list(outside.iterdir()) == []
    assert (target / "d" / "file").read_text() == "x"
    assert (target / "e" / "f").read_text() == "x"


def test_a_link_left_by_an_earlier_stream_redirects_nothing(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (target / "d").symlink_to(outside)
    (outside / "keep").write_text("kept")
    unpack_folder(target, LIMIT)(stream(("file", "d/keep", "changed")))
    assert (outside / "keep").read_text() == "kept"
    assert (target / "d" / "keep").read_text() == "changed"


def test_two_streams_together_make_no_way_out(tmp_path: Path) -> None:
    target = tmp_path / "target"
    unpack_folder(target, LIMIT)(stream(("dir", "a/b", ""), ("link", "a/b/c", "../.."), ("file", "f", "x")))
    unpack_folder(target, LIMIT)(stream(("link", "z", "a/b/c/../secret")))
    assert not (target / "z").is_symlink()


def test_hard_links_pipes_and_special_bits_stay_out(tmp_path: Path) -> None:
    unpack_folder(tmp_path / "t", LIMIT)(stream(("hard", "h", "/etc/passwd"), ("pipe", "p", ""), ("file", "f", "x")))
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["f"]
    assert (tmp_path / "t" / "f").stat().st_mode & 0o7022 == 0


def test_a_folder_is_opened_once_for_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def counted(path: str, flags: int, *more: int, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return real(path, flags, *more, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", counted)
    members = [("file", f"a/b/{number}", "said") for number in range(50)]
    unpack_folder(tmp_path / "out", LIMIT)(stream(*members, ("file", "c", "last")))
    monkeypatch.undo()
    assert {path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()} <= {"said", "last"}
    assert len(list((tmp_path / "out/a/b").iterdir())) == 50
    assert len(opened) < 51 + 10


def test_there_is_a_limit(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="too much"):
        unpack_folder(tmp_path / "t", 10)(stream(("file", "f", "x" * 6), ("file", "g", "x" * 6)))
    with pytest.raises(SandboxError, match="the limit is 3"):
        unpack_file(tmp_path / "g", 3)(stream(("file", "f", "xxxx")))
    assert not (tmp_path / "g").exists()


def test_a_file_replaces_atomically(tmp_path: Path) -> None:
    (tmp_path / "g").write_text("old")
    with pytest.raises(SandboxError):
        unpack_file(tmp_path / "g", LIMIT)(stream(("link", "f", "/etc/passwd")))
    assert (tmp_path / "g").read_text() == "old"
    unpack_file(tmp_path / "g", LIMIT)(stream(("file", "f", "new")))
    assert (tmp_path / "g").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


PART = st.sampled_from(["a", "b", "c", "..", ".", ""])
PATH = st.lists(PART, min_size=1, max_size=5).map("/".join)
NAME = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["link", "dir", "file"]), NAME.map("/".join), PATH), max_size=8))
def test_nothing_below_the_target_leads_out(members: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        target = Path(name).resolve() / "deep" / "target"
        with contextlib.suppress(SandboxError):  # a file where there is a folder
            unpack_folder(target, LIMIT)(stream(*members))
        for path in target.rglob("*"):
            real = os.path.realpath(path)
            assert real == str(target) or real.startswith(f"{target}/")


def test_stays_inside_follows_links_on_the_way() -> None:
    links = {("a", "b"): "../..", ("x",): "a"}
    assert not stays_inside(("l",), "x/b/y", {**links, ("l",): "x/b/y"})
    assert stays_inside(("l",), "x/c", {**links, ("l",): "x/c"})
    assert not stays_inside(("l",), "/etc", links)
    assert not stays_inside(("l",), "l", {("l",): "l"})
