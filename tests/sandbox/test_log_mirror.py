"""What an agent writes to its logs is in its trial's folder while it runs, and is replaced by the logs at its end."""

import os
from pathlib import Path

import pytest

from sandbox.driving import Box
from terminalbench.sandbox import activity
from terminalbench.sandbox.activity import FileTail, LogMirror
from terminalbench.secrets.values import Secrets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent").mkdir()
    return tmp_path / "agent"


def test_a_copy_grows_with_its_log_and_begins_anew_with_it(folder: Path) -> None:
    mirror, copy = LogMirror(folder), folder / "codex.txt"
    mirror.take(FileTail("codex.txt", 5, b"one\nt"))
    assert copy.read_bytes() == b"one\n"
    mirror.take(FileTail("codex.txt", 8, b"wo\n"))
    mirror.take(FileTail("codex.txt", 12, b"thre"))
    assert copy.read_bytes() == b"one\ntwo\n", "a line is copied when it is whole"
    mirror.take(FileTail("codex.txt", 30, b"ten\nlate\n"))
    assert copy.read_bytes() == b"one\ntwo\nlate\n", "of what is missing in between no part of a line is copied"
    mirror.take(FileTail("codex.txt", 5, b"anew\n"))
    assert copy.read_bytes() == b"anew\n"
    mirror.remove()
    assert list(folder.iterdir()) == []
    mirror.take(FileTail("codex.txt", 10, b"more\n"))
    assert list(folder.iterdir()) == [], "its end has come"
    mirror.reopen()
    mirror.take(FileTail("codex.txt", 3, b"go\n"))
    assert copy.read_bytes() == b"go\n"


def test_a_copy_never_holds_a_secret_however_the_log_comes(folder: Path) -> None:
    """A trial that is killed leaves its copies."""
    secret, long = "s3cret-of-the-provider-1234", b"x" * 30_000
    log = b"begin\nkey " + secret.encode() + b" end\n" + long + secret.encode() + long + b"\nlast\n"
    wanted = log.replace(secret.encode(), b"[redacted]")
    for size in (1, 7, 20, 4096, 29_990, len(log)):
        mirror, name = LogMirror(folder, Secrets.of([secret])), f"by-{size}.txt"
        step = size if size > 20 else 200 + size
        for end in range(step, len(log) + step, step):
            part = log[end - step : min(end, len(log))]
            mirror.take(FileTail(name, min(end, len(log)), part))
            assert secret.encode() not in (folder / name).read_bytes()
        assert (folder / name).read_bytes() == wanted
    mirror.take(FileTail("gap.txt", 10 + len(secret), f"a\n{secret[:8]}".encode().rjust(10 + len(secret), b"-")))
    mirror.take(FileTail("gap.txt", 99, f"{secret[9:]}\nafter\n".encode()))
    assert (folder / "gap.txt").read_bytes().splitlines()[-1] == b"after"
    assert secret[9:].encode() not in (folder / "gap.txt").read_bytes()
    assert secret[:8].encode() not in (folder / "gap.txt").read_bytes()


def test_only_logs_are_copied_and_never_over_anything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are the agent's; what is in the folder may be the host's own."""
    monkeypatch.setattr(activity, "MOST_COPIED_BYTES", 4)
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_text("kept")
    (folder / "own.txt").write_text("kept")
    (folder / "link.txt").symlink_to(elsewhere)
    os.mkfifo(folder / "pipe.txt")
    mirror = LogMirror(folder)
    names = ["own.txt", "link.txt", "pipe.txt", "trajectory.json", "../up.txt", "deep/a.txt", ".a.txt", "a\n.txt"]
    for name in [*names, "giant.txt", *(f"n{number}.log" for number in range(100))]:
        mirror.take(FileTail(name, 6, b"abcde\n"))
        mirror.take(FileTail(name, 8, b"g\n"))
    assert {(folder / "own.txt").read_text(), elsewhere.read_text()} == {"kept"}
    made = {path.name for path in folder.iterdir()} - {"own.txt", "link.txt", "pipe.txt"}
    assert "giant.txt" in made
    assert len(made) <= 20
    assert all(name == "giant.txt" or name.startswith("n") for name in made)
    assert (folder / "giant.txt").read_bytes() == b"abcd", "no more than the limit"
    mirror.remove()
    assert {path.name for path in folder.iterdir()} == {"own.txt", "link.txt", "pipe.txt"}


def test_logs_are_copied_while_the_command_runs_and_come_whole_at_its_end(box: Box) -> None:
    """The command ends when the copy is there: it waits for the look, not for the clock."""
    seen = box.do(
        "mirrored_while",
        "cd /logs/agent; ln -s /etc/passwd link.txt; mkfifo pipe.txt; truncate -s 3G giant.txt; echo early > stdout.txt;"
        " for i in $(seq 1200); do [ -e /go ] && break; sleep 0.05; done; rm giant.txt pipe.txt; echo late >> stdout.txt",
        "stdout.txt",
    )
    assert seen["live"] == {"stdout.txt": "early\n"}
    assert seen["size"] <= activity.MOST_COPIED_BYTES
    assert seen["end"]["stdout.txt"] == "early\nlate\n"
    assert "giant.txt" not in seen["end"]
