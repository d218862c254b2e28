"""Effects of lessons from trials of the index: counted once, models and simulated trials apart, retired with a reason."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from support.lessons import PERSON, contents, draft
from terminalbench.archivist.effects import _worst, count_trials, harm_said, retired_by_effect
from terminalbench.archivist.entries import LessonChanges, Trigger
from terminalbench.archivist.inventory import history
from terminalbench.archivist.leaks import TaskTexts
from terminalbench.archivist.memory import Origin, add, add_from_episode, approve, edit, find
from terminalbench.archivist.store import MemoryFolder, Store, open_store
from terminalbench.archivist.utility import believed, chance_of_harm, prior
from terminalbench.index.exposures import LessonTrial
from terminalbench.records.lesson import Lesson, LessonState, Utility
from terminalbench.records.trial import Exposure, Outcome, TaskRef


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path, write=True) as opened:
        yield opened


def lesson(store: Store, text: str, **fields: Any) -> str:
    return add(store, draft(text, **fields), by=PERSON).lesson.id


def trials(
    effects: dict[str, float], number: int, *, seed: int = 1, tasks: int = 20, at: int = 0, **fields: Any
) -> list[LessonTrial]:
    """Trials of an agent whose chance to pass depends on the lessons that it is shown: each with 0.7."""
    chance = random.Random(seed)
    known: dict[str, Any] = {
        "batch": "s/0", "job": "2026-01-23__16-26-48__p", "profile": "p", "profile_id": "p1", "policy_id": "q1",
        "dataset": "d", "family": None, "attempt": 1, "model": "m/a", "simulated": False, "mode": "masked",
        "snapshot": "s", "started_at": "2026-01-23T16:30:00Z",
    }  # fmt: skip
    found = []
    for n in range(at, at + number):
        own = fields.get("own", False)
        told = tuple(Exposure(name, 0.7, chance.random() < 0.7, 40, own) for name in effects)
        rate = 0.2 + 0.6 * (n % tasks) / tasks + sum(effects[one.lesson] for one in told if one.shown)
        outcome = Outcome.PASSED if chance.random() < rate else Outcome.FAILED
        mine = {name: value for name, value in fields.items() if name != "own"}
        found.append(
            LessonTrial(
                **(known | mine), trial=f"t{n % tasks}__{n}", task=f"t{n % tasks}", outcome=outcome, exposures=told
            )
        )
    return found


def test_a_harmful_lesson_is_retired_a_helpful_one_kept_and_a_useless_one_shows_no_gain(store: Store) -> None:
    good, bad, idle = (lesson(store, f"Look at {name} first.") for name in ("alpha", "beta", "gamma"))
    found = count_trials(store, trials({good: 0.15, bad: -0.15, idle: 0.0}, 1200))
    assert found.trials == 1200
    assert [one.id for one in found.retired] == [bad]
    retired = find(store, bad)
    assert retired.state is LessonState.RETIRED
    assert retired.reason is not None
    assert retired.reason.startswith("its effect on m/a is below zero with a probability of 1.00: -1")
    assert "in 1,200 trials, " in retired.reason
    (last, *_) = history(store, bad)
    assert (last.op, last.by) == ("retire", "utility")
    helps, useless = find(store, good).utility, find(store, idle).utility
    assert helps is not None
    assert useless is not None
    assert abs(helps.mean - 0.15) < 2.5 * helps.sd
    assert chance_of_harm(helps) < 0.01
    assert abs(useless.mean) < 2 * useless.sd
    assert find(store, idle).state is LessonState.ACTIVE
    assert (helps.n, helps.model, helps.simulated) == (1200, "m/a", False)


def test_counting_the_same_trials_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    name = lesson(store, "Look at alpha first.")
    made = trials({name: 0.1}, 60)
    first = count_trials(store, made)
    before = MemoryFolder(tmp_path).log.read_bytes()
    again = count_trials(store, [*made, *made])
    assert (again.trials, again.changed, again.retired) == (0, (), ())
    assert MemoryFolder(tmp_path).log.read_bytes() == before
    more = count_trials(store, [*made, *trials({name: 0.1}, 20, at=60, seed=9)])
    assert (first.trials, more.trials) == (60, 20)
    effect = find(store, name).utility
    assert effect is not None
    assert effect.n == 80
    assert contents(tmp_path) == contents(tmp_path, rebuilt=True)


def test_in_two_parts_or_at_once_the_belief_is_the_same(tmp_path: Path) -> None:
    made = {}
    for place, parts in (("one", 1), ("two", 2)):
        with open_store(tmp_path / place, write=True) as other:
            add(other, draft("Look at alpha first."), by=PERSON)
            (here,) = [row[0] for row in other.connection.execute("SELECT id FROM lessons")]
            everything = trials({here: 0.1}, 90)
            for part in range(parts):
                count_trials(other, everything[part::parts])
            made[place] = find(other, here).utility
    assert made["one"] == made["two"]


def test_trials_without_a_verdict_and_lessons_that_are_not_here_change_nothing(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    broken = [replace(one, outcome=Outcome.ERRORED) for one in trials({name: 0.1}, 5)]
    assert count_trials(store, broken).trials == 0
    assert count_trials(store, trials({"l-elsewhere": 0.1}, 5)).trials == 0


def test_what_was_measured_on_one_model_is_not_believed_of_another(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    count_trials(store, trials({name: 0.15}, 1200))
    here = find(store, name)
    effect = here.utility
    assert effect is not None
    other = believed(here, "m/b")
    start = prior(0.5)
    assert 0 < other.mean < 0.6 * effect.mean
    assert effect.sd < other.sd < start.sd
    assert 0.8 * start.sd < other.sd
    assert other.n == 0
    count_trials(store, trials({name: -0.2}, 1200, seed=4, at=2000, model="m/b"))
    after = find(store, name)
    assert after.state is LessonState.RETIRED
    assert (after.reason or "").startswith("its effect on m/b")
    by_model = {one.model: one for one in after.effects}
    assert by_model["m/a"] == effect
    assert believed(after, "m/b") == by_model["m/b"]
    assert [one.id for one in retired_by_effect(store)] == [name]


def test_a_new_text_is_measured_anew(store: Store, tmp_path: Path) -> None:
    name = lesson(store, "Look at alpha first.")
    old = trials({name: 0.15}, 600)
    count_trials(store, old[:400])
    measured = find(store, name)
    assert measured.utility is not None
    edit(store, name, LessonChanges(importance=0.6), by=PERSON)
    assert find(store, name).utility == measured.utility, "of the same text"
    edit(store, name, LessonChanges(do="Look at omega first."), by=PERSON)
    after = find(store, name)
    assert (after.utility, after.effects) == (None, [])
    assert believed(after, "m/a") == prior(0.6)
    assert any(entry.changes and entry.changes.utility == measured.utility for entry in history(store, name))
    assert count_trials(store, old).trials == 200, "of the old text, counted late: they started before the edit"
    assert find(store, name).effects == []
    later: dict[str, Any] = {"started_at": "2999-01-23T16:30:00Z", "batch": "s/1"}
    as_long = len(after.text)
    new = [
        replace(one, exposures=tuple(replace(told, characters=as_long) for told in one.exposures))
        for one in trials({name: -0.3}, 300, seed=4, at=2000, **later)
    ]
    stale = trials({name: 0.3}, 50, seed=5, at=4000, **later, snapshot="kept")
    counted = count_trials(store, [*old, *new, *stale])
    assert counted.trials == 350
    effect = find(store, name).utility
    assert effect is not None
    assert effect.n == 300, "those of another length had the old text"
    assert [one.id for one in counted.retired] == [name], "by the trials of its text alone"
    assert contents(tmp_path) == contents(tmp_path, rebuilt=True)


def test_a_retired_lesson_comes_back_by_a_person_only_and_goes_again_by_new_trials(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    old = trials({name: -0.2}, 600)
    count_trials(store, old)
    count_trials(store, trials({name: 0.2}, 600, seed=4, at=2000, model="m/b"))
    assert find(store, name).state is LessonState.RETIRED  # whatever another model does with it
    approve(store, name, by=PERSON, reason="another model")
    assert count_trials(store, [*old, *trials({name: 0.0}, 10, at=5000)]).retired == ()
    assert find(store, name).state is LessonState.ACTIVE
    assert retired_by_effect(store) == []
    again = count_trials(store, trials({name: -0.2}, 600, seed=5, at=6000))
    assert [one.id for one in again.retired] == [name]


def test_simulated_trials_are_marked_and_never_mixed_with_real_ones(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    count_trials(store, trials({name: 0.1}, 40))
    real = find(store, name).utility
    found = count_trials(store, trials({name: -0.3}, 800, seed=3, at=900, simulated=True))
    after = find(store, name)
    assert found.retired == ()
    assert after.utility == real
    assert [(one.simulated, one.n) for one in after.effects] == [(False, 40), (True, 800)]


def test_where_all_trials_are_simulated_they_decide_and_the_reason_says_so(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    (retired,) = count_trials(store, trials({name: -0.3}, 800, simulated=True)).retired
    assert "in 800 simulated trials" in (retired.reason or "")
    assert find(store, name).utility == max(find(store, name).effects, key=lambda one: one.n)


def test_trials_of_its_own_task_say_what_is_recalled_and_not_what_it_is_worth(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    count_trials(store, trials({name: 0.2}, 400, own=True, mode="recall"))
    after = find(store, name)
    assert after.utility is None
    assert [(one.own, one.n) for one in after.effects] == [(True, 400)]
    count_trials(store, trials({name: 0.0}, 100, seed=8, at=1000))
    effect = find(store, name).utility
    assert effect is not None
    assert (effect.own, effect.n) == (False, 100)


def test_a_person_may_change_what_is_believed_at_first(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    count_trials(store, trials({name: 0.0}, 30))
    before = find(store, name).utility
    edit(store, name, LessonChanges(importance=1.0), by=PERSON)
    assert count_trials(store, []).changed == (name,)
    after = find(store, name).utility
    assert before is not None
    assert after is not None
    assert after.mean > before.mean


def test_a_lesson_that_was_retired_by_its_effect_comes_back_when_more_trials_speak_for_it(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    assert count_trials(store, trials({name: -0.2}, 200)).retired
    found = count_trials(store, trials({name: 0.3}, 1200, at=200, seed=5))
    assert [one.id for one in found.returned] == [name]
    back = find(store, name)
    assert back.state is LessonState.ACTIVE
    assert (back.reason or "").startswith("more trials now support it: +")


def test_a_retired_lesson_is_tried_again_when_a_new_task_teaches_it_but_not_by_the_old_trials(store: Store) -> None:
    name = lesson(store, "Look at alpha first.")
    made = trials({name: -0.2}, 400)
    assert count_trials(store, made).retired
    source = [TaskRef("other", "d", "g")]
    origin = Origin("s/1 now", Trigger.BATCH)
    texts = [TaskTexts("other", complete=True)]
    for again in (True, False):
        add_from_episode(store, [draft("Look at alpha first.", source_tasks=source)], origin, by="rules", tasks=texts)
        assert (find(store, name).state is LessonState.ACTIVE) is again
        assert count_trials(store, made).retired == ()
        if again:
            assert count_trials(store, trials({name: -0.3}, 400, at=500, seed=3)).retired, "by the new ones"


def test_a_lesson_is_not_believed_to_help_because_the_agent_became_better_meanwhile(store: Store) -> None:
    """It was shown more often later, when everything passed more often: the recorded chances tell the two apart."""
    name, chance, found = lesson(store, "Look at alpha first."), random.Random(2), []
    for one in trials({name: 0.0}, 1600):
        late = int(one.trial.rpartition("__")[2]) >= 800
        likely = 0.9 if late else 0.1
        told = Exposure(name, likely, chance.random() < likely, 40)
        passed = Outcome.PASSED if chance.random() < (0.8 if late else 0.3) else Outcome.FAILED
        found.append(replace(one, exposures=(told,), outcome=passed))
    count_trials(store, found)
    effect = find(store, name).utility
    assert effect is not None
    assert abs(effect.mean) < 2.5 * effect.sd
    assert abs(effect.mean) < 0.1


def test_an_idle_lesson_is_retired_where_it_is_idle_on_all_models_and_stays_so() -> None:
    """On one that it may help it is left: other trials of it say so."""
    idle, unknown = Utility(0.0, 0.012, 4000, 2000, model="a"), Utility(0.05, 0.07, 40, 20, model="b")
    made = Lesson(id="l", do="x", state=LessonState.ACTIVE)
    worst = _worst(made, [idle], real=True)
    assert worst == idle
    assert harm_said(worst) == (
        "its effect on a is very probably not above 2.0 pt: +0.0 pt (sd 1.2 pt) in 4,000 trials, 2000 of them with it"
    )
    assert _worst(made, [idle, unknown], real=True) is None
    assert _worst(made, [], real=True) is None
