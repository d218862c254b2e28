"""The formulas, against statsmodels, scipy.stats and brute force."""

from importlib import import_module
from itertools import combinations
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from terminalbench.analytics import stats
from terminalbench.analytics.special import beta_cdf, student_quantile
from terminalbench.analytics.stats import look_reached, nominal_level, obrien_fleming
from terminalbench.index.totals import wilson

pytestmark = pytest.mark.alone("statsmodels")  # which takes seconds to load
COUNTS = [(0, 5), (1, 5), (5, 5), (7, 20), (40, 41), (0, 1)]


def scipy_stats() -> Any:
    """Takes a second to load: by the first test that asks, not by every process that collects tests."""
    return import_module("scipy.stats")


def models() -> Any:
    """The same of statsmodels."""
    return import_module("statsmodels.stats.api")


@pytest.mark.parametrize(("passed", "count"), COUNTS)
def test_wilson_and_jeffreys_are_those_of_statsmodels(passed: int, count: int) -> None:
    found = wilson(passed / count, count)
    assert found == pytest.approx(models().proportion_confint(passed, count, method="wilson"), abs=1e-9)
    found = stats.jeffreys(passed, count, 0.05)
    low, high = models().proportion_confint(passed, count, method="jeffreys")
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
        expected = models().multipletests(values, method="holm")[1]
    assert stats.holm(values) == pytest.approx(list(expected))


def test_holm_does_not_count_what_was_not_tested() -> None:
    assert stats.holm([0.01, None, 0.04]) == [0.02, None, 0.04]


@pytest.mark.parametrize(
    ("passed", "freedom"), [(0.9, 1), (0.975, 2), (0.975, 19), (0.99999, 3.7), (0.975, 49.3), (0.995, 5000)]
)
def test_students_quantile_is_that_of_scipy(passed: float, freedom: float) -> None:
    assert student_quantile(passed, freedom) == pytest.approx(scipy_stats().t.ppf(passed, freedom), rel=1e-9)


@given(st.floats(0.3, 900), st.floats(0.3, 900), st.floats(0, 1))
def test_the_beta_function_is_that_of_scipy(a: float, b: float, x: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(scipy_stats().beta.cdf(x, a, b), abs=1e-11)


def test_the_mean_interval_is_students() -> None:
    values = [0.2, -0.4, 0.6, 0.0, 0.2, 1.0]
    found = stats.mean_interval(stats.paired(values), 0.05)
    expected = scipy_stats().ttest_1samp(values, 0).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_families_are_clusters() -> None:
    from statsmodels.regression.linear_model import OLS

    values = [0.2, -0.4, 0.6, 0.0, 0.2, 1.0, 0.8, -0.2]
    units = list("aabbbcdd")
    fit = OLS(np.array(values), np.ones(8)).fit(
        cov_type="cluster", cov_kwds={"groups": np.array([ord(u) for u in units]), "use_correction": False}
    )
    error = stats.paired(values, units).standard_error()
    assert error == pytest.approx(fit.bse[0] * np.sqrt(4 / 3))


@pytest.mark.parametrize(("count", "odd"), [(6, 0), (29, 0), (49, 1), (49, 2), (98, 1), (200, 10), (400, 30)])
@pytest.mark.parametrize("margin", [0.05, 0.1])
def test_the_bound_of_two_values_is_clopper_and_pearsons(count: int, odd: int, margin: float) -> None:
    sample = stats.paired([-1.0] * odd + [0.0] * (count - odd))
    exact = scipy_stats().beta.sf(margin, odd + 1, count - odd)
    assert stats.beyond_p(sample, -margin, -1.0) == pytest.approx(exact, abs=1e-7)
    low = stats.bound(sample, 0.05, -1.0)
    assert -low == pytest.approx(
        scipy_stats().binomtest(odd, count, alternative="less").proportion_ci(0.95).high, abs=1e-4
    )


@limits(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.6, -0.2, 0.0, 0.2, 0.4, 1.0]), min_size=2, max_size=30))
def test_the_bound_is_where_p_falls_to_alpha(values: list[float]) -> None:
    sample = stats.paired(values)
    found = stats.equivalence_interval(sample, 0.05)
    assert -1 <= found.low <= sample.mean <= found.high <= 1
    for at, far in ((found.low, -1.0), (found.high, 1.0)):
        assert at == far or stats.beyond_p(sample, at, far) <= 0.05
        nearer = at + 0.01 * (sample.mean - at)
        assert abs(at - sample.mean) < 1e-4 or stats.beyond_p(sample, nearer, far) >= stats.beyond_p(sample, at, far)
    turned = stats.equivalence_interval(stats.paired([-value for value in values]), 0.05)
    assert (-turned.high, -turned.low) == pytest.approx((found.low, found.high), abs=1e-5)


