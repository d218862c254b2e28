"""How often the statistics are right when the truth is known: simulated profiles on simulated tasks, always seeded.

.venv/bin/python tests/simulate/simulate.py [--reps 1000] [--part NAME]... [--write]      (or: make simulate)

Difficulty is U-shaped, as in suites of agent tasks: a task's pass probability is Beta(0.5, 0.6). See `worlds`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here

from simulate import learned_nights, learning, lessons
from simulate.batches import rerunning
from simulate.missing import LOSSES, verdicts
from simulate.nights import judged_nights, quiet_months
from simulate.profiles import many_profiles
from simulate.stopping import stopping
from simulate.training import report
from simulate.worlds import (
    FIVE,
    LOPSIDED,
    NULL,
    SAME,
    SWAP,
    TEN,
    TWENTY,
    VARIED,
    World,
    differences,
    gaining,
    many_decision_p,
    many_p,
    many_skewness,
    many_strict,
    truth_of,
)
from terminalbench.analytics import power, stats
from terminalbench.analytics.allocate import TopUp, allocate
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.sign_flip import decision_p, sequential_flips
from terminalbench.index.totals import wilson
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.comparison import FEW_ATTEMPTS

ALPHA = 0.05
TASKS = (8, 20, 50, 100, 200, 500)
ATTEMPTS = (1, 3, 5, 10)
WORLDS = (SAME, VARIED, FIVE, TEN)
type Found = dict[str, float]


def cells(passed: np.ndarray, attempts: int) -> stats.Cells:
    """Counts of passes as values of tasks."""
    return stats.Cells([attempts] * len(passed), passed.tolist(), passed.tolist())


def rejections(world: World, tasks: int, attempts: int, reps: int, seed: int = 1) -> Found:
    """How often each test says that two profiles differ."""
    random = np.random.default_rng((seed, tasks, attempts))
    old, new = world.draw(random, (reps, tasks))
    a, b = random.binomial(attempts, old), random.binomial(attempts, new)
    trials = tasks * attempts
    rates = a.sum(1) / trials, b.sum(1) / trials
    error = np.sqrt(sum(rate * (1 - rate) for rate in rates) / trials)
    naive = (error > 0) & (np.abs(rates[1] - rates[0]) > 1.96 * error)
    return {"sign-flip": _share(many_decision_p(b - a) <= ALPHA + 1e-9), "naive z": _share(naive)}


def _share(found: np.ndarray) -> float:
    return float(np.mean(found))


def lopsided(world: World, tasks: int, attempts: int, reps: int, seed: int = 8) -> Found:
    """How often a lopsided truth is told apart: by p alone, with what skewness adds, and under `strict`."""
    values = differences(world, np.random.default_rng((seed, tasks, attempts)), reps, tasks, attempts)
    alone = many_p(values)
    with_skewness = alone + many_skewness(values)
    return {
        "p alone": _share(alone <= ALPHA + 1e-9),
        "with skewness": _share(with_skewness <= ALPHA + 1e-9),
        "strict": _share(np.maximum(with_skewness, many_strict(values, attempts)) <= ALPHA + 1e-9),
    }


def power_of_gap(tasks: int, attempts: int, reps: int, runs: int = 12, *, strict: bool = False, seed: int = 9) -> Found:
    """The gap that `plan` prints, how often it is found; and the same of what `compare` prints after runs of equals."""
    random = np.random.default_rng((seed, tasks, attempts))
    rule = power.DecisionRule(ALPHA, strict)
    planned = power.smallest_gap(power.planned(attempts), tasks, rule)
    found = {"planned": np.nan if planned is None else planned}
    found["found"] = _found(planned, tasks, attempts, reps, random, strict=strict)
    old, new = SAME.draw(random, (runs, tasks))
    after = []
    for ours, theirs in zip(
        random.binomial(attempts, new).tolist(), random.binomial(attempts, old).tolist(), strict=True
    ):
        like = power.observed([[power.TaskPair(b, attempts, a, attempts)] for b, a in zip(ours, theirs, strict=True)])
        after.append(power.smallest_gap(like, tasks, rule))
    found["found after a run"] = float(
        np.nanmean([_found(gap, tasks, attempts, reps // 4, random, strict=strict) for gap in after])
    )
    return found


def _found(
    gap: float | None, tasks: int, attempts: int, reps: int, random: np.random.Generator, *, strict: bool
) -> float:
    if gap is None:
        return float("nan")
    values = differences(gaining(gap), random, reps, tasks, attempts)
    p = many_decision_p(values)
    p = np.maximum(p, many_strict(values, attempts)) if strict else p
    return _share((p <= ALPHA + 1e-9) & (values.sum(1) > 0))


def coverage(world: World, tasks: int, attempts: int, reps: int, seed: int = 2) -> Found:
    """How often each interval holds the truth it is about."""
    random, truth = np.random.default_rng((seed, tasks, attempts)), truth_of(world)
    inside = {"tasks like these": 0, "these tasks": 0}
    for _ in range(reps):
        old, new = world.draw(random, (tasks,))
        a, b = cells(random.binomial(attempts, old), attempts), cells(random.binomial(attempts, new), attempts)
        pairs = stats.paired([x - y for x, y in zip(b.mean, a.mean, strict=True)])
        found = stats.mean_interval(pairs, ALPHA, (-1.0, 1.0))
        inside["tasks like these"] += found is not None and found.low <= truth <= found.high
        suite = stats.suite_interval(b, a, ALPHA) if attempts > 1 else None
        inside["these tasks"] += suite is not None and suite.low <= (new - old).mean() <= suite.high
    if attempts == 1:
        del inside["these tasks"]
    return {name: count / reps for name, count in inside.items()}


def rate_coverage(tasks: int, attempts: int, reps: int, seed: int = 3) -> Found:
    """How often the interval of one profile's pass rate holds it: at the effective size, and if trials were pooled."""
    random, truth = np.random.default_rng(seed), 0.5 / 1.1
    inside = {"effective n": 0, "pooled": 0}
    for _ in range(reps):
        passed = random.binomial(attempts, random.beta(0.5, 0.6, tasks))
        sample = stats.paired((passed / attempts).tolist())
        trials = tasks * attempts
        for name, count in (("effective n", stats.effective_count(sample, trials)), ("pooled", trials)):
            low, high = wilson(sample.mean, count, ALPHA)
            inside[name] += low <= truth <= high
    return {name: count / reps for name, count in inside.items()}


