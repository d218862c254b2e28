"""A small version of `make simulate` in every test run. Seeded: the same numbers every time."""

import json
import re

import numpy as np
import pytest

from simulate.page import MEASURED, STATISTICS, with_figures
from simulate.simulate import (
    at_the_margin,
    coverage,
    equivalences,
    looking,
    lopsided,
    power_of_gap,
    rate_coverage,
    rejections,
    topping_up,
)
from simulate.stopping import stopping
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
    many_decision_p,
    many_strict,
)
from terminalbench.analytics.allocate import TopUp
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.sign_flip import decision_p, strict_p
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.comparison import comparison_text


@pytest.mark.parametrize(("tasks", "attempts"), [(12, 5), (40, 3)])
def test_many_results_at_once_are_judged_as_each_alone(tasks: int, attempts: int) -> None:
    values = differences(TEN, np.random.default_rng(1), 15, tasks, attempts)
    assert many_decision_p(values) == pytest.approx([decision_p(row.tolist()) for row in values])
    assert many_strict(values, attempts) == pytest.approx(
        [strict_p(row.tolist(), attempts) for row in values], abs=1e-6
    )


@pytest.mark.parametrize(("tasks", "attempts"), [(8, 10), (20, 1), (20, 5), (100, 3), (200, 10)])
@pytest.mark.parametrize("world", NULL, ids=lambda w: w.name)
def test_profiles_of_which_neither_is_better_are_seldom_told_apart(world: World, tasks: int, attempts: int) -> None:
    assert rejections(world, tasks, attempts, 1000)["sign-flip"] <= 0.05 + 0.021


@pytest.mark.parametrize("world", LOPSIDED, ids=lambda w: w.name)
@pytest.mark.parametrize(("tasks", "attempts"), [(12, 20), (24, 10), (100, 5)])
def test_strict_holds_where_the_assumption_does_not(world: World, tasks: int, attempts: int) -> None:
    found = lopsided(world, tasks, attempts, 1000)
    assert found["strict"] <= 0.05 + 0.021
    assert found["with skewness"] <= found["p alone"]


@pytest.mark.parametrize(("tasks", "attempts"), [(12, 10), (20, 10)])
def test_the_advice_on_lopsided_truths_names_a_size_that_errs_no_more_than_alpha(tasks: int, attempts: int) -> None:
    """What `compare --details` says of a verdict by few tasks with many attempts, taken at its word."""
    worst = LOPSIDED[3]
    assert lopsided(worst, tasks, attempts, 2000)["with skewness"] > 0.08
    rows = [
        Row(task=TaskRef(f"{n}", "d"), profile=name, attempt=m, outcome=outcome, batch="s/0")
        for n in range(tasks)
        for name, passes in (("a", 4), ("b", 5))
        for m in range(1, attempts + 1)
        for outcome in (Outcome.PASSED if m <= passes else Outcome.FAILED,)
    ]
    said = comparison_text(compare(rows, ComparisonSettings(baseline="a", contrasts=(("b", "a"),))), 1000)
    advised = re.search(r"As many trials on (\d+) tasks x (\d+) attempts, or analysis.strict = true", said)
    assert advised is not None, said
    more, each = int(advised[1]), int(advised[2])
    assert tasks * attempts <= more * each < tasks * attempts + each
    assert max(lopsided(world, more, each, 4000)["with skewness"] for world in LOPSIDED) <= 0.05
    assert max(lopsided(world, tasks, attempts, 1000)["strict"] for world in LOPSIDED) <= 0.05


@pytest.mark.parametrize(("tasks", "attempts"), [(8, 5), (20, 1), (50, 3), (200, 1)])
def test_the_gap_that_is_printed_has_the_power_it_promises(tasks: int, attempts: int) -> None:
    found = power_of_gap(tasks, attempts, 1500, 5)
    assert 0.75 - 0.02 <= found["found"] <= 0.85 + 0.02
    assert 0.70 <= found["found after a run"] <= 0.90


@pytest.mark.parametrize("world", [SAME, VARIED, FIVE, TEN], ids=lambda w: w.name)
@pytest.mark.parametrize(("tasks", "attempts"), [(20, 1), (20, 10), (50, 3)])
def test_intervals_hold_the_truth_as_often_as_they_say(world: World, tasks: int, attempts: int) -> None:
    for question, share in coverage(world, tasks, attempts, 300).items():
        assert 0.91 <= share <= 0.98, question


def test_pairing_finds_what_pooling_misses() -> None:
    found = rejections(TEN, 80, 3, 500)
    assert found["sign-flip"] > 0.8
    assert found["sign-flip"] > found["naive z"] + 0.1


def test_repeated_attempts_are_not_independent_trials() -> None:
    found = rate_coverage(40, 5, 500)
    assert 0.92 <= found["effective n"] <= 0.975
    assert found["pooled"] < 0.85


@pytest.mark.parametrize("world", [SAME, SWAP], ids=lambda w: w.name)
def test_looking_five_times(world: World) -> None:
    found = looking(world, 20, 5, 60)
    judged = ("O'Brien-Fleming", "at any time", "grown, corrected", "grown by tasks, corrected")
    assert max(found[name] for name in judged) <= 0.1


def test_looking_early_costs_little() -> None:
    found = looking(TEN, 80, 5, 12)
    assert min(found["O'Brien-Fleming"], found["at any time"]) > 0.8


def test_runs_that_end_early_spare_trials_and_keep_their_error() -> None:
    same, better = stopping(SAME, (100, 3), 40), stopping(TWENTY, (100, 3), 15)
    assert same["saved"] > 0.35
    assert same["told"] <= 0.125
    assert better["saved"] > 0.6
    assert better["told"] == 1


def test_a_top_up_keeps_its_errors_in_bounds() -> None:
    rule = TopUp(half_width=0.08, max_attempts=12, round_trials=90)
    same, better = topping_up(SAME, 50, 25, rule), topping_up(TEN, 50, 25, rule)
    assert same.rejected <= 0.13
    assert abs(same.bias) < 0.02
    assert -0.03 < better.bias < 0.02


def test_rare_tasks_that_were_not_seen_make_no_equivalence() -> None:
    assert at_the_margin(0.1, range(40, 60))["rate"] <= 0.05
    found = equivalences(60, 5, 0.1, 40)
    assert max(found["rare"], found["even"]) <= 0.13
    assert found["identical"] > 0.5


def test_the_page_reports_the_figures_that_were_measured() -> None:
    """After a change: .venv/bin/python tests/simulate/simulate.py --write."""
    page = STATISTICS.read_text()
    assert with_figures(page, json.loads(MEASURED.read_text())) == page
