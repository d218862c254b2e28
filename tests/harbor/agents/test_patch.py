"""The patch agent: what it reads, and one real Harbor job with every way a patch can end."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from starter.jobs import environment_config, once, run_harbor, session_folder, trials
from support.tasks import FIX, write_repository_task
from terminalbench.errors import UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.harbor.agents.patch import PatchAgent, patch_for, read_patches
from terminalbench.registry import BUILTIN

NEW_FILE = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
STALE = FIX.replace("-    return a - b", "-    return a * b")
PREDICTIONS = [
    {"instance_id": "golden", "patch": FIX, "prefix": "arm"},
    {"instance_id": "stale", "model_patch": NEW_FILE + STALE},
    {"instance_id": "empty", "patch": " \n"},
]
INSTANCES = ("stale", "absent")
TASKS = ("golden", "stale", "empty", "absent")

pytestmark = pytest.mark.timeout(600)


def run_once(folder: Path) -> None:
    (folder / "predictions.json").write_text(json.dumps(PREDICTIONS))
    for name in TASKS:
        task = write_repository_task(folder / "tasks" / name) / "task.toml"
        mark = "[metadata]\nswebench_pro = true\n" if name in INSTANCES else "[metadata]\n"
        task.write_text(task.read_text().replace("[metadata]\n", mark))
    options = {"predictions": str(folder / "predictions.json")}
    config = {
        "job_name": "job",
        "jobs_dir": str(folder),
        "quiet": True,
        "environment": environment_config(),
        "agents": [{"import_path": BUILTIN["agents"]["patch"], "kwargs": options}],
        "tasks": [{"path": str(folder / "tasks" / name), "source": "tests"} for name in TASKS],
    }
    run_harbor(folder, config, home=folder / "home")


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = once(session_folder(tmp_path_factory) / "patches", run_once)
    found = {result["task_name"].rpartition("/")[2]: result for result in trials(folder)}
    for name, result in found.items():
        result["handed"] = folder / "job" / result["trial_name"] / "artifacts/logs/artifacts/prediction.patch"
        result["printed"] = (folder / "job" / result["trial_name"] / "verifier" / "test-stdout.txt").read_text()
        assert name in TASKS
    return found


def test_each_patch_ends_as_it_should_and_the_verifier_always_speaks(results: dict[str, dict[str, Any]]) -> None:
    states = {name: result["agent_result"]["metadata"] for name, result in results.items()}
    assert {name: (told["patch_state"], told["patch_applied"]) for name, told in states.items()} == {
        "golden": ("applied", True),
        "stale": ("rejected", False),
        "empty": ("empty", False),
        "absent": ("missing", False),
    }
    rewards = {name: result["verifier_result"]["rewards"]["reward"] for name, result in results.items()}
    assert rewards == {"golden": 1, "stale": 0, "empty": 0, "absent": 0}
    assert "calc.py" in states["stale"]["patch_said"]
    assert states["golden"]["patch_sha256"] == hashlib.sha256(FIX.encode()).hexdigest()


def test_what_git_does_not_take_whole_leaves_the_tree_as_it_was(results: dict[str, dict[str, Any]]) -> None:
    assert " M calc.py" in results["golden"]["printed"]
    for name in ("stale", "empty", "absent"):
        assert results[name]["printed"].splitlines()[:2] == ["kept", "!! deps/"], (
            "new.py of the stale patch is not there"
        )


def test_the_verifier_of_an_instance_is_handed_the_patch_byte_by_byte(results: dict[str, dict[str, Any]]) -> None:
    assert results["stale"]["handed"].read_text() == NEW_FILE + STALE
    assert results["absent"]["handed"].read_text() == ""
    assert not results["golden"]["handed"].exists()


def test_it_costs_nothing_and_calls_no_model() -> None:
    info = agent_info("patch")
    assert info is not None
    assert not info.model
    assert set(info.options) == {"predictions", "sha256"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"instance_id": "one", "patch": "P"}, {"instance_id": "two", "model_patch": None}]),
        '{"instance_id": "one", "patch": "P"}\n{"instance_id": "two", "patch": null}\n',
        json.dumps({"one": "P", "two": None}),
        json.dumps([{"instance_id": "one", "patch": "Q", "model_patch": "P"}]),
        json.dumps({"one": {"model_patch": "P"}}),
        '{"instance_id": "one", "patch": "P"}',
    ],
)
def test_predictions_are_read_in_every_form(text: str) -> None:
    patches = read_patches(text.encode(), "f")
    assert patch_for(patches, ["tests/one", "one"]) == "P"
    assert not patch_for(patches, ["two"])
    assert patch_for(patches, ["three"]) is None


def test_a_plain_diff_is_the_patch_of_every_task_byte_by_byte() -> None:
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\xe9\n+e\n"
    found = patch_for(read_patches(diff, "f"), ["whatever"])
    assert found is not None
    assert found.encode("utf-8", errors="surrogateescape") == diff
    assert patch_for(read_patches(b"", "f"), ["whatever"]) is None


def test_a_file_that_cannot_be_used_is_refused_before_any_trial(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    with pytest.raises(ValueError, match="cannot read"):
        PatchAgent.preflight({"predictions": str(file)})
    file.write_text('[{"patch": "P"}]')
    with pytest.raises(UserError, match="entry 1: has no instance_id"):
        PatchAgent.preflight({"predictions": str(file)})
    file.write_text("[]")
    PatchAgent.preflight({"predictions": str(file), "sha256": hashlib.sha256(b"[]").hexdigest()})
    with pytest.raises(ValueError, match="has changed since the batch was planned"):
        PatchAgent.preflight({"predictions": str(file), "sha256": "0" * 64})