def looking(world: World, tasks: int, looks: int, reps: int, seed: int = 4) -> Found:
    """How often one decides for a difference when looking after each attempt, or when a batch grows by one a night.

    Or, with all attempts at each task, when it grows by a part of the tasks a night.
    """
    random = np.random.default_rng(seed)
    levels = [stats.nominal_level(look, looks, ALPHA) for look in range(1, looks + 1)]
    names = (
        "O'Brien-Fleming",
        "at any time",
        "grown, corrected",
        "grown by tasks, corrected",
        "as if each look were the only one",
        "one look, at the end",
    )
    hits = dict.fromkeys(names, 0)
    night = np.arange(tasks) * looks // tasks
    for _ in range(reps):
        old, new = world.draw(random, (tasks,))
        steps = (random.random((looks, tasks)) < new).astype(int) - (random.random((looks, tasks)) < old)
        sums = steps.cumsum(axis=0)
        ps = [decision_p(row.tolist()) for row in sums]
        means = (sums / np.arange(1, looks + 1)[:, None]).tolist()
        hits["O'Brien-Fleming"] += any(p <= level for p, level in zip(ps, levels, strict=True))
        budgets = [ALPHA * (n / looks) ** 2 for n in range(1, looks + 1)]
        hits["at any time"] += sequential_flips(means, budgets).look is not None
        hits["grown, corrected"] += sequential_flips(means, [ALPHA] * looks).look is not None
        by_task = [np.where(night <= n, means[-1], 0.0).tolist() for n in range(looks)]
        hits["grown by tasks, corrected"] += sequential_flips(by_task, [ALPHA] * looks).look is not None
        hits["as if each look were the only one"] += min(ps) <= ALPHA
        hits["one look, at the end"] += ps[-1] <= ALPHA
    return {name: count / reps for name, count in hits.items()}


@dataclass(frozen=True)
class ToppedUp:
    """What rounds of top-up do to the estimate, beside the same number of trials spread evenly."""

    trials: float
    bias: float
    error: float
    covered: float
    rejected: float


