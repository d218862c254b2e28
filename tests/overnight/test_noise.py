"""The noise floor of identical runs."""

from random import Random
from statistics import mean, stdev

import pytest

from terminalbench.overnight.model_summary import Noise, flaky_tasks, noise_floor
from terminalbench.records.counts import Counts
from terminalbench.records.trial import TaskRef

REFS = [TaskRef(f"t{n}", "d") for n in range(20)]


def night(luck: Random, rates: list[float], iterations: int, drift: float = 0.0) -> list[dict[TaskRef, Counts]]:
    made = []
    for _ in range(iterations):
        moved = luck.choice((-drift, drift))
        made.append({ref: Counts(int(luck.random() < rate + moved), 1) for ref, rate in zip(REFS, rates, strict=True)})
    return made


def test_luck_alone_is_expected() -> None:
    rates = [0.5] * 10 + [0.9] * 5 + [0.1] * 5
    true = (sum(rate * (1 - rate) for rate in rates) ** 0.5) / 20
    found = [noise_floor(night(Random(seed), rates, 20)) for seed in range(40)]
    assert mean(one.expected or 0 for one in found) == pytest.approx(true, rel=0.05)
    assert mean(one.spread or 0 for one in found) == pytest.approx(true, rel=0.1)
    assert sum((one.p or 0) <= 0.05 for one in found) <= 6, "as often as it should be"


def test_more_than_luck_is_said() -> None:
    found = noise_floor(night(Random(1), [0.5] * 20, 30, drift=0.3))
    assert (found.p or 1) < 0.01
    assert "something else differs" in found.sentence


def test_numbers_by_hand() -> None:
    a, b = REFS[:2]
    made = [
        {a: Counts(1, 1), b: Counts(1, 1)},
        {a: Counts(0, 1), b: Counts(1, 1)},
        {a: Counts(1, 1), b: Counts(0, 0)},
    ]
    found = noise_floor(made)
    assert (found.iterations, found.rate) == (3, pytest.approx(mean([1.0, 0.5, 1.0])))
    assert found.spread == pytest.approx(stdev([1.0, 0.5, 1.0]))
    one = 2 / 3 * 1 / 3 * 3 / 2  # of task a; b never varied
    assert found.expected == pytest.approx(((one / 4 + one / 4 + one) / 3) ** 0.5)


def test_too_few_or_nothing_that_varies() -> None:
    assert noise_floor([]) == Noise(iterations=0, sentence=noise_floor([]).sentence)
    assert noise_floor([{REFS[0]: Counts(1, 1)}]).spread is None
    still = noise_floor([{REFS[0]: Counts(1, 1)}] * 3)
    assert (still.expected, still.p) == (0.0, None)
    assert "no task varied" in still.sentence


def test_flaky_tasks_are_those_with_both() -> None:
    a, b, c = REFS[:3]
    rows = ["+x+", "+++", "xx+"]
    made = [{ref: Counts(int(row[n] == "+"), 1) for ref, row in zip((a, b, c), rows, strict=True)} for n in range(3)]
    found = flaky_tasks(made)
    assert [(one.task_id, str(one.count), one.flips) for one in found] == [("t0", "2/3", 2), ("t2", "1/3", 1)]
