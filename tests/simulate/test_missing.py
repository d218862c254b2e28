"""Trials lost by either side never make a verdict of nothing. A small version; `make simulate` has more worlds."""

import pytest

from simulate.missing import LOSSES, verdicts
from simulate.worlds import SAME, TEN


@pytest.mark.parametrize(
    "name",
    [
        "new hides 15 % of its fails",
        "old loses 15 % of its passes, new hides 10 % of its fails",
        "new crashes in 20 % of its fails, and is drawn again",
    ],
)
def test_lost_trials_make_no_verdict(name: str) -> None:
    found = verdicts(SAME, (50, 3), LOSSES[name], 20)
    assert found["better"] + found["worse"] <= 0.05


def test_a_real_difference_survives_a_few_lost_trials() -> None:
    assert verdicts(TEN, (60, 5), LOSSES["nothing"], 10)["better"] >= 0.7
    assert verdicts(TEN, (60, 5), LOSSES["3 % of both, at random"], 10)["better"] >= 0.3
