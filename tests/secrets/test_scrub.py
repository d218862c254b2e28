"""Secrets in the files of a trial: taken out in place, links and binaries left alone."""

import os
from pathlib import Path

import pytest

from terminalbench.files import overwrite
from terminalbench.secrets.values import Secrets

SECRET = "scrubbed-canary-41"
KNOWN = Secrets.of([SECRET])


def test_a_kept_copy_is_scrubbed_with_the_original_and_nothing_else_is_touched(tmp_path: Path) -> None:
    inner = tmp_path / "trial" / "agent"
    inner.mkdir(parents=True)
    log = inner / "log.txt"
    log.write_text(f"a {SECRET} b\n" * 3)
    kept = tmp_path / "kept.txt"
    os.link(log, kept)
    clean = inner / "clean.txt"
    clean.write_text("nothing")
    stamp = clean.stat().st_mtime_ns
    binary = b"\0" + SECRET.encode()
    (inner / "data.bin").write_bytes(binary)
    outside = tmp_path / "outside.txt"
    outside.write_text(SECRET)
    (inner / "link").symlink_to(outside)
    (inner / "loop").symlink_to(tmp_path)
    os.mkfifo(inner / "pipe")
    assert KNOWN.scrub_folder(tmp_path / "trial") == 1
    assert log.read_text() == kept.read_text() == "a [redacted] b\n" * 3
    assert (clean.stat().st_mtime_ns, outside.read_text()) == (stamp, SECRET)
    assert (inner / "data.bin").read_bytes() == binary
    assert KNOWN.scrub_beside(tmp_path) == 1
    assert outside.read_text() == "[redacted]"


def test_a_file_that_cannot_be_written_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(SECRET)

    def refuse(path: Path, data: bytes) -> None:
        if path.name == "a":
            raise PermissionError(13, "Permission denied")
        if path.name == "b":
            raise OSError(30, "Read-only file system")
        overwrite(path, data)

    monkeypatch.setattr("terminalbench.secrets.values.overwrite", refuse)
    with pytest.raises(OSError, match="Read-only"):
        KNOWN.scrub_folder(tmp_path)
    assert [(tmp_path / name).read_text() for name in ("a", "b", "c")] == ["[redacted]", SECRET, "[redacted]"]


def test_a_secret_that_is_no_text_is_taken_out_too(tmp_path: Path) -> None:
    known = Secrets.of_environment({"ODD_TOKEN": "caf\udce9-canary-9"})
    (tmp_path / "log").write_bytes(b"a caf\xe9-canary-9 b")
    assert known.scrub_folder(tmp_path) == 1
    assert (tmp_path / "log").read_bytes() == b"a [redacted] b"
    assert known.conceal_bytes(b"\0caf\xe9-canary-9") == b"\0" + b"*" * 13


def test_names_of_files_and_ends_of_links_are_scrubbed(tmp_path: Path) -> None:
    """An agent may call a file, a folder or a link by a secret; none is lost by another name."""
    inner = tmp_path / f"in-{SECRET}"
    inner.mkdir()
    for number, name in enumerate((f"{SECRET}.log", "[redacted].log", f"{SECRET.encode().hex()}.log", "plain")):
        (inner / name).write_text(str(number))
    (inner / "link").symlink_to(f"/nowhere/{SECRET}")
    KNOWN.scrub_folder(tmp_path)
    (made,) = tmp_path.iterdir()
    assert made.name == "in-[redacted]"
    texts = {path.name: path.read_text() for path in made.iterdir() if not path.is_symlink()}
    assert sorted(texts) == ["[redacted].log", "[redacted].log-2", "[redacted].log-3", "plain"]
    assert sorted(texts.values()) == ["0", "1", "2", "3"]
    assert (made / "link").readlink() == Path("/nowhere/[redacted]")
