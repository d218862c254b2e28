"""Nights that learn: what is written after an iteration, counted once, within its budget, and told in the morning."""

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from support.experiments import BASE, good
from support.judging import USAGE, call, say
from support.lessons import contents
from support.nights import Night, make_night
from terminalbench.archivist.entries import MemoryEntry
from terminalbench.archivist.store import MemoryFolder
from terminalbench.campaign import standing
from terminalbench.errors import UserError
from terminalbench.harbor.limits.accounts import Account
from terminalbench.harbor.limits.gate import change_account, change_shared, share_gate
from terminalbench.json_files import read_jsonl
from terminalbench.overnight.begin import NightRequest, go_on
from terminalbench.overnight.iteration_files import (
    labelled,
    night_lessons,
    profiles_by_lessons,
    project_delta,
    with_lessons,
)
from terminalbench.overnight.lessons import learn_from, memory_of
from terminalbench.overnight.lessons_report import Reflection, read_reflection
from terminalbench.overnight.morning import render_markdown
from terminalbench.overnight.morning_page import render_html
from terminalbench.overnight.night import NightLessons, Role
from terminalbench.overnight.summary import project_one, summarise
from terminalbench.records.lesson import Lesson, LessonState, Utility

LOOP = [say(1, "Do it.", "user"), *(call(n, "Bash", {"command": "make"}, "error", exit_code=2) for n in range(2, 14))]
SAID: dict[str, Any] = {
    "do": "Read the whole message of a build before the next try.",
    "evidence": [{"attempt": "A1", "step": 2, "quote": "I do step 2 now."}],
}


