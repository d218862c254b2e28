"""Every kind of number has one spelling."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.text import numbers as n


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (n.count(1234), "1,234"),
        (n.plural(1, "task"), "1 task"),
        (n.plural(1234, "task"), "1,234 tasks"),
        (n.plural(0, "family"), "0 families"),
        (n.plural(2, "day"), "2 days"),
        (n.plural(2, "try", "tries"), "2 tries"),
        (n.some(["a", "b"]), "a, b"),
        (n.some(list("abcdefg")), "a, b, c, d, e and 2 more"),
        (n.tokens(9876), "9,876"),
        (n.tokens(10_000), "10.0k"),
        (n.tokens(12_345), "12.3k"),
        (n.tokens(123_456), "123k"),
        (n.tokens(999_600), "1.0M"),
        (n.tokens(-4_500_000, sign=True), "-4.5M"),
        (n.dollars(0.5), "$0.50"),
        (n.dollars(0), "$0.00"),
        (n.dollars(1234.5), "$1,234.50"),
        (n.dollars(0.0999), "$0.10"),
        (n.dollars(0.05), "$0.05"),
        (n.dollars(0.0123), "$0.012"),
        (n.dollars(0.00004), "$0.00004"),
        (n.dollars(1e-9), "< $0.000001"),
        (n.dollars(-0.5, sign=True), "-$0.50"),
        (n.dollars(0.5, sign=True), "+$0.50"),
        (n.cost(0.5, 3), "$0.50 + 3 unknown"),
        (n.cost(None, 3), "unknown"),
        (n.percent(0.1234), "12.3 %"),
        (n.percent(1.0), "100.0 %"),
        (n.percent(0.9999), "> 99.9 %"),
        (n.percent(0.0001), "< 0.1 %"),
        (n.percents(0.041, 0.2234), "4.1 to 22.3 %"),
        (n.points(0.0312), "+3.1 pt"),
        (n.points(-0.00001), "+0.0 pt"),
        (n.points(0.3, sign=False), "30.0 pt"),
        (n.duration(0), "0.0 s"),
        (n.duration(7.52), "7.5 s"),
        (n.duration(9.96), "10 s"),
        (n.duration(75), "75 s"),
        (n.duration(99.6), "1.7 min"),
        (n.duration(750), "12.5 min"),
        (n.duration(9000), "2.5 h"),
        (n.duration(-75, sign=True), "-75 s"),
        (n.duration(-75), "0.0 s"),
        (n.p_value(0.48), "0.48"),
        (n.p_value(0.0123), "0.012"),
        (n.p_value(0.0999), "0.10"),
        (n.p_equation(0.0004), "p < 0.001"),
        (n.p_equation(0.0013), "p = 0.0013"),
        (n.between(-0.06, 0.122, "pass"), "-6.0 to +12.2 pt"),
        (n.between(0.5, 1.5, "cost"), "+$0.50 to +$1.50"),
        (n.between(30, 150, "time", sign=False), "30 s to 2.5 min"),
        (n.amount(12_345, "tokens"), "+12.3k tokens"),
        (n.size(512), "512 B"),
        (n.size(1536), "1.5 KB"),
        (n.size(1024 * 1024 - 1), "1.0 MB"),
        (n.size(5 * 1024**4), "5,120.0 GB"),
        (n.moment("2026-01-31T15:05:59+01:00"), "2026-01-31 14:05"),
        (n.moment("soon"), "unknown"),
        (n.age("2026-01-31T14:00:00Z", datetime(2026, 1, 31, 14, 12, 30, tzinfo=UTC)), "12.5 min"),
    ],
)
def test_one_spelling(text, wanted):
    assert text == wanted


@pytest.mark.parametrize(
    ("write", "wanted"),
    [(one, "unknown") for one in (n.count, n.tokens, n.dollars, n.cost, n.duration, n.size, n.moment)]
    + [(one, "-") for one in (n.percent, n.points, n.p_value)],
)
def test_unknown_is_said_and_never_zero(write, wanted):
    assert write(None) == wanted
    assert (n.amount(None, "tokens"), n.amount(None, "pass")) == ("unknown", "-")


@given(st.floats(1e-12, 1e9))
def test_what_costs_something_is_never_written_as_nothing(value):
    assert n.dollars(value).strip("<$ 0.,")


@given(st.integers(1, 10_000_000), st.integers(1, 10_000_000))
def test_a_share_is_never_rounded_to_all_or_nothing(one, other):
    assert n.percent(one / (one + other)) not in ("100.0 %", "0.0 %")