def topping_up(world: World, tasks: int, reps: int, rule: TopUp | None, attempts: int = 3, seed: int = 5) -> ToppedUp:
    """Rounds of `allocate` until it is done; without a rule, `attempts` of every cell and no more."""
    found = []
    for rep in range(reps):
        random = np.random.default_rng((seed, rep))
        chances = dict(zip("ab", world.draw(random, (tasks,)), strict=True))
        rows: list[Row] = []
        wanted = [(profile, f"{task}", attempts) for profile in "ab" for task in range(tasks)]
        while wanted:
            rows += [_row(p, t, random.random() < chances[p][int(t)]) for p, t, n in wanted for _ in range(n)]
            comparison = compare(rows, ComparisonSettings(baseline="a", contrasts=(("b", "a"),)))
            more = allocate(comparison, rule).more if rule is not None else []
            wanted = [(m.profile, m.task.id, m.attempts) for m in more]
        estimate = comparison.contrasts[0].estimate
        truth = float((chances["b"] - chances["a"]).mean())
        suite = estimate.suite_interval
        inside = suite is not None and suite.low <= truth <= suite.high
        found.append((len(rows), (estimate.difference or 0.0) - truth, inside, (estimate.p or 1.0) <= ALPHA))
    columns = np.array(found, dtype=float).T
    error = float(np.sqrt((columns[1] ** 2).mean()))
    return ToppedUp(columns[0].mean(), columns[1].mean(), error, columns[2].mean(), columns[3].mean())


def _row(profile: str, task: str, passed: bool) -> Row:
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    return Row(task=TaskRef(task, "d"), profile=profile, attempt=1, outcome=outcome, batch="s/0")


def at_the_margin(margin: float, counts: Iterable[int] = range(20, 201)) -> Found:
    """The exact rate of a false `equivalent`: a share of `margin` of all tasks is lost outright, the others tie."""
    worst = {"rate": 0.0, "tasks": 0.0}
    for count in counts:
        rate, chance, odd = 0.0, (1 - margin) ** count, 0
        while odd < count:
            sample = stats.paired([-1.0] * odd + [0.0] * (count - odd))
            if stats.beyond_p(sample, -margin, -1.0) > ALPHA or stats.beyond_p(sample, margin, 1.0) > ALPHA:
                break
            rate += chance
            chance *= (count - odd) / (odd + 1) * margin / (1 - margin)
            odd += 1
        if rate > worst["rate"]:
            worst = {"rate": rate, "tasks": float(count)}
    return worst


def equivalences(n: int, attempts: int, margin: float, reps: int, seed: int = 7) -> Found:
    """How often `equivalent` is said of identical profiles, and where the truth is just at the margin.

    `rare`: tasks on which one profile always passes and the other never are a share of `margin` of all, the rest hardly
    vary. The hardest case: a run may not have seen a single one of them. `even`: every task is worse by the margin.
    """
    said = dict.fromkeys(("identical", "rare", "even"), 0)
    random = np.random.default_rng((seed, n, attempts))
    half = np.full(n, margin / 2)
    for _ in range(reps):
        same = random.beta(0.5, 0.6, n)
        settled, rare = random.beta(0.02, 0.02, n), random.random(n) < margin
        truths = (same, same), (np.where(rare, 0.0, settled), np.where(rare, 1.0, settled)), (0.5 - half, 0.5 + half)
        for name, chances in zip(said, truths, strict=True):
            old, new = (random.binomial(attempts, chance) / attempts for chance in chances)
            sample = stats.paired((new - old).tolist())
            said[name] += all(stats.beyond_p(sample, far * margin, far) <= ALPHA for far in (-1.0, 1.0))
    return {name: count / reps for name, count in said.items()}


def grid(ask: Callable[[int, int], Found], what: str, tasks: Iterable[int] = TASKS) -> dict[str, Found]:
    """One entry for each size."""
    return listed(((f"{n} x {k}", ask(n, k)) for n in tasks for k in ATTEMPTS), what)


def listed(rows: Iterable[tuple[str, Found]], what: str) -> dict[str, Found]:
    """The rows by name, rounded, each printed when it is known."""
    print(f"\n{what}")
    found = {}
    for name, values in rows:
        found[name] = {key: round(float(value), 5) for key, value in values.items()}
        print(f"  {name:<24}" + "  ".join(f"{key} {value:.3f}" for key, value in found[name].items()), flush=True)
    return found


