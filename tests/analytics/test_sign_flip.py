"""The sign-flip test, against brute force, McNemar's exact test and what its name promises."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.analytics import sign_flip
from terminalbench.analytics.sign_flip import decision_p, lattice, on_grid, sequential_flips, sign_flip_p, skewness_term

VALUES = st.lists(st.integers(-7, 7), min_size=1, max_size=11)


def by_brute_force(values: list[int]) -> float:
    sums = [
        sum(sign * value for sign, value in zip(row, values, strict=True))
        for row in product((1, -1), repeat=len(values))
    ]
    return sum(abs(found) >= abs(sum(values)) for found in sums) / len(sums)


@given(VALUES)
def test_p_is_the_share_of_all_signs(values: list[int]) -> None:
    assert sign_flip_p(values) == pytest.approx(by_brute_force(values), abs=1e-12)


@given(VALUES, st.integers(4, 60))
def test_a_lattice_too_fine_gives_a_bound_from_above(values: list[int], cells: int) -> None:
    exact = by_brute_force(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sign_flip, "MOST_BITS", 0)
        assert sign_flip_p(values) == pytest.approx(exact, abs=1e-12), "all sums of two halves"
        patch.setattr(sign_flip, "FEW", 0)
        assert sign_flip_p(values) == pytest.approx(exact, abs=1e-9), "no rounding was needed"
        patch.setattr(sign_flip, "CELLS", cells)
        assert sign_flip_p(values) >= exact - 1e-12


def test_the_bound_is_close() -> None:
    random = np.random.default_rng(1)
    costs = on_grid((random.lognormal(0, 1, 300) - random.lognormal(0.15, 1, 300)).tolist())
    signed = np.abs(np.where(random.random((20_000, 300)) < 0.5, 1, -1) @ np.array(costs))
    drawn = (signed >= abs(sum(costs))).mean()
    assert drawn - 0.003 < sign_flip_p(costs) < 1.1 * drawn + 0.003


@pytest.mark.alone("statsmodels")
@pytest.mark.parametrize(
    ("wins", "losses", "both"), [(9, 2, 5), (3, 4, 0), (1, 0, 3), (8, 8, 2), (0, 6, 1), (300, 240, 9)]
)
def test_single_attempts_are_exact_mcnemar(wins: int, losses: int, both: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar  # a second to load, so not where tests are collected

    expected = mcnemar([[both, losses], [wins, 4]], exact=True).pvalue
    values = [1] * wins + [-1] * losses + [0] * both
    assert sign_flip_p(values) == pytest.approx(min(1.0, expected), rel=1e-9)
    assert decision_p(values) == sign_flip_p(values), "single attempts are never skewed against their mean"


@given(st.lists(st.integers(-10, 10), min_size=1, max_size=40), st.randoms())
def test_p_knows_neither_order_nor_direction_nor_scale(values: list[int], random) -> None:
    p = decision_p(values)
    assert decision_p(random.sample(values, len(values))) == pytest.approx(p)
    assert decision_p([-value for value in values]) == pytest.approx(p)
    assert decision_p([1000 * value for value in values]) == pytest.approx(p)
    assert 0 < p <= 1


def test_a_very_small_p_is_exact() -> None:
    assert sign_flip_p([1] * 80) == 2 / 2**80
    assert sign_flip_p([3] * 730) == pytest.approx(2 * 0.5**730, rel=1e-9)
    assert sign_flip_p([]) == sign_flip_p([0, 0]) == sign_flip_p([1, -1]) == 1.0


def test_unequal_attempts_meet_on_one_lattice() -> None:
    assert lattice([(1, 2), (3, 3)], [(1, 3), (0, 4)]) == ([2, 12], 12)
    values, step = lattice([(2, 3), (4, 5)], [(1, 4), (1, 2)])
    assert [value / step for value in values] == pytest.approx([2 / 3 - 1 / 4, 4 / 5 - 1 / 2])


def test_skewness_only_counts_against_the_mean() -> None:
    wins = [1] * 18 + [-9, -9]
    assert skewness_term(wins) == 0.0, "no mean, nothing to take back"
    assert skewness_term([*wins, 4]) > 0.01
    assert skewness_term([-value for value in [*wins, 4]]) == pytest.approx(skewness_term([*wins, 4]))
    assert skewness_term([9, 9, *[-1] * 10]) == 0.0, "the largest point with the mean"
    assert skewness_term([1] * 60) == 0.0


def test_one_look_with_the_whole_budget_is_the_test_itself() -> None:
    random = np.random.default_rng(2)
    for _ in range(30):
        values = random.integers(-3, 5, 12).tolist()
        found = sequential_flips([values], [0.05])
        assert (found.look == 1) == (decision_p(values) <= 0.05)
        assert found.level == pytest.approx(0.05, abs=0.004)


def test_looks_over_whole_tasks_err_as_often_as_promised() -> None:
    """Half of the tasks are solved by one profile only: ten attempts at one of them are still one task."""
    random = np.random.default_rng(3)
    tasks, rounds = 10, 5
    found = 0
    for _ in range(300):
        gaps = random.choice([-1.0, 1.0, 0.0, 0.0], tasks)
        looks = (gaps + random.normal(0, 0.3, (rounds, tasks)) / np.sqrt(np.arange(1, rounds + 1))[:, None]).round(2)
        found += (
            sequential_flips(looks.tolist(), [0.05 * (n / rounds) ** 2 for n in range(1, rounds + 1)]).look is not None
        )
    assert found <= 0.05 * 300 + 3 * (0.05 * 0.95 * 300) ** 0.5


def test_what_was_decided_stays_decided_and_what_is_left_is_said() -> None:
    clear, nothing = [1.0] * 12, [0.0] * 12
    assert sequential_flips([clear, nothing], [0.05, 0.05])[:2] == (1, 1)
    assert sequential_flips([[-1.0] * 12], [0.05])[:2] == (1, -1)
    close = [1.0] * 9 + [-1.0] * 3
    grown = sequential_flips([close, [*close[:-1], 1.0]], [0.05, 0.05])
    assert grown.look is None, "p would be 0.039"
    assert 0 < grown.level < 0.039, "the first time has used up most of it"
    assert sequential_flips([close, clear], [0.05, 0.05])[:2] == (2, 1)
    assert sequential_flips([nothing, nothing], [0.05, 0.05]) == (None, 0, 0.05, 0.0)


def test_large_values_that_all_point_one_way_take_no_time() -> None:
    values = [10**9 - number * 7_654_321 for number in range(20)]
    assert sign_flip_p(values) == pytest.approx(2 / 2**20)