def test_weights_at_random_agree_with_the_integral() -> None:
    values = [-0.6, -0.2, -0.2, 0.0, 0.0, 0.0, 0.2, 0.4, 1.0]
    weights = np.random.default_rng(5).dirichlet(np.ones(len(values) + 1), 200_000)
    drawn = (weights @ np.array([*values, -1.0]) <= -0.3).mean()
    assert stats.beyond_p(stats.paired(values), -0.3, -1.0) == pytest.approx(drawn, abs=0.003)


def test_the_bound_counts_a_family_once() -> None:
    values = [0.2, -0.4, 0.6, 0.0, 0.2, 1.0, 0.8, -0.2]
    alone = stats.equivalence_interval(stats.paired(values), 0.05)
    together = stats.equivalence_interval(stats.paired(values, list("aabbccdd")), 0.05)
    assert together.low < alone.low
    assert stats.equivalence_interval(stats.paired(values, list("abcdefgh")), 0.05) == alone


@pytest.mark.parametrize("margin", [0.05, 0.1])
def test_equivalence_errs_at_the_margin_no_more_than_promised(margin: float) -> None:
    """Exact, no simulation: a share of `margin` of all tasks is lost outright, the others tie; 20 to 200 of them."""
    for count in range(20, 201):
        fitting = 0
        while (
            fitting < count
            and stats.beyond_p(stats.paired([-1.0] * fitting + [0.0] * (count - fitting)), -margin, -1.0) <= 0.05
        ):
            fitting += 1
        assert scipy_stats().binom.cdf(fitting - 1, count, margin) <= 0.05 + 1e-9


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
    return stats.Cells(*zip(*[(len(t), sum(t), sum(v * v for v in t)) for t in tasks], strict=True))


def test_the_suite_interval_of_one_task_is_welchs() -> None:
    new, old = [1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0]
    found = stats.suite_interval(cells(new), cells(old), 0.05)
    expected = scipy_stats().ttest_ind(new, old, equal_var=False).confidence_interval(0.95)
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
    assert stats.fisher_p((a, b), (c, d)) == pytest.approx(
        scipy_stats().fisher_exact([[a, b], [c, d]]).pvalue, abs=1e-9
    )


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
    for ratio in (found.low, found.high):  # where a paired t-test of "costs = ratio * passes" reaches its level
        gaps = [cost - ratio * passed for cost, passed in zip(costs, passes, strict=True)]
        assert scipy_stats().ttest_1samp(gaps, 0).pvalue == pytest.approx(0.05)
    assert stats.ratio_interval([1.0, 1.0], [1.0, 0.0], 0.05) is None, "there may be no success at all"
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


@pytest.mark.parametrize(
    "values", [[0.0] * 9, [0.5, -0.5, 0.0, 0.0, 0.25, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.1] * 30, [1.0]]
)
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_a_margin_is_judged_as_by_the_ends_of_the_interval(values: list[float], alpha: float) -> None:
    sample = stats.paired(values, range(len(values)))
    ends = stats.equivalence_interval(sample, alpha)
    for margin in (0.05, 0.1, 0.3, 0.6, 0.85):
        assert min(abs(margin + ends.low), abs(margin - ends.high)) > 1e-5, "no margin at an end itself"
        assert stats.margin_fit(sample, margin, alpha) == (-margin < ends.low, ends.high < margin)
