"""Building the report of a large batch, beside dumping the same rows in other ways.

    .venv/bin/python benchmarks/report.py [--profiles 3] [--tasks 500] [--attempts 5]

All ratios come from one run. The batch is made in memory, with names and reasons as long as real ones.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.reports import large, make_findings, make_view
from terminalbench.analytics.compare import compare_views
from terminalbench.experiments.batch import Batch
from terminalbench.index.results import TRIALS, Table, trial_records
from terminalbench.report.build import ReportInput, build_report
from terminalbench.report.documents import render_html, render_markdown

REPEATS = 3


def best[T](work: Callable[[], T]) -> tuple[float, T]:
    """The shortest CPU time of a few runs, and the result."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return min(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("profiles", 3), ("tasks", 500), ("attempts", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    view = make_view(large(wanted.profiles, wanted.tasks, wanted.attempts))
    findings = make_findings(view)
    compare_sec, comparison = best(lambda: compare_views([view]))
    build_sec, report = best(lambda: build_report(ReportInput(Batch(Path(view.batch)), view, comparison, findings)))
    html_sec, page = best(lambda: render_html(report))
    text_sec, text = best(lambda: render_markdown(report))
    records = trial_records(view)
    json_sec, dumped = best(lambda: json.dumps(records))
    frame = Table(TRIALS, records).to_pandas()
    pandas_sec, table = best(frame.to_html)

    def line(name: str, seconds: float, size: int | None = None) -> None:
        shown = "" if size is None else f"{size / 1e6:8.3f} MB"
        print(f"{name:<34}{seconds * 1000:9.1f} ms CPU  {seconds / json_sec:7.2f} x json {shown}")

    print(
        f"{wanted.profiles} x {wanted.tasks} x {wanted.attempts} = {len(view.cells)} trials, {len(findings)} findings\n"
    )
    line("compare", compare_sec)
    line("build_report", build_sec)
    line("render_html (with all charts)", html_sec, len(page.encode()))
    line("render_markdown", text_sec, len(text.encode()))
    line("json.dumps of the rows", json_sec, len(dumped))
    line("pandas to_html of the rows", pandas_sec, len(table.encode()))
    print(
        f"\nreport.html: {len(page.encode()) / len(table.encode()):.2f} of the size of pandas' table, "
        f"{(build_sec + html_sec) / pandas_sec:.2f} of its time"
    )


if __name__ == "__main__":
    main()
