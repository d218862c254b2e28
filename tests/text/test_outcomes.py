"""An outcome has one word, one mark and one colour."""

from terminalbench.index.totals import Reason
from terminalbench.records.trial import Outcome
from terminalbench.text import outcomes


def test_every_outcome_has_a_mark_of_its_own_and_a_colour():
    marks = [outcomes.mark(outcome) for outcome in Outcome]
    assert len(set(marks)) == len(Outcome)
    assert all(len(mark) == 1 and mark.isascii() for mark in marks)
    assert all(outcomes.colour(outcome) for outcome in Outcome)


def test_words_marks_and_what_is_no_outcome():
    assert outcomes.ending("timed_out") == outcomes.ending(Outcome.TIMED_OUT) == "T timed out"
    assert outcomes.ending("asleep") == "? asleep"
    assert outcomes.colour("asleep") == ""
    assert outcomes.legend() == "+ passed   x failed   T timed out   E errored   C cancelled   . not run"


def test_attempts_as_marks_and_as_fractions():
    ends = [Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.PASSED, Outcome.NOT_RUN]
    assert outcomes.marks(ends) == "+xT+."
    assert outcomes.fractions(ends) == "2/3 1T 1."
    assert outcomes.fractions([]) == ""


def test_a_reason_does_not_repeat_how_the_trial_ended() -> None:
    assert Reason("cancelled", None, "cancelled: enough seen", "p").what == "cancelled: enough seen"
    assert Reason("not_run", None, "cancelled: enough seen", "p").what == "not run: cancelled: enough seen"
