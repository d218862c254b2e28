"""What makes us look back at trials."""

import pytest

from terminalbench.archivist.attempts import TriggerCell, fired
from terminalbench.archivist.entries import Trigger
from terminalbench.records.trial import TaskRef

A = TriggerCell("p", TaskRef("a", "d"))


def names(now: str, before: str, signatures: tuple[str, ...] = (), fell: tuple[str, ...] = ()) -> list[str]:
    """The triggers of one task whose trials passed (+) and failed (x) so."""
    found = fired({A: [m == "+" for m in now]}, {A: [m == "+" for m in before]}, signatures, fell)
    return [one.trigger.value for one in found]


@pytest.mark.parametrize(
    ("now", "before", "first"),
    [
        ("x", "+++", Trigger.REGRESSION),
        ("xx", "++++", Trigger.REGRESSION),
        ("x+", "+++", Trigger.BATCH),  # not each of them fails
        ("x", "++", Trigger.BATCH),  # too few to be sure that it passes
        ("x", "+++x", Trigger.BATCH),  # it failed before too
        ("+", "xx", Trigger.FIRST_SUCCESS),
        ("x+", "xxx", Trigger.FIRST_SUCCESS),
        ("+", "x", Trigger.BATCH),
        ("+", "x+", Trigger.BATCH),
        ("+", "", Trigger.BATCH),
        ("", "+++", Trigger.BATCH),  # nothing was measured
    ],
)
def test_a_change_is_one_only_against_trials_that_all_ended_alike(now: str, before: str, first: Trigger) -> None:
    assert names(now, before)[0] == first


def test_the_same_signature_twice_fires_and_a_batch_always_does() -> None:
    assert names("xx", "", ("E: N", "E: N")) == ["repeated_failure", "batch"]
    assert names("xx", "", ("E: N", "F: N")) == ["batch"]


def test_an_alert_of_a_night_is_a_regression_whatever_the_trials_before() -> None:
    assert names("x", "", fell=("a",)) == ["regression", "batch"]
    assert names("x", "", fell=("other",)) == ["batch"]


def test_another_profile_is_another_history() -> None:
    other = TriggerCell("q", A.task)
    assert [one.trigger for one in fired({A: [True]}, {other: [False, False]})] == [Trigger.BATCH]
