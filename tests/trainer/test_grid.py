"""The evolver `grid`: numeric options, the same for the same nights, better after some of them."""

from collections.abc import Sequence

import pytest

from support.experiments import Project
from support.searches import Batches, search_of
from support.trainings import plan_text
from terminalbench.errors import InvalidFile
from terminalbench.trainer.evolvers.grid import GridEvolver
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.journal import CandidateResult, NightEntry, PairMeasurement, TrainingState
from terminalbench.trainer.plan import TrainingPlan, load_plan

PLAN = plan_text('[evolver]\nname = "grid"\ncandidates = 3\n', profile="options = { steps_mean = 30 }\n")
RANGES = "ranges = { steps_mean = { low = 1, high = 400, whole = true } }"


@pytest.fixture
def plan(project: Project) -> TrainingPlan:
    return load_plan(project.write("plan.toml", PLAN + RANGES))


def searching(plan: TrainingPlan, before: Sequence[NightEntry] = ()) -> Search:
    search = search_of(plan, Batches(plan, lambda *_: False), night=len(before) + 1)
    search.before = before
    search.collect(GridEvolver())
    return search


def steps(search: Search, profile: str) -> int:
    return search.lineage.variants[profile].table["options"]["steps_mean"]


def night(search: Search) -> NightEntry:
    """What came of a night where fewer steps are better, and the champion passes a quarter."""
    told = [
        CandidateResult(id=one, rounds=1, passed=100 - steps(search, one) // 4, measured=100) for one in search.taken
    ]
    champion = CandidateResult(id=search.champion, rounds=1, passed=25, measured=100)
    return NightEntry(
        night=search.night,
        time="2026-01-01T00:00:00Z",
        after=TrainingState(champion=search.champion, allowed=1),
        control=PairMeasurement(batch="mine/1", new=search.champion, old="x"),
        explored=(*told, champion),
    )


def test_values_are_in_their_range_new_and_the_same_when_a_night_runs_again(plan: TrainingPlan) -> None:
    first = searching(plan)
    assert len(first.taken) == 3
    assert all(1 <= steps(first, one) <= 400 and steps(first, one) != 30 for one in first.taken)
    assert searching(plan).taken == first.taken
    second = searching(plan, [night(first)])
    assert not first.taken.keys() & second.taken.keys()
    assert searching(plan, [night(first)]).taken == second.taken


def test_later_nights_go_where_earlier_ones_were_better(plan: TrainingPlan) -> None:
    before: list[NightEntry] = []
    for _ in range(6):
        before.append(night(searching(plan, before)))
    last = searching(plan, before)
    early = [steps(last, one.id) for entry in before[:2] for one in entry.explored[:-1]]
    late = [steps(last, one.id) for entry in before[3:] for one in entry.explored[:-1]]
    assert sum(late) / len(late) < 0.75 * sum(early) / len(early)
    assert last.refused == []


def test_a_few_values_are_each_tried_once_and_then_nothing_is_left(project: Project) -> None:
    few = "ranges = { steps_mean = { low = 10, high = 30, step = 10, whole = true } }"
    plan = load_plan(project.write("plan.toml", PLAN + few))
    first = searching(plan)
    assert sorted(steps(first, one) for one in first.taken) == [10, 20]  # 30 is the champion's
    assert searching(plan, [night(first)]).taken == {}


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ("", "evolver.ranges: must name an option for the evolver grid"),
        ("ranges = { steps_mean = { low = 5, high = 5 } }", "ranges.steps_mean: low 5 is not below high 5"),
        ("ranges = { steps_mean = { low = 0, high = 5, log = true } }", "log needs a low above 0 and no step"),
        ("ranges = { steps_mean = { low = 0.5, high = 5, whole = true } }", "whole, but low, high or step is not"),
    ],
)
def test_a_mistake_in_a_range_is_said_at_its_place(project: Project, ranges: str, said: str) -> None:
    with pytest.raises(InvalidFile, match=said):
        load_plan(project.write("plan.toml", PLAN + ranges))