def _false_positives(reps: int) -> Any:
    return {w.name: grid(lambda t, k, w=w: rejections(w, t, k, reps), f"False positives, {w.name}") for w in NULL}


def _lopsided(reps: int) -> Any:
    rows = ((f"{n} x {k}", _worst(n, k, reps)) for n in (12, 20, 24, 40, 100, 200) for k in (3, 10, 20))
    return listed(rows, "Lopsided truths, the worst of five")


def _smallest_gap(reps: int) -> Any:
    rows = ((f"{n} x {k}", power_of_gap(n, k, reps)) for n in (8, 12, 20, 30, 50, 100, 200) for k in ATTEMPTS)
    return listed(rows, "Power at the smallest gap that is printed")


def _smallest_gap_strict(reps: int) -> Any:
    sizes = ((12, 10), (20, 10), (40, 10), (100, 3), (200, 3))
    return listed(((f"{n} x {k}", power_of_gap(n, k, reps, 3, strict=True)) for n, k in sizes), "The same under strict")


def _power(reps: int) -> Any:
    sizes = [(40, 5), (80, 1), (80, 3), (80, 5), (200, 3)]
    return {
        w.name: listed(((f"{t} x {k}", rejections(w, t, k, reps)) for t, k in sizes), f"Power, {w.name}")
        for w in (FIVE, TEN)
    }


def _at_the_margin(_: int) -> Any:
    rows = ((f"{100 * m:.0f} pt", at_the_margin(m)) for m in (0.05, 0.1))
    return listed(rows, "False equivalent, exact, worst of 20 to 200 tasks")


def _equivalence(reps: int) -> Any:
    sizes = [(20, 5, 0.05), (60, 5, 0.1), (98, 1, 0.1), (200, 3, 0.1)]
    return listed(((f"{t} x {k}", equivalences(t, k, m, reps)) for t, k, m in sizes), "Called equivalent")


def _looks(reps: int) -> Any:
    return listed(((w.name, looking(w, 50, 5, reps)) for w in (SAME, SWAP, FIVE, TEN)), "Five looks, 50 tasks")


def _verdicts(reps: int) -> Any:
    found = {}
    for world in (SAME, TEN):
        rows = ((name, verdicts(world, (60, 3), loss, reps, asked={"coverage": 0.8})) for name, loss in LOSSES.items())
        found[world.name] = listed(rows, f"Verdicts of compare, 60 x 3, {world.name}, by what is lost")
    return found


def _top_up(reps: int) -> Any:
    return listed(_topped(reps), "Top-up of 50 tasks to +-6 pt, and as many trials spread evenly")


def _rate_coverage(reps: int) -> Any:
    rows = ((f"{t} x {k}", rate_coverage(t, k, reps)) for t, k in [(20, 1), (40, 5), (80, 5), (200, 10)])
    return listed(rows, "Coverage of one profile's 95 % interval")


def _coverage(reps: int) -> Any:
    return {
        w.name: grid(
            lambda t, k, w=w: coverage(w, t, k, reps), f"Coverage of the 95 % intervals, {w.name}", (20, 50, 200)
        )
        for w in WORLDS
    }


def _nights(reps: int) -> Any:
    rows = ((f"{t} x {k}", judged_nights(t, k, reps)) for t, k in [(20, 1), (40, 3)])
    return listed(rows, "Nights of ten iterations")


def _stopping(reps: int) -> Any:
    worlds = (SAME, VARIED, SWAP, FIVE, TEN, TWENTY)
    return listed(((w.name, stopping(w, (100, 3), reps)) for w in worlds), "Runs that end early, 100 x 3")


def _batches(reps: int) -> Any:
    rows = ((f"{w.name}, {n} batches", rerunning(w, (40, 3), n, reps)) for w in (SAME, SWAP, TEN) for n in (5, 10))
    return listed(rows, "Batches of 40 x 3 run again")


