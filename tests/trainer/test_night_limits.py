"""A training within a night: its money and its time end it at a good point, and everything that it pays is counted."""

import json
from pathlib import Path

import pytest

from conftest import REPO
from support.experiments import Project
from support.scripted_trials import Killed, script_trials
from support.searches import Batches, search_of
from support.trainings import plan_text
from terminalbench import campaign as limits
from terminalbench.errors import EXIT_INCOMPLETE, InvalidFile
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.limits.gate import change_shared, read_shared, share_gate
from terminalbench.json_files import read_json
from terminalbench.lab.run import FinishedRun
from terminalbench.llm.model import Message, Schema
from terminalbench.trainer.batches import NightLimits, TrainingStopped
from terminalbench.trainer.evolvers.reflect import SearchModel
from terminalbench.trainer.journal import read_nights
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import run_training
from terminalbench.trainer.tables import BudgetTable, EvolverTable, agent_usd, search_usd

QUICK = "experiments/training-quickstart.toml"
PLAN = plan_text("usd = 2.0\n[evolver]\n")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    place = tmp_path / "night/gate.json"
    place.parent.mkdir()
    share_gate(place, 1.0, called="night")
    return place


def test_a_deadline_ends_a_training_between_two_batches_and_a_resume_decides_the_same(
    project: Project, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(QUICK, (REPO / QUICK).read_text())
    trials = script_trials(
        monkeypatch, project.root, "training-quickstart", lambda text: 0.9 if "Check" in text else 0.1
    )

    def passed_meanwhile(file: Path, **more: object) -> FinishedRun:
        assert more["gate"] == gate
        ended = trials.run(file)
        change_shared(gate, None, read_shared(gate).clock.now() - 1)
        return ended

    monkeypatch.setattr("terminalbench.trainer.batches.run", passed_meanwhile)
    plan = load_plan(project.root / QUICK)
    with pytest.raises(TrainingStopped, match=r"the deadline of the night has passed") as stopped:
        run_training(plan, limits=NightLimits(gate))
    assert stopped.value.exit_code == EXIT_INCOMPLETE
    assert read_nights(plan.folder) == []
    paid = trials.paid.copy()
    assert {batch for batch, *_ in paid} == {"training-quickstart/0"}  # the one that ran was finished, no other begun

    change_shared(gate, None, None)
    monkeypatch.setattr("terminalbench.trainer.batches.run", trials.run)
    run_training(plan, limits=NightLimits(gate), resume=True)
    assert set(trials.paid.values()) == {1}
    assert trials.paid.items() >= paid.items()
    assert len(read_nights(plan.folder)) == 4


def test_a_batch_that_was_begun_in_another_night_keeps_to_the_limits_of_this_one(
    project: Project, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(QUICK, (REPO / QUICK).read_text())
    trials = script_trials(monkeypatch, project.root, "training-quickstart", lambda _: 0.5)
    trials.moments.kill = ("in a batch", 1)
    plan, batch = load_plan(project.root / QUICK), Batch(project.root / "results/training-quickstart/0")
    with pytest.raises(Killed):
        run_training(plan, nights=1)
    assert read_json(batch.plan_json, Plan).gate is None
    trials.moments.kill = ("in a batch", 2)
    with pytest.raises(Killed):
        run_training(plan, nights=1, limits=NightLimits(gate))
    assert read_json(batch.plan_json, Plan).gate == str(gate)
    run_training(plan, nights=1)
    assert read_json(batch.plan_json, Plan).gate is None


def asking(project: Project, gate: Path, *costs: float | None) -> SearchModel:
    lines = [
        {"contains": [f"question {number}"], "text": "{}", **({"usage": {"cost_usd": usd}} if usd is not None else {})}
        for number, usd in enumerate(costs, start=1)
    ]
    project.write("answers.jsonl", "".join(json.dumps(one) + "\n" for one in lines))
    plan = project.write("plan.toml", f'{PLAN}name = "reflect"\nmodel = "replay:{project.root}/answers.jsonl"\n')
    search = search_of(load_plan(plan), Batches(load_plan(plan), lambda *_: False))
    search.limits = NightLimits(gate)
    return SearchModel.of(search)


def test_what_the_model_charges_is_the_nights_money_and_counts_once(project: Project, gate: Path) -> None:
    asked = asking(project, gate, 0.3, 0.5, 0.1)
    schema = Schema("any", {"type": "object"}, lambda found: found)
    asked.ask([Message("user", "question 1")], schema)
    assert limits.standing(gate).spent_usd == pytest.approx(0.3)
    again = SearchModel.of(asked.search)  # killed and run again: the same answers, paid once
    again.ask([Message("user", "question 1")], schema)
    assert limits.standing(gate).spent_usd == pytest.approx(0.3)
    again.ask([Message("user", "question 2")], schema)
    assert NightLimits(gate).left_usd == pytest.approx(0.2)
    with pytest.raises(TrainingStopped, match=r"one question can cost \$0.50, and \$0.20 are left"):
        again.ask([Message("user", "question 3")], schema)
    assert NightLimits(gate).spent(project.root / "results/mine").cost_usd == pytest.approx(0.8)
    change_shared(gate, 2.0, None)
    again.ask([Message("user", "question 3")], schema)
    assert limits.standing(gate).spent_usd == pytest.approx(0.9)


def test_a_model_of_unknown_price_is_not_free_for_the_night(project: Project, gate: Path) -> None:
    asked = asking(project, gate, None)
    asked.ask([Message("user", "question 1")], Schema("any", {"type": "object"}, lambda found: found))
    assert limits.standing(gate).unknown == 1
    found = NightLimits(gate).spent(project.root / "results/mine")
    assert (found.cost_usd, found.cost_unknown) == (None, 1)


AGENT = EvolverTable(name="agent", profile={"agent": "claude-code"})


@pytest.mark.parametrize(
    ("usd", "evolver", "edit", "search"),
    [
        (None, AGENT, None, None),
        (2.0, AGENT, 0.2, 1.3),  # a tenth of the night, and the search has so much less
        (2.0, EvolverTable(name="agent", profile={}, usd=0.5), 0.5, 1.0),
        (None, EvolverTable(name="agent", profile={}, usd=0.5), 0.5, None),
        (2.0, EvolverTable(name="reflect", model="m", usd=0.5), None, 1.5),  # a chat model is no batch
    ],
)
def test_an_agent_that_edits_has_its_share_of_the_searchs_money(
    usd: float | None, evolver: EvolverTable, edit: float | None, search: float | None
) -> None:
    budget = BudgetTable(trials=60, usd=usd)
    assert agent_usd(budget, evolver) == (None if edit is None else pytest.approx(edit))
    assert search_usd(budget, evolver, watching=True) == (None if search is None else pytest.approx(search))


def test_an_edit_for_all_of_the_searchs_money_is_refused(project: Project) -> None:
    file = project.write("plan.toml", f'{PLAN}name = "agent"\nusd = 1.5\nprofile = {{ agent = "simulated" }}\n')
    with pytest.raises(InvalidFile, match=r"evolver.usd: leaves nothing for trials of the \$1.50 for the search"):
        load_plan(file)
