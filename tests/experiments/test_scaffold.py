import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("agent", ["claude-code", "codex", "oracle", "nop", "terminus-2", "simulated", "aider"])
@pytest.mark.parametrize("dataset", ["terminal-bench@2.0", "unknown@9", "mine"])
def test_what_init_writes_validates(project, tbench, agent: str, dataset: str) -> None:
    project.task("mine", "a")
    ran = tbench("init", ".", "--agent", agent, "--dataset", dataset)
    assert ran.code == 0, ran.err
    assert tbench("validate", "experiments/first.toml").code == 0
    assert tbench("plan", "experiments/first.toml").code == 0


def test_it_validates_outside_a_project_too(tmp_path, monkeypatch, tbench) -> None:
    monkeypatch.chdir(tmp_path)
    assert tbench("init", "new", "--dataset", "terminal-bench@2.0", "--model", "x/y", "--slug", "mine").code == 0
    assert tbench("validate", "new/experiments/mine.toml").code == 0
    assert 'model = "x/y"' in (tmp_path / "new" / "experiments" / "mine.toml").read_text()


def test_an_agent_or_task_of_ones_own_goes_into_the_experiment_that_is_named(project, tbench) -> None:
    """The same words begin an experiment and add to it."""
    for name in ("one", "two"):
        made = tbench("init", "--agent", name, "--slug", "both", "--", "true", "{instruction}")
        assert made.code == 0, made.err
    assert tbench("init", "--task", "new", "--slug", "third").code == 0
    assert {file.name for file in (project.root / "experiments").iterdir()} >= {"both.toml", "third.toml"}
    text = (project.root / "experiments" / "both.toml").read_text()
    assert 'slug = "both"' in text
    assert "[profiles.one]" in text
    assert "[profiles.two]" in text


def test_an_existing_experiment_stays(project, tbench) -> None:
    file = project.experiment("# mine", "first.toml")
    ran = tbench("init", ".", "--dataset", "terminal-bench@2.0")
    assert ran.code == 2
    assert "exists already" in ran.err
    assert file.read_text() == "# mine"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--agent", "claud-code"), 'did you mean "claude-code"?'),
        (("--dataset", "nowhere"), '"nowhere" is not a dataset'),
        (("--slug", "a/b"), "--slug must be letters"),
        (("--slug", "index.db"), "--slug is reserved"),
        (("--slug", ".check-1"), "--slug is reserved"),
    ],
)
def test_wrong_choices(project, tbench, arguments: tuple[str, ...], expected: str) -> None:
    ran = tbench("init", ".", *arguments)
    assert ran.code == 2
    assert expected in ran.err
    assert not (project.root / "experiments").exists()


def test_what_it_says_holds_without_a_project_around_it(tmp_path, monkeypatch, tbench) -> None:
    """The env file, the results and the prompt are where the file says, before and after `git init`."""
    monkeypatch.chdir(tmp_path)
    assert tbench("init").code == 0
    (tmp_path / "experiments" / ".env").write_text("ANTHROPIC_API_KEY=x\n")
    for _ in range(2):
        planned = tbench("plan", "experiments/first.toml", "--json")
        assert planned.code == 0, planned.err
        document = json.loads(planned.out)
        assert document["profiles"][0]["env_file"] == str(tmp_path / "experiments" / ".env")
        assert Path(document["jobs"][0]["config"]["jobs_dir"]) == tmp_path / "results" / "first" / "0" / "runs"
        (tmp_path / ".git").mkdir(exist_ok=True)


def test_the_demo_validates_and_says_to_run_it(project, tbench) -> None:
    ran = tbench("init", "--demo")
    assert ran.code == 0, ran.err
    assert "next: tbench run experiments/demo.toml" in ran.out
    again = tbench("init", "--demo")
    assert (again.code, "tbench run experiments/demo.toml runs it; or choose another folder" in again.err) == (
        2,
        True,
    )
    nowhere = tbench("init", "--demo", "/proc/x")
    assert (nowhere.code, "(name another folder: tbench init DIR)" in nowhere.err) == (2, True), nowhere.err
    assert "16 tasks x 2 profiles x 3" in tbench("validate", "experiments/demo.toml").out


