"""Numbering attempts: stable, without gaps where it can be, and never the same number twice."""

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.harbor.attempt_numbers import numbered


def test_planned_order_is_the_number() -> None:
    assert numbered("abc", lambda _name: None) == {1: "a", 2: "b", 3: "c"}


def test_what_is_kept_keeps_its_number() -> None:
    assert numbered(["kept", "new", "newer"], {"kept": 2}.get) == {2: "kept", 1: "new", 3: "newer"}


def test_a_recorded_number_that_cannot_be_is_given_anew() -> None:
    assert numbered("xyz", {"x": 0, "y": 2, "z": 2}.get) == {2: "y", 1: "x", 3: "z"}
    assert numbered("xy", {"x": 3, "y": 1}.get, most=2) == {1: "y", 2: "x"}


@given(
    names=st.lists(st.text(max_size=3), unique=True, max_size=20),
    known=st.dictionaries(st.text(max_size=3), st.integers(-2, 30)),
    bounded=st.booleans(),
)
def test_everything_has_one_number(names: list[str], known: dict[str, int], bounded: bool) -> None:
    found = numbered(names, known.get, len(names) if bounded else None)
    assert sorted(found.values()) == sorted(names)
    assert min(found, default=1) >= 1
    if bounded:
        assert sorted(found) == list(range(1, len(names) + 1))
