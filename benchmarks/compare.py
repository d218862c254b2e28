"""`compare` of 3 profiles x 500 tasks x 5 attempts beside pandas and scipy on the same rows; CPU time, one run.

    .venv/bin/python benchmarks/compare.py [--tasks 500] [--attempts 5]

"naive" is what one writes in a notebook: a group-by and a paired t-test. "like for like" adds what a comparison needs
and scipy offers: a permutation test, both ways of counting, Wilson and bootstrap intervals. Ours has exact p, and
also does Holm, per-task Jeffreys intervals, pass@k, coverage, checks, sizes and verdicts.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.index.totals import Spend
from terminalbench.records.trial import Outcome, TaskRef

PROFILES = {"text": 0.0, "codegraph": 0.05, "codecanvas": 0.15}
CONTRASTS = (("codegraph", "text"), ("codecanvas", "text"))
ROUNDS = 3
DRAWS, BOOTSTRAP_DRAWS = 20_000, 2_000


def make_rows(tasks: int, attempts: int) -> list[Row]:
    """Simulated trials, two in a hundred of them broken."""
    random = np.random.default_rng(1)
    chances = random.beta(0.5, 0.6, tasks)
    rows = []
    for profile, effect in PROFILES.items():
        for task, chance in enumerate(chances):
            for attempt in range(attempts):
                passed = random.random() < chance + effect * 4 * chance * (1 - chance)
                outcome = Outcome.PASSED if passed else Outcome.FAILED
                cost = float(random.lognormal(-1.0))
                row = Row(
                    task=TaskRef(f"task-{task}", "d"),
                    profile=profile,
                    attempt=attempt + 1,
                    outcome=Outcome.ERRORED if random.random() < 0.02 else outcome,
                    batch="s/0",
                    spent=Spend(cost),
                )
                rows.append(row)
    return rows


def frame(rows: list[Row]):
    """The rows as a data frame."""
    import pandas as pd

    measured = [row.outcome is Outcome.PASSED if row.measured else None for row in rows]
    columns = {
        "profile": [row.profile for row in rows],
        "task": [row.task.id for row in rows],
        "passed": pd.array(measured, dtype="Float64"),
        "cost": [row.cost_usd for row in rows],
    }
    return pd.DataFrame(columns)


def naive(rows: list[Row]) -> list[float]:
    """A group-by and two paired t-tests."""
    from scipy import stats

    rates = frame(rows).groupby(["profile", "task"])["passed"].mean().astype(float).unstack(0)
    return [float(stats.ttest_rel(rates[new], rates[old]).pvalue) for new, old in CONTRASTS]


def like_for_like(rows: list[Row]) -> list[float]:
    """The same answers from scipy's own parts."""
    from scipy import stats

    data = frame(rows)
    found = []
    for counted in (data, data.assign(passed=data["passed"].fillna(0.0))):
        rates = counted.groupby(["profile", "task"])["passed"].mean().astype(float).unstack(0)
        for new, old in CONTRASTS:
            pairs = rates[[new, old]].dropna()
            stats.ttest_rel(pairs[new], pairs[old]).confidence_interval()
            test = stats.permutation_test(
                (pairs[new].to_numpy(), pairs[old].to_numpy()),
                lambda a, b, axis: (a - b).mean(axis=axis),
                permutation_type="samples",
                vectorized=True,
                n_resamples=DRAWS,
                batch=2000,
                rng=1,
            )
            found.append(float(test.pvalue))
    for _, group in data.groupby("profile"):
        measured = group["passed"].dropna()
        stats.binomtest(int(measured.sum()), len(measured)).proportion_ci(method="wilson")
        sums = group.assign(passed=group["passed"].fillna(0.0).astype(float)).groupby("task")[["cost", "passed"]].sum()
        stats.bootstrap(
            (sums["cost"].to_numpy(), sums["passed"].to_numpy()),
            lambda c, p, axis: c.sum(axis=axis) / p.sum(axis=axis),
            paired=True,
            n_resamples=BOOTSTRAP_DRAWS,
            method="percentile",
            rng=1,
        )
    return found


def cpu_sec(work: Callable[[], object]) -> float:
    """The least of a few rounds, after one to warm up."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def import_sec(names: str) -> float:
    """CPU time of a Python that only imports, less that of one that does not."""
    code = "import time; {}print(time.process_time())"
    runs = [
        min(
            float(subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, timeout=60).stdout)
            for _ in range(ROUNDS)
        )
        for text in (code.format(""), code.format(f"import {names}; "))
    ]
    return runs[1] - runs[0]


def main() -> None:
    """Print a table of CPU seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--attempts", type=int, default=5)
    options = parser.parse_args()
    rows = make_rows(options.tasks, options.attempts)
    settings = ComparisonSettings(baseline="text", contrasts=CONTRASTS)
    seconds = {
        "tbench compare, pass rate": cpu_sec(lambda: compare(rows, settings)),
        "tbench compare, cost": cpu_sec(
            lambda: compare(rows, ComparisonSettings(baseline="text", contrasts=CONTRASTS, metric="cost"))
        ),
        "pandas + scipy, naive": cpu_sec(lambda: naive(rows)),
        "pandas + scipy, like for like": cpu_sec(lambda: like_for_like(rows)),
        "import of compare": import_sec("terminalbench.analytics.compare"),
        "import of pandas + scipy.stats": import_sec("pandas, scipy.stats"),
    }
    print(f"{len(rows)} rows: {len(PROFILES)} profiles x {options.tasks} tasks x {options.attempts} attempts")
    floor = seconds["tbench compare, pass rate"]
    print(f"{'what':<32} {'CPU s':>7} {'ratio':>6}")
    for name, value in seconds.items():
        print(f"{name:<32} {value:>7.3f} {value / floor:>6.2f}")


if __name__ == "__main__":
    main()