def night(folder: Path, *rounds: dict[str, str], **lessons: Any) -> Night:
    """A night that learns, with these iterations of profile p; all that failed went round in circles."""
    made = make_night(folder / "night", [{"p": one} for one in rounds], lessons=NightLessons("masked", **lessons))
    share_gate(made.folder.gate_json)
    for file in made.folder.results_root.glob("night/*/runs/*/*/result.json"):
        (file.parent / "agent").mkdir()
        document = {"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "1"}, "steps": LOOP}
        (file.parent / "agent" / "trajectory.json").write_text(json.dumps(document))
    return made


def learn(made: Night, number: int = 1) -> Reflection:
    """As the worker on an iteration does at its end."""
    batch = labelled(made.folder, made.config.run_id)[Role.ITERATION, number]
    projected = project_delta(made.folder, made.config, project_one(made.folder, made.config, number))
    found = learn_from(made.folder, made.config, projected, batch)
    assert found is not None
    return found


def entries(made: Night) -> list[MemoryEntry]:
    return read_jsonl(MemoryFolder(memory_of(made.config)).log, MemoryEntry).records


def reflector(folder: Path, **fields: Any) -> str:
    file = folder / "replay.jsonl"
    line = {"contains": ["Attempt A1"], "text": json.dumps({"lessons": [SAID]}), "usage": USAGE, **fields}
    file.write_text(json.dumps(line) + "\n")
    return f"replay:{file}"


def test_an_iteration_is_learned_from_once_also_when_it_is_killed_before_it_has_said_so(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x", "b": "x"})
    found = learn(made)
    assert (found.trigger, len(found.held), found.asked) == ("batch", 1, False)
    (added,) = entries(made)
    assert (added.op, added.id, added.trigger) == ("add", found.held[0], "batch")
    assert learn(made) == found
    assert len(entries(made)) == 1


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_between_the_log_and_its_own_file_it_is_not_learned_from_again(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x", "b": "x"})
    killed_at(made, "terminalbench.overnight.lessons.write_json")
    assert read_reflection(made.folder, 1) is None
    (added,) = entries(made)
    found = learn(made)
    assert (found.trigger, found.held) == ("batch", [added.id])
    assert entries(made) == [added]
    assert contents(memory_of(made.config)) == contents(memory_of(made.config), rebuilt=True)


def test_the_first_success_after_failures_is_why_the_third_iteration_is_looked_at(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x", "b": "x"}, {"a": "x", "b": "x"}, {"a": "+", "b": "x"})
    for number in (1, 2, 3):
        learn(made, number)
    last = read_reflection(made.folder, 3)
    assert last is not None
    assert (last.trigger, last.why) == ("first_success", "failed before and passed now: a")


def test_what_a_model_charges_is_counted_by_the_gate_of_the_night(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, {"a": "x"}, model=reflector(tmp_path), budget_usd=0.015)
    change_shared(made.folder.gate_json, 5.0, None)
    first = learn(made, 1)
    assert (first.asked, first.cost_usd, first.stopped) == (True, 0.01, None)
    assert standing(made.folder.gate_json).spent_usd == pytest.approx(0.01)
    second = learn(made, 2)  # no price says what it costs: as much as the first
    assert (second.asked, second.stopped) == (False, "one question can cost $0.01, and $0.005 are left")
    assert standing(made.folder.gate_json).spent_usd == pytest.approx(0.01)
    third = night(tmp_path / "other", {"a": "x"}, {"a": "x"}, model=reflector(tmp_path), budget_usd=0.01)
    learn(third, 1)
    assert learn(third, 2).stopped == "the budget for reflection is spent"


def test_a_night_that_has_spent_its_budget_asks_no_model(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, model=reflector(tmp_path))
    change_shared(made.folder.gate_json, 0.0, None)
    found = learn(made)
    assert not found.asked
    assert "is used up" in (found.stopped or "")
    assert entries(made) == []


def killed_at(made: Night, place: str) -> None:
    """As a worker that is killed (SIGKILL) where it would do that."""
    pid = os.fork()
    if pid == 0:
        with mock.patch(place, die):
            learn(made)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_a_question_that_was_killed_is_of_unknown_cost_and_asked_again(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, model=reflector(tmp_path))
    killed_at(made, "terminalbench.llm.replay.ReplayModel.ask")
    assert learn(made).asked
    now = standing(made.folder.gate_json)
    assert (now.unknown, now.spent_usd) == (1, 0.01)


@pytest.mark.parametrize("place", ["reflection.check", "reflection.add_from_episode", "store.append_lines"])
def test_an_answer_that_came_is_paid_once_also_where_nothing_was_made_of_it(tmp_path: Path, place: str) -> None:
    made = night(tmp_path, {"a": "x"}, model=reflector(tmp_path), budget_usd=0.015)
    killed_at(made, f"terminalbench.archivist.{place}")
    assert entries(made) == []
    with mock.patch("terminalbench.llm.replay.ReplayModel.ask", side_effect=AssertionError("asked again")):
        found = learn(made)
    assert (found.asked, found.cost_usd, len(found.held), found.stopped) == (True, 0.01, 1, None)
    now = standing(made.folder.gate_json)
    assert (now.unknown, now.spent_usd) == (0, 0.01)
    assert len(entries(made)) == 1


def test_a_worker_that_was_killed_before_it_asked_owes_nothing(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, model=reflector(tmp_path), budget_usd=0.015)
    batch = next(made.folder.results_root.glob("night/*")).name
    payer = str(made.folder.folder / "reflection")
    change_account(made.folder.gate_json, payer, lambda _: Account().entered(batch, 0.0))
    assert learn(made).asked
    assert (standing(made.folder.gate_json).unknown, standing(made.folder.gate_json).spent_usd) == (0, 0.01)


def test_within_a_budget_a_question_of_unknown_price_is_asked_once_until_it_says_what_it_costs(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, {"a": "x"}, model=reflector(tmp_path), budget_usd=0.03)
    payer = str(made.folder.folder / "reflection")
    change_account(made.folder.gate_json, payer, lambda _: Account().entered("2", 0.0))  # another worker asks
    assert "the cost of the previous question is unknown" in (learn(made, 1).stopped or "")
    change_account(made.folder.gate_json, payer, lambda one: one.settled("2", 0.02, measured=False, again=False))
    assert learn(made, 2).stopped == "one question can cost $0.02, and $0.01 are left"


def test_an_answer_of_another_form_is_not_repaired_beyond_the_budget(tmp_path: Path) -> None:
    asked = reflector(tmp_path, text="no lessons")
    for cap, cost in ((0.015, 0.01), (0.02, 0.02)):
        made = night(tmp_path / str(cap), {"a": "x"}, model=asked, budget_usd=cap)
        found = learn(made)
        assert (found.asked, found.cost_usd) == (True, cost)
        assert "not have the required form" in (found.stopped or "")


def test_a_model_that_fails_ends_no_iteration_and_is_told(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"}, model=reflector(tmp_path, error="overloaded", text=""))
    assert "overloaded" in (learn(made).stopped or "")
    assert "iteration 1: overloaded" in render_markdown(summarise(made.folder))


def test_the_report_has_one_section_on_lessons_and_only_where_they_were_asked_for(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x", "b": "x"}, model=reflector(tmp_path))
    learn(made)
    summary = summarise(made.folder)
    assert summary.cost_usd == pytest.approx(0.01)
    text = render_markdown(summary)
    assert text.count("<summary>Lessons</summary>") == 1
    assert "- No lesson was eligible for a trial yet, so the gain is unknown." in text
    assert "for $0.01" in text
    assert ">Lessons</h2>" in render_html(summary)
    plain = make_night(tmp_path / "plain", [{"p": {"a": "x"}}])
    assert "Lessons" not in render_markdown(summarise(plain.folder))


def test_a_resume_with_other_lessons_is_refused_by_name(tmp_path: Path) -> None:
    made = night(tmp_path, {"a": "x"})
    now = datetime.now(UTC)
    asked = NightRequest(lessons="recall", reflect_model="ollama:x")
    with pytest.raises(UserError, match="--lessons: the night has masked, not recall") as refused:
        go_on(asked, made.folder, now)
    assert "--reflect-model: the night has None, not ollama:x" in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((None, "ollama:x", None), "--reflect-model needs --lessons"),
        ((None, None, 1.0), "--reflect-budget-usd needs --lessons"),
        (("masked", None, 1.0), "without a model, reflection costs nothing"),
        (("masked", "replay:no-such-file", None), "--reflect-model replay:no-such-file: there are no recorded answers"),
    ],
)
def test_what_cannot_be_learned_with_is_refused_before_the_night(asked: Any, why: str) -> None:
    with pytest.raises(UserError, match=why):
        night_lessons(*asked)


def test_each_profile_that_calls_a_model_has_a_twin_with_lessons(project) -> None:
    project.task("tasks", "a")
    profiles = '[profiles.p]\nagent = "simulated"\n[profiles.o]\nagent = "oracle"\n'
    made = good(project, BASE.replace("[tasks]", '[tasks]\ndefault_dataset = "tasks"') + profiles)
    twins = with_lessons(made, "recall")
    assert [(one.key, one.lessons and one.lessons.mode) for one in twins.profiles] == [
        ("p", None), ("p-lessons", "recall"), ("o", None),
    ]  # fmt: skip
    with pytest.raises(UserError, match="p-lessons sets lessons itself"):
        with_lessons(twins, "masked", but=("p",))


def test_controls_run_less_often_as_lessons_become_known() -> None:
    def lesson(mean: float, sd: float, n: int = 200, state: LessonState = LessonState.ACTIVE) -> Lesson:
        return Lesson(id="l", do="x", state=state, utility=Utility(mean, sd, n, n // 2) if n else None)

    new, proven, plain = lesson(0, 0, 0), lesson(0.2, 0.07), lesson(0.0, 0.05)
    retired = lesson(0, 0, 0, LessonState.RETIRED)
    profiles = ["p", "p-lessons", "q"]

    def controlled(*lessons: Lesson) -> list[int]:
        ran = {number: profiles_by_lessons(profiles, number, lessons) for number in range(1, 7)}
        assert all(found in (profiles, ["p-lessons", "q"]) for found in ran.values())
        return [number for number, found in ran.items() if "p" in found]

    assert controlled(new, new, proven) == [1, 2, 3, 4, 5, 6]
    assert controlled(new, proven) == [1, 3, 5]
    assert controlled(proven, plain) == controlled(proven, retired) == [1, 5], "the active ones count"
    for none in ([], [retired]):
        assert profiles_by_lessons(profiles, 1, none) == ["p", "q"], "without a lesson it is its control once more"
