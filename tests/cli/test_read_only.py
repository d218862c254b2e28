"""A results folder that cannot be written: everything that reads works, everything that writes says so."""

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.read_only import Ended, Run, each_read_only, run_read_only
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.scan import scan_all
from terminalbench.index.store import FILE_NAME

COUNT = """
import sys, terminalbench
results = terminalbench.open_results(argument)
found = [(row["name"], row["trials"]) for row in results.batches()]
sys.stdout.write(f"{found} {len(results.trials())}\\n")  # at once: others write too
"""
DASHBOARD = """
from pathlib import Path
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.serve import Refresher
from terminalbench.dashboard.site import Site
site = Site(Path(argument))
refresher = Refresher(site)
refresher.start()
pages = [answer(site, path, {}).body.decode() for path in ("", "batches/s/0/", "trials/")]
refresher.stop()
print(all("a__p" in page or "s/0" in page for page in pages))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "results")


def make_root(root: Path) -> Path:
    batch = allocate(root, "s")
    make_plan(batch, ("p", "q"), "ab", 1)
    for number, profile in enumerate("pq"):
        for task in "ab":
            make_trial(batch, f"{task}__{profile}", profile=profile, reward=1.0 - number)
    return root


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


READING = (
    "list",
    "show",
    "status",
    "watch",
    "query",
    "export",
    "compare",
    "errors",
    "report",
    "analyze",
    "query",
    "view",
)
CACHES = ("a folder", "none", "an index in the root")


def commands(root: Path, out: Path) -> list[list[str]]:
    """Those that read, as `READING` names them, and some that write."""
    batch, at = str(root / "s" / "0"), ["--results", str(root)]
    out.mkdir(parents=True, exist_ok=True)
    return [
        ["list", *at],
        ["show", "a__p", *at],
        ["status", *at],
        ["watch", batch],
        ["query", "SELECT count(*) FROM trials", *at],
        ["export", batch, "-o", str(out / "trials.csv")],
        ["compare", batch],
        ["errors", batch],
        ["report", batch, "-o", str(out / "report")],
        ["analyze", batch, "--output", str(out / "analytics")],
        ["query", "SELECT count(*) FROM findings", *at],
        ["view", str(root), "--export", str(out / "site")],
        ["index", *at],
        ["resume", batch],
        ["analyze", batch],
    ]


def test_every_command_that_reads_works_and_so_does_a_dashboard(tmp_path: Path) -> None:
    roots = {cache: make_root(tmp_path / "disk" / cache) for cache in CACHES}
    scan_all(roots["an index in the root"])
    before = files(tmp_path / "disk")
    runs: list[Run] = []
    for cache, root in roots.items():
        out = tmp_path / cache
        env = {"XDG_CACHE_HOME": "/proc/none" if cache == "none" else str(out / "cache")}
        runs += [(arguments, env) for arguments in (*commands(root, out), ["-c", DASHBOARD, str(root)])]
    ended = each_read_only(tmp_path / "disk", tmp_path / "told", runs)
    assert files(tmp_path / "disk") == before
    size = len(runs) // len(CACHES)
    for place, cache in enumerate(CACHES):
        *found, dashboard = ended[place * size : (place + 1) * size]
        check_commands(roots[cache], tmp_path / cache, cache, found)
        assert (dashboard.code, dashboard.out) == (0, "True\n"), (cache, dashboard.err)


def check_commands(root: Path, out: Path, cache: str, ended: list[Ended]) -> None:
    where = "in memory, for this process only" if cache == "none" else f"in {out / 'cache'}/terminalbench/index/"
    for name, found in zip(READING, ended, strict=False):
        assert (found.code, bool(found.out)) == (0, name != "export"), (cache, name, found)
        said = [line for line in found.err.splitlines() if "its index is kept" in line]
        assert [where in line for line in said] == ([] if name == "status" else [True]), (cache, name, found.err)
    assert "4/4" in ended[0].out
    assert ended[4].out.split() == ["count(*)", "4"]
    assert (out / "report" / "report.html").is_file()
    assert (out / "analytics" / "findings.jsonl").is_file()
    assert (out / "site" / "index.html").is_file()
    for found in ended[len(READING) :]:
        assert (found.code, found.out) == (1, ""), (cache, found)
        errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, found.err
        assert str(root) in errors[0]
        assert "Traceback" not in found.err


def spoil(root: Path, how: str) -> None:
    """Leave an index.db in the root that cannot be used as it is."""
    scan_all(root)
    file = root / FILE_NAME
    connection = sqlite3.connect(file, isolation_level=None)
    if how == "stale":
        make_trial(allocate(root, "t"), "a__new")
    elif how == "older":
        connection.execute("UPDATE migrations SET name = '001_schema'")
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


WAYS = ("stale", "older", "newer", "not merged", "empty", "no database", "a folder")


def test_an_index_that_cannot_be_used_as_it_is_is_left_and_another_one_used(tmp_path: Path) -> None:
    runs: list[Run] = []
    for how in WAYS:
        root = make_root(tmp_path / "disk" / how)
        spoil(root, how)
        runs += [(["-c", COUNT, str(root)], {"XDG_CACHE_HOME": str(tmp_path / how)})] * 2
    ended = each_read_only(tmp_path / "disk", tmp_path / "told", runs)
    for how, ran, again in zip(WAYS, ended[::2], ended[1::2], strict=True):
        assert ran.code == 0, (how, ran.err)
        assert "'s', 4" in ran.out, how
        assert ran.err.count("its index is kept in") == 1, (how, ran.err)
        assert len(ran.err.splitlines()) == 1, (how, ran.err)
        assert again.out == ran.out, how


def test_processes_at_once_share_one_index_elsewhere(root: Path, tmp_path: Path) -> None:
    scan_all(root)
    make_trial(allocate(root, "t"), "a__new")
    code = f"""
import os, sys
import terminalbench.index.results
argument, children, start = sys.argv[1], [], os.pipe()
for _ in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(start[1])
        os.read(start[0], 1)  # until all are there
        exec({COUNT!r})
        sys.stdout.flush()
        os._exit(0)
os.close(start[1])
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
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
        env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        [ran] = each_read_only(root, tmp_path / "told", [(["-c", COUNT, str(root)], env)])
    assert ran.code == 0, ran.err
    assert "'s', 4" in ran.out


def test_commands_that_read_work_on_a_full_disk(root: Path, tbench, tmp_path: Path, monkeypatch) -> None:
    before = files(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("terminalbench.index.store.shutil.disk_usage", lambda _: SimpleNamespace(total=1 << 30, free=0))
    for command in (("list",), ("list", "s/0"), ("query", "select count(*) from trials"), ("export", "s/0")):
        ran = tbench(*command, "--results", root)
        assert ran.code == 0, ran.err
    for command in ("compare", "errors"):
        assert tbench(command, root / "s" / "0").code in (0, 3)
    assert files(root) == before
    assert not list((tmp_path / "cache").rglob(FILE_NAME)), "its disk is full too"
    refused = tbench("index", "--results", root)
    assert (refused.code, "its disk is full" in refused.err) == (1, True), refused.err
