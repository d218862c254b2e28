"""Pages of the dashboard over a large index: CPU time of each, beside building the whole batch in memory.

    .venv/bin/python benchmarks/dashboard.py [--trials 10000] [--rounds 15]

`of view` is the page's time over that of building the state of every planned trial (what a page without an index would
do first); `growth` is its time over that of the same page with a tenth of the trials. All come from one run.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batches import JOB, make_batch

from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_all

TRAJECTORY_KB = 4
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "home": ("", {}),
    "experiments": ("experiments/", {}),
    "trials": ("trials/", {}),
    "trials, filtered": ("trials/", {"outcome": "failed", "task": "t7"}),
    "trials, searched": ("trials/", {"q": "t1__"}),
    "trials, deep page": ("trials/", {"page": "9"}),
    "batch": ("batches/bench/0/", {}),
    "batch, later tasks": ("batches/bench/0/", {"page": "2"}),
    "trial": (f"batches/bench/0/trials/{JOB}/t0__0000000/", {}),
}


def median_ms(work: Callable[[], Any], rounds: int) -> float:
    """The median CPU time of a call in milliseconds, after one that is not counted."""
    work()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1000 * statistics.median(times)


def measure(trials: int, rounds: int) -> dict[str, float]:
    """Each page over an index of `trials`, and the state of the whole batch."""
    root = Path(tempfile.mkdtemp(prefix="tbench-bench-"))
    try:
        batch = make_batch(root, trials, TRAJECTORY_KB)
        scan_all(root)
        found = {"whole batch in memory": median_ms(lambda: view_batch(batch, root), max(3, rounds // 5))}
        started = time.process_time()
        site = Site(root)
        site.first_time(("classify", "bench/0", site.summary("bench/0").version))  # no work in the background
        answer(site, "batches/bench/0/", {})
        found["batch, first time"] = 1000 * (time.process_time() - started)
        for name, (path, query) in PAGES.items():
            found[name] = median_ms(lambda path=path, query=query: answer(site, path, query), rounds)
    finally:
        shutil.rmtree(root)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    import terminalbench.analytics.compare  # noqa: F401  loading it is no part of a page

    few = measure(max(10, options.trials // 10), options.rounds)
    many = measure(options.trials, options.rounds)
    whole = many["whole batch in memory"]
    print(f"{options.trials} trials in one batch")
    print(f"{'':<24} {'p50 CPU ms':>10} {'of view':>8} {'growth':>8}")
    for name, spent in many.items():
        print(f"{name:<24} {spent:>10.1f} {spent / whole:>8.3f} {spent / few[name]:>8.2f}")


if __name__ == "__main__":
    main()
