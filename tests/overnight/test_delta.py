"""What changed between iterations, and what of it is noise."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from support.iterations import iteration
from terminalbench.overnight.delta import ALPHA, ProfileDelta, TaskChange, delta, level
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.records.counts import Counts


def of(now: IterationResults, *before: IterationResults, planned: int | None = 10) -> ProfileDelta:
    return delta(now, before, planned).profiles[0]


def changes(found: ProfileDelta) -> dict[str, str]:
    return {one.task_id: one.change.value for one in found.tasks}


def test_each_task_has_its_word() -> None:
    first = iteration(1, {"a": "x", "b": "+", "c": "+", "gone": "+", "never": "E"})
    second = iteration(2, {"a": "+", "b": "x", "c": "+", "gone": "+", "never": "E"})
    third = iteration(3, {"a": "+", "b": "+", "c": "x", "new": "+", "never": "+"})
    found = of(third, first, second)
    assert changes(found) == {
        "a": "unchanged", "b": "flaky", "c": "regressed", "new": "new", "never": "unmeasured", "gone": "gone",
    }  # fmt: skip
    assert (found.previous, found.earlier) == (2, [1, 2])
    lost = next(one for one in found.tasks if one.task_id == "c")
    assert (lost.earlier, lost.noise) == (Counts(2, 2), True), "one failure after two passes is no news"
    assert (lost.trials, lost.trials_before) == (["batches/night/0/runs/j/c__1"],) * 2


def test_a_flip_is_more_than_noise_when_many_attempts_say_so() -> None:
    before = [iteration(n, {"a": "+" * 5, "b": "+x+x+"}) for n in range(1, 5)]
    found = of(iteration(5, {"a": "x" * 5, "b": "xxxxx"}), *before)
    assert changes(found) == {"a": "regressed", "b": "regressed"}, "even of one that is known to vary"
    assert [one.noise for one in found.tasks] == [False, False]
    assert found.alert is not None
    assert found.alert.tasks == ["a", "b"]
    assert "passed 0 of 10" in found.alert.message


def test_another_content_or_another_profile_is_not_compared() -> None:
    now = iteration(2, {"a": "x"})
    assert changes(of(now, iteration(1, {"a": "+"}, digest="other"))) == {"a": "other_content"}
    assert changes(of(iteration(2, {"a": "x"}, digest=None), iteration(1, {"a": "+"}, digest=None))) == {
        "a": "other_content"
    }
    other = of(now, iteration(1, {"a": "+"}, profile_id="another"))
    assert (other.previous, changes(other), other.p_earlier) == (None, {"a": "new"}, None)


def test_iterations_are_compared_by_number_whichever_ended_first() -> None:
    one, two, three = iteration(1, {"a": "+"}), iteration(2, {"a": "x"}), iteration(3, {"a": "x"})
    assert of(two, three, one).previous == 1
    assert of(three, one, two) == of(three, two, one)


def test_the_one_before_that_measured_nothing_is_passed_over() -> None:
    found = of(iteration(3, {"a": "x"}), iteration(1, {"a": "+"}), iteration(2, {"a": "E"}))
    assert (found.previous, found.earlier, changes(found)) == (1, [1], {"a": "regressed"})


def test_levels_of_a_night_add_up_to_alpha() -> None:
    assert sum(level(k, 100, 1) for k in range(1, 100)) <= ALPHA * 1.0001
    assert sum(level(k, None, 2) for k in range(1, 5000)) * 2 <= ALPHA
    assert level(1, 1, 1) == ALPHA


@given(st.lists(st.lists(st.sampled_from("+xE"), min_size=4, max_size=4), min_size=1, max_size=6))
@settings(deadline=None)
def test_counts_are_kept_and_it_is_the_same_again(rows: list[list[str]]) -> None:
    made = [iteration(n, dict(zip("abcd", row, strict=True))) for n, row in enumerate(rows, start=1)]
    found = of(made[-1], *made[:-1])
    assert sum(one.now.measured for one in found.tasks) == sum(mark != "E" for mark in rows[-1])
    for place, one in enumerate(found.tasks):
        earlier = one.earlier or Counts()
        assert earlier.measured == sum(row[place] != "E" for row in rows[:-1])
        assert (one.noise is None) == (one.change in (TaskChange.NEW, TaskChange.UNCHANGED, TaskChange.UNMEASURED))
    assert msgspec.json.encode(delta(made[-1], made[:-1], 10)) == msgspec.json.encode(
        delta(made[-1], made[:-1][::-1], 10)
    )


def test_a_night_that_breaks_in_the_middle_is_noticed() -> None:
    made = [iteration(n, {f"t{k}": "+" if n < 6 else "x" for k in range(12)}) for n in range(1, 7)]
    found = of(made[-1], *made[:-1])
    assert found.alert is not None
    assert found.alert.p <= found.alert.level == level(5, 10, 1)
