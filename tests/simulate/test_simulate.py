"""A small version of `make simulate` in every test run. Seeded: the same numbers every time."""

import json

import pytest

from simulate.page import MEASURED, STATISTICS, with_figures
from simulate.simulate import (
    FIVE,
    SAME,
    TEN,
    VARIED,
    World,
    coverage,
    equivalences,
    looking,
    rate_coverage,
    rejections,
    topping_up,
    verdicts,
)
from terminalbench.analytics.allocate import TopUp


@pytest.mark.parametrize(("tasks", "attempts"), [(20, 1), (20, 5), (100, 3)])
@pytest.mark.parametrize("world", [SAME, VARIED], ids=lambda w: w.name)
def test_identical_profiles_are_seldom_told_apart(world: World, tasks: int, attempts: int) -> None:
    assert rejections(world, tasks, attempts, 300)["sign-flip"] <= 0.065


@pytest.mark.parametrize("world", [SAME, VARIED, FIVE, TEN], ids=lambda w: w.name)
@pytest.mark.parametrize(("tasks", "attempts"), [(20, 1), (20, 10), (50, 3), (500, 5)])
def test_intervals_hold_the_truth_as_often_as_they_say(world: World, tasks: int, attempts: int) -> None:
    for question, share in coverage(world, tasks, attempts, 300).items():
        assert 0.91 <= share <= 0.98, question


def test_pairing_finds_what_pooling_misses() -> None:
    found = rejections(TEN, 80, 3, 150)
    assert found["sign-flip"] > 0.8
    assert found["sign-flip"] > found["naive z"] + 0.1


def test_repeated_attempts_are_not_independent_trials() -> None:
    found = rate_coverage(40, 5, 1000)
    assert 0.93 <= found["effective n"] <= 0.97
    assert found["pooled"] < 0.85


def test_looking_five_times() -> None:
    found = looking(SAME, 40, 5, 150)
    assert found["O'Brien-Fleming"] <= 0.075
    assert found["e-value"] <= 0.06
    assert looking(TEN, 80, 5, 60)["O'Brien-Fleming"] > 0.85


def test_a_verdict_on_identical_profiles_is_rare_even_with_crashes() -> None:
    assert verdicts(SAME, 25, 2, 0.03, 60) <= 0.1


def test_a_top_up_keeps_its_errors_in_bounds() -> None:
    rule = TopUp(half_width=0.08, max_attempts=12, round_trials=60)
    same, better = topping_up(SAME, 30, 40, rule), topping_up(TEN, 30, 40, rule)
    assert same.rejected <= 0.1
    assert abs(same.bias) < 0.02
    assert -0.03 < better.bias < 0.02


def test_rare_tasks_that_nobody_saw_make_no_equivalence() -> None:
    found = equivalences(20, 5, 0.05, 80)
    assert found["rare"] <= 0.05 < found["rare, by Student's interval alone"]
    assert equivalences(100, 5, 0.1, 20)["identical"] > 0.9


def test_the_page_reports_the_figures_that_were_measured() -> None:
    """After a change: .venv/bin/python tests/simulate/simulate.py --write."""
    page = STATISTICS.read_text()
    assert with_figures(page, json.loads(MEASURED.read_text())) == page
