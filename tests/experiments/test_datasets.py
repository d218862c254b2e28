import json
from pathlib import Path

import pytest

from support.experiments import BASE, ORACLE, good, problems
from terminalbench.experiments.datasets import Dataset

HEAD = 'schema_version = 2\nslug = "s"\n'


def only(project, dataset: str, extra: str = "", task: str = "a"):
    text = f'{HEAD}[tasks]\nitems = [{{ id = "{task}", dataset = "{dataset}" }}]\n{extra}{ORACLE}'
    return good(project, text).tasks[0].source


def wrong(project, dataset: str, extra: str = "", task: str = "a") -> str:
    text = f'{HEAD}[tasks]\nitems = [{{ id = "{task}", dataset = "{dataset}" }}]\n{extra}{ORACLE}'
    found = problems(project, text)
    assert len(found) == 1, found
    return found[0]


def test_a_folder_of_tasks(project) -> None:
    project.task("my-tasks", "a")
    source = only(project, "my-tasks")
    assert source.config == {"path": str(project.root / "my-tasks" / "a")}
    assert source.found


def test_a_task_the_folder_does_not_hold_names_the_closest(project) -> None:
    project.task("my-tasks", "alpha")
    assert wrong(project, "my-tasks", task="alhpa").endswith('my-tasks has no task "alhpa" (did you mean "alpha"?)')


def test_a_dataset_is_not_listed_again_for_each_of_its_tasks(project, monkeypatch) -> None:
    """A suite of thousands of tasks would take minutes to load."""
    monkeypatch.setattr(Dataset, "known_tasks", lambda _self: pytest.fail("was listed"))
    for name in ("a", "b", "c"):
        project.task("my-tasks", name)
    items = ", ".join(f'{{ id = "{name}", dataset = "my-tasks" }}' for name in ("a", "b", "c"))
    assert len(good(project, f"{HEAD}[tasks]\nitems = [{items}]\n{ORACLE}").tasks) == 3


@pytest.mark.parametrize("task", [".", ".."])
def test_a_task_is_a_folder_of_the_dataset_not_the_dataset_or_what_is_above(project, task: str) -> None:
    project.task("my-tasks", "a")
    for place in ("", "my-tasks"):
        (project.root / place / "task.toml").touch()
    assert f'has no task "{task}"' in wrong(project, "my-tasks", task=task)


def test_a_task_id_cannot_leave_its_folder(project) -> None:
    project.task("my-tasks", "a")
    project.task("secret", "b")
    assert "must be the name of a folder" in wrong(project, "my-tasks", task="../secret/b")


def test_a_registry_name_waits_for_the_run(project) -> None:
    source = only(project, "terminal-bench@2.0")
    assert source.config == {"name": "terminal-bench", "version": "2.0", "task_names": ["a"]}
    assert not source.found


def test_a_package_of_the_hub_waits_for_the_run(project) -> None:
    assert only(project, "org/name@abc").config == {"name": "org/name", "ref": "abc", "task_names": ["a"]}


def registry(project, *names: str) -> Path:
    entries = [
        {
            "name": name.split("@")[0],
            "version": name.split("@")[1],
            "tasks": [
                {"name": "a", "path": "tasks/a"},
                {"name": "g", "path": "x/g", "git_url": "https://example.com/r", "git_commit_id": "abc"},
            ],
        }
        for name in names
    ]
    return project.write("reg/registry.json", json.dumps(entries))


def test_a_registry_file_as_the_dataset(project) -> None:
    registry(project, "one@1.0")
    assert only(project, "reg/registry.json").config == {"path": str(project.root / "reg" / "tasks" / "a")}
    git = only(project, "reg/registry.json", task="g").config
    assert git == {"path": "x/g", "git_url": "https://example.com/r", "git_commit_id": "abc"}


def test_a_registry_file_with_several_datasets_needs_a_name(project) -> None:
    registry(project, "one@1.0", "two@2.0")
    assert "lists 2 datasets (name one of them: one@1.0, two@2.0)" in wrong(project, "reg/registry.json")
    assert only(project, "two@2.0", '[datasets."two@2.0"]\nregistry_path = "reg/registry.json"\n').found
    assert only(project, "two@2.0", '[run]\nregistry_path = "reg/registry.json"\n').found


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{}", "it must be a JSON list"),
        ("[", "is not a registry file"),
        ('[{"name": "x"}]', 'needs a "name" and a list'),
    ],
)
def test_a_broken_registry_file(project, content: str, expected: str) -> None:
    project.write("r.json", content)
    assert expected in wrong(project, "r.json")


