"""Secrets in the files of a trial: taken out in place, links and binaries left alone."""

import os
from pathlib import Path

import pytest

from terminalbench.harbor import scrub_files
from terminalbench.harbor.scrub_files import hide_secrets, scrub_beside, scrub_folder
from terminalbench.llm.scrub import learn

SECRET = "scrubbed-canary-41"


def test_a_kept_copy_is_scrubbed_with_the_original_and_nothing_else_is_touched(tmp_path: Path) -> None:
    learn([SECRET])
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
    assert scrub_folder(tmp_path / "trial") == 1
    assert log.read_text() == kept.read_text() == "a [redacted] b\n" * 3
    assert (clean.stat().st_mtime_ns, outside.read_text()) == (stamp, SECRET)
    assert (inner / "data.bin").read_bytes() == binary
    assert scrub_beside(tmp_path) == 1
    assert outside.read_text() == "[redacted]"


def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn([SECRET])
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(SECRET)

    def refuse_b(path: Path, data: bytes) -> None:
        if path.name == "b":
            raise PermissionError(13, "of another user", str(path))
        path.write_bytes(data)

    monkeypatch.setattr(scrub_files, "overwrite", refuse_b)
    told: list[str] = []
    hide_secrets(tmp_path, lambda what, error: told.append(f"{what}: {error}"))
    assert [SECRET in (tmp_path / name).read_text() for name in ("a", "b", "c")] == [False, True, False]
    assert len(told) == 1
    assert "of another user" in told[0]
