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
