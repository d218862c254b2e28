"""Numbering attempts: stable, without gaps where it can be, and never the same number twice."""

from collections import defaultdict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.files import append_jsonl
from terminalbench.harbor.attempts import assign, attempts_from_events
from terminalbench.records import Event


def test_planned_order_is_the_number() -> None:
    planned = [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("a3", "a")]
    assert assign(planned, {}) == {"a1": 1, "b1": 1, "a2": 2, "b2": 2, "a3": 3}


def test_resume_keeps_the_numbers_of_what_is_kept() -> None:
    # Attempt 2 had finished; Harbor lists the kept trial first.
    assert assign([("kept", "a"), ("new", "a"), ("newer", "a")], {"kept": 2}) == {"kept": 2, "new": 1, "newer": 3}


def test_recorded_number_that_cannot_be_is_given_anew() -> None:
    assert assign([("x", "a"), ("y", "a"), ("z", "a")], {"x": 0, "y": 2, "z": 2}) == {"y": 2, "x": 1, "z": 3}


@given(
    planned=st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3)), unique_by=lambda item: item[0], max_size=20),
    known=st.dictionaries(st.text(max_size=3), st.integers(-2, 30)),
)
def test_no_number_twice(planned: list[tuple[str, int]], known: dict[str, int]) -> None:
    numbers = assign(planned, known)
    assert set(numbers) == {name for name, _ in planned}
    cells = defaultdict(list)
    for name, cell in planned:
        cells[cell].append(numbers[name])
    for given_out in cells.values():
        assert min(given_out) >= 1
        assert len(set(given_out)) == len(given_out)


def test_numbers_come_back_from_the_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for job, trial, attempt in [("j", "a", 2), ("other", "b", 3), ("j", None, None)]:
        append_jsonl(path, Event(time="t", kind="trial_started", job=job, pid=1, trial=trial, attempt=attempt))
    assert attempts_from_events(path, "j") == {"a": 2}
    assert attempts_from_events(tmp_path / "missing", "j") == {}
