"""A batch that grew without declared looks: what its plan remembers, and the stages a comparison counts."""

from pathlib import Path

import msgspec

from support.results import make_plan
from terminalbench.analytics.settings import RecordedExtent, settings_of
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.departures import EarlierExtent, GrownFrom
from terminalbench.experiments.plan import BatchDeclaration, Plan
from terminalbench.experiments.tables import AnalysisTable
from terminalbench.index.queries import BatchView
from terminalbench.runner.growth import extended, with_attempts


def grown(root: Path, *attempts: int) -> tuple[str, Plan]:
    batch = allocate(root, "s")
    plan = make_plan(batch, ("a", "b"), "xyz", 1)
    plan = msgspec.structs.replace(plan, declared=BatchDeclaration(("d/x", "d/y", "d/z"), ("a", "b"), 1))
    for more in attempts:
        plan = with_attempts(plan, more, "here")
    return f"s/{plan.batch}", plan


def test_a_plan_remembers_each_time_it_grew(tmp_path: Path) -> None:
    _, plan = grown(tmp_path, 3, 3, 5)
    assert (plan.grown_from, plan.grown()) == ((1, 3), (EarlierExtent(1), EarlierExtent(3)))
    assert grown(tmp_path)[1].grown() == ()
    before = msgspec.structs.replace(plan, grown_from=())
    assert [one.attempts for one in before.grown()] == [1, 2, 3, 4], (
        "an earlier version did not say: it may have been looked at each time"
    )


def test_added_tasks_are_growth_too(tmp_path: Path) -> None:
    name, plan = grown(tmp_path, 2)
    more = make_plan(allocate(tmp_path, "s"), ("a", "b"), "wxyz", 2)
    more = msgspec.structs.replace(more, declared=plan.declared)
    plan = with_attempts(extended(plan, more, "here"), 3, "here")
    assert plan.grown_from == (1, GrownFrom(2, ("d/w",)), 2)
    added = frozenset({"d/w"})
    assert plan.grown() == (EarlierExtent(1, added), EarlierExtent(2, added), EarlierExtent(2))
    stages = settings_of([BatchView(name, plan, [], [])]).growth
    assert stages == (
        (RecordedExtent(name, 1, added),),
        (RecordedExtent(name, 2, added),),
        (RecordedExtent(name, 2),),
        (RecordedExtent(name),),
    )
    before = msgspec.structs.replace(plan, grown_from=(1, 2))
    assert before.grown() == (EarlierExtent(1, added), EarlierExtent(2, added), EarlierExtent(3, added)), (
        "an earlier version did not say"
    )
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_each_time_is_a_stage_unless_looks_were_declared(tmp_path: Path) -> None:
    name, plan = grown(tmp_path, 3, 5)
    view = BatchView(name, plan, [], [])
    assert settings_of([view]).growth == (
        (RecordedExtent(name, 1),),
        (RecordedExtent(name, 3),),
        (RecordedExtent(name),),
    )
    for declared in (AnalysisTable(looks=3), AnalysisTable(looks="any"), AnalysisTable(planned_trials=15)):
        looked = BatchView(name, msgspec.structs.replace(plan, analysis=declared), [], [])
        assert settings_of([looked]).growth == ()
