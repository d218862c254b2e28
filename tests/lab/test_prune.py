"""`tbench prune`: old batches go, what is named or runs stays, the index follows."""

import json
import os
from pathlib import Path

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.files import write_text
from terminalbench.index.results import list_batches
from terminalbench.index.scan import scan_all
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.locks import lock

DAY = 86400.0


def age(batch: Batch, days: float, now: float) -> None:
    for path in (batch.plan_json, batch.runs, batch.folder):
        os.utime(path, (now - days * DAY, now - days * DAY))


@pytest.fixture
def root(project) -> Path:
    """Five batches of one experiment, all but the last 40 days old, and one of another."""
    found = project.root / "results"
    now = project.root.stat().st_mtime
    for slug, days in (*(("s", 40),) * 4, ("s", 1), ("other", 40)):
        batch = allocate(found, slug)
        make_plan(batch, ("p",), "a", 1)
        make_trial(batch, "a__1")
        age(batch, days, now)
    (found / "index.db").unlink(missing_ok=True)
    return found


def there(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("*/[0-9]"))


def test_without_yes_nothing_is_removed(tbench, root: Path) -> None:
    before = there(root)
    ran = tbench("prune")
    assert "would remove 4 batches" in ran.out
    assert "other/0" not in ran.out  # the newest of its experiment
    assert (ran.code, there(root)) == (0, before)


def test_old_batches_go_and_the_index_follows(tbench, root: Path) -> None:
    scan_all(root)
    closed = root / "s" / "1" / "runs" / "closed"
    (closed / "in").mkdir(parents=True)
    closed.chmod(0o500)
    assert "removed 4 batches" in tbench("prune", "--yes").out
    assert there(root) == ["other/0", "s/4"]
    assert sorted(batch["batch"] for batch in list_batches(root)) == ["other/0", "s/4"]
    assert not list(root.glob("*/.*"))


def test_what_is_named_or_runs_stays(tbench, root: Path, project) -> None:
    records = project.root / ".terminalbench"
    append_jsonl(records / "gym" / "episodes.jsonl", {"resultsPath": "results/s/0/runs"})
    append_jsonl(records / "memory.jsonl", {"lesson": {"evidence": [{"trial": "s/1/2026__p/a__1"}]}})
    write_json(root / "s" / "4" / "analytics" / "comparison.json", {"batches": ["s/2", "s/4"]})
    with lock(root / "s" / "3" / ".lock", "run"):
        ran = tbench("prune", "--yes", "--json")
    stays = {one["key"]: one["stays"] for one in json.loads(ran.out)["found"]}
    assert stays == {
        "s/0": ".terminalbench/gym/episodes.jsonl names it",
        "s/1": ".terminalbench/memory.jsonl names it",
        "s/2": "the comparison of s/4 names it",
        "s/3": "it runs",
    }
    assert len(there(root)) == 6


def test_batches_of_a_training_and_of_a_night_stay(tbench, root: Path, project) -> None:
    write_json(project.root / ".terminalbench" / "training" / "s" / "plan.json", {})
    assert tbench("prune", "--yes").out.count("the training s names it") == 4
    night = project.root / "night"
    write_text(night / "config.json", "{}")
    root.rename(night / "batches")
    ran = tbench("prune", "--yes", "--results", night / "batches")
    assert (ran.code, "these batches belong to a night" in ran.err) == (2, True)
    assert len(there(night / "batches")) == 6


def test_a_batch_that_is_named_goes_whatever_its_age(tbench, root: Path) -> None:
    assert "removed 1 batch" in tbench("prune", "s/4", "--yes").out
    assert "s/4" not in there(root)
    assert len(there(root)) == 5
    assert "no such batch" in tbench("prune", "s/9").err


def test_a_link_is_left_alone(tbench, root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (root / "s" / "2").rename(elsewhere)
    (root / "s" / "2").symlink_to(elsewhere)
    assert "it is a symbolic link" in tbench("prune", "--yes").out
    assert (elsewhere / "plan.json").is_file()