def test_a_dataset_the_registry_file_does_not_list(project) -> None:
    registry(project, "one@1.0")
    extra = '[run]\nregistry_path = "reg/registry.json"\n'
    assert 'has no dataset "noe@1.0" (did you mean "one@1.0"?)' in wrong(project, "noe@1.0", extra)


def test_a_pinned_git_repository(project) -> None:
    extra = '[datasets."mine@1"]\nrepo = "https://example.com/r"\nref = "abc"\npath = "tasks"\n'
    source = only(project, "mine@1", extra)
    assert source.config == {"git_url": "https://example.com/r", "git_commit_id": "abc", "path": "tasks/a"}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", "names no source; give exactly one of"),
        ('path = "t"\nregistry_path = "r.json"', "gives registry_path and path; give exactly one"),
        ('repo = "https://example.com/r"', ".ref: is required with repo"),
        ('path = "t"\nref = "x"', ".ref: can be set only together with repo"),
        ('path = "none"', ".path: no folder at"),
        ('repo = "https://me:secretpw@example.com/r"\nref = "x"', ".repo: carries a login"),
    ],
)
def test_a_wrong_dataset_table(project, table: str, expected: str) -> None:
    project.task("t", "a")
    found = wrong(project, "mine@1", f'[datasets."mine@1"]\n{table}\n')
    assert found.startswith('datasets."mine@1"')
    assert expected in found
    assert "secretpw" not in found


def test_an_unpinned_name_says_how_to_pin(project) -> None:
    assert 'pin a version, as in "terminal-bench@1.0"' in wrong(project, "terminal-bench")


def test_the_default_dataset_is_blamed_when_it_is_wrong(project) -> None:
    text = BASE.replace("[tasks]\n", '[tasks]\ndefault_dataset = "nope"\n') + ORACLE
    assert problems(project, text)[0].startswith("tasks.default_dataset: ")


@pytest.mark.parametrize("task", ["../a", "a/..", ".", "a//b", "a/", "/a"])
def test_a_task_of_a_repository_stays_in_its_place(project, task: str) -> None:
    extra = '[datasets."mine@1"]\nrepo = "https://example.com/r"\nref = "abc"\npath = "tasks"\n'
    assert only(project, "mine@1", extra, task="sub/a").config["path"] == "tasks/sub/a"
    assert "must be the path of a folder in the repository" in wrong(project, "mine@1", extra, task=task)


def test_a_registry_that_names_two_tasks_alike_is_refused(project) -> None:
    tasks = [{"name": "a", "path": "x/a"}, {"name": "a", "path": "y/a"}]
    project.write("r.json", json.dumps([{"name": "one", "version": "1", "tasks": tasks}]))
    assert 'lists two tasks "a" in one@1' in wrong(project, "r.json")
    project.write("same.json", json.dumps([{"name": "one", "version": "1", "tasks": [tasks[0], tasks[0]]}]))
    assert only(project, "same.json").found


@pytest.mark.parametrize("table", ["[run]", '[datasets."one@1.0"]'])
def test_a_registry_file_may_be_at_home(project, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    registry(project, "one@1.0")
    monkeypatch.setenv("HOME", str(project.root / "reg"))
    assert only(project, "one@1.0", f'{table}\nregistry_path = "~/registry.json"\n').found


def test_the_word_for_swe_bench_pro_is_a_folder_of_the_project_or_says_how_to_make_it(project) -> None:
    said = wrong(project, "swebench-pro")
    assert f"no folder of SWE-Bench Pro tasks at {project.root}/swebench-pro" in said
    assert "make it: tbench swebench-pro tasks FILE|hf:REVISION -o " in said
    assert "swebench-pro --evaluator CHECKOUT" in said
    project.task("swebench-pro", "a")
    assert only(project, "swebench-pro").config == {"path": str(project.root / "swebench-pro" / "a")}