def _profiles(reps: int) -> Any:
    sizes = [(20, (100, 3), 0.0), (20, (100, 3), 0.1), (5, (40, 3), 0.1), (3, (20, 5), 0.1)]
    rows = ((f"{n} profiles, {t} x {k}, {100 * s:.0f}", many_profiles(n, (t, k), s, reps)) for n, (t, k), s in sizes)
    return listed(rows, "Many profiles, by partial pooling")


def _months(reps: int) -> Any:
    rows = ((f"{t} x {k}", quiet_months(t, k, reps)) for t, k in [(20, 1), (20, 3)])
    return listed(rows, "Quiet months of nights, two profiles")


PARTS: dict[str, tuple[float, Callable[[int], Any]]] = {
    "false positives": (2, _false_positives),
    "lopsided": (2, _lopsided),
    "smallest gap": (2, _smallest_gap),
    "smallest gap, strict": (1, _smallest_gap_strict),
    "power": (2, _power),
    "at the margin": (1, _at_the_margin),
    "equivalence": (1, _equivalence),
    "looks": (2, _looks),
    "verdicts": (0.2, _verdicts),
    "top-up": (1, _top_up),
    "rate coverage": (1, _rate_coverage),
    "coverage": (1, _coverage),
    "nights": (1, _nights),
    "stopping": (1, _stopping),
    "batches": (1, _batches),
    "profiles": (1, _profiles),
    "months": (1, _months),
}
"""Everything docs/design/statistics-measured.md reports, by its name in the figures: how often each is drawn for one of
`--reps`, which is kept beside them, and how it is measured."""


def measure(reps: int, parts: Iterable[str] = (), known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The figures of some parts, of all by default, beside those that are `known`."""
    found = dict(known or {"drawn": {}})
    for name in parts or PARTS:
        share, ask = PARTS[name]
        found[name] = ask(round(share * reps))
        found["drawn"] = {**found["drawn"], name: round(share * reps)}
    return found


def _worst(tasks: int, attempts: int, reps: int) -> Found:
    """The worst of the lopsided truths; and of as many trials on more tasks, as the advice of `compare` has them."""
    advised = ceil(tasks * attempts / FEW_ATTEMPTS), FEW_ATTEMPTS
    every = [lopsided(world, tasks, attempts, reps) for world in LOPSIDED]
    spread = [lopsided(world, *advised, reps)["with skewness"] for world in LOPSIDED] if attempts > FEW_ATTEMPTS else []
    worst = {name: max(one[name] for one in every) for name in every[0]}
    return worst | {"as many trials on more tasks": max(spread, default=worst["with skewness"])}


def _topped(reps: int) -> Iterable[tuple[str, Found]]:
    for world in (SAME, TEN):
        topped = topping_up(world, 50, reps, TopUp(half_width=0.06, max_attempts=20, round_trials=60))
        yield f"{world.name}, topped up", asdict(topped)
        yield f"{world.name}, evenly", asdict(topping_up(world, 50, reps, None, round(topped.trials / 100)))


def main() -> None:
    """Measure, print, and with `--write` put it into docs/design/statistics-measured.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=1000, help="draws of most cases")
    parser.add_argument(
        "--write", action="store_true", help="keep the figures and put them into docs/design/statistics-measured.md"
    )
    parser.add_argument("--part", action="append", choices=PARTS, default=[], help="measure only this, keep the rest")
    asked = parser.parse_args()
    if asked.part:
        from simulate.page import MEASURED

        found = measure(asked.reps, asked.part, json.loads(MEASURED.read_text()))
    else:
        found = measure(asked.reps)
        print("\nnights of training")
        report(range(asked.reps // 5))
        print("\nnights with lessons, by what becomes of those that harm")
        lessons.measure(max(2, asked.reps // 25))
        lessons.measure_retired(max(4, asked.reps // 12))
        learning.measure(5)
        learned_nights.measure(5)
        learned_nights.measure_promoted()
    if asked.write:
        written(found)


def written(found: dict[str, Any]) -> None:
    """Keep the figures and write the page from them."""
    from simulate.page import MEASURED, STATISTICS, with_figures

    MEASURED.write_text(json.dumps(found, indent=1) + "\n")
    STATISTICS.write_text(with_figures(STATISTICS.read_text(), found))
    print(f"\nwritten to {MEASURED.name} and {STATISTICS.name}")


if __name__ == "__main__":
    main()
