"""Analysing large trajectories: linear growth, memory, the second run; beside pandas, DuckDB and stdlib json.

    .venv/bin/python benchmarks/analyze.py [--trials 400] [--trajectory-kb 200]

Each row is a process of its own, so that its peak memory is its own. Half of the trials and all of them are analysed,
which shows the growth. The others read the same trajectory files and only count tool calls by name: much less than an
analysis does. Trajectories are hard links to a few files, so that the disk stays small; every one of them is read. The
ratio is of CPU seconds, to stdlib json reading the same files.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from batches import make_batch

from terminalbench.experiments.batch import Batch


def trajectories(folder: Path) -> Iterator[Path]:
    """The trajectory of every trial."""
    return (folder / "runs").glob("*/*/agent/trajectory.json")


def with_tbench(folder: Path) -> int:
    """The whole analysis, with all its tables; how many trials were read."""
    from terminalbench.analytics.run import AnalysisRequest, run_analysis

    return run_analysis(AnalysisRequest((Batch(folder),))).read


def with_json(folder: Path) -> int:
    """Calls by tool name, with the standard library."""
    calls: Counter[str] = Counter()
    for path in trajectories(folder):
        for step in json.loads(path.read_bytes())["steps"]:
            calls.update(call["function_name"] for call in step.get("tool_calls") or ())
    return calls.total()


def with_pandas(folder: Path) -> int:
    """The same with a data frame a trial."""
    import pandas as pd

    total = 0
    for path in trajectories(folder):
        frame = pd.json_normalize(json.loads(path.read_bytes())["steps"])
        total += int(
            frame["tool_calls"].dropna().explode().map(lambda call: call["function_name"]).value_counts().sum()
        )
    return total


def with_duckdb(folder: Path) -> int:
    """The same as one query over all files."""
    import duckdb

    query = """
        SELECT count(*) FROM (SELECT unnest(steps) AS step FROM read_json(?, maximum_object_size = 67108864,
        columns = {steps: 'STRUCT(tool_calls STRUCT(function_name VARCHAR)[])[]'})), unnest(step.tool_calls)
    """
    found = duckdb.connect(config={"threads": 1}).execute(query, [str(folder / "runs/*/*/agent/trajectory.json")])
    return (found.fetchone() or (0,))[0]


WORK = {"tbench": with_tbench, "json": with_json, "pandas": with_pandas, "duckdb": with_duckdb}


def measured(what: str, folder: Path) -> dict[str, float]:
    """CPU seconds, peak memory and the answer of one process."""
    ran = subprocess.run(
        [sys.executable, __file__, "--work", what, "--folder", folder], capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def work(what: str, folder: Path) -> None:
    """One row: print what it took."""
    started = time.process_time()
    answer = WORK[what](folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": time.process_time() - started, "mb": used.ru_maxrss / 1024, "answer": answer}))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--trajectory-kb", type=int, default=200)
    parser.add_argument("--work", choices=WORK)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.folder)
        return
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        half = make_batch(root / "half", options.trials // 2, options.trajectory_kb).folder
        whole = make_batch(root / "whole", options.trials, options.trajectory_kb).folder
        rows = {
            f"stdlib json, {options.trials} trials": measured("json", whole),
            f"pandas, {options.trials} trials": measured("pandas", whole),
            f"DuckDB, {options.trials} trials": measured("duckdb", whole),
            f"analyze, {options.trials // 2} trials": measured("tbench", half),
            f"analyze, {options.trials} trials": measured("tbench", whole),
            "analyze again, unchanged": measured("tbench", whole),
        }
    finally:
        shutil.rmtree(root)
    floor = rows[f"stdlib json, {options.trials} trials"]["cpu"]
    print(f"trajectories of about {options.trajectory_kb} KB")
    print(f"{'':<28} {'CPU s':>8} {'ratio':>7} {'peak MB':>8}")
    for name, row in rows.items():
        print(f"{name:<28} {row['cpu']:>8.2f} {row['cpu'] / floor:>7.2f} {row['mb']:>8.0f}")
    one, two = rows[f"analyze, {options.trials // 2} trials"], rows[f"analyze, {options.trials} trials"]
    growth, memory = two["cpu"] / one["cpu"], two["mb"] / one["mb"]
    print(f"twice the trials take {growth:.2f} times the CPU and {memory:.2f} times the memory")
    assert rows["analyze again, unchanged"]["answer"] == 0, "an unchanged trial was read again"


if __name__ == "__main__":
    main()
