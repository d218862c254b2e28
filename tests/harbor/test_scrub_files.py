"""Secrets in the files of a trial: taken out in place, links and binaries left alone."""

import os
from pathlib import Path

from terminalbench.harbor.scrub_files import scrub_beside, scrub_folder
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
