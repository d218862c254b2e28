"""Which tasks end workers."""

import random

from hypothesis import given
from hypothesis import strategies as st

from terminalbench.overnight.night import Suspects


def test_a_task_that_ran_alone_when_two_workers_died_is_poison() -> None:
    suspects = Suspects()
    assert suspects.worker_died(["d/a", "d/b"], []) == []
    assert suspects.worker_died(["d/b"], ["d/a"]) == ["d/b"]
    assert suspects.in_a_row == {}


def test_of_tasks_side_by_side_the_one_that_was_there_more_often_is_poison() -> None:
    suspects = Suspects()
    assert suspects.worker_died(["d/b"], ["d/a"]) == []
    assert suspects.worker_died(["d/a", "d/b"], []) == ["d/b"]
    assert suspects.in_a_row == {"d/a": 1}


def test_tasks_side_by_side_are_not_condemned_for_each_other_until_it_is_sure() -> None:
    suspects = Suspects()
    assert [suspects.worker_died(["d/a", "d/b"], []) for _ in range(3)] == [[], [], ["d/a", "d/b"]]


@given(st.lists(st.sets(st.sampled_from("abc"), max_size=3), max_size=12))
def test_a_task_that_finishes_each_time_before_the_next_death_is_never_poison(deaths: list[set[str]]) -> None:
    suspects = Suspects()
    for running in deaths:
        assert suspects.worker_died(sorted(running), []) == []
        suspects.worker_ended("abc")


def condemned(chance: dict[str, float], seed: int, rounds: int = 400) -> list[str]:
    """The tasks that are left out where workers die by a chance of their own while each task runs, one at a time."""
    suspects, draw, left = Suspects(), random.Random(seed), dict(chance)
    for _ in range(rounds):
        task = draw.choice(sorted(left))
        if draw.random() < left[task]:
            for poison in suspects.worker_died([task], []):
                left.pop(poison)
        else:
            suspects.worker_ended([task])
        if not left:
            break
    return sorted(chance.keys() - left.keys())


def test_a_machine_that_ends_workers_at_random_is_not_taken_for_its_tasks() -> None:
    nights = [condemned({"d/a": 0.2, "d/b": 0.2, "d/c": 0.2, "d/d": 0.2}, seed) for seed in range(200)]
    assert sum(map(bool, nights)) <= 40, "some, by two deaths of one task before any other was seen to die"
    assert all(len(found) <= 1 for found in nights)


def test_a_task_that_always_ends_its_worker_is_found_among_random_deaths() -> None:
    for seed in range(50):
        assert "d/b" in condemned({"d/a": 0.05, "d/b": 1.0, "d/c": 0.05, "d/d": 0.05}, seed)
