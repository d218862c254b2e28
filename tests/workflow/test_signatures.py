"""Signatures: the same error at another line, address, time or temporary path is equal; another error is not."""

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.workflow.state import LONGEST, normalised, signature

FRAME = """Test failed with the patch applied. Please look at the output below and mend the patch.
  File "{path}", line {line}, in test_total
    {path}:{line}: {error} <Cart object at {address:#x}> ({seconds:.2f}s) /tmp/pytest-of-root/pytest-{line}/test0
Keep the search text exact."""
ERRORS = st.sampled_from(
    [
        "AssertionError: 3 != 4",
        "AssertionError: 3 != 5",
        "KeyError: 'total'",
        "KeyError: 'price'",
        "TypeError: total() takes 1",
    ]
)
NUMBERS = st.integers(1, 10**6)


def told(error: str, line: int, address: int, seconds: float) -> str:
    return FRAME.format(path="shop/cart.py", line=line, error=error, address=address, seconds=seconds)


@given(ERRORS, ERRORS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.floats(0, 99), st.floats(0, 99))
def test_equal_errors_have_equal_signatures_and_others_do_not(one, other, l1, l2, a1, a2, s1, s2) -> None:
    same = signature(told(one, l1, a1, s1)) == signature(told(other, l2, a2, s2))
    assert same == (one == other)


@given(st.text(), st.text())
def test_a_signature_is_one_short_printable_line(what: str, where: str) -> None:
    found = signature(what, where)
    assert found.isprintable()
    assert len(found) <= LONGEST
    assert normalised(normalised(what)) == normalised(what)


def test_long_errors_differ_by_their_ends() -> None:
    head = "x" * 1000
    assert signature(head + "a") != signature(head + "b")
    assert signature(head + "a") == signature(head + "a")


def test_places_and_tests_are_part_of_it() -> None:
    assert signature("KeyError: 'a'", "t.py::test_a", "m.py:f") != signature("KeyError: 'a'", "t.py::test_b", "m.py:f")
    assert signature("error TS2304: Cannot find name 'x'. src/a.ts(12,5)") == signature(
        "error TS2304: Cannot find name 'x'. src/a.ts(99,1)"
    )
    assert signature("./a.go:12:5: undefined: x") == signature("./a.go:7:1: undefined: x")
    assert signature("2026-01-02T03:04:05Z failed pid=12") == signature("2027-01-02 03:04:09.123 failed pid=99")
