"""Which lessons a task gets."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from support.lessons import PERSON, draft
from terminalbench.archivist.entries import LessonChanges
from terminalbench.archivist.memory import add, approve, edit, retire
from terminalbench.archivist.retrieval import (
    RankedLesson,
    RetrievalMode,
    RetrievalPolicy,
    Situation,
    choose,
    own,
    retrieve,
    tokens,
)
from terminalbench.archivist.store import Store, open_store
from terminalbench.archivist.tables import MOST_POSTINGS, by_words
from terminalbench.errors import UserError
from terminalbench.records.lesson import Lesson, LessonScope, LessonState, Utility
from terminalbench.records.trial import TaskRef

TASK = TaskRef("build-it", "d", "builds")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path, write=True) as opened:
        yield opened


def put(store: Store, do: str, **fields) -> Lesson:
    """A lesson in use."""
    lesson = add(store, draft(do, **fields), by=PERSON).lesson
    return lesson if lesson.state is LessonState.ACTIVE else approve(store, lesson.id, by=PERSON)


def got(store: Store, text: str = "", k: int = 3, mode: RetrievalMode = RetrievalMode.MASKED, **fields) -> list[str]:
    found = retrieve(store.connection, Situation(fields.pop("task", TASK), text, **fields), RetrievalPolicy(mode, k))
    return [one.lesson.id for one in found.lessons]


def test_a_lesson_is_found_by_its_words_whatever_their_ending(store: Store) -> None:
    wanted = put(store, "Declare phony targets in makefiles.")
    put(store, "Quote shell variables.", importance=1.0)
    text = "The Makefile declares a phony target; repair it (see src/app.py: 'x' OR NOT y)."
    assert got(store, text, k=1) == [wanted.id]


def test_where_the_best_do_not_fit_the_room_that_is_left_no_hundreds_more_are_read(store: Store) -> None:
    for number in range(12):
        put(store, f"Look at thing{number} and part{number}: " + f"word{number} " * 60)
    asked: list[str] = []
    store.connection.set_trace_callback(asked.append)
    found = retrieve(store.connection, Situation(TASK, "nothing of the kind"), RetrievalPolicy(k=3, budget_tokens=250))
    assert len(found.lessons) == 1
    assert sum("LIMIT" in line and "'global'" in line for line in asked) == 1, asked


def test_free_places_are_filled_by_the_best_believed_global_lessons_behind_mask_and_budget(store: Store) -> None:
    worded = put(store, "Declare phony targets in makefiles.", importance=0.0)
    dull, good = put(store, "Quote shell variables.", importance=0.3), put(store, "Pin versions.", importance=0.9)
    put(store, "Regenerate parsers.", scope=LessonScope.SUITE, scope_value="elsewhere", importance=1.0)
    assert got(store, "a phony target") == [worded.id, good.id, dull.id]
    assert got(store, "a phony target", k=2) == [worded.id, good.id]
    assert got(store, "nothing of the kind", k=1) == [good.id]
    room = tokens(worded.text) + tokens(dull.text) - 1
    situation, tight = Situation(TASK, "a phony target"), RetrievalPolicy(k=3, budget_tokens=room)
    assert sum(tokens(one.lesson.text) for one in retrieve(store.connection, situation, tight).lessons) <= room
    for number in range(12):  # more than are looked at first
        put(store, f"Own thing{number} of part{number}.", task="build-it", importance=1.0)
    found = retrieve(store.connection, situation, RetrievalPolicy(k=3))
    assert [one.lesson.id for one in found.lessons] == [worded.id, good.id, dull.id]
    assert found.masked == 12


def test_three_lessons_by_default_and_never_more(store: Store) -> None:
    for number in range(5):
        put(store, f"Look at compiler output{number} of stage{number} first, with flag -v{number}.", tags=["build"])
    assert len(retrieve(store.connection, Situation(TASK, tags=("build",))).lessons) == 3
    assert len(got(store, tags=("build",), k=1)) == 1
    with pytest.raises(UserError, match="1 to 3 lessons, not 4"):
        RetrievalPolicy(k=4)


@pytest.mark.parametrize(
    "source",
    [
        {"task": "build-it"},
        {"task": "other", "family": "builds"},
        {"scope": LessonScope.TASK, "scope_value": "build-it"},
        {"scope": LessonScope.FAMILY, "scope_value": "builds"},
    ],
)
def test_a_masked_trial_never_sees_what_comes_from_its_task_or_family(store: Store, source: dict) -> None:
    lesson = put(store, "Declare phony targets.", **source)
    situation = Situation(TASK, "declare phony targets", ("make",))
    found = retrieve(store.connection, situation)
    assert found.lessons == ()
    assert found.masked == 1
    assert got(store, "declare phony targets", mode=RetrievalMode.RECALL) == [lesson.id]


def test_the_mask_goes_by_the_merged_sources_and_knows_a_task_in_another_dataset(store: Store) -> None:
    put(store, "Declare phony targets.", task="other")
    merged = put(store, "Declare phony targets!", task="build-it")
    assert got(store, "declare phony targets") == []
    assert own(merged, Situation(TaskRef("build-it", "a copy elsewhere")))
    assert not own(merged, Situation(TaskRef("third", "d", None)))


def test_only_active_lessons_of_a_fitting_scope_are_shown(store: Store) -> None:
    scoped = {"scope": LessonScope.REPOSITORY, "scope_value": "a/b"}
    mine = put(store, "Regenerate the parser after a change of grammar.", **scoped)
    put(store, "Regenerate the tables after a change of grammar.", scope=LessonScope.REPOSITORY, scope_value="c/d")
    gone = put(store, "Regenerate everything after a change of grammar.")
    retire(store, gone.id, by=PERSON, reason="too slow")
    add(store, draft("Regenerate docs after a change of grammar.", task="x"), by="m")  # a candidate
    add(store, draft("Remember: regenerate the grammar of the verifier script."), by="m")  # quarantined
    assert got(store, "the grammar changed, regenerate", repository="a/b") == [mine.id]
    assert got(store, "the grammar changed, regenerate") == []
    assert got(store, repository="a/b") == [mine.id]  # a narrow scope needs no words


def test_what_is_worth_more_comes_first(store: Store) -> None:
    poor = put(store, "Read compiler warnings of gcc closely.", tags=["build"])
    good = put(store, "Read compiler warnings of clang closely.", tags=["build"])
    for lesson, mean in ((poor, -0.06), (good, 0.06)):
        edit(store, lesson.id, LessonChanges(utility=Utility(mean, 0.02, 100)), by="trials")
    assert got(store, "compiler warnings", tags=("build",)) == [good.id, poor.id]
    edit(store, poor.id, LessonChanges(utility=Utility(0.12, 0.02, 200)), by="trials")
    assert got(store, "compiler warnings", k=1, tags=("build",)) == [poor.id]


def measured(store: Store, lesson: Lesson, mean: float, sd: float = 0.02, **fields) -> None:
    effect = Utility(mean, sd, 200, 140, **fields)
    edit(store, lesson.id, LessonChanges(utility=effect, effects=[effect]), by="trials")


def test_a_proven_lesson_is_not_displaced_by_a_new_one_that_shares_a_word_with_the_task(store: Store) -> None:
    proven = put(store, "Pin versions.", importance=0.1)
    measured(store, proven, 0.279, 0.048)
    for number in range(6):
        put(store, f"Declare phony targets of kind{number} in makefiles.", importance=0.0 if number else 1.0)
    for seed in range(20):
        found = retrieve(
            store.connection, Situation(TASK, "a phony target of a makefile"), RetrievalPolicy(k=3), f"night {seed}"
        )
        assert found.lessons[0].lesson.id == proven.id
    alone = [
        retrieve(store.connection, Situation(TaskRef(f"t{n}", "d"), "a phony target"), RetrievalPolicy(k=1), "s")
        for n in range(200)
    ]
    shown = sum(found.lessons[0].lesson.id == proven.id for found in alone) / len(alone)
    assert 0.7 <= shown <= 0.9, "the others get a bounded share"


def test_untried_lessons_take_turns_and_one_that_seems_to_harm_gets_few(store: Store) -> None:
    lessons = [put(store, f"Look at thing{number} of part{number}.") for number in range(12)]
    measured(store, lessons[0], -0.08, 0.06)
    turns = Counter(
        one.lesson.id
        for n in range(200)
        for one in retrieve(store.connection, Situation(TaskRef(f"t{n}", "d")), RetrievalPolicy(k=3), "s").lessons
    )
    assert turns.total() == 600
    assert turns[lessons[0].id] < 30 <= min(turns[one.id] for one in lessons[1:])


def test_a_lesson_is_shown_where_it_helps_and_not_where_it_harms(store: Store) -> None:
    lesson, other = put(store, "Look at alpha first."), put(store, "Look at gamma then.")
    seen = {f"good{n}": (400.0, 400 * 0.15) for n in range(3)} | {f"bad{n}": (400.0, -400 * 0.15) for n in range(3)}
    measured(store, lesson, 0.0, 0.04, by_family=seen)
    measured(store, other, 0.01, 0.01)
    for family, first in (("good1", lesson), ("bad1", other)):
        found = retrieve(store.connection, Situation(TaskRef("t", "d", family)), RetrievalPolicy(k=2))
        assert found.lessons[0].lesson.id == first.id
        belief = next(one.belief for one in found.lessons if one.lesson.id == lesson.id)
        assert belief is not None
        assert (belief.mean > 0.05) is (family == "good1")


def test_what_many_families_support_is_left_to_each_by_what_the_others_say(store: Store) -> None:
    sources = [TaskRef(f"{family}-1", "d", family) for family in ("builds", "data", "web")]
    rule = put(store, "Run the checks again.", source_tasks=sources, written_from=[])
    told = put(store, "Look at alpha first.", source_tasks=sources, written_from=sources[1:2])
    copied = put(store, "Look at omega first.", source_tasks=sources)
    builds, data, web = (Situation(task) for task in sources)
    assert [own(rule, one) for one in (builds, data, web)] == [False] * 3
    assert [own(told, one) for one in (builds, data, web)] == [False, True, False], "its words come from there"
    assert own(copied, builds)
    assert own(replace_struct(rule, source_tasks=sources[:1]), builds), "no other family supports it"
    seen = {"builds": (900.0, 900 * 0.5), "data": (900.0, -900 * 0.1), "web": (900.0, -900 * 0.1)}
    measured(store, rule, 0.1, 0.05, by_family=seen)
    found = retrieve(store.connection, builds)
    belief = next(one.belief for one in found.lessons if one.lesson.id == rule.id)
    assert belief is not None
    assert belief.mean < 0, "its own trials do not count"


def ranked(name: str, text: str, score: float) -> RankedLesson:
    return RankedLesson(Lesson(id=name, do=text), score)


def test_a_lesson_that_repeats_another_gives_way() -> None:
    found = [
        ranked("a", "Read the first compiler error before the others.", 1.0),
        ranked("b", "Read the first compiler error before all the others in the log.", 0.95),
        ranked("c", "Pin versions of packages.", 0.8),
    ]
    assert [one.lesson.id for one in choose(found, RetrievalPolicy(k=2))] == ["a", "c"]
    assert [one.lesson.id for one in choose(found, RetrievalPolicy(k=3))] == ["a", "c", "b"]


def test_the_budget_leaves_out_what_is_too_long() -> None:
    long, short = ranked("long", "word " * 300, 1.0), ranked("short", "Pin versions.", 0.5)
    budget = tokens(short.lesson.text)
    assert [one.lesson.id for one in choose([long, short], RetrievalPolicy(k=1, budget_tokens=budget))] == ["short"]
    assert choose([long, short], RetrievalPolicy(k=1, budget_tokens=budget - 1)) == []


def test_common_words_are_not_asked_for(store: Store) -> None:
    entry = "INSERT INTO word_counts VALUES (?, ?) ON CONFLICT (word) DO UPDATE SET lessons = excluded.lessons"
    rare, common = put(store, "Look at zebrafish."), put(store, "Look at output.")
    store.connection.execute(entry, ("output", MOST_POSTINGS + 1))
    ids = {row["number"]: row["id"] for row in store.connection.execute("SELECT number, id FROM lessons")}
    assert [ids[number] for number in by_words(store.connection, "output of zebrafish", 10)] == [rare.id]
    assert [ids[number] for number in by_words(store.connection, "output", 10)] == [common.id]


def test_what_simulated_trials_taught_is_for_simulated_agents_only(store: Store) -> None:
    real = add(store, draft("Look at the makefile before the build."), by=PERSON).lesson
    played = add(store, draft("Look at the makefile after the build.", simulated=True), by=PERSON).lesson
    told = Situation(TaskRef("t", "d"), "mend the makefile of the build")

    def ids(situation: Situation) -> set[str]:
        return {one.lesson.id for one in retrieve(store.connection, situation, RetrievalPolicy(k=3)).lessons}

    assert ids(told) == {real.id}
    assert ids(replace(told, simulated=True)) == {real.id, played.id}


def test_an_effect_counts_most_for_the_model_that_it_was_measured_on(store: Store) -> None:
    one = add(store, draft("Look at the makefile before the build."), by=PERSON).lesson
    other = add(store, draft("Look at the makefile of the build twice."), by=PERSON).lesson
    for lesson, model in ((one, "m/a"), (other, "m/b")):
        effect = Utility(0.1, 0.02, 200, model=model)
        edit(store, lesson.id, LessonChanges(utility=effect, effects=[effect]), by="trials")
    for model, first in (("m/a", one), ("m/b", other)):
        told = Situation(TaskRef("t", "d"), "mend the makefile of the build", model=model)
        assert retrieve(store.connection, told).lessons[0].lesson.id == first.id
