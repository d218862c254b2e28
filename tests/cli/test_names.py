"""What a shell completes."""

import os
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from support.results import make_plan, make_trial
from terminalbench.cli.app import app
from terminalbench.experiments.batch import allocate
from terminalbench.index.scan import scan_all


@pytest.fixture
def root(project) -> Path:
    found = project.root / "results"
    for slug in ("demo", "demo", "other"):
        batch = allocate(found, slug)
        make_plan(batch, ("strong", "weak"), ["csv-clean", "fix-git"], 2)
        make_trial(batch, f"csv-clean__{slug}", profile="weak")
    scan_all(found)
    return found


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (["show"], "de", ["demo/1", "demo/0"]),
        (["show"], "csv", ["csv-clean__demo", "csv-clean__other"]),
        (["show", "demo/0"], "", ["strong", "weak"]),
        (["show", "demo/0", "weak"], "c", ["csv-clean#1", "csv-clean#2"]),
        (["show", "nothing/9"], "", []),
        (["list"], "o", ["other/0"]),
        (["compare", "demo/0"], "demo", ["demo/1", "demo/0"]),
        (["resume", "demo/0", "--profiles"], "w", ["weak"]),
        (["errors", "demo/0", "--tasks"], "", ["csv-clean", "fix-git"]),
        (["prune", "demo/0"], "other", ["other/0"]),
        (["run", "--agent"], "o", ["ollama", "openclaw", "opencode", "openhands", "openhands-sdk", "oracle"]),
    ],
)
def test_the_shell_completes(root: Path, words: list[str], incomplete: str, expected: list[str]) -> None:
    found = ShellComplete(app, {}, "tbench", "_TBENCH_COMPLETE").get_completions(words, incomplete)
    assert [item.value for item in found if item.type == "plain"] == expected


def test_profiles_and_globbed_tasks_come_from_an_experiment_file(project) -> None:
    for name in ("a", "b"):
        project.task("tasks", name)
    file = project.experiment(
        'schema_version = 2\nslug = "s"\n[tasks]\ndefault_dataset = "tasks"\nitems = "all"\n[profiles.one]\nagent = "nop"\n'
    )
    complete = ShellComplete(app, {}, "tbench", "_TBENCH_COMPLETE").get_completions
    place = os.path.relpath(file)
    assert [item.value for item in complete(["run", place, "--profiles"], "")] == ["one"]
    assert [item.value for item in complete(["run", place, "--tasks"], "")] == ["a", "b"]
