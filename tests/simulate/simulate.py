"""How often the statistics are right when the truth is known: simulated profiles on simulated tasks, always seeded.

.venv/bin/python tests/simulate/simulate.py [--reps 400] [--write]      (or: make simulate)

Difficulty is U-shaped, as in suites of agent tasks: a task's pass probability is Beta(0.5, 0.6). An effect moves tasks
the more, the less settled they are. `varied` adds effects that differ from task to task around the same mean.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from terminalbench.analytics import stats
from terminalbench.analytics.allocate import TopUp, allocate
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Interval, Row
from terminalbench.analytics.settings import Settings
from terminalbench.analytics.signs import decision_p, sequential_flips
from terminalbench.index.totals import wilson
from terminalbench.records import Outcome, TaskRef

ALPHA = 0.05
TASKS = (20, 50, 100, 200, 500)
ATTEMPTS = (1, 3, 5, 10)


@dataclass(frozen=True)
class World:
    """Two profiles: `effect` is about twice the mean difference of their pass rates, `varied` its spread over tasks."""

    name: str
    effect: float = 0.0
    varied: float = 0.0

    def draw(self, random: np.random.Generator, tasks: int) -> tuple[np.ndarray, np.ndarray]:
        """The pass probabilities of both profiles."""
        old = random.beta(0.5, 0.6, tasks)
        soft = 4 * old * (1 - old)
        return old, np.clip(old + (self.effect + random.normal(0, 1, tasks) * self.varied) * soft, 0, 1)


@cache
def truth_of(world: World) -> float:
    """The mean difference over all tasks there could be."""
    old, new = world.draw(np.random.default_rng(0), 1_000_000)
    return float((new - old).mean())


SAME = World("identical")
VARIED = World("equal on average", 0.0, 0.15)
FIVE = World("+5 pt", 0.1)
TEN = World("+10 pt", 0.2, 0.05)
WORLDS = (SAME, VARIED, FIVE, TEN)


def cells(passed: np.ndarray, attempts: int) -> stats.Cells:
    """Counts of passes as values of tasks."""
    return stats.Cells([attempts] * len(passed), passed.tolist(), passed.tolist())


def rejections(world: World, tasks: int, attempts: int, reps: int, seed: int = 1) -> dict[str, float]:
    """How often each test says that two profiles differ."""
    random = np.random.default_rng((seed, tasks, attempts))
    hits = {"sign-flip": 0, "naive z": 0}
    for _ in range(reps):
        old, new = world.draw(random, tasks)
        a, b = random.binomial(attempts, old), random.binomial(attempts, new)
        hits["sign-flip"] += decision_p((b - a).tolist()) <= ALPHA
        trials = tasks * attempts
        rates = a.sum() / trials, b.sum() / trials
        error = np.sqrt(sum(rate * (1 - rate) for rate in rates) / trials)
        hits["naive z"] += error > 0 and abs(rates[1] - rates[0]) > 1.96 * error
    return {name: count / reps for name, count in hits.items()}


def coverage(world: World, tasks: int, attempts: int, reps: int, seed: int = 2) -> dict[str, float]:
    """How often each interval holds the truth it is about."""
    random, truth = np.random.default_rng((seed, tasks, attempts)), truth_of(world)
    inside = {"tasks like these": 0, "these tasks": 0}
    for _ in range(reps):
        old, new = world.draw(random, tasks)
        a, b = cells(random.binomial(attempts, old), attempts), cells(random.binomial(attempts, new), attempts)
        found = stats.mean_interval(
            stats.paired([x - y for x, y in zip(b.mean, a.mean, strict=True)]), ALPHA, (-1.0, 1.0)
        )
        inside["tasks like these"] += found is not None and found.low <= truth <= found.high
        suite = stats.suite_interval(b, a, ALPHA) if attempts > 1 else None
        inside["these tasks"] += suite is not None and suite.low <= (new - old).mean() <= suite.high
    if attempts == 1:
        del inside["these tasks"]
    return {name: count / reps for name, count in inside.items()}


def rate_coverage(tasks: int, attempts: int, reps: int, seed: int = 3) -> dict[str, float]:
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


def looking(world: World, tasks: int, looks: int, reps: int, seed: int = 4) -> dict[str, float]:
    """How often one decides for a difference when looking after each attempt."""
    random = np.random.default_rng(seed)
    levels = [stats.nominal_level(look, looks, ALPHA) for look in range(1, looks + 1)]
    hits = {"O'Brien-Fleming": 0, "e-value": 0, "as if each look were the only one": 0, "one look, at the end": 0}
    for _ in range(reps):
        old, new = world.draw(random, tasks)
        a, b = random.random((looks, tasks)) < old, random.random((looks, tasks)) < new
        ps = [decision_p((b[:n].sum(axis=0) - a[:n].sum(axis=0)).tolist()) for n in range(1, looks + 1)]
        hits["O'Brien-Fleming"] += any(p <= level for p, level in zip(ps, levels, strict=True))
        sums = [(b[:n].mean(axis=0) - a[:n].mean(axis=0)).tolist() for n in range(1, looks + 1)]
        budgets = [ALPHA * (n / looks) ** 2 for n in range(1, looks + 1)]
        hits["e-value"] += sequential_flips(sums, budgets).look is not None
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
        chances = dict(zip("ab", world.draw(random, tasks), strict=True))
        rows: list[Row] = []
        wanted = [(profile, f"{task}", attempts) for profile in "ab" for task in range(tasks)]
        while wanted:
            rows += [_row(p, t, random.random() < chances[p][int(t)]) for p, t, n in wanted for _ in range(n)]
            comparison = compare(rows, Settings(baseline="a", contrasts=(("b", "a"),)))
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


def verdicts(world: World, tasks: int, attempts: int, crashes: float, reps: int, seed: int = 6) -> float:
    """How often `compare` as a whole says better or worse, with a share of trials that crash."""
    decided = 0
    for rep in range(reps):
        random = np.random.default_rng((seed, rep))
        chances = dict(zip("ab", world.draw(random, tasks), strict=True))
        rows = []
        for profile, chance in chances.items():
            for task in range(tasks):
                for _ in range(attempts):
                    row = _row(profile, f"{task}", random.random() < chance[task])
                    crashed = random.random() < crashes
                    rows.append(_crashed(row) if crashed else row)
        found = compare(rows, Settings(baseline="a", contrasts=(("b", "a"),))).contrasts[0]
        decided += found.verdict in ("better", "worse")
    return decided / reps


def _crashed(row: Row) -> Row:
    return Row(task=row.task, profile=row.profile, attempt=1, outcome=Outcome.ERRORED, batch=row.batch)


def equivalences(n: int, attempts: int, margin: float, reps: int, seed: int = 7) -> dict[str, float]:
    """How often `equivalent` would be said: of identical profiles, and where the truth lies at the margin.

    `rare`: tasks on which one profile always passes and the other never are a share of `margin` of all, the rest hardly
    vary. The hardest case: a run may not have seen a single one of them.
    """
    said = dict.fromkeys(("identical", "rare", "rare, by Student's interval alone"), 0)
    random = np.random.default_rng((seed, n, attempts))
    for _ in range(reps):
        old, new = SAME.draw(random, n)
        said["identical"] += _within(_for_margin, random, (old, new), attempts, margin)
        old = random.beta(0.02, 0.02, n)
        rare = random.random(n) < margin
        chances = np.where(rare, 0.0, old), np.where(rare, 1.0, old)
        state = random.bit_generator.state
        said["rare"] += _within(_for_margin, random, chances, attempts, margin)
        random.bit_generator.state = state
        said["rare, by Student's interval alone"] += _within(stats.mean_interval, random, chances, attempts, margin)
    return {name: count / reps for name, count in said.items()}


def _for_margin(sample: stats.Paired, alpha: float, _: tuple[float, float]) -> Interval:
    return stats.equivalence_interval(sample, alpha)


def _within(
    interval: Callable[..., Interval | None],
    random: np.random.Generator,
    chances: tuple[np.ndarray, np.ndarray],
    attempts: int,
    margin: float,
) -> bool:
    old, new = (random.binomial(attempts, chance) / attempts for chance in chances)
    found = interval(stats.paired((new - old).tolist()), ALPHA, (-1.0, 1.0))
    return found is not None and -margin < found.low and found.high < margin


def grid(ask: Callable[[int, int], dict[str, float]], what: str) -> dict[str, dict[str, float]]:
    """One entry for each size."""
    return listed(((f"{tasks} x {attempts}", ask(tasks, attempts)) for tasks in TASKS for attempts in ATTEMPTS), what)


def listed(rows: Iterable[tuple[str, dict[str, float]]], what: str) -> dict[str, dict[str, float]]:
    """The rows by name, rounded, each printed when it is known."""
    print(f"\n{what}")
    found = {}
    for name, values in rows:
        found[name] = {key: round(float(value), 5) for key, value in values.items()}
        print(f"  {name:<24}" + "  ".join(f"{key} {value:.3f}" for key, value in found[name].items()), flush=True)
    return found


def measure(reps: int) -> dict[str, Any]:
    """Everything docs/statistics.md reports, as plain data."""
    few = max(100, reps // 3)
    sizes = [(40, 5), (80, 1), (80, 3), (80, 5), (200, 3)]
    found: dict[str, Any] = {"reps": reps, "few": few}
    found["false positives"] = {
        w.name: grid(lambda t, k, w=w: rejections(w, t, k, 5 * reps), f"False positives, {w.name}")
        for w in (SAME, VARIED)
    }
    found["coverage"] = {
        w.name: grid(lambda t, k, w=w: coverage(w, t, k, 10 * reps), f"Coverage of the 95 % intervals, {w.name}")
        for w in WORLDS
    }
    found["power"] = {
        w.name: listed(((f"{t} x {k}", rejections(w, t, k, reps)) for t, k in sizes), f"Power, {w.name}")
        for w in (FIVE, TEN)
    }
    rows = ((f"{t} x {k}", rate_coverage(t, k, 2 * reps)) for t, k in [(20, 1), (40, 5), (80, 5), (200, 10)])
    found["rate coverage"] = listed(rows, "Coverage of one profile's 95 % interval")
    rows = ((f"{t} x {k}", equivalences(t, k, m, 5 * reps)) for t, k, m in [(20, 5, 0.05), (60, 5, 0.1), (200, 3, 0.1)])
    found["equivalence"] = listed(rows, "Called equivalent")
    found["looks"] = listed(((w.name, looking(w, 80, 5, few)) for w in (SAME, FIVE, TEN)), "Five looks, 80 tasks")
    rows = ((f"{c:.0%}", {"decided": verdicts(SAME, 40, 3, c, few)}) for c in (0.0, 0.03))
    found["verdicts"] = listed(rows, "Verdicts of compare on identical profiles, 40 x 3, by share of crashes")
    found["top-up"] = listed(_topped(few), "Top-up of 40 tasks to +-6 pt, and as many trials spread evenly")
    return found


def _topped(reps: int) -> Iterable[tuple[str, dict[str, float]]]:
    for world in (SAME, TEN):
        topped = topping_up(world, 40, reps, TopUp(half_width=0.06, max_attempts=20, round_trials=40))
        yield f"{world.name}, topped up", asdict(topped)
        yield f"{world.name}, evenly", asdict(topping_up(world, 40, reps, None, round(topped.trials / 80)))


def main() -> None:
    """Measure, print, and with `--write` put it into docs/statistics.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=400, help="repetitions of each case")
    parser.add_argument("--write", action="store_true", help="keep the figures and put them into docs/statistics.md")
    asked = parser.parse_args()
    found = measure(asked.reps)
    if asked.write:
        from simulate.page import MEASURED, STATISTICS, with_figures

        MEASURED.write_text(json.dumps(found, indent=1) + "\n")
        STATISTICS.write_text(with_figures(STATISTICS.read_text(), found))
        print(f"\nwritten to {MEASURED.name} and {STATISTICS.name}")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: `simulate` is the package here
    main()
