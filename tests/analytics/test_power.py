"""What a size can show, against the test itself run on other draws, and the formula against brute force."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from terminalbench.analytics.power import (
    DecisionRule,
    TaskPair,
    fewest_units,
    observed,
    planned,
    smallest_gap,
    units_needed,
)
from terminalbench.analytics.sign_flip import decision_p

CELL = st.integers(1, 4).flatmap(lambda k: st.tuples(st.integers(0, k), st.just(k), st.integers(0, k), st.just(k)))


@limits(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(CELL.map(lambda c: TaskPair(*c)), min_size=1, max_size=2), min_size=1, max_size=4),
    st.floats(0, 1),
)
def test_the_moments_are_those_of_the_law(units: list[list[TaskPair]], gap: float) -> None:
    like = observed(units)
    law, step = like.law(gap), like.step
    assert sum(law.values()) == pytest.approx(1.0)
    mean = sum(value * chance for value, chance in law.items()) / step
    square = sum(value**2 * chance for value, chance in law.items()) / step**2
    assert (mean, square) == pytest.approx(like.moments(gap))
    assert mean == pytest.approx(gap * np.mean([len(unit) for unit in units]))


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_usual_difficulty_is_many_easy_and_many_hard_tasks(attempts: int) -> None:
    kinds = planned(attempts).kinds
    assert sum(kinds.values()) == pytest.approx(1.0)
    rate = sum(chance * (c.new / c.of_new + c.old / c.of_old) / 2 for (c,), chance in kinds.items())
    assert rate == pytest.approx(0.5 / 1.1)
    mean, square = planned(attempts, together=3).moments(0.0)
    assert (mean, square) == pytest.approx((0.0, 3 * 2 * 0.5 * 0.6 / 1.1 / 2.1 / attempts))
    assert planned(attempts, [(9, 10)] * 3).moments(0.0)[1] < planned(attempts).moments(0.0)[1]


def power(gap: float, tasks: int, attempts: int, reps: int = 1500) -> float:
    """How often a gain of `gap` on all tasks is shown: other draws, other code."""
    random = np.random.default_rng((tasks, attempts))
    hard = random.beta(0.5, 0.6, (reps, tasks)) * (1 - gap)
    found = random.binomial(attempts, hard + gap) - random.binomial(attempts, hard)
    return np.mean([row.sum() > 0 and decision_p(row.tolist()) <= 0.05 for row in found])


@pytest.mark.parametrize(("tasks", "attempts"), [(8, 3), (12, 1), (20, 5), (60, 2), (200, 1)])
def test_the_smallest_gap_is_found_four_times_in_five(tasks: int, attempts: int) -> None:
    gap = smallest_gap(planned(attempts), tasks, DecisionRule(0.05))
    assert gap is not None
    assert 0.75 <= power(gap, tasks, attempts) <= 0.86


def test_what_a_size_can_show() -> None:
    assert fewest_units(0.05) == 6
    assert smallest_gap(planned(5), 5, DecisionRule(0.05)) is None, "not even if all agree"
    assert smallest_gap(planned(1), 6, DecisionRule(0.05)) is None, "all six would have to agree: seldom"
    shown = [smallest_gap(planned(3), tasks, DecisionRule(0.05)) or 0.0 for tasks in (8, 20, 80, 500)]
    assert shown == sorted(shown, reverse=True)
    alone = smallest_gap(planned(3), 30, DecisionRule(0.05)) or 0.0
    assert (smallest_gap(planned(3), 30, DecisionRule(0.05 / 8)) or 0.0) > 1.2 * alone, "one of eight contrasts"
    assert (smallest_gap(planned(3, together=2), 15, DecisionRule(0.05)) or 0.0) > alone, "fifteen families of two"


def test_tasks_that_differ_much_show_less() -> None:
    settled = observed([[TaskPair(3, 3, 3, 3)], [TaskPair(0, 3, 0, 3)]])
    swapped = observed([[TaskPair(3, 3, 3, 3)], [TaskPair(0, 3, 3, 3)]])
    assert (smallest_gap(swapped, 30, DecisionRule(0.05)) or 0.0) > 1.5 * (
        smallest_gap(settled, 30, DecisionRule(0.05)) or 1.0
    )


@pytest.mark.parametrize("effect", [0.05, 0.12, 0.25])
def test_the_units_that_are_needed_show_the_effect(effect: float) -> None:
    units = units_needed(planned(3), effect, DecisionRule(0.05))
    assert smallest_gap(planned(3), units, DecisionRule(0.05)) == pytest.approx(effect, rel=0.08)


def test_single_attempts_agree_with_mcnemars_test_counted_out() -> None:
    """At 200 tasks that all have a chance of one half: the exact power of McNemar's test, tasks that tie left out."""
    gap, tasks = (
        smallest_gap(observed([[TaskPair(a, 1, b, 1)] for a in (0, 1) for b in (0, 1)]), 200, DecisionRule(0.05)),
        200,
    )
    assert gap is not None
    old = 0.5 * (1 - gap)
    win, lose = (old + gap) * (1 - old), (1 - old - gap) * old
    found = 0.0
    for unequal in range(tasks + 1):
        chance = comb(tasks, unequal) * (win + lose) ** unequal * (1 - win - lose) ** (tasks - unequal)
        for wins in range(unequal // 2, unequal + 1):
            if 2 * sum(comb(unequal, n) for n in range(wins, unequal + 1)) <= 0.05 * 2**unequal:
                share = win / (win + lose)
                found += chance * sum(
                    comb(unequal, n) * share**n * (1 - share) ** (unequal - n) for n in range(wins, unequal + 1)
                )
                break
    assert found == pytest.approx(0.8, abs=0.03)
