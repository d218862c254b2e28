"""Trials with trajectories, and judges with recorded answers."""

import json
from pathlib import Path
from typing import Any

from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.analytics.judge.request import JudgeTrial
from terminalbench.records.trial import AgentStatus, Outcome, TaskRef, Trial


def call(step: int, name: str, arguments: dict[str, Any], returned: str, **extra: Any) -> dict[str, Any]:
    """A step of the agent with one tool call and what it returned."""
    return {
        "step_id": step,
        "source": "agent",
        "message": f"I do step {step} now.",
        "tool_calls": [{"tool_call_id": f"c{step}", "function_name": name, "arguments": arguments}],
        "observation": {"results": [{"source_call_id": f"c{step}", "content": returned, "extra": extra}]},
    }


def say(step: int, text: str, source: str = "agent") -> dict[str, Any]:
    """A step with a message only."""
    return {"step_id": step, "source": source, "message": text}


STEPS = [
    say(1, "Make the failing test pass.", "user"),
    call(2, "Bash", {"command": "ls"}, "durations.py test_durations.py"),
    call(3, "Read", {"file_path": "/app/durations.py"}, "def parse(text):\n    return int(text)"),
    call(4, "Bash", {"command": "pytest -q"}, "FAILED test_durations.py::test_hours - ValueError: 1h", exit_code=1),
    call(5, "Edit", {"file_path": "/app/durations.py", "new_string": "return int(text[:-1])"}, "The file was updated"),
    say(6, "The task is done, I am confident."),
]


def write_trial(
    folder: Path,
    name: str = "a__1",
    *,
    steps: list[dict[str, Any]] | None = None,
    profile: str = "p",
    outcome: Outcome = Outcome.FAILED,
    verifier: str = "1 failed: expected 3600, got 1",
    error: str | None = None,
) -> JudgeTrial:
    """A trial folder with a trajectory and the verifier's output."""
    trial = folder / "runs" / f"job__{profile}" / name
    (trial / "agent").mkdir(parents=True)
    (trial / "verifier").mkdir()
    document = {
        "schema_version": "ATIF-v1.6",
        "agent": {"name": "x", "version": "1"},
        "steps": STEPS if steps is None else steps,
    }
    (trial / "agent" / "trajectory.json").write_text(json.dumps(document))
    (trial / "verifier" / "test-stdout.txt").write_text(verifier)
    task = name.split("__")[0]
    record = Trial(
        id=name,
        name=name,
        job=f"job__{profile}",
        task=task,
        outcome=outcome,
        agent_status=AgentStatus.COMPLETED,
        error_message=error,
        trajectory_paths=[f"{name}/agent/trajectory.json"],
    )
    files = TrialFiles(f"job__{profile}/{name}", trial, folder, record)
    return JudgeTrial(files=files, task=TaskRef(task, "d"), profile=profile, outcome=outcome)


def trajectory_of(trial: JudgeTrial) -> Path:
    """Where the trajectory of a trial is."""
    return trial.files.folder / "agent" / "trajectory.json"


def point(value: Any, *quotes: tuple[int, str], reason: str = "because") -> dict[str, Any]:
    """One answered point of a rubric."""
    return {"value": value, "reason": reason, "evidence": [{"step": s, "quote": q} for s, q in quotes]}


SEEN = (4, "ValueError: 1h")
STRATEGY = {
    "strategy": point("trial_and_error", SEEN),
    "strategy_quality": point(0.4, SEEN),
    "adapted": point(False, SEEN),
    "verified_own_work": point(False, (6, "The task is done")),
}
ROOT_CAUSE = {
    "root_cause": point("unverified_finish", (6, "The task is done, I am confident.")),
    "critical_step": point(6, (6, "I am confident")),
    "root_cause_confidence": {"value": 0.8, "reason": "plain"},
    "missed_insight": {"value": "Run the test again.", "reason": "plain"},
}
COMPARISON: dict[str, Any] = {
    "better": "tie",
    "decisive": "Nothing parts them.",
    "story": "Both did the same.",
    "reason": "equal",
    "evidence": [
        {"trial": "A", "step": 4, "quote": "ValueError: 1h"},
        {"trial": "B", "step": 4, "quote": "ValueError: 1h"},
    ],
}
SYNTHESIS: dict[str, Any] = {
    "summary": "Both finish without a check.",
    "claims": [{"text": "No trial ran its tests again.", "trials": ["T1", "T2"], "confidence": "medium"}],
    "improvements": ["Ask for a last test run."],
    "limitations": ["Two trials."],
}
USAGE = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.01, "source": "provider", "cost_source": "recorded"}


def recorded(file: Path, answers: dict[str, Any]) -> str:
    """A replay file with one answer for each rubric; its name as a model."""
    lines = [
        {
            "contains": [f"# Rubric: {name}\n"],
            "text": said if isinstance(said, str) else json.dumps(said),
            "usage": USAGE,
        }
        for name, said in answers.items()
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"replay:{file}"


ALL = {"strategy": STRATEGY, "root_cause": ROOT_CAUSE, "comparison": COMPARISON, "synthesis": SYNTHESIS}
