"""Suites: an experiment or a JSON file in, checked tasks with digests out."""

import json
from pathlib import Path
from typing import Any

import pytest
from jobkit import write_task

from terminalbench import starter
from terminalbench.errors import UserError
from terminalbench.experiments.config import load
from terminalbench.experiments.write import write_experiment
from terminalbench.overnight.suite import SHIPPED, load_suite, shipped_suites

REPOSITORY = Path(__file__).parents[2]


def _write(folder: Path, **changes: Any) -> Path:
    suite = {"name": "mine", "version": "1.0.0", "dataset": "starter", "tasks": [{"id": "csv-clean"}], **changes}
    file = folder / "suite.json"
    file.write_text(json.dumps({name: value for name, value in suite.items() if value is not None}))
    return file


def _problems(folder: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_suite(_write(folder, **changes))
    return str(caught.value)


def test_the_shipped_suites_load_by_name_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped_suites() == ["starter", "tb-2.0"]
    ours = load_suite(Path("starter"))
    assert [task.id for task in ours.tasks] == starter.task_ids()
    assert {task.id: task.category for task in ours.tasks} == starter.families()
    assert ours.root == tmp_path, "relative paths start from the user's project"
    tb = load_suite(Path("tb-2.0"))
    assert {task.dataset for task in tb.tasks} == {"terminal-bench@2.0"}
    assert ("fix-git", "software-engineering", "easy") in [(t.id, t.category, t.difficulty) for t in tb.tasks]
    for name in shipped_suites():
        assert (REPOSITORY / "tasks" / f"{name}.json").read_bytes() == (SHIPPED / f"{name}.json").read_bytes()


def test_the_starter_suite_runs_in_the_local_sandbox() -> None:
    made = load_suite(Path("starter"), ["git-*"]).with_profiles({"nop": {"agent": "nop"}})
    assert made.run.container_env == "local"
    assert [task.id for task in made.tasks] == ["git-find-regression", "git-lost-commit", "git-merge-conflict"]
    assert {task.family for task in made.tasks} == {"git"}


def test_globs_choose_tasks_and_one_without_a_match_is_refused() -> None:
    suite = load_suite(Path("starter"), ["csv-*", "starter/git-lost-*"])
    assert [task.id for task in suite.tasks] == ["csv-clean", "git-lost-commit"]
    assert suite.digest == load_suite(Path("starter")).digest, "it is the same suite, of which some tasks are chosen"
    with pytest.raises(UserError, match='no task is called "csv-claen".*did you mean "csv-clean"'):
        load_suite(Path("starter"), ["git-*", "csv-claen"])


def test_an_experiment_is_a_suite_with_profiles_of_its_own(tmp_path: Path) -> None:
    file = REPOSITORY / "experiments" / "quickstart.toml"
    suite = load_suite(file, ["csv-clean"])
    assert suite.experiment is not None
    assert [task.id for task in suite.experiment.tasks] == ["csv-clean"]
    assert [p.id for p in suite.experiment.profiles] == [p.id for p in load(file).profiles]
    replaced = suite.with_profiles({"oracle": {"agent": "oracle"}})
    assert [profile.key for profile in replaced.profiles] == ["oracle"]
    assert (replaced.run.container_env, replaced.run.attempts) == ("local", 3)
    assert replaced.analysis.baseline is None, "it named a profile that does not run"
    write_experiment(replaced, tmp_path / "made.toml")
    assert [task.id for task in load(tmp_path / "made.toml").tasks] == ["csv-clean"]


def test_a_suite_of_folders_has_the_digest_of_their_files(tmp_path: Path) -> None:
    task = write_task(tmp_path / "tasks" / "one")
    file = _write(tmp_path, dataset=None, tasks=[{"id": "one", "path": "tasks/one", "category": "text"}])
    before = load_suite(file)
    assert (before.tasks[0].dataset, before.tasks[0].category) == ("tasks", "text")
    (task / "instruction.md").write_text("Something else.\n")
    after = load_suite(file)
    assert after.tasks[0].digest != before.tasks[0].digest
    assert after.digest != before.digest


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"version": "1.0.1"}, {"tasks": [{"id": "sqlite-report"}]}, {"run": {"container_env": "local"}},
     {"tasks": [{"id": "csv-clean", "timeout_seconds": 5}]}],
)  # fmt: skip
def test_two_suites_never_have_the_same_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    before = load_suite(_write(tmp_path)).digest
    assert load_suite(_write(tmp_path, description="the same, described")).digest == before
    assert load_suite(_write(tmp_path, **change)).digest != before


def test_time_limits_of_a_suite_reach_the_experiment(tmp_path: Path) -> None:
    suite = load_suite(_write(tmp_path, tasks=[{"id": "csv-clean", "timeout_seconds": 90}, {"id": "sqlite-report"}]))
    made = suite.with_profiles({"nop": {"agent": "nop"}})
    write_experiment(made, tmp_path / "made.toml")
    assert [task.timeout_sec for task in load(tmp_path / "made.toml").tasks] == [90, None]


def test_what_is_accepted_and_not_used_is_said(tmp_path: Path) -> None:
    task = {"id": "csv-clean", "max_turns": 100, "verification": {"type": "test"}, "tags": ["a"]}
    assert load_suite(_write(tmp_path, tasks=[task])).notes == (
        "keys of its tasks that are not used: max_turns, verification, tags",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"taskz": []}, 'taskz: unknown key (did you mean "tasks"?)'),
        ({"tasks": None}, "tasks: is required"),
        ({"tasks": []}, "tasks: must not be empty"),
        ({"version": 2}, "version: must be a string"),
        ({"name": None}, "name: is required"),
        ({"tasks": [{"id": "csv-clean"}, {"id": "csv-clean"}]}, "of starter is already tasks[0]"),
        ({"tasks": [{"id": "csv-claen"}]}, 'no task "csv-claen" (did you mean "csv-clean"?)'),
        ({"tasks": [{"id": "csv-clean", "timeout": 3}]}, "tasks[0].timeout: unknown key"),
        ({"tasks": [{"id": "csv-clean", "setup": ["make"]}]}, "tasks[0].setup: unknown key"),
        ({"tasks": [{"id": "csv-clean", "difficulty": "impossible"}]}, "must be one of easy, medium, hard, expert"),
        ({"tasks": [{"id": "csv-clean", "timeout_seconds": 0}]}, "must be above 0"),
        ({"tasks": [{"id": "a", "path": "a", "dataset": "starter"}]}, "gives dataset and path"),
        ({"tasks": [{"id": "a", "path": "nowhere/a"}]}, "is not a Harbor task: it has no task.toml"),
        ({"tasks": [{"id": "b", "source_path": "task/one"}]}, 'must be the name of the folder, "one"'),
        ({"dataset": None}, "has neither a dataset nor a path"),
        ({"run": {"container_env": "lokal"}}, 'no environment is called "lokal"'),
        ({"run": {"atempts": 1}}, "run.atempts: unknown key"),
    ],
)
def test_a_wrong_suite_is_refused_by_what_is_wrong(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    write_task(tmp_path / "task" / "one")
    assert said in _problems(tmp_path, **change)


def test_a_file_that_is_no_suite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text("{")
    with pytest.raises(UserError, match="is not valid JSON"):
        load_suite(tmp_path / "suite.json")
    with pytest.raises(UserError, match="no such suite.*shipped suite: --suite tb-2.0"):
        load_suite(tmp_path / "tb-2.0.json")
    with pytest.raises(UserError, match="is a folder"):
        load_suite(tmp_path)
