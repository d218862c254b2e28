"""The search of a night: what an evolver may do, and that a night that runs again decides the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.experiments import Project
from support.searches import Batches, search_of
from support.trainings import plan_text
from terminalbench.errors import TbenchError, UserError
from terminalbench.trainer.evolvers.grid import ListedEvolver
from terminalbench.trainer.evolvers.search import Proposal, Search, SearchStopped
from terminalbench.trainer.plan import TrainingPlan, load_plan
from terminalbench.trainer.variants import Change

PLAN = plan_text(
    """[evolver]
candidates = 2
[[variants]]
reason = "one"
sections = { "A" = "a" }
[[variants]]
reason = "two"
sections = { "B" = "b" }
[[variants]]
reason = "three"
sections = { "C" = "c" }
"""
)


@pytest.fixture
def plan(project: Project) -> TrainingPlan:
    return load_plan(project.write("plan.toml", PLAN))


def nothing(*_: object) -> bool:
    return False


def section(title: str, text: str = "text") -> Proposal:
    return Proposal(Change(reason=title, sections={title: text}))


def test_listed_proposes_what_is_new_so_many_a_night(plan: TrainingPlan) -> None:
    search = search_of(plan, Batches(plan, nothing))
    first = search.collect(ListedEvolver())
    assert [*first.values()] == ["one", "two"]
    later = search_of(plan, Batches(plan, nothing), night=2)
    later.known = frozenset(first)
    assert [*later.collect(ListedEvolver()).values()] == ["three"]
    assert later.refused == []
    variant = search.lineage.variants[next(iter(first))]
    assert (variant.parent, variant.source) == (search.champion, "listed in mine")


class Failing:
    def propose(self, search: Search) -> Iterator[Proposal]:
        yield section("kept")
        raise SearchStopped("the model does not answer")


def test_a_search_that_stops_keeps_what_it_has_and_says_why(plan: TrainingPlan) -> None:
    search = search_of(plan, Batches(plan, nothing))
    assert [*search.collect(Failing()).values()] == ["kept"]
    assert search.stopped == "the model does not answer"


class Odd:
    """Proposes what cannot be taken, and then what can."""

    def propose(self, search: Search) -> Iterator[Proposal]:
        yield Proposal(Change(reason="nothing"))
        yield Proposal(Change(reason="no such option", options={"colour": 1}))
        yield section("too long", "x" * 9000)
        yield section("good")
        yield section("good")


def test_proposals_that_cannot_be_made_are_refused_with_reasons(plan: TrainingPlan) -> None:
    search = search_of(plan, Batches(plan, nothing))
    assert [*search.collect(Odd()).values()] == ["good"]
    assert [one.reason for one in search.refused] == ["nothing", "no such option", "too long"]
    assert "changes nothing" in search.refused[0].why
    assert "colour" in search.refused[1].why


class Measuring:
    """Measures what it proposes on its own, and asks something that comes out otherwise each time."""

    asked = 0

    def propose(self, search: Search) -> Iterator[Proposal]:
        type(self).asked += 1
        title = search.once("title", str, lambda: f"title {type(self).asked}")
        one = section(title)
        profile = search.take(one)
        assert profile is not None
        rows = search.measure([profile, search.champion], search.train[:2], attempts=2)
        assert len(rows) == 8
        yield one


def test_an_evolver_measures_by_ordinary_batches_and_a_resume_proposes_the_same(plan: TrainingPlan) -> None:
    batches = Batches(plan, nothing)
    first = search_of(plan, batches).collect(Measuring())
    again = search_of(plan, batches)  # as after a kill: a new process, the batches and the night's file are there
    assert again.collect(Measuring()) == first
    assert (batches.paid, again.spent, again.left) == (8, 8, 32)
    assert [*first.values()] == ["title 1"]
    assert [*search_of(plan, Batches(plan, nothing), night=2).collect(Measuring()).values()] == ["title 3"]


def test_an_evolver_that_proposes_otherwise_is_found_out(plan: TrainingPlan) -> None:
    batches = Batches(plan, nothing)
    search_of(plan, batches).collect(Measuring())
    (Path(plan.folder) / "nights/001/search.jsonl").unlink()
    with pytest.raises(TbenchError, match="other profiles than the search now asks for"):
        search_of(plan, batches).collect(Measuring())


def test_a_search_measures_on_train_only_and_within_its_trials(plan: TrainingPlan) -> None:
    search = search_of(plan, Batches(plan, nothing), trials=3)
    with pytest.raises(UserError, match="are not train tasks"):
        search.measure([search.champion], plan.split.dev)
    with pytest.raises(SearchStopped, match="4 trials are needed, 3 are left"):
        search.measure([search.champion], search.train[:2], attempts=2)
    assert search.spent == 0


def test_what_was_explored_before_is_not_tried_again(plan: TrainingPlan) -> None:
    search = search_of(plan, Batches(plan, nothing))
    taken = search.take(section("old"))
    assert taken is not None
    search.known = frozenset({taken})
    assert search.take(section("old")) is None
    assert "tried before" in search.refused[0].why
