"""`analyze-errors` of 10,000 runs, with and without their traces, beside a plain reading of the same file.

    .venv/bin/python benchmarks/error_analysis.py [--rows 10000]

Prints ratios of one run: that the time grows with the number of rows (10,000 against 2,500), and how much faster it is
without traces. Half of the runs were given up after four attempts and an escalation.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.workflows import gives_up, passes
from terminalbench.swebench_pro.error_analysis import analyze
from terminalbench.swebench_pro.error_report import write

ARMS = ("singleshot", "s1_direct", "s1_tdd", "s1_tdd_verified")
ROUNDS = 3


def make(folder: Path, count: int) -> Path:
    """A results file of so many runs, each with a trace."""
    traces = {True: gives_up().data(), False: passes().data()}
    failed = {"resolved": False, "failed_step": "patch", "failed_guard": "test_green", "failure": "rmax"}
    path = folder / "results.jsonl"
    with path.open("w") as stream:
        for n in range(count):
            row = {"instance_id": f"instance_{n // len(ARMS)}", "arm": ARMS[n % len(ARMS)], "patch_content": "x" * 500}
            row |= {"retry_count": n % 5, "total_tokens": 900, "cost_usd": 0.01, "wall_time_seconds": 60.0}
            row |= failed if n % 2 else {"resolved": True}
            stream.write(json.dumps(row) + "\n")
            trace = folder / "traces" / str(row["instance_id"]) / str(row["arm"]) / "trace.jsonl"
            trace.parent.mkdir(parents=True)
            trace.write_bytes(traces[bool(n % 2)])
    return path


def best(work: Callable[[], object]) -> float:
    """The least CPU time of a few rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(folder: Path, count: int) -> dict[str, float]:
    """Seconds with traces, without, and of reading the lines alone."""
    folder.mkdir()
    path, now = make(folder, count), datetime(2026, 1, 23, tzinfo=UTC)
    return {
        "with traces": best(lambda: write(analyze(path), folder / "out", now)),
        "without traces": best(lambda: write(analyze(path, traces=False), folder / "out", now)),
        "json.loads alone": best(lambda: [json.loads(line) for line in path.open()]),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    count = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as place:
        small, large = measure(Path(place) / "small", count // 4), measure(Path(place) / "large", count)
    for name, seconds in large.items():
        growth = seconds / small[name]
        print(f"{name:18} {seconds:7.3f} s CPU for {count:,} rows, {growth:4.1f} x that of a quarter of them")
    ratio = large["with traces"] / large["without traces"]
    print(f"without traces it is {ratio:.1f} x faster")
    linear = large["with traces"] / small["with traces"] < 6
    return 0 if ratio >= 5 and linear else 1


if __name__ == "__main__":
    sys.exit(main())
