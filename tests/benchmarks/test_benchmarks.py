"""Benchmarks at a size that costs nothing: what they make is what they say, and their figures can be."""

import asyncio
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from support.results import make_plan, make_trial
from support.tools import need_root
from terminalbench import open_results
from terminalbench.experiments.batch import allocate
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.json_files import append_jsonl, read_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.records.trial import Outcome

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a benchmark by its name, which a library may have too."""
    monkeypatch.syspath_prepend(BENCHMARKS)

    def load(name: str) -> Any:
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


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


TINY = {
    "watch": ("--trials 20 60 --running 4 --refreshes 4", "60 / 20 trials"),
    "error_analysis": ("--rows 80", "for 80 rows"),
    "dashboard": ("--trials 20 --rounds 1", "20 trials in one batch"),
    "memory": ("--lessons 200 --questions 20", "200 lessons"),
    "report": ("--profiles 2 --tasks 6 --attempts 2", "2 x 6 x 2 = 24 trials"),
    "handover": ("--rounds 1", "whole way"),
    "sandbox_network": ("--starts 2 --at-once 2", "private (relay)"),
}


@pytest.mark.parametrize("name", TINY)
def test_what_is_printed_at_a_tiny_size_can_be(name: str, benchmark: Any, monkeypatch: Any, capsys: Any) -> None:
    arguments, said = TINY[name]
    module = benchmark(name)
    if name in ("handover", "sandbox_network"):
        need_root("these sandboxes are root's")
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments.split()])
    done = module.main()
    if inspect.iscoroutine(done):
        asyncio.run(done)
    out = capsys.readouterr().out
    figures = [float(figure) for figure in re.findall(r"(?<![\w.-])\d+\.\d+", out)]
    assert said in out
    assert len(figures) >= 6
    assert all(0 <= figure < 60_000 for figure in figures), out
    assert any(figures)


def test_a_project_of_many_batches_has_as_many_of_each_experiment(
    benchmark: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    many = benchmark("many_batches")
    monkeypatch.setattr(many, "EXPERIMENTS", 2)
    many.make_project(tmp_path / "project", 4)
    scan_all(tmp_path / "project" / "results")
    rows = open_results(tmp_path / "project" / "results").batches()
    assert sorted((row["batch"], row["trials"]) for row in rows) == [
        (f"experiment-0{experiment}/{batch}", 4) for experiment in (0, 1) for batch in (0, 1)
    ]


def test_one_further_trial_on_ray_is_what_the_larger_size_takes_more(benchmark: Any) -> None:
    ray = benchmark("ray")
    runs = {
        500: (ray.Run(100, 2.0, 0.0, 148.0), ray.Run(120, 2.0, 3.0, 10.0, 205.0)),
        2000: (ray.Run(400, 5.0, 0.0, 595.0), ray.Run(440, 5.0, 6.0, 10.0, 694.0)),
    }
    lines = ray.report(runs, 4)
    further = {line[:28].strip(): line[28:].split() for line in lines[lines.index("2000 trials") :][10:]}
    assert further["all of it"] == ["300.0", "330.0", "1.10"]
    assert further["orchestrator: both"] == ["2.0", "4.0", "2.00"]
    assert further["orchestrator of all"] == ["0.7", "%", "1.2", "%"]
    assert "one further trial, 500 to 2000" in "\n".join(lines)
    assert "further" not in "\n".join(ray.report({500: runs[500]}, 4))


def test_a_long_night_is_looked_at_whole(benchmark: Any, capsys: Any) -> None:
    spent = benchmark("overnight").of_looks(iterations=3, older=4)
    assert capsys.readouterr().out.count("3 iterations, 4 older episodes") == len(spent) == 3
    assert all(0 <= seconds < 60 for seconds in spent.values()), spent


def test_what_a_command_takes_is_measured(benchmark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    startup = benchmark("startup")
    monkeypatch.setattr(startup, "ROUNDS", 1)
    none, some = (startup.cpu_sec([sys.executable, "-S", "-c", f"sum(range({n}))"]) for n in (0, 10**7))
    assert 0 < none < some
    wall, cpu = benchmark("overhead").measured([sys.executable, "-S", "-c", "import time; time.sleep(0.3)"], tmp_path)
    assert wall >= 0.3
    assert 0 < cpu < 10


def test_the_comparison_that_is_measured_finds_what_is_in_the_rows(
    benchmark: Any, monkeypatch: Any, capsys: Any
) -> None:
    compare = benchmark("compare")
    monkeypatch.setattr(compare, "ROUNDS", 1)
    monkeypatch.setattr(compare, "naive", lambda _rows: None)  # pandas and scipy take seconds to be imported
    monkeypatch.setattr(compare, "like_for_like", lambda _rows: None)
    monkeypatch.setattr(compare, "import_sec", lambda _names: 0.0)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--tasks", "12", "--attempts", "2"])
    compare.main()
    head, _, ours, *_ = capsys.readouterr().out.splitlines()
    assert head == "72 rows: 3 profiles x 12 tasks x 2 attempts"
    assert 0 < float(ours.split()[-2]) < 60
    assert float(ours.split()[-1]) == 1.0


def test_the_trainer_is_counted_beside_its_batches(benchmark: Any) -> None:
    beside = benchmark("training").Beside()
    assert beside.counted(lambda n: sum(range(n)))(10**6) == sum(range(10**6))
    assert 0 < beside.batches_sec < 10


def test_an_image_of_the_benchmark_is_taken_in(benchmark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    need_root("these sandboxes are root's")
    images = benchmark("images")
    monkeypatch.setattr(images, "SOURCES", ())
    images.taking_in(images.make_layout(tmp_path / "layout"), 1)
    took = [float(figure) for figure in re.findall(r"\d+\.\d+", capsys.readouterr().out)]
    assert len(took) == 3
    assert all(0 <= seconds < 60 for seconds in took[:2]), took
