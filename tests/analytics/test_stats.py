"""The formulas, against statsmodels, scipy.stats and brute force."""

from itertools import combinations, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from terminalbench.analytics import stats
from terminalbench.analytics.power import fewest_units, planned_moment, smallest_detectable, units_needed
from terminalbench.analytics.stats import e_value, look_reached, nominal_level, obrien_fleming
from terminalbench.index.totals import wilson

COUNTS = [(0, 5), (1, 5), (5, 5), (7, 20), (40, 41), (0, 1)]


@pytest.mark.parametrize(("passed", "count"), COUNTS)
def test_wilson_and_jeffreys_are_those_of_statsmodels(passed: int, count: int) -> None:
    found = wilson(passed / count, count)
    assert found == pytest.approx(proportion_confint(passed, count, method="wilson"), abs=1e-9)
    found = stats.jeffreys(passed, count, 0.05)
    low, high = proportion_confint(passed, count, method="jeffreys")
    assert (found.low, found.high) == pytest.approx((0 if passed == 0 else low, 1 if passed == count else high))


@pytest.mark.parametrize(
    ("passed", "measured", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson(passed: int, measured: int, low: float, high: float) -> None:
    """The last row is the example of Newcombe (1998), method 3."""
    assert wilson(passed / measured, measured) == pytest.approx((low, high), abs=5e-5)


def test_no_success_in_five_is_not_zero() -> None:
    assert stats.jeffreys(0, 5, 0.05).high == pytest.approx(0.38, abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(values: list[float]) -> None:
    with mock.patch("gc.collect"):  # statsmodels calls it every time, and here it takes a second
        expected = multipletests(values, method="holm")[1]
    assert stats.holm(values) == pytest.approx(list(expected))


def test_holm_does_not_count_what_was_not_tested() -> None:
    assert stats.holm([0.01, None, 0.04]) == [0.02, None, 0.04]


@pytest.mark.parametrize(("wins", "losses", "both"), [(9, 2, 5), (3, 4, 0), (1, 0, 3), (8, 8, 2), (0, 6, 1)])
def test_the_sign_flip_of_single_attempts_is_exact_mcnemar(wins: int, losses: int, both: int) -> None:
    expected = mcnemar([[both, losses], [wins, 4]], exact=True).pvalue
    assert stats.sign_flip_p([1.0] * wins + [-1.0] * losses + [0.0] * both) == pytest.approx(min(1.0, expected))


def test_random_signs_agree_with_all_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([0.2, 0.4, -0.2, 0.6, 0.2, 1.0, -0.4, 0.2, 0.2, -0.6, 0.8, 0.2, 0.4, -0.2])
    exact = stats.sign_flip_p(values)
    monkeypatch.setattr(stats, "EXACT_UP_TO", 3)
    drawn = stats.sign_flip_p(values)
    assert drawn == pytest.approx(exact, abs=0.01)
    monkeypatch.setattr(stats, "_AT_ONCE", 1000)
    assert stats.sign_flip_p(values) == drawn


@given(st.lists(st.sampled_from([-1.0, -0.4, -0.2, 0.0, 0.2, 0.6, 1.0]), min_size=1, max_size=40), st.randoms())
def test_the_sign_flip_knows_neither_order_nor_direction(values: list[float], random) -> None:
    p = stats.sign_flip_p(values)
    shuffled = random.sample(values, len(values))
    assert stats.sign_flip_p(shuffled) == p
    assert stats.sign_flip_p([-value for value in values]) == p
    assert stats.sign_flip_p([1000 * value for value in values]) == p
    assert 0 < p <= 1


def test_a_p_below_what_draws_can_show_is_bounded_not_made_up() -> None:
    assert stats.sign_flip_p([1.0] * 16) == 2 / 2**16
    exact = 2 / 2**80
    assert exact < stats.sign_flip_p([1.0] * 80) < 1e-16
    assert stats.sign_flip_p([1.0] * 30 + [-1.0] * 10) >= 0.0005, "McNemar says 0.0022"


def test_brute_force_signs() -> None:
    values = [0.3, -0.1, 0.5, 0.2]
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=4)]
    assert stats.sign_flip_p(values) == np.mean([total >= abs(sum(values)) - 1e-12 for total in sums])


def test_the_mean_interval_is_students() -> None:
    values = [0.2, -0.4, 0.6, 0.0, 0.2, 1.0]
    found = stats.mean_interval(stats.paired(values), 0.05)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_families_are_clusters() -> None:
    import statsmodels.api as sm

    values = np.array([0.2, -0.4, 0.6, 0.0, 0.2, 1.0, 0.8, -0.2])
    units = list("aabbbcdd")
    fit = sm.OLS(values, np.ones(8)).fit(
        cov_type="cluster", cov_kwds={"groups": np.array([ord(u) for u in units]), "use_correction": False}
    )
    error = stats.paired(values, units).standard_error()
    assert error == pytest.approx(fit.bse[0] * np.sqrt(4 / 3))


def test_no_variation_is_no_certainty() -> None:
    ties = stats.mean_interval(stats.paired([0.0] * 20), 0.05, (-1.0, 1.0))
    assert ties is not None
    assert (ties.low, ties.high) == pytest.approx((-0.139, 0.139), abs=0.001)
    wins = stats.mean_interval(stats.paired([1.0] * 20), 0.05, (-1.0, 1.0))
    assert wins is not None
    assert wins.high == 1.0
    assert 0.7 < wins.low < 0.75
    assert stats.mean_interval(stats.paired([1.0]), 0.05, (-1.0, 1.0)) is None
    assert stats.mean_interval(stats.paired([0.0] * 20), 0.05) is None


def cells(*tasks: list[float]) -> stats.Cells:
    return stats.Cells(*np.array([(len(t), sum(t), sum(v * v for v in t)) for t in tasks], dtype=float).T)


def test_the_suite_interval_of_one_task_is_welchs() -> None:
    new, old = [1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    found = stats.suite_interval(cells(new), cells(old), 0.05)
    expected = scipy_stats.ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_suite_interval_needs_two_attempts_that_vary() -> None:
    assert stats.suite_interval(cells([1.0]), cells([0.0]), 0.05) is None
    assert stats.suite_interval(cells([1.0, 1.0]), cells([0.0, 0.0]), 0.05) is None


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_and_pass_hat_k_are_those_of_all_choices(numbers: tuple[int, int, int]) -> None:
    count, passed, k = numbers
    outcomes = [1] * passed + [0] * (count - passed)
    chosen = list(combinations(outcomes, k))
    assert stats.pass_at_k(count, passed, k) == pytest.approx(np.mean([any(c) for c in chosen]))
    assert stats.pass_hat_k(count, passed, k) == pytest.approx(np.mean([all(c) for c in chosen]))


@given(*[st.integers(0, 30)] * 4)
def test_fisher_is_that_of_scipy(a: int, b: int, c: int, d: int) -> None:
    assert stats.fisher_p((a, b), (c, d)) == pytest.approx(scipy_stats.fisher_exact([[a, b], [c, d]]).pvalue, abs=1e-9)


def test_the_effective_number_of_trials() -> None:
    single = stats.paired([1.0, 0.0, 1.0, 1.0, 0.0])
    assert stats.effective_count(single, 5) == pytest.approx(5)
    repeated = stats.paired([1.0, 0.0, 1.0, 1.0, 0.0])
    assert stats.effective_count(repeated, 50) == pytest.approx(5, rel=0.25), "ten equal attempts are worth one"
    alike = stats.paired([0.6] * 5)
    assert stats.effective_count(alike, 50) == 5
    assert stats.effective_count(stats.paired([1.0]), 5) == 1


def test_a_ratio_of_totals_and_its_interval() -> None:
    costs, passes = [1.0, 2.0, 3.0, 4.0] * 10, [1.0, 0.0, 2.0, 1.0] * 10
    found = stats.ratio_interval(costs, passes, 0.05)
    assert found is not None
    assert found.low < 100 / 40 < found.high
    assert stats.ratio_interval(costs, passes, 0.05) == found
    assert stats.ratio_interval([1.0, 1.0], [1.0, 0.0], 0.05) is None, "a quarter of the draws has no success"
    assert stats.ratio_interval([1.0, 1.0], [0.0, 0.0], 0.05) is None


def test_the_bounds_of_obrien_and_fleming() -> None:
    assert obrien_fleming(1, 0.05) == pytest.approx([1.95996], abs=1e-4)
    assert obrien_fleming(2, 0.05) == pytest.approx([2.797, 1.977], abs=1e-3)
    assert obrien_fleming(5, 0.05) == pytest.approx([4.56, 3.23, 2.63, 2.28, 2.04], abs=5e-3)
    assert nominal_level(5, 5, 0.05) == pytest.approx(0.0413, abs=1e-3)
    assert [look_reached(done, 100, 4) for done in (0, 24, 25, 74, 99, 100)] == [0, 0, 1, 2, 3, 4]
    assert look_reached(0, 0, 4) == 0


def test_looking_five_times_errs_as_often_as_promised() -> None:
    random = np.random.default_rng(2)
    z = random.normal(size=(40_000, 5)).cumsum(axis=1) / np.sqrt(np.arange(1, 6))
    assert (np.abs(z) >= np.array(obrien_fleming(5, 0.05))).any(axis=1).mean() == pytest.approx(0.05, abs=0.004)
    assert (np.abs(z) >= 1.96).any(axis=1).mean() > 0.12, "without bounds it does not"


def test_an_e_value_rarely_reaches_twenty_by_chance_at_any_time() -> None:
    random = np.random.default_rng(3)
    reached = 0
    for _ in range(300):
        wins = random.integers(0, 2, 60).cumsum()
        reached += any(e_value(int(w), n - int(w)) >= 20 for n, w in enumerate(wins, start=1))
    assert reached <= 15
    assert e_value(0, 0) == pytest.approx(1.0)
    assert e_value(12, 1) == e_value(1, 12) > 20
    assert np.isfinite(e_value(100_000, 0))


def test_expected_value_of_an_e_value_is_one() -> None:
    from math import comb

    assert sum(comb(9, w) / 2**9 * e_value(w, 9 - w) for w in range(10)) == pytest.approx(1.0)


def test_what_a_size_can_show() -> None:
    assert fewest_units(0.05) == 6
    assert smallest_detectable(0.24, 5, 0.05) is None
    shown = [smallest_detectable(planned_moment(1, 0.119, 0.0), tasks, 0.05) or 0.0 for tasks in (20, 80, 500)]
    assert shown[1] == pytest.approx(0.153, abs=0.01)
    assert shown == sorted(shown, reverse=True)
    units = units_needed(0.05, 0.05, 0.05)
    assert units is not None
    assert smallest_detectable(0.05, units, 0.05) == pytest.approx(0.05, rel=0.02)
    assert units_needed(0.05, 0.0, 0.05) is None
    assert units_needed(0.25, 0.5, 0.05) == 6


def test_power_is_what_it_says() -> None:
    """Single attempts at 60 tasks, a true difference as large as the smallest detectable one."""
    random = np.random.default_rng(4)
    gap = smallest_detectable(0.4, 60, 0.05)
    assert gap is not None
    chances = [(0.4 + gap) / 2, (0.4 - gap) / 2, 0.6]
    found = [stats.sign_flip_p(random.choice([1.0, -1.0, 0.0], 60, p=chances), seed=n) <= 0.05 for n in range(300)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)