@pytest.mark.parametrize(
    ("arguments", "file", "tasks", "profiles"),
    [
        (("--task", "sum-up"), "sum-up", 1, ["oracle", "nop"]),
        (("--agent", "my-agent"), "my-agent", 16, ["my-agent", "oracle", "nop"]),
        (("--task", "sum-up", "--agent", "my-agent"), "my-agent", 1, ["my-agent", "oracle", "nop"]),
    ],
)
def test_a_task_and_an_agent_of_ones_own(
    tmp_path, monkeypatch, tbench, arguments: tuple[str, ...], file: str, tasks: int, profiles: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tbench("init", *arguments)
    assert ran.code == 0, ran.err
    following = "run" if "--agent" in arguments else "check"
    assert f"next: tbench {following} experiments/{file}.toml" in ran.out
    document = json.loads(tbench("plan", f"experiments/{file}.toml", "--json").out)
    assert [profile["key"] for profile in document["profiles"]] == profiles
    assert len(document["cells"]) == tasks * len(profiles)
    again = tbench("init", *arguments)
    assert again.code == 2
    assert "exists already" in again.err


def test_a_second_task_goes_into_the_only_experiment_on_tasks_of_ones_own(project, tbench) -> None:
    assert tbench("init", ".", "--slug", "other").code == 0  # on the starter tasks
    assert tbench("init", "--task", "one", "--agent", "mine").code == 0
    added = tbench("init", "--task", "two")
    assert added.code == 0, added.err
    assert "changed: experiments/mine.toml\nnext: tbench check experiments/mine.toml" in added.out
    cells = json.loads(tbench("plan", "experiments/mine.toml", "--json").out)["cells"]
    assert {(cell["task"]["id"], cell["profile"]) for cell in cells} == {
        (task, profile) for task in ("one", "two") for profile in ("mine", "oracle", "nop")
    }
    assert "lower-case letters" in tbench("init", "--task", "../three").err
    assert tbench("init", "--task", "three", "--slug", "third").code == 0
    assert "written: experiments/four.toml" in tbench("init", "--task", "four").out, "which of two is not known"


def test_an_agent_of_ones_own_beside_own_tasks_attempts_those(tmp_path, monkeypatch, tbench) -> None:
    monkeypatch.chdir(tmp_path)
    assert tbench("init", "--task", "one").code == tbench("init", "--task", "two").code == 0
    assert tbench("init", "--agent", "my-agent").code == 0
    tasks = {
        cell["task"]["id"] for cell in json.loads(tbench("plan", "experiments/my-agent.toml", "--json").out)["cells"]
    }
    assert tasks == {"one", "two"}


def test_a_prompt_for_the_template_of_an_agent_says_how_it_could_take_one(tmp_path, monkeypatch, tbench) -> None:
    monkeypatch.chdir(tmp_path)
    assert tbench("init", "--task", "one", "--agent", "my-agent").code == 0
    file = tmp_path / "experiments" / "my-agent.toml"
    (tmp_path / "careful.md").write_text("Be careful.\n")
    file.write_text(file.read_text() + '[profiles.careful]\nextends = "my-agent"\nprompt = "careful.md"\n')
    ran = tbench("validate", file)
    hint = 'if it calls a model, its class says AGENT_INFO = {"model": True}'
    assert (ran.code, f"takes no prompt ({hint})" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--demo", "--task", "a"), "--demo cannot be combined"),
        (("--demo", "--model", "x/y"), "--model cannot be combined with --demo"),
        (("--demo", "--slug", "a"), "--slug cannot be combined with --demo"),
        (("--agent", "claude-cod"), 'did you mean "claude-code"?'),
        (("--agent", "claude"), 'did you mean "claude-code"?'),
        (("--agent", "My Agent"), "a new name may have lower-case letters"),
        (("--agent", "json"), "json.py would hide the standard library module of the same name (choose another"),
        (("--agent", "harbor"), "would hide the installed module of the same name"),
        (("--task", "../a"), "a new name may have lower-case letters"),
        (("--task", "a", "--agent", "oracle"), "oracle exists"),
    ],
)
def test_what_does_not_go_together(project, tbench, arguments: tuple[str, ...], told: str) -> None:
    ran = tbench("init", *arguments)
    assert ran.code == 2
    assert told in ran.err
    assert sorted(path.name for path in project.root.iterdir()) == ["pyproject.toml"]


def test_in_a_repository_keys_and_results_are_left_to_git_alone(project, tbench) -> None:
    (project.root / ".git").mkdir()
    (project.root / ".gitignore").write_text("*.log\nresults/")
    assert tbench("init", "--demo").code == 0
    assert (project.root / ".gitignore").read_text() == "*.log\nresults/\n.env\n"
    before = (project.root / ".gitignore").stat()
    assert tbench("init", "--task", "a").code == 0
    assert (project.root / ".gitignore").stat().st_mtime_ns == before.st_mtime_ns
