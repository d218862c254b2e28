"""Outcomes of real trials: Harbor runs them, breaks them or is told to, and we read what it left."""

import json
from pathlib import Path
from typing import Any

import pytest
from jobkit import SOLVE, run_trial, run_trial_dir, scripted, write_task
from results_kit import claude

from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import AgentStatus, Outcome, Trial

NO_VERIFIER = {"disable": True}
ACTED = {"trajectory.json": '{"steps": [{"source": "agent", "tool_calls": [{"function_name": "bash"}]}]}'}


def ended(trial: Trial) -> tuple[str, str, str | None]:
    return trial.outcome.value, trial.agent_status.value, trial.error_class and trial.error_class.value


@pytest.mark.parametrize(
    ("agent", "verifier", "expected"),
    [
        (scripted(SOLVE), None, ("passed", "completed", None)),
        (scripted(), None, ("failed", "completed", None)),
        ({"name": "oracle"}, None, ("passed", "completed", None)),
        ({"name": "nop"}, None, ("failed", "completed", None)),
        (scripted(SOLVE, sleep_sec=60, timeout_sec=5), None, ("passed", "timed_out", "agent_timeout")),
        (scripted(sleep_sec=60, timeout_sec=1), None, ("failed", "timed_out", "agent_timeout")),
        (scripted(sleep_sec=60, timeout_sec=1), NO_VERIFIER, ("timed_out", "timed_out", "agent_timeout")),
        (scripted("sleep 60", timeout_sec=1), None, ("failed", "timed_out", "agent_timeout")),
        # Harbor alone keeps no record of what an agent on the host did; a trajectory tells
        (scripted(error="bug"), None, ("errored", "crashed", "setup")),
        (scripted(SOLVE, error="bug", logs=ACTED), None, ("failed", "crashed", "agent_crash")),
        (scripted(setup_error="no such package"), None, ("errored", "not_started", "setup")),
        (scripted(error="429", error_type="ApiRateLimitError"), None, ("errored", "crashed", "rate_limit")),
        (scripted(SOLVE, error="429", error_type="ApiRateLimitError"), None, ("passed", "crashed", "rate_limit")),
        (scripted(error="no", error_type="AgentSafetyRefusalError"), None, ("failed", "refused", "safety_refusal")),
        (scripted(error="x", error_type="MemoryError"), None, ("errored", "crashed", "out_of_memory")),
        (scripted(SOLVE), NO_VERIFIER, ("errored", "completed", "verifier")),
    ],
)
def test_outcome_of_a_real_trial(
    tmp_path: Path, agent: dict[str, Any], verifier: dict[str, Any] | None, expected: tuple[str, str, str | None]
) -> None:
    assert ended(run_trial(tmp_path, write_task(tmp_path / "answer"), agent, verifier)) == expected


def test_broken_environment(tmp_path: Path) -> None:
    task = write_task(tmp_path / "answer")
    (task / "environment/Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\nRUN exit 3\n")
    assert ended(run_trial(tmp_path, task, scripted(SOLVE))) == ("errored", "not_started", "environment")


def test_tests_that_never_end(tmp_path: Path) -> None:
    task = write_task(tmp_path / "answer", test_sh="#!/bin/bash\nsleep 60\n", toml="[verifier]\ntimeout_sec = 1.0\n")
    trial = run_trial(tmp_path, task, scripted(SOLVE))
    assert ended(trial) == ("errored", "completed", "verifier")
    assert trial.error_type == "VerifierTimeoutError"


def test_install_only(tmp_path: Path) -> None:
    trial = run_trial(tmp_path, write_task(tmp_path / "answer"), scripted(SOLVE), install_only=True)
    assert ended(trial) == ("not_run", "not_started", None)


