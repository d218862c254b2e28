"""Quiet nights stay quiet, and a worse iteration is found. A small version of `make simulate`; seeded."""

from simulate.nights import quiet_months, quiet_nights, worse_endings


def test_nights_in_which_nothing_changes_seldom_raise_an_alert() -> None:
    found = quiet_nights(12, 1, 60)
    assert found["alert"] <= 0.05 + 0.06
    assert found["spread beyond luck"] <= 0.05 + 0.06


def test_a_last_iteration_that_is_much_worse_is_found_with_enough_attempts() -> None:
    assert worse_endings(30, 3, 0.3, 10) >= 0.8
    assert worse_endings(30, 3, 0.3, 10) > worse_endings(12, 1, 0.3, 30)


def test_a_quiet_month_says_seldom_that_a_profile_changed() -> None:
    found = quiet_months(12, 2, 40)
    assert found["a month says so"] <= 0.05 + 0.07
    assert found["each night at 5 %"] > 0.3, "what the level is spread for"
