"""The analyzer and the evolver `reflect`: from failed trials to one proposal, with a scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.experiments import Project
from support.judging import STEPS, write_trial
from support.reflecting import batch_of
from support.searches import Batches, search_of
from support.trainings import plan_text
from terminalbench.archivist.attempts import EvidenceTrial
from terminalbench.archivist.obstacles import GUARD_RULES
from terminalbench.errors import InvalidFile
from terminalbench.records.trial import Outcome
from terminalbench.trainer.evolvers.reflect import ReflectEvolver, question
from terminalbench.trainer.evolvers.search import Search, clusters
from terminalbench.trainer.plan import load_plan
from terminalbench.workflow.trace import TraceEventKind, TraceFolder

PLAN = plan_text('[evolver]\nname = "reflect"\n', profile='prompt = "prompt.md"\n')
GOOD = {"reason": "It never looks again.", "sections": [{"title": "End", "text": "Look again."}], "clusters": ["C1"]}


def searching(project: Project, *answers: dict[str, Any], more: str = "", night: int = 1) -> Search:
    """A night whose champion fails at two tasks, and a model that answers this."""
    project.write("prompt.md", "Be good.\n\n## Start\n\nRead.\n")
    if answers:
        lines = [json.dumps({"contains": ["How attempts failed"], **answer}) for answer in answers]
        project.write("replay.jsonl", "\n".join(lines) + "\n")
        more = f'model = "replay:{project.root}/replay.jsonl"\n{more}'
    plan = load_plan(project.write("plan.toml", PLAN + more))
    champion = plan.start.profile.id
    batch = batch_of(project.root, {"a__1": STEPS, "a__2": STEPS, "b__1": STEPS}, champion)
    search = search_of(plan, Batches(plan, lambda *_: False, f"s/{batch.number}"), night=night)
    search.results = project.root / "results"
    return search


def said(answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"text": json.dumps(answer), **more}


def test_clusters_of_most_tasks_come_first_with_trials_and_advice(tmp_path: Path) -> None:
    made = []
    for number, (name, steps) in enumerate([("a", STEPS), ("a", STEPS), ("b", STEPS), ("c", STEPS[:1]), ("d", STEPS)]):
        outcome = Outcome.PASSED if name == "d" else Outcome.FAILED
        trial = write_trial(tmp_path, f"{name}__{number}", steps=steps, outcome=outcome)
        made.append(EvidenceTrial(trial, f"s/1/{trial.key}"))
    sink = TraceFolder(made[4].trial.files.folder)
    sink.write(TraceEventKind.RUN_START, workflow="w")
    for number in (1, 2):
        sink.write(TraceEventKind.ATTEMPT, step="patch", cycle=1, attempt=number, artifact="a" * 64)
        sink.write(TraceEventKind.GUARD, step="patch", guard="patch", passed=False, feedback="no", signature="s")
    first, *others = clusters(made)
    assert (first.trials, first.tasks) == (tuple(one.name for one in made[:3]), 2)
    assert {one.what: one.advice for one in others}["guard:patch"] == GUARD_RULES["patch"].text
    assert {one.what for one in others} == {"guard:patch", "never_acted"}


def test_one_proposal_with_evidence_from_a_model(project: Project) -> None:
    search = searching(project, said(GOOD, usage={"cost_usd": 0.25}))
    (profile,) = search.collect(ReflectEvolver())
    variant = search.lineage.variants[profile]
    assert variant.reason == "It never looks again."
    assert variant.source.startswith("reflect in mine: replay:")
    assert {one.split("/")[-1] for one in variant.evidence} == {"a__1", "a__2", "b__1"}
    assert (
        project.root / variant.table["prompt"]
    ).read_text() == "Be good.\n\n## Start\n\nRead.\n\n## End\n\nLook again.\n"
    assert search.asked is not None
    assert (search.asked.questions, search.asked.cost_usd, search.asked.cost_unknown) == (1, 0.25, 0)
    assert (
        search.spent == search.trials // 3 // len(search.train) * len(search.train)
        or search.spent <= search.trials // 3
    )


def test_the_model_is_asked_once_in_a_night(project: Project) -> None:
    first = searching(project, said(GOOD)).collect(ReflectEvolver())
    other = {**GOOD, "sections": [{"title": "End", "text": "Something else."}]}
    again = searching(project, said(other))
    again.run = searching(project, said(other)).run
    assert again.collect(ReflectEvolver()) == first
    assert searching(project, said(other), night=2).collect(ReflectEvolver()) != first


def test_a_question_whose_asker_was_killed_is_counted_with_an_unknown_cost(project: Project) -> None:
    search = searching(project, said(GOOD, usage={"cost_usd": 0.25}))
    search.collect(ReflectEvolver())
    log = search.folder / "search.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])  # it was begun, and nothing came
    again = searching(project, said(GOOD, usage={"cost_usd": 0.25}))
    again.collect(ReflectEvolver())
    assert again.asked is not None
    assert (again.asked.questions, again.asked.cost_usd, again.asked.cost_unknown) == (2, 0.25, 1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"error": "429, too many"}, "429, too many"),
        (said({"reason": "x", "sections": []}), "did not have the required form twice"),
        ({"text": "I would rather not."}, "did not have the required form twice"),
    ],
)
def test_a_model_that_fails_ends_the_search_with_the_reason(project: Project, answer: dict[str, Any], why: str) -> None:
    search = searching(project, answer)
    assert search.collect(ReflectEvolver()) == {}
    assert search.stopped is not None
    assert why in search.stopped
    again = searching(project, said(GOOD))  # it answers now; this night has had its answer
    assert (again.collect(ReflectEvolver()), again.stopped) == ({}, search.stopped)


def test_what_a_model_may_be_paid_is_kept_to(project: Project) -> None:
    search = searching(project, said({"reason": ""}, usage={"cost_usd": 0.9}), more="usd = 1.0")
    search.collect(ReflectEvolver())
    assert search.stopped is not None
    assert "the budget allows no second try" in search.stopped
    assert search.asked is not None
    assert search.asked.cost_usd == 0.9


def test_without_a_model_the_advice_of_rules_is_proposed(project: Project) -> None:
    search = searching(project)
    (profile,) = search.collect(ReflectEvolver())
    advice = next(one.advice for one in clusters(search.attempts()) if one.advice)
    text = (project.root / search.lineage.variants[profile].table["prompt"]).read_text()
    assert text.endswith(f"## Habits\n\n{advice}\n")
    assert search.asked is None


def test_the_question_holds_sections_clusters_and_what_was_tried_but_no_task(project: Project) -> None:
    search = searching(project, said(GOOD))
    search.measure([search.champion], search.train[:1])
    text = question(search, clusters(search.attempts()))
    assert "### Start\nRead." in text
    assert "C1: " in text
    assert "3 attempts at 2 tasks" in text
    assert "a__1" not in text
    assert "(nothing yet)" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("usd = 1.0", "evolver.usd: is the budget of a model, but no model is named"),
        (
            '[[variants]]\nreason = "x"\noptions = { steps_mean = 9 }',
            "variants: the evolver reflect does not use them",
        ),
    ],
)
def test_keys_that_the_evolver_does_not_read_are_refused(project: Project, more: str, said: str) -> None:
    with pytest.raises(InvalidFile, match=said):
        searching(project, more=more)
