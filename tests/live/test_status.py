"""A batch that runs, as every command tells of it: a trial that has not ended is neither cancelled nor broken."""

import csv
import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.processes import Worker
from terminalbench.locks import lock, start_ticks


@pytest.fixture(params=["first run", "resume"])
def batch(request: pytest.FixtureRequest, tmp_path: Path) -> Batch:
    """One profile is through, the other has three trials under way: their first tries, or what a resume runs again."""
    made = allocate(tmp_path / "results", "s")
    make_plan(made, ("quick", "slow"), "abc", 1)
    for task in "abc":
        make_trial(made, f"{task}__q", profile="quick", cost=0.5)
        if request.param == "resume":
            make_trial(made, f"{task}__x", profile="slow", reward=None, error="CancelledError")
        folder = made.runs / f"{STAMP}__slow" / f"{task}__1"
        folder.mkdir(parents=True)
        config = {"task": {"path": f"/x/{task}", "source": "d"}, "trial_name": folder.name}
        (folder / "config.json").write_text(json.dumps(config))
        about = {
            "job": f"{STAMP}__slow",
            "pid": 1,
            "profile": "slow",
            "trial": folder.name,
            "task": task,
            "dataset": "d",
        }
        append_jsonl(made.events_jsonl, {"time": "2026-01-23T16:40:00Z", "kind": "trial_started", **about})
    return made


def test_a_comparison_says_that_the_batch_runs(tbench, batch: Batch) -> None:
    with lock(batch.lock, "a test"):
        out = tbench("compare", batch.folder).out
        assert "s/0 is still running: 3 of 6 trials ended, 3 running" in out
        assert out.count("3 running") == 2, "and once in its table"
        for wrong in ("cancelled", "broke", "have not run", "resume"):
            assert wrong not in out
    over = tbench("compare", batch.folder).out
    assert "3 cancelled" in over
    assert "running" not in over
    assert "slow: 3 of 3 planned trials have not run or were cut off" in over


def test_a_running_trial_is_listed_exported_and_shown_as_running(tbench, batch: Batch) -> None:
    results = ("--results", batch.results_root)
    with lock(batch.lock, "a test"):
        (listed,) = json.loads(tbench("list", "--json", *results).out)
        assert (listed["trials"], listed["not_measured"], listed["running"]) == (3, 0, 3)
        assert "0, 3 running" in tbench("list", *results).out
        rows = csv.DictReader(tbench("export", "s/0", *results).out.splitlines())
        assert Counter((r["outcome"], r["reason"]) for r in rows if r["superseded"] == "false") == {
            ("passed", ""): 3,
            ("running", ""): 3,
        }
        assert 'skipped="3"' in tbench("export", "s/0", "--format", "junit", *results).out
        shown = tbench("show", "s/0", "slow", "a", *results).out
        assert shown.startswith("a__1\n")
        assert "  state     running\n" in shown
        assert "superseded" not in shown
    (listed,) = json.loads(tbench("list", "--json", *results).out)
    assert (listed["trials"], listed["not_measured"], listed["running"]) == (6, 3, 0)


def test_without_a_runner_nothing_waits_and_no_time_is_left(tbench, batch: Batch) -> None:
    worker = Worker(f"{STAMP}__slow", "slow", os.getpid(), None, socket.gethostname(), STAMP, start_ticks(os.getpid()))
    write_json(batch.worker(worker.job), worker)
    status = ("status", "--results", batch.results_root)
    (told,) = json.loads(tbench(*status, "--json").out)
    assert (told["state"], told["running"], told["to_start"], told["left_sec"]) == ("orphaned", 3, 0, None)
    assert tbench(*status).out.splitlines()[1].endswith(" -")


def test_an_analysis_says_running_too(tbench, batch: Batch) -> None:
    with lock(batch.lock, "a test"):
        listed = tbench("analyze", batch.folder, "--list").out.splitlines()[1:]
        assert Counter(line.split()[4] for line in listed) == {"passed": 3, "running": 3}
        assert "no trial failed" in tbench("analyze", batch.folder, "--failed").err, "what runs has not failed"
        ran = tbench("analyze", batch.folder, "--no-llm")
    assert ran.code == 3
    assert "missing: s/0: 3 trials still running" in ran.out
    assert "unfinished" not in ran.out
    rows = csv.DictReader((batch.analytics / "metrics_detail.csv").read_text().splitlines())
    assert Counter(row["outcome"] for row in rows) == {"passed": 3, "running": 3}
    text = (batch.analytics / "comparison_report.md").read_text()
    assert "| a | + | \\~ |" in text
    assert "`~` running" in text
    page = (batch.analytics / "report.html").read_text()
    assert "running (3)" in page
    assert "not run (3)" not in page
