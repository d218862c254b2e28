"""A results folder that cannot be written: everything that reads works, everything that writes says so."""

import sqlite3
from pathlib import Path

import pytest

from support.read_only import run_read_only, tbench_read_only
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.scan import scan_all
from terminalbench.index.store import FILE_NAME

COUNT = """
import sys, terminalbench
results = terminalbench.open_results(sys.argv[1])
print([(row["name"], row["trials"]) for row in results.batches()], len(results.trials()))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p", "q"), "ab", 1)
    for number, profile in enumerate("pq"):
        for task in "ab":
            make_trial(batch, f"{task}__{profile}", profile=profile, reward=1.0 - number)
    return batch.folder.parent.parent


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("cache", ["a folder", "none", "an index in the root"])
def test_every_command_that_reads_works(root: Path, tmp_path: Path, cache: str) -> None:
    if cache == "an index in the root":
        scan_all(root)
    before = files(root)
    batch, at, told = str(root / "s" / "0"), ["--results", str(root)], tmp_path / "told"
    told.mkdir()
    reading = [
        ["list", *at],
        ["show", "a__p", *at],
        ["status", *at],
        ["watch", batch],
        ["query", "SELECT count(*) FROM trials", *at],
        ["export", batch, "-o", str(tmp_path / "trials.csv")],
        ["compare", batch],
        ["errors", batch],
        ["report", batch, "-o", str(tmp_path / "report")],
        ["analyze", batch, "--output", str(tmp_path / "analytics")],
        ["query", "SELECT count(*) FROM findings", *at],
        ["view", str(root), "--export", str(tmp_path / "site")],
    ]
    writing = [["index", *at], ["resume", batch], ["analyze", batch]]
    home = tmp_path / "cache"
    env = {"XDG_CACHE_HOME": "/proc/none" if cache == "none" else str(home)}
    ended = tbench_read_only(root, told, reading + writing, **env)
    where = "in memory, for this process only" if cache == "none" else f"in {home}/terminalbench/index/"
    for arguments, found in zip(reading, ended, strict=False):
        assert (found.code, bool(found.out)) == (0, arguments[0] != "export"), (arguments, found)
        said = [line for line in found.err.splitlines() if "its index is kept" in line]
        assert [where in line for line in said] == ([] if arguments[0] == "status" else [True]), (arguments, found.err)
    assert "4/4" in ended[0].out
    assert ended[4].out.split() == ["count(*)", "4"]
    assert (tmp_path / "report" / "report.html").is_file()
    assert (tmp_path / "analytics" / "findings.jsonl").is_file()
    assert (tmp_path / "site" / "index.html").is_file()
    for arguments, found in zip(writing, ended[len(reading) :], strict=True):
        assert (found.code, found.out) == (1, ""), (arguments, found)
        errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, found.err
        assert str(root) in errors[0]
        assert "Traceback" not in found.err
    assert files(root) == before


def spoil(root: Path, how: str) -> None:
    """Leave an index.db in the root that cannot be used as it is."""
    scan_all(root)
    file = root / FILE_NAME
    connection = sqlite3.connect(file, isolation_level=None)
    if how == "stale":
        make_trial(allocate(root, "t"), "a__new")
    elif how == "older":
        connection.execute("DELETE FROM migrations WHERE name LIKE '003%'")
        connection.execute("DROP TABLE summaries")
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'trials_by_%'").fetchall():
            if name not in ("trials_by_cell", "trials_by_name"):
                connection.execute(f"DROP INDEX {name}")
    elif how == "newer":
        connection.execute("INSERT INTO migrations VALUES ('999_later')")
        connection.execute("ALTER TABLE batches ADD COLUMN later TEXT")
    elif how == "not merged":
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE batches SET name = 'from the log'")
        kept = {path: path.read_bytes() for path in (file, file.with_name(f"{FILE_NAME}-wal"))}
        connection.close()
        for path, data in kept.items():
            path.write_bytes(data)
    connection.close()
    if how == "empty":
        file.write_bytes(b"")
    elif how == "no database":
        file.write_bytes(b"no database at all\n" * 99)
    elif how == "a folder":
        file.unlink()
        file.mkdir()


@pytest.mark.parametrize("how", ["stale", "older", "newer", "not merged", "empty", "no database", "a folder"])
def test_an_index_that_cannot_be_used_as_it_is_is_left_and_another_one_used(
    root: Path, tmp_path: Path, how: str
) -> None:
    spoil(root, how)
    ran = run_read_only(root, COUNT, str(root), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert ran.returncode == 0, ran.stderr
    assert "'s', 4" in ran.stdout
    assert ran.stderr.count("its index is kept in") == 1
    assert len(ran.stderr.splitlines()) == 1
    again = run_read_only(root, COUNT, str(root), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert again.stdout == ran.stdout


def test_processes_at_once_share_one_index_elsewhere(root: Path, tmp_path: Path) -> None:
    scan_all(root)
    make_trial(allocate(root, "t"), "a__new")
    code = f"""
import subprocess, sys
command = [sys.executable, "-c", {COUNT!r}, sys.argv[1]]
many = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
print("".join(one.communicate()[0] for one in many), end="")
sys.exit(max(one.returncode for one in many))
"""
    ran = run_read_only(root, code, str(root), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 4
    assert len(set(lines)) == 1
    assert len(list((tmp_path / "cache").rglob(FILE_NAME))) == 1


SCAN = """
import sys
from pathlib import Path
from terminalbench.index.scan import scan_all
print(scan_all(Path(sys.argv[1])))
"""


def test_an_index_in_the_root_spares_the_reading_of_what_has_not_changed(root: Path, tmp_path: Path) -> None:
    scan_all(root)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = run_read_only(root, SCAN, str(root), **env)
    assert "seen=4, read=0, removed=0" in ran.stdout, ran.stdout + ran.stderr
    make_trial(Batch(root / "s" / "0"), "a__r", profile="p")
    ran = run_read_only(root, SCAN, str(root), **env)
    assert "seen=5, read=1, removed=0" in ran.stdout, ran.stdout + ran.stderr


def test_a_folder_of_another_user_that_goes_on_is_read_with_what_is_new(root: Path, tmp_path: Path) -> None:
    """The owner writes meanwhile: nothing is read from an index that is being written."""
    scan_all(root)
    with sqlite3.connect(root / FILE_NAME) as owner:
        owner.execute("PRAGMA journal_mode = WAL")
        owner.execute("UPDATE batches SET name = 'renamed'")
        owner.commit()
        ran = run_read_only(root, COUNT, str(root), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert ran.returncode == 0, ran.stderr
    assert "'s', 4" in ran.stdout


def test_a_dashboard_on_a_read_only_folder_in_memory(root: Path) -> None:
    code = """
import sys
from pathlib import Path
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.refresh import Refresher
from terminalbench.dashboard.site import Site
site = Site(Path(sys.argv[1]))
refresher = Refresher(site)
refresher.start()
pages = [answer(site, path, {}).body.decode() for path in ("", "batches/s/0/", "trials/")]
refresher.stop()
print(all("a__p" in page or "s/0" in page for page in pages))
"""
    ran = run_read_only(root, code, str(root), XDG_CACHE_HOME="/proc/none")
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
