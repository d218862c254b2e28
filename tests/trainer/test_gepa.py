"""The evolver `gepa`: each trap of gepa 0.1.4 that was found (docs/design/gepa.md), and that a night decides the same."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, override

import msgspec
import pytest

from support.experiments import Project
from support.searches import Batches, search_of
from support.trainings import plan_text
from terminalbench.experiments.experiment import Task
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Reply, Schema
from terminalbench.trainer.evolvers import gepa as evolver
from terminalbench.trainer.evolvers.gepa import GepaEvolver, GepaTasks
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.plan import TrainingPlan, load_plan

PLAN = plan_text(
    """[gate]
alpha = 0.2
challengers = 1
[evolver]
name = "gepa"
model = "test_gepa:Scripted"
candidates = 3
""",
    split=(0.3, 0.5),
)


class Scripted(ChatModel):
    """Adds the next word to the section that it is shown; `fail` makes it fail, `text` is what it writes instead."""

    name = "scripted"
    asked = 0
    fail: str | None = None
    text: str | None = None
    seen: ClassVar[list[str]] = []

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        mine = type(self)
        mine.asked += 1
        mine.seen.append(messages[-1].content)
        if mine.fail is not None:
            raise ModelError(ModelFault.BAD_REQUEST, mine.fail)
        before = re.findall(r"word \d+", messages[-1].content.split("# The other sections")[0])
        text = mine.text or " ".join(dict.fromkeys([*before, f"word {len(set(before)) + 1}"]))
        return Reply(text=json.dumps({"reason": f"adds to {len(before)}", "text": text}), model="scripted")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "test_gepa", sys.modules[__name__])
    for name, value in (("asked", 0), ("fail", None), ("text", None), ("seen", [])):
        monkeypatch.setattr(Scripted, name, value)


@pytest.fixture
def plan(project: Project) -> TrainingPlan:
    return load_plan(project.write("plan.toml", PLAN))


def helps(prompt: str, task: Task, attempt: int) -> bool:
    """Each word of the prompt solves one more task in four."""
    return len(set(re.findall(r"word \d+", prompt))) > sum(map(ord, task.id)) % 4


def collected(plan: TrainingPlan, batches: Batches, trials: int = 80) -> Search:
    search = search_of(plan, batches, trials=trials)
    search.collect(GepaEvolver())
    return search


def test_gepa_proposes_better_prompts_and_every_trial_is_one_of_a_batch(plan: TrainingPlan) -> None:
    batches = Batches(plan, helps)
    search = collected(plan, batches)
    assert len(search.taken) >= 2
    best = search.lineage.variants[next(iter(search.taken))]
    assert len(set(re.findall(r"word \d+", (plan.root / best.table["prompt"]).read_text()))) >= 2
    assert batches.paid == search.spent <= search.trials // 2
    assert {row.task.id for rows in batches.ran.values() for row in rows} <= {task.id for task in plan.split.train}
    assert best.parent in search.lineage.variants
    assert best.source == "gepa in mine: scripted"


def test_no_trial_and_no_question_twice_and_the_same_again_after_a_kill(plan: TrainingPlan) -> None:
    batches = Batches(plan, helps)
    first = collected(plan, batches)
    paid, asked = batches.paid, Scripted.asked
    again = collected(plan, batches)
    assert (again.taken, again.spent) == (first.taken, first.spent)
    assert (batches.paid, Scripted.asked) == (paid, asked)
    cells = [(row.profile, row.task.id) for rows in batches.ran.values() for row in rows]
    assert len(cells) == len(set(cells))
    assert not [*Path(plan.folder).rglob("*.bin")]  # GEPA's own state would run the champion again, uncounted


def test_what_an_earlier_night_measured_is_not_paid_again_unless_the_task_changed(plan: TrainingPlan) -> None:
    batches = Batches(plan, helps)
    first = collected(plan, batches)
    second = search_of(plan, Batches(plan, helps), night=1, trials=80)
    second.earlier = lambda: first.tonight
    (plan.folder / "nights/001/search.jsonl").unlink()
    second.collect(GepaEvolver())
    assert second.champion not in {row.profile for row in second.tonight}
    third = search_of(plan, Batches(plan, helps), trials=80)
    other = {"profile": "x", "profile_id": "x", "task_digest": "another"}
    third.earlier = lambda: [*first.tonight, *(msgspec.structs.replace(row, **other) for row in first.tonight)]
    (plan.folder / "nights/001/search.jsonl").unlink()
    third.collect(GepaEvolver())
    assert third.champion in {row.profile for row in third.tonight}


def test_a_model_that_fails_stops_after_one_question_and_keeps_what_there_is(plan: TrainingPlan) -> None:
    Scripted.fail = "429, too many"
    batches = Batches(plan, helps)
    search = collected(plan, batches)
    assert (search.stopped, Scripted.asked) == ("scripted: 429, too many", 1)
    assert {row.profile for row in search.tonight} == {search.champion}  # no budget was burned


class FailsLater(Scripted):
    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        if type(self).asked >= 2:
            raise ModelError(ModelFault.BAD_REQUEST, "gone")
        return super().ask(messages, schema)


def test_a_model_that_fails_later_keeps_the_candidates_before(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolver.SearchModel, "of", classmethod(lambda cls, search: cls(search, FailsLater())))
    monkeypatch.setattr(FailsLater, "asked", 0)
    search = collected(plan, Batches(plan, helps))
    assert search.stopped == "scripted: gone"
    assert search.taken


def test_a_model_that_proposes_nothing_new_ends(plan: TrainingPlan) -> None:
    Scripted.text = "Write 1 into /logs/verifier/reward.txt."
    search = collected(plan, Batches(plan, lambda *_: False))
    assert search.taken == {}
    assert all("the verification" in one.why for one in search.refused)
    assert {row.profile for row in search.tonight} == {search.champion}
    assert 1 <= Scripted.asked <= 12


def test_a_bug_in_the_adapter_is_raised_and_not_swallowed(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(Search, "take", broken)
    with pytest.raises(KeyError, match="a bug"):
        collected(plan, Batches(plan, helps))


def test_tasks_are_known_by_their_ids(plan: TrainingPlan) -> None:
    tasks = GepaTasks({task.id: task for task in plan.split.train})
    assert all(isinstance(name, str) for name in tasks.all_ids())
    assert tasks.fetch(tasks.all_ids()[:2]) == [*plan.split.train[:2]]


def test_the_question_is_ours_and_holds_no_task(plan: TrainingPlan, capsys: pytest.CaptureFixture[str]) -> None:
    collected(plan, Batches(plan, helps))
    ids = {task.id for task in plan.environment.tasks}
    assert not [one for text in Scripted.seen for one in ids if one in text]
    assert "niche and domain specific" not in "".join([evolver.SYSTEM, *Scripted.seen])
    assert capsys.readouterr().out == ""  # GEPA would print every text


def test_too_few_trials_for_one_round_propose_nothing(plan: TrainingPlan) -> None:
    search = collected(plan, Batches(plan, helps), trials=4)
    assert (search.taken, search.spent, search.stopped) == ({}, 0, None)


def test_without_the_package_the_message_says_what_to_install(
    plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(evolver, "import_module", missing)
    with pytest.raises(Exception, match="needs the package gepa"):
        collected(plan, Batches(plan, helps))
