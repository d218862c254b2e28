"""Harbor results made for tests, in the shape real Harbor writes them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

FIXTURES = Path(__file__).parent / "fixtures"
_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: float) -> str:
    """A time in the trial, so many seconds after its start."""
    return (_START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def phase(start: float, end: float) -> dict[str, str]:
    return {"started_at": at(start), "finished_at": at(end)}


def error(name: str, message: str = "it broke", when: float = 9.0, traceback: str = "") -> dict[str, str]:
    return {
        "exception_type": name,
        "exception_message": message,
        "exception_traceback": traceback,
        "occurred_at": at(when),
    }


def result(**changes: Any) -> dict[str, Any]:
    """A trial that ran through all its phases and passed, with `changes`; a value of None takes a field away."""
    base: dict[str, Any] = {
        "id": "b2a80f69-62ca-4316-b274-f6ba000704a6",
        "task_name": "tests/answer",
        "trial_name": "answer__8ggLEby",
        "trial_uri": "file:///jobs/job/answer__8ggLEby",
        "task_id": {"path": "/tasks/answer"},
        "source": "starter",
        "task_checksum": "869faf7a",
        "config": {
            "task": {"path": "/tasks/answer", "source": "starter"},
            "trial_name": "answer__8ggLEby",
            "install_only": False,
            "agent": {"name": "scripted", "model_name": None, "kwargs": {}, "mcp_servers": []},
            "verifier": {"disable": False},
            "job_id": "ccd46e9c-631a-4506-90e3-b91d24b665ab",
        },
        "agent_info": {"name": "scripted", "version": "1.0.0", "model_info": None},
        "agent_result": {"n_input_tokens": None, "n_cache_tokens": None, "n_output_tokens": None, "cost_usd": None},
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
        "started_at": at(0),
        "finished_at": at(30),
        "environment_setup": phase(0, 2),
        "agent_setup": phase(2, 4),
        "agent_execution": phase(4, 20),
        "verifier": phase(20.5, 28),
        "step_results": None,
    }
    return {**base, **changes}


CLAUDE = {"name": "claude-code", "version": "1.0.0", "model_info": None}
"""The `agent_info` of an agent whose stream is believed."""


def rewarded(reward: float | None, **changes: Any) -> dict[str, Any]:
    return result(verifier_result=None if reward is None else {"rewards": {"reward": reward}}, **changes)


def write_trial(job_dir: Path, document: dict[str, Any], agent: Mapping[str, str | bytes] | None = None) -> Path:
    """A trial folder with this result and these files of its agent."""
    folder = job_dir / document["trial_name"]
    (folder / "agent").mkdir(parents=True)
    (folder / "result.json").write_bytes(msgspec.json.encode(document))
    for name, content in (agent or {}).items():
        data = content.encode() if isinstance(content, str) else content
        (folder / "agent" / name).write_bytes(data)
    return folder


def claude(name: str) -> str:
    """A stream recorded from the real Claude Code CLI (2.1.325) against a scripted server."""
    return (FIXTURES / "claude" / f"{name}.jsonl").read_text()
