"""Three profiles or more beside each other: pooled rates, ranks, who may be the best, and places on the front."""

import msgspec
import numpy as np
import pytest

from support.rows import rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.standings import fit
from terminalbench.records.counts import Spend
from terminalbench.report.comparison import comparison_text

GOOD, EVEN, BAD = "+++ ++x " * 10, "+x+ x+x " * 10, "xxx x+x " * 10


def test_equal_profiles_are_drawn_together_and_none_is_worse() -> None:
    words = [" ".join("+x+xx+"[(n + k) % 6 :: 2][:3] for n in range(24)) for k in range(4)]
    found = compare(rows(table(**dict(zip("abcd", words, strict=True)))), settings(contrasts=(("b", "a"),))).standings
    assert len(found) == 4
    assert all(one.not_worse_than_best and one.best_rank == 1 and one.worst_rank == 4 for one in found)
    rates = [one.rate for one in found]
    assert max(rates) - min(rates) < 0.05


def test_a_profile_far_behind_is_shown_worse_and_keeps_its_rank() -> None:
    data = rows(table(a=GOOD, b=EVEN, c=BAD))
    comparison = compare(data, settings())
    best, middle, worst = comparison.standings
    assert [one.profile for one in comparison.standings] == ["a", "b", "c"]
    assert (best.not_worse_than_best, middle.not_worse_than_best, worst.not_worse_than_best) == (True, False, False)
    assert (best.best_rank, best.worst_rank, worst.best_rank) == (1, 1, 3)
    assert best.low <= best.rate <= best.high
    text = comparison_text(comparison, 80)
    assert "not shown worse than the best" in text
    assert max(map(len, text.splitlines())) <= 80
    assert compare(rows(table(a=GOOD, b=EVEN)), settings()).standings == [], "two have their contrast"


def test_two_twins_share_their_place_on_the_front() -> None:
    prices = {"a": 1.0, "b": 1.0, "c": 3.0}
    data = [msgspec.structs.replace(r, spent=Spend(prices[r.profile])) for r in rows(table(a=EVEN, b=EVEN, c=GOOD))]
    places = {one.profile: one.on_front for one in compare(data, settings()).standings}
    assert places["c"] == pytest.approx(1.0)
    assert places["a"] is not None
    assert places["b"] is not None
    assert 0.3 < places["a"] < 0.7
    assert places["a"] + places["b"] == pytest.approx(1.0, abs=0.05)


def test_what_was_not_measured_everywhere_is_still_fitted() -> None:
    random = np.random.default_rng(1)
    hard = random.beta(0.5, 0.6, (200, 1))
    full = random.binomial(3, np.clip(hard + np.array([0.1, 0.0, -0.1]), 0, 1)) / 3
    holes = full.copy()
    holes[random.random(full.shape) < 0.2] = np.nan
    counts = np.full(full.shape, 3.0)
    whole, part = fit(full, counts), fit(holes, np.where(np.isnan(holes), 0.0, counts))
    assert part.rate == pytest.approx(whole.rate, abs=0.03)
    assert (part.error > whole.error).all()
    assert whole.rate == pytest.approx(full.mean(0))


def test_a_rank_is_given_by_the_fewest_neighbours_that_hold_it_at_the_level() -> None:
    """By all spans there are, of draws that were dealt out here."""
    random = np.random.default_rng(2)
    table = random.binomial(3, np.clip(random.beta(1, 1, (12, 1)) + random.normal(0, 0.1, 6), 0, 1)) / 3
    found = fit(table, np.full(table.shape, 3.0))
    ranks = found.ranks()
    for place, (first, last) in enumerate(found.rank_intervals(0.05)):
        held = {
            (low, high): np.mean((low <= ranks[:, place]) & (ranks[:, place] <= high))
            for low in range(1, 7)
            for high in range(low, 7)
        }
        assert held[first, last] >= 0.95
        assert all(share < 0.95 for (low, high), share in held.items() if high - low < last - first)
