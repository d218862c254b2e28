"""What memory holds for the tasks of a batch, and how a plan comes by it."""

from datetime import UTC, datetime

import msgspec
import pytest

from support.experiments import Project, good
from support.lessons import PERSON, draft
from terminalbench import plan as plan_api
from terminalbench.archivist.entries import LessonChanges
from terminalbench.archivist.memory import add, approve, edit, retire
from terminalbench.archivist.retrieval import situation_of, take_snapshot
from terminalbench.archivist.store import open_store
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import PlannedTask
from terminalbench.experiments.planner import Selection, plan_with_lessons, write_snapshot
from terminalbench.experiments.tables import LessonsTable
from terminalbench.records.lesson import Lesson, LessonScope
from terminalbench.records.trial import TaskRef

NOW = datetime(2026, 1, 23, 16, 26, 48, tzinfo=UTC)
TEXT = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
[tasks]
default_dataset = "tasks"
items = [{ id = "a", family = "one" }, { id = "b", family = "one" }, { id = "c" }]
[profiles.off]
agent = "simulated"
[profiles.masked]
agent = "simulated"
lessons = "masked"
[profiles.recall]
agent = "simulated"
lessons = { mode = "recall", k = 3 }
"""


@pytest.fixture
def lab(project: Project) -> Project:
    for task in "abc":
        project.write(f"tasks/{task}/task.toml", 'schema_version = "1.4"\n[task]\nkeywords = ["Make File", "git"]\n')
        project.write(f"tasks/{task}/instruction.md", f"Mend the broken build of project {task}: run the compiler.")
    return project


def remember(project: Project, *lessons: Lesson) -> list[str]:
    with open_store(project.root / ".terminalbench", write=True) as store:
        return [add(store, lesson, by=PERSON).lesson.id for lesson in lessons]


def activate(project: Project, *names: str) -> None:
    with open_store(project.root / ".terminalbench", write=True) as store:
        for name in names:
            approve(store, name, by=PERSON)


def eligible(project: Project, profile: str) -> dict[str, list[str]]:
    experiment, _ = plan_with_lessons(good(project, TEXT), Batch(project.root / "results" / "s" / "0"), NOW)
    found = next(one.snapshot for one in experiment.profiles if one.key == profile)
    assert found is not None
    return {task: [one.id for one in lessons] for task, lessons in found.tasks.items()}


def test_a_masked_trial_gets_nothing_from_its_own_task_or_family(lab: Project) -> None:
    (own,) = remember(lab, draft("Run the compiler with warnings on.", task="a", family="one"))
    (scoped,) = remember(lab, draft("Build twice.", scope=LessonScope.FAMILY, scope_value="one"))
    activate(lab, own)
    masked, recall = eligible(lab, "masked"), eligible(lab, "recall")
    assert masked == {"tasks/a": [], "tasks/b": [], "tasks/c": [own]}
    assert {*recall["tasks/a"]} == {*recall["tasks/b"]} == {own, scoped}
    assert recall["tasks/c"] == [own]
    planned = plan_with_lessons(good(lab, TEXT), Batch(lab.root / "results" / "s" / "0"), NOW).experiment
    snapshot = planned.profiles[2].snapshot
    assert snapshot is not None
    marked = {(task, one.id): one.own for task, found in snapshot.tasks.items() for one in found}
    assert marked["tasks/a", own]
    assert marked["tasks/b", scoped]
    assert not marked["tasks/c", own]


def test_a_family_that_only_the_experiment_names_masks_lessons_that_do_not_tell_it(lab: Project) -> None:
    (told,) = remember(lab, draft("Run the compiler with warnings on.", source_tasks=[TaskRef("a", "tasks")]))
    (scoped,) = remember(lab, draft("Build it twice.", scope=LessonScope.TASK, scope_value="a"))
    activate(lab, told)
    assert eligible(lab, "masked") == {"tasks/a": [], "tasks/b": [], "tasks/c": [told]}
    assert set(eligible(lab, "recall")["tasks/a"]) == {told, scoped}
    only_b = Selection(tasks=("b",))
    planned = plan_with_lessons(good(lab, TEXT), Batch(lab.root / "results" / "s" / "0"), NOW, only_b).experiment
    snapshots = {one.key: one.snapshot for one in planned.profiles}
    assert snapshots["masked"] is not None
    assert snapshots["recall"] is not None
    assert snapshots["masked"].tasks == {"tasks/b": []}, "also where the task that it comes from does not run"
    assert [one.own for one in snapshots["recall"].tasks["tasks/b"]] == [True]


def test_the_family_of_a_task_is_read_from_its_folder_where_a_lesson_does_not_tell_it(lab: Project) -> None:
    for task in "abc":
        lab.write(f"tasks/{task}/task.toml", f'schema_version = "1.4"\n[metadata]\nfamily = "{task > "b"}"\n')
    (told,) = remember(lab, draft("Run the compiler with warnings on.", source_tasks=[TaskRef("a", "tasks")]))
    activate(lab, told)
    text = TEXT.replace(', family = "one"', "")
    experiment = plan_with_lessons(good(lab, text), Batch(lab.root / "results" / "s" / "0"), NOW).experiment
    masked, recall = (one.snapshot for one in experiment.profiles[1:])
    assert masked is not None
    assert recall is not None
    assert {task: len(found) for task, found in masked.tasks.items()} == {"tasks/a": 0, "tasks/b": 0, "tasks/c": 1}
    assert {task: found[0].own for task, found in recall.tasks.items()} == {
        "tasks/a": True,
        "tasks/b": True,
        "tasks/c": False,
    }


def test_a_plan_over_a_memory_whose_log_is_gone_is_refused(lab: Project) -> None:
    remember(lab, draft("Run the compiler with warnings on."))
    (lab.root / ".terminalbench" / "memory.jsonl").unlink()
    with pytest.raises(TbenchError, match="differ from what memory.db has read"):
        eligible(lab, "masked")


def test_no_memory_and_an_empty_one_are_fine_and_make_nothing(lab: Project) -> None:
    assert eligible(lab, "masked") == {"tasks/a": [], "tasks/b": [], "tasks/c": []}
    assert not (lab.root / ".terminalbench").exists()


def test_a_task_that_is_not_on_this_machine_is_known_by_its_id() -> None:
    remote = PlannedTask(TaskRef("fix-git_log", "tb@2"), "tb", {"git_url": "https://x.org/r", "path": "t/fix-git"})
    found = situation_of(remote)
    assert (found.text, found.tags, found.suite) == ("fix git log", (), "tb@2")


def test_the_words_of_a_task_are_its_instruction_and_its_keywords(lab: Project) -> None:
    task = PlannedTask(TaskRef("a", "tasks"), "tasks", {"path": str(lab.root / "tasks/a")})
    found = situation_of(task)
    assert found.text.startswith("Mend the broken build")
    assert found.tags == ("make-file", "git")
    (lab.root / "tasks/a/task.toml").write_text("torn [")
    assert situation_of(task).tags == ()


def test_a_changed_memory_makes_another_id_of_the_same_policy_and_leaves_others_alone(lab: Project) -> None:
    file = lab.experiment(TEXT)
    (first,) = remember(lab, draft("Run the compiler with warnings on."))
    before = plan_api(file)
    assert plan_api(file).profiles == before.profiles, "the same memory, the same ids"
    remember(lab, draft("A word about gardening in spring.", scope=LessonScope.SUITE, scope_value="garden"))
    assert plan_api(file).profiles == before.profiles, "a lesson that no task gets changes no id"
    with open_store(lab.root / ".terminalbench", write=True) as store:
        edit(store, first, LessonChanges(do="Run the compiler with all warnings on."), by=PERSON)
    after = plan_api(file)
    ids = [[record.id for record in plan.profiles] for plan in (before, after)]
    assert ids[0][0] == ids[1][0], "off"
    assert ids[0][1] != ids[1][1]
    policies = [[record.policy_id for record in plan.profiles] for plan in (before, after)]
    assert policies[0] == policies[1]
    assert len({*policies[0]}) == 3


def test_a_batch_keeps_the_lessons_that_it_was_planned_with(lab: Project) -> None:
    (first,) = remember(lab, draft("Run the compiler with warnings on."))
    batch = Batch(lab.root / "results" / "s" / "0")
    experiment, plan = plan_with_lessons(good(lab, TEXT), batch, NOW)
    for profile in experiment.profiles:
        write_snapshot(batch, profile)
    with open_store(lab.root / ".terminalbench", write=True) as store:
        retire(store, first, by=PERSON, reason="test")
    _, again = plan_with_lessons(good(lab, TEXT), batch, NOW, before=plan)
    assert again.profiles == plan.profiles
    new = plan_with_lessons(good(lab, TEXT), Batch(lab.root / "results" / "s" / "1"), NOW).plan
    assert new.profiles[1].id != plan.profiles[1].id


def test_a_task_that_comes_later_is_refused_by_name(lab: Project) -> None:
    batch = Batch(lab.root / "results" / "s" / "0")
    experiment, plan = plan_with_lessons(good(lab, TEXT), batch, NOW, Selection(tasks=("a",)))
    for profile in experiment.profiles:
        write_snapshot(batch, profile)
    with pytest.raises(UserError, match='profile "masked" has no lessons for 2 tasks .*: b, c'):
        plan_with_lessons(good(lab, TEXT), batch, NOW, before=plan)
    batch.lessons("masked").unlink()
    with pytest.raises(UserError, match="are missing") as caught:
        plan_with_lessons(good(lab, TEXT), batch, NOW, Selection(tasks=("a",)), before=plan)
    assert caught.value.where == str(batch.lessons("masked"))


def test_a_snapshot_is_what_it_was_though_memory_changes_beside_it(lab: Project) -> None:
    (name,) = remember(lab, draft("Run the compiler with warnings on."))
    task = PlannedTask(TaskRef("a", "tasks"), "tasks", {"path": str(lab.root / "tasks/a")})
    found = take_snapshot(lab.root, LessonsTable(), [task])
    remember(lab, draft("Run the compiler once more with the build of yesterday."))
    assert [one.id for one in found.tasks["tasks/a"]] == [name]
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)).digest == found.digest
