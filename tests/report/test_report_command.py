"""`tbench report` on batches on disk, with the real comparison."""

from pathlib import Path

import pytest

from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import append_jsonl
from terminalbench.records.trial import Finding


def make_batch(root: Path, *, new_passes: int, created: str) -> Batch:
    """Two profiles on 12 tasks, 5 attempts each: the old one passes none, the new one the first few of each task."""
    batch = allocate(root, "s")
    tasks = "abcdefghijkl"
    make_plan(batch, ("old", "new"), tasks, 5, provenance={"created_at": created})
    for task in tasks:
        for attempt in range(5):
            make_trial(batch, f"{task}__{attempt}", profile="old", reward=0.0, second=attempt, cost=0.10)
            make_trial(
                batch, f"{task}__{attempt}", profile="new", reward=float(attempt < new_passes), second=attempt, cost=0.2
            )
    return batch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_clear_win_is_said_first(tbench, root: Path) -> None:
    batch = make_batch(root, new_passes=5, created="2026-01-01T00:00:00+00:00")
    ran = tbench("report", batch.folder)
    assert ran.code == 0
    assert ran.out.split() == [str(batch.analytics / "report.html"), str(batch.analytics / "comparison_report.md")]
    page = (batch.analytics / "report.html").read_text()
    first = page.index('class="better"')
    assert "new vs old: +100.0 pt" in page[first : first + 200]
    assert '<b>60</b> <span class="dim">of 60</span> the reason is unknown' in page
    assert "See where new and old differ: <code>tbench errors" in page
    assert page.index("Why they failed") < page.index("Tasks by profile")
    assert not (batch.analytics / "findings.jsonl").exists()
    assert f'href="../runs/{STAMP}__new/a__0"' in page
    assert "All 120 planned trials were measured." in page


def test_findings_are_shown_once_there_are_some(tbench, root: Path) -> None:
    batch = make_batch(root, new_passes=2, created="2026-01-01T00:00:00+00:00")
    findings = batch.analytics / "findings.jsonl"
    for name, value in (
        ("failure_class", "gave_up_early"),
        ("tool_mix.read", 4),
        ("backtracks", 2),
        ("touched_reward", 1),
    ):
        append_jsonl(findings, Finding(f"{STAMP}__old/a__1", "x", "1", name, value))
    append_jsonl(findings, Finding(f"{STAMP}__old/a__1", "judge:root_cause", "1", "root_cause", "misread_task"))
    assert tbench("report", "--results", root).code == 0
    page = (batch.analytics / "report.html").read_text()
    for words in (
        "gave_up_early",
        "No picture of tool calls by kind. 4.0 calls a trial of read.",
        "it named reward or verifier files",
        "root_cause: misread_task",
    ):
        assert words in page
    assert "Nothing has run yet" not in page


def test_several_batches_give_a_trend_about_the_newest(tbench, root: Path) -> None:
    newest = make_batch(root, new_passes=5, created="2026-03-01T00:00:00+00:00")
    oldest = make_batch(root, new_passes=1, created="2026-01-01T00:00:00+00:00")
    assert tbench("report", newest.folder, oldest.folder).code == 0
    page = (newest.analytics / "report.html").read_text()
    assert "Trend over 2 batches" in page
    assert page.index("s/1") < page.rindex("s/0")
    assert not (oldest.analytics / "report.html").exists()
    assert "| s/1 | new | 20.0 % | 60/60 |" in (newest.analytics / "comparison_report.md").read_text()


def test_a_batch_that_has_not_begun_is_reported_too(tbench, root: Path) -> None:
    batch = allocate(root, "s")
    make_plan(batch, ("old", "new"), "ab", 2)
    assert tbench("report", batch.folder).code == 0
    page = (batch.analytics / "report.html").read_text()
    assert "0 of 8 planned trials were measured; 8 were not." in page
    assert "nothing measured" in page
    assert "No two profiles were measured on the same task." in page


def test_an_analysis_ends_in_a_report(tbench, root: Path) -> None:
    batch = make_batch(root, new_passes=3, created="2026-01-01T00:00:00+00:00")
    assert "read report.html first" in tbench("analyze", batch.folder).out
    page = (batch.analytics / "report.html").read_text()
    assert "new vs old: +60.0 pt" in page
    assert "Nothing has run yet" not in page
    selection = batch.analytics / "selection"
    tbench("analyze", batch.folder, "--tasks", "a", "b")
    assert f'href="../../runs/{STAMP}__new/a__0"' in (selection / "report.html").read_text()
    assert "report.html" not in tbench("analyze", batch.folder, "--failed").out
    assert not (selection / "report.html").exists()
    assert page == (batch.analytics / "report.html").read_text()


def test_wrong_targets_are_named(tbench, root: Path) -> None:
    batch = make_batch(root, new_passes=5, created="2026-01-01T00:00:00+00:00")
    ran = tbench("report", root)
    assert (ran.code, "not a batch folder" in ran.err) == (2, True)
    assert tbench("report", batch.folder, "--batch", "0").code == 2
