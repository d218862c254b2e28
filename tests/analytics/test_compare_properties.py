"""What a comparison can never say, whatever the results."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from support.rows import Marks, contrast, rows, settings, table
from terminalbench.analytics.compare import compare
from terminalbench.analytics.sentence import excludes_zero
from terminalbench.json_files import encode_json
from terminalbench.records.trial import Outcome

PROFILE = st.text("+xE.TC", min_size=1, max_size=4)


GRID = st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.lists(PROFILE, min_size=n, max_size=n).map(" ".join)] * 2))


@limits(max_examples=25, deadline=None)
@given(GRID, st.sampled_from([1, 2, "any"]), st.booleans(), st.integers(1, 2))
def test_an_interval_without_zero_stands_beside_inconclusive_only_with_a_reason(
    grid: tuple[str, str], looks: int | str, strict: bool, contrasts: int
) -> None:
    marks = table(a=grid[0], b=grid[1], c=grid[0][::-1])
    pairs = (("b", "a"), ("c", "a"))[:contrasts]
    for found in compare(rows(marks), settings(contrasts=pairs, looks=looks, strict=strict, coverage=0.0)).contrasts:
        interval = found.estimate.interval
        if found.verdict == "inconclusive" and found.reason is None and interval is not None:
            assert interval.low <= 0 <= interval.high


SETUP = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(["exclude", "fail"]),
        "coverage": st.sampled_from([0.0, 0.9]),
        "margin": st.sampled_from([None, 0.3]),
        "looks": st.sampled_from([1, 3, "any"]),
        "metric": st.sampled_from(["pass", "time"]),
    }
)


OPPOSITE = {"better": "worse", "worse": "better"}


def timed(marks: Marks) -> list:
    return [msgspec.structs.replace(r, agent_sec=float(len(r.task.id) + n % 5)) for n, r in enumerate(rows(marks))]


@limits(max_examples=30, deadline=None)
@given(GRID, SETUP)
def test_no_two_numbers_contradict_each_other_without_a_word(grid: tuple[str, str], setup: dict) -> None:
    found = compare(timed(table(a=grid[0], b=grid[1])), settings(**setup)).contrasts[0]
    if excludes_zero(found.estimate.interval) and found.verdict == "inconclusive":
        assert found.reason
        assert found.reason in found.sentence
    suite, wide = found.estimate.suite_interval, found.estimate.interval
    if suite is not None and wide is not None and excludes_zero(suite) != excludes_zero(wide):
        assert any("exactly these tasks" in note for note in found.notes)


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP)
@example(("C C C C C C C", "C C C C C C +"), {"rule": "fail", "metric": "pass"})
def test_swapping_the_profiles_turns_every_sign(grid: tuple[str, str], setup: dict) -> None:
    data = timed(table(a=grid[0], b=grid[1]))
    there = compare(data, settings("b", "a", **setup)).contrasts[0]
    back = compare(data, settings("a", "b", **setup)).contrasts[0]
    assert back.verdict == OPPOSITE.get(there.verdict, there.verdict)
    for one, other in ((there.estimate, back.estimate), (there.other_way, back.other_way)):
        assert (one.p, one.wins, one.losses, one.ties) == (other.p, other.losses, other.wins, other.ties)
        if one.difference is not None:
            assert other.difference == pytest.approx(-one.difference)
        if one.interval is not None and other.interval is not None:
            assert (other.interval.low, other.interval.high) == pytest.approx((-one.interval.high, -one.interval.low))
    if there.smallest_detectable is not None and back.smallest_detectable is not None:
        assert back.smallest_detectable == pytest.approx(there.smallest_detectable)
    for one, other in (
        (there, back),
        (back, there),
    ):  # none is named that cannot be over a profile that passes so often
        if one.smallest_detectable is None and other.smallest_detectable is not None:
            old = one.estimate.old or 0.0
            assert other.smallest_detectable > max(old, 1 - old) - 1e-9


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP, st.randoms())
def test_names_and_order_of_tasks_mean_nothing(grid: tuple[str, str], setup: dict, random) -> None:
    marks = table(a=grid[0], b=grid[1])
    order = random.sample(list(marks["a"]), len(marks["a"]))
    names = {task: f"x{number}" for number, task in enumerate(order)}
    renamed = {profile: {names[task]: tasks[task] for task in order} for profile, tasks in marks.items()}
    setup = {**setup, "metric": "pass"}
    one, other = (compare(rows(m), settings(**setup)).contrasts[0] for m in (marks, renamed))
    assert one.sentence == other.sentence
    assert (one.verdict, one.p_adjusted) == (other.verdict, other.p_adjusted)


@limits(max_examples=25, deadline=None)
@given(GRID, st.integers(0, 11), st.sampled_from("ETC."))
def test_another_crash_never_helps_when_crashes_count(grid: tuple[str, str], task: int, crash: str) -> None:
    words = grid[1].split()
    words[task % len(words)] += crash
    setup = settings(rule="fail", coverage=0)
    before = contrast(table(a=grid[0], b=grid[1]), setup).estimate.difference
    after = contrast(table(a=grid[0], b=" ".join(words)), setup).estimate.difference
    assert before is not None
    assert after is not None
    assert after <= before + 1e-12


@limits(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("+x", min_size=3, max_size=3), st.text("+xF", min_size=3, max_size=3)),
        min_size=6,
        max_size=12,
    ),
    st.sampled_from([0.0, 0.5, 0.9]),
)
def test_dropping_crashes_never_looks_better_than_counting_them(tasks: list[tuple[str, str]], coverage: float) -> None:
    """F is a failure that a profile may have called a crash."""
    old = " ".join(word for word, _ in tasks)
    counted = contrast(table(a=old, b=" ".join(w.replace("F", "x") for _, w in tasks)), settings(coverage=coverage))
    dropped = contrast(table(a=old, b=" ".join(w.replace("F", "E") for _, w in tasks)), settings(coverage=coverage))
    if dropped.verdict == "better":
        assert counted.verdict == "better"
    if dropped.verdict == "equivalent":
        assert counted.verdict == "equivalent"


@limits(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("+x", min_size=3, max_size=3), st.text("+xF", min_size=3, max_size=3)),
        min_size=6,
        max_size=12,
    ),
    st.sampled_from("ETC!"),
    st.sampled_from([2, 5, "any"]),
)
def test_nothing_that_happened_is_dropped_at_a_declared_look(tasks: list, called: str, looks: int | str) -> None:
    """F is a failure that a profile may have called a crash, cut off, or ! (left out of the plan for a reason)."""
    old = " ".join(word for word, _ in tasks)

    def found(mark: str):
        marks = table(a=old, b=" ".join(w.replace("F", "." if mark == "!" else mark) for _, w in tasks))
        data = [
            msgspec.structs.replace(row, reason="too many errors") if row.outcome is Outcome.NOT_RUN else row
            for row in rows(marks)
        ]
        return compare(data, settings(looks=looks, coverage=0.0)).contrasts[0]

    if found(called).verdict == "better":
        assert found("x").verdict == "better"


@limits(max_examples=25, deadline=None)
@given(GRID, SETUP)
def test_the_json_is_json(grid: tuple[str, str], setup: dict) -> None:
    comparison = compare(timed(table(a=grid[0], b=grid[1])), settings(**setup))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = encode_json(comparison).decode()
    assert json.loads(text, parse_constant=refuse)["contrasts"][0]["verdict"]
    assert msgspec.json.decode(text, type=type(comparison)) == comparison


def test_the_same_rows_give_the_same_answer() -> None:
    data = timed(table(a="+x+ xx+ +++ " * 8, b="++x x++ +x+ " * 8))
    setup = settings(metric="time", seed=3)
    assert compare(data, setup) == compare(data, setup)