def steps_task(folder: Path) -> Path:
    """Two steps: the answer, then a second file."""
    task = write_task(folder)
    (task / "instruction.md").unlink()
    text = (task / "task.toml").read_text().replace("[agent]", 'multi_step_reward_strategy = "mean"\n[agent]', 1)
    head, _, rest = text.partition("[task]")
    text = (
        'multi_step_reward_strategy = "mean"\n'
        + head
        + "[task]"
        + rest.replace('multi_step_reward_strategy = "mean"\n', "")
    )
    (task / "task.toml").write_text(text + '\n[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n')
    for name, wanted in (("first", "/app/answer.txt"), ("second", "/app/second.txt")):
        (task / "steps" / name / "tests").mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text(f"Write {wanted}.\n")
        (task / "steps" / name / "tests/test.sh").write_text(
            f"#!/bin/bash\n[ -s {wanted} ] && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n"
        )
    return task


def test_steps(tmp_path: Path) -> None:
    task = steps_task(tmp_path / "steps")
    both = run_trial(tmp_path, task, scripted(f"{SOLVE}; echo x > /app/second.txt"))
    assert (both.outcome, both.reward) == (Outcome.PASSED, 1.0)
    one = run_trial(tmp_path, task, scripted(SOLVE))
    assert (one.outcome, one.reward) == (Outcome.FAILED, 0.5)


def test_a_second_step_that_never_began_is_not_the_first_steps_pass(tmp_path: Path) -> None:
    task = steps_task(tmp_path / "steps")
    (task / "steps/second/workdir").mkdir()
    (task / "steps/second/workdir/setup.sh").write_text("exit 3\n")
    folder = run_trial_dir(tmp_path, task, scripted(SOLVE))
    told = json.loads((folder / "result.json").read_text())
    assert told["verifier_result"]["rewards"] == {"reward": 1.0}, "Harbor takes the mean of the verified steps"
    trial = read_trial(folder).trial
    assert trial is not None
    assert ended(trial) == ("errored", "completed", "environment")


def test_files_of_the_agent_are_read_where_harbor_put_them(tmp_path: Path) -> None:
    logs = {
        "claude-code.txt": claude("mcp_and_hooks"),
        "trajectory.json": '{"schema_version": "ATIF-v1.7", "session_id": "s", "steps": []}',
    }
    agent = scripted(SOLVE, logs=logs, model_name="anthropic/claude-sonnet-4-5")
    agent["import_path"] = "scripted:ClaudeScriptedAgent"
    trial = run_trial(tmp_path, write_task(tmp_path / "answer"), agent)
    assert (trial.outcome, trial.agent, trial.agent_version) == (Outcome.PASSED, "scripted", "1")
    assert (trial.model, trial.task, trial.dataset) == ("anthropic/claude-sonnet-4-5", "answer", "tests")
    assert (trial.usage.source, trial.tool_calls) == ("claude-code", 2)
    assert trial.delivery.mcp_connected == ["lab"]
    assert trial.task_digest is not None
    assert trial.task_digest.startswith("sha256:")
    assert trial.trajectory_paths == [f"{trial.name}/agent/trajectory.json"]
    assert trial.phases.agent_sec is not None
    assert trial.phases.verifier_sec is not None


def test_agent_that_plants_links_in_its_logs(tmp_path: Path) -> None:
    secret = tmp_path / "host-secret.txt"
    secret.write_text(claude("mcp_and_hooks"))
    script = f"{SOLVE}; for f in claude-code.txt trajectory.json; do ln -sf {secret} /logs/agent/$f; done"
    trial = run_trial(tmp_path, write_task(tmp_path / "answer"), scripted(script))
    assert (trial.outcome, trial.agent_status) == (Outcome.PASSED, AgentStatus.COMPLETED)
    assert not trial.usage.known
    assert trial.trajectory_paths == []


def test_agent_out_of_memory_by_exit_code(tmp_path: Path) -> None:
    message = "Command failed (exit 137): agent --run\nstdout: None\nstderr: Killed"
    trial = run_trial(
        tmp_path,
        write_task(tmp_path / "answer"),
        scripted(error=message, error_type="NonZeroAgentExitCodeError"),
    )
    assert (trial.outcome, trial.error_class) == (Outcome.ERRORED, ErrorClass.OUT_OF_MEMORY)
    assert trial.error_message == "exit 137: Killed"
