"""Benchmarks at a size that costs nothing: what they make is what they say, and their figures can be."""

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, read_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.records.trial import Outcome

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a benchmark by its name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_a_grown_batch_lacks_nothing_that_a_resume_would_run(benchmark: Any, project: Any) -> None:
    resume = benchmark("resume")
    batch = allocate(project.root / "results", "bench")
    name = resume.task_name(0)
    [job] = make_plan(batch, tasks=[name], settings={"attempts": 1}).jobs
    folder = make_trial(batch, f"{name}__abc", attempt=1)
    for file in (batch.job_config(job.name), folder.parent / "config.json", folder / "config.json"):
        write_json(file, {"tasks": [{"path": f"/x/{name}"}], "trial_name": folder.name})
    for kind in ("trial_started", "trial_ended"):
        event = Event("t", kind, job.name, 1, profile="p", trial=folder.name, task=name, dataset="d", attempt=1)
        append_jsonl(batch.events_jsonl, event)
    resume.grow(project.root, batch, 15)
    scan_batch(batch)
    view = view_batch(batch)
    assert [(cell.attempt, cell.outcome) for cell in view.cells] == [(n, Outcome.PASSED) for n in range(1, 6)] * 3
    assert all(cell.row.trial.attempt == cell.attempt for cell in view.cells if cell.row and cell.row.trial)
    assert view.superseded == []
    ended = [event for event in read_jsonl(batch.events_jsonl, Event).records if event.kind == "trial_ended"]
    assert len({(event.task, event.attempt) for event in ended}) == len({event.trial for event in ended}) == 15


def test_scanning_reads_every_trial_once(benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    scan = benchmark("index_scan")
    monkeypatch.setattr(sys, "argv", ["index_scan.py", "--trials", "20", "--trajectory-kb", "2"])
    scan.main()
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("20 trials")
    figures = {re.split(r"\s{2,}", row)[0]: float(row.split()[-2]) for row in rows}
    assert len(figures) == 5
    assert all(0 <= seconds < 60 for seconds in figures.values()), figures


def test_analysing_reads_what_the_others_read(benchmark: Any, tmp_path: Path) -> None:
    analyze = benchmark("analyze")
    folder = benchmark("batches").make_batch(tmp_path / "whole", 20, 3).folder
    calls = sum(
        len(step.get("tool_calls", ()))
        for path in analyze.trajectories(folder)
        for step in json.loads(path.read_text())["steps"]
    )
    assert analyze.with_json(folder) == calls > 20
    assert [analyze.with_tbench(folder) for _ in range(2)] == [20, 0], "an unchanged trial is not read again"
