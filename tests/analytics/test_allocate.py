"""Where the next attempts go."""

from hypothesis import given
from hypothesis import strategies as st

from support.rows import Marks, rows, settings, table
from terminalbench.analytics.allocate import FEWEST, Allocation, TopUp, allocate
from terminalbench.analytics.compare import compare

RULE = TopUp(half_width=0.05, max_attempts=20, round_trials=12)


def topped(marks: Marks, rule: TopUp = RULE, **setup) -> Allocation:
    return allocate(compare(rows(marks), settings(**setup)), rule)


def by_task(found: Allocation) -> dict[str, dict[str, int]]:
    tasks: dict[str, dict[str, int]] = {}
    for more in found.more:
        tasks.setdefault(more.task.id, {})[more.profile] = more.attempts
    return tasks


def test_unstable_and_disputed_tasks_come_first() -> None:
    found = topped(table(a="++++ ++++ xxxx xxxx", b="++++ xxxx xx+x xxxx"))
    assert not found.done
    assert found.trials == 12
    assert set(by_task(found)) == {"t2", "t3"}
    assert found.expected is not None
    assert found.half_width is not None
    assert found.expected < found.half_width


def test_both_profiles_get_the_same() -> None:
    found = topped(table(a="+x+ xxx +++ x+x", b="++x x+x +++ xxx"))
    assert all(counts["a"] == counts["b"] for counts in by_task(found).values())


def test_every_cell_gets_a_few_attempts_first() -> None:
    found = topped(table(a="+ x +", b="x x +"), TopUp(half_width=0.05, max_attempts=9, round_trials=100))
    assert all(min(counts.values()) >= FEWEST - 1 for counts in by_task(found).values())
    assert len(by_task(found)) == 3


def test_a_cell_that_fell_behind_catches_up() -> None:
    found = topped(table(a="+++ xxx", b="+EE xxx"), TopUp(half_width=0.05, max_attempts=9, round_trials=2))
    assert by_task(found) == {"t1": {"b": 2}}


def test_done_when_the_width_is_reached() -> None:
    found = topped(table(a="+++++ " * 40, b="+++++ " * 40))
    assert (found.done, found.more) == (True, [])
    assert "every half-width is at most 5.0 pt" in found.reason


def test_done_when_nothing_may_get_more() -> None:
    found = topped(table(a="+x+ xx+", b="xx+ x++"), TopUp(half_width=0.01, max_attempts=3, round_trials=10))
    assert found.done
    assert found.reason == "every task that could help has 3 attempts"
    assert topped({"a": {"one": "+"}, "b": {"two": "+"}}).reason == "no contrast has a common task"


def test_a_round_stops_when_enough_is_expected() -> None:
    rule = TopUp(half_width=0.25, max_attempts=1000, round_trials=10_000)
    found = topped(table(a="+x+ xx+ +++ x+x", b="xx+ x++ +++ xxx"), rule)
    assert found.expected is not None
    assert found.expected <= 0.25
    assert found.trials < 100


def test_a_shared_baseline_serves_every_contrast() -> None:
    marks = table(a="+x+ xxx", b="x+x xxx", c="+++ xxx")
    found = topped(marks, contrasts=(("b", "a"), ("c", "a")))
    assert by_task(found)["t1"].keys() == {"a", "b", "c"}


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            *[st.lists(st.text("+xE.", min_size=1, max_size=5), min_size=n, max_size=n).map(" ".join)] * 2
        )
    ),
    st.integers(1, 30),
    st.integers(1, 8),
)
def test_no_round_is_larger_than_allowed(grid: tuple[str, str], round_trials: int, most: int) -> None:
    marks = table(a=grid[0], b=grid[1])
    rule = TopUp(half_width=0.1, max_attempts=most, round_trials=round_trials)
    found = topped(marks, rule, coverage=0)
    assert found.trials <= round_trials
    for more in found.more:
        assert more.attempts > 0
        assert len(marks[more.profile][more.task.id]) + more.attempts <= most
    swapped = topped(table(a=grid[1], b=grid[0]), rule, coverage=0)
    turn = {"a": "b", "b": "a"}
    assert {(turn[m.profile], m.task.id, m.attempts) for m in swapped.more} == {
        (m.profile, m.task.id, m.attempts) for m in found.more
    }


def test_rounds_end() -> None:
    marks = {name: dict(tasks) for name, tasks in table(a="+x+ xxx +++ x+x", b="xx+ x++ +++ xxx").items()}
    rule = TopUp(half_width=0.1, max_attempts=12, round_trials=8)
    for _ in range(40):
        found = topped(marks, rule)
        if found.done:
            break
        for more in found.more:
            marks[more.profile][more.task.id] += ("+x" * more.attempts)[: more.attempts]
    assert found.done
    assert max(len(cells) for tasks in marks.values() for cells in tasks.values()) <= 12


def test_unequal_attempts_are_pointed_out() -> None:
    found = compare(rows(table(a="+x+ xxx", b="x+x xxxxx")), settings()).contrasts[0]
    assert any("3 to 5 attempts per task" in warning for warning in found.warnings)
