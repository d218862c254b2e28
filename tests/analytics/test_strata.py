"""The exact test over tasks, against enumeration, Fisher and McNemar."""

from itertools import combinations, product
from math import comb, isclose

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.analytics.stats import Stratum, fisher_p, stratified

SMALL = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).map(
    lambda n: Stratum(min(n[0], n[1]), n[1], min(n[2], n[3]), n[3])
)


def by_hand(strata: list[Stratum]) -> tuple[float, float]:
    """Every way to deal the passes of each task to its attempts, counted."""
    deals = []
    for one in strata:
        count, passed = one.measured + one.measured_before, one.passed + one.passed_before
        deals.append([sum(place < one.measured for place in places) for places in combinations(range(count), passed)])
    sums = [sum(deal) for deal in product(*deals)]
    seen = sum(one.passed for one in strata)
    return sum(s <= seen for s in sums) / len(sums), sum(s >= seen for s in sums) / len(sums)


@given(st.lists(SMALL, max_size=3))
def test_it_is_the_share_of_all_deals(strata: list[Stratum]) -> None:
    found = stratified(strata)
    fewer, more = by_hand(strata)
    assert isclose(found.fewer, fewer, abs_tol=1e-12)
    assert isclose(found.more, more, abs_tol=1e-12)


def test_one_task_is_fishers_and_single_attempts_are_mcnemars() -> None:
    found = stratified([Stratum(0, 6, 6, 6)])
    assert isclose(found.fewer, 1 / comb(12, 6))
    assert isclose(found.two_sided, fisher_p((0, 6), (6, 0)), rel_tol=1e-9)
    discordant = [Stratum(0, 1, 1, 1)] * 9 + [Stratum(1, 1, 0, 1)] + [Stratum(1, 1, 1, 1)] * 30
    assert isclose(stratified(discordant).fewer, (1 + 10) / 2**10), "of ten that differ, one is better"


def test_tasks_that_never_vary_say_nothing() -> None:
    found = stratified([Stratum(5, 5, 50, 50), Stratum(0, 1, 0, 9), Stratum(1, 1, 0, 0)])
    assert (found.fewer, found.more, found.informative) == (1.0, 1.0, 0)


def test_hard_tasks_that_fail_again_are_no_regression() -> None:
    # A sign test of "below the mean" would call ten tasks, each passed once in ten times, worse nearly always.
    assert stratified([Stratum(0, 1, 1, 10)] * 10).fewer > 0.3
