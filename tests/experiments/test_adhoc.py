"""A run without a file."""

from pathlib import Path

import pytest

from terminalbench.errors import TbenchError
from terminalbench.experiments.adhoc import AdHoc, ad_hoc, draft_ad_hoc
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.config import load


def made(project, agent: str, model: str | None = None, *versus: str, tasks=("starter/csv-*",), **more):
    return draft_ad_hoc(AdHoc(agent, model, tasks, versus, **more), project.root).experiment


def test_agents_and_tasks_become_an_experiment_that_loads(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    project.task("mine", "a")
    found = made(project, "oracle", None, "nop", tasks=("starter/csv-*", "mine/a"), attempts=2)
    assert [(task.dataset, task.id) for task in found.tasks] == [("starter", "csv-clean"), ("mine", "a")]
    assert [profile.key for profile in found.profiles] == ["oracle", "nop"]
    assert (found.run.attempts, found.run.container_env) == (2, "docker")
    assert made(project, "nop").run.container_env == "local"
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert made(project, "nop", tasks=("mine/a",)).run.container_env == "local", "there is no Docker"


def test_the_same_command_is_the_same_experiment(project) -> None:
    asked = AdHoc("oracle", None, ["starter/*"], ["nop"])
    first, again = draft_ad_hoc(asked, project.root), draft_ad_hoc(asked, project.root)
    assert first.experiment.file == again.experiment.file


def test_the_file_stays_when_a_batch_of_it_was_made(project) -> None:
    draft = draft_ad_hoc(AdHoc("oracle", None, ["starter/*"]), project.root)
    file = draft.experiment.file
    with draft.written():
        assert load(file).slug == draft.experiment.slug
    assert not (project.root / "experiments").exists()
    for _ in range(2):
        with draft.written():
            allocate(draft.experiment.results_root, draft.experiment.slug)
    assert file.exists()


def test_the_other_side_takes_what_it_leaves_out_from_the_first(project) -> None:
    found = made(project, "claude-code", "anthropic/a", ":anthropic/b", "terminus-2", "oracle", "terminus-2:openai/c")
    assert [(profile.key, profile.agent.name, profile.model) for profile in found.profiles] == [
        ("claude-code-a", "claude-code", "anthropic/a"),
        ("claude-code-b", "claude-code", "anthropic/b"),
        ("terminus-2-a", "terminus-2", "anthropic/a"),
        ("oracle", "oracle", None),
        ("terminus-2-c", "terminus-2", "openai/c"),
    ]


def test_the_key_of_the_models_provider_is_named_where_it_is_set(tmp_path) -> None:
    asked = AdHoc("terminus-2", "openai/c", ["starter/*"])
    assert 'env = ["OPENAI_API_KEY"]' in ad_hoc(asked, tmp_path, {"OPENAI_API_KEY": "x"})[1]
    assert "x" not in ad_hoc(asked, tmp_path, {"OPENAI_API_KEY": "xyzzy"})[1].split("env =")[1]


def test_a_folder_is_named_from_where_the_command_is_given(project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.task("deep/mine", "a")
    monkeypatch.chdir(project.root / "deep")
    found = draft_ad_hoc(AdHoc("oracle", None, ["mine/*"]), Path.cwd()).experiment
    assert [(task.dataset, task.id) for task in found.tasks] == [("deep/mine", "a")]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (AdHoc("oracl", None, ["starter/*"]), 'no agent is called "oracl"'),
        (AdHoc("oracle", "x/y", ["starter/*"]), "oracle takes no model"),
        (AdHoc("oracle", None, ["csv-clean"]), "names no dataset"),
        (AdHoc("oracle", None, ["starter/zzz*"]), '--tasks: "zzz*" fits no task of starter'),
        (AdHoc("oracle", None, ["starter/*"], ["oracle"]), "is given twice"),
    ],
)
def test_what_is_wrong_leaves_no_file(project, asked: AdHoc, told: str) -> None:
    with pytest.raises(TbenchError) as caught:
        draft_ad_hoc(asked, project.root)
    assert told in str(caught.value)
    assert not (project.root / "experiments").exists()


def test_the_command(project, tbench) -> None:
    ran = tbench("run", "--agent", "oracle", "--vs", "nop", "--tasks", "starter/csv-*", "--dry-run")
    assert ran.code == 0, ran.err
    assert "1 task x 2 profiles x 1 attempt = 2" in ran.out
    assert not (project.root / "experiments").exists()
    assert "--agent and --tasks" in tbench("run").err
    file = project.experiment("")
    assert "already says what to run" in tbench("run", str(file), "--agent", "oracle").err
