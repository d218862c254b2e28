"""Trajectories made by hand, in the shapes that agents leave them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLAUDE = "claude-code"
TERMINUS = "terminus-2"


def call(
    name: str, arguments: Any = None, *, output: str | None = "ok", failed: bool | None = None, **fields: Any
) -> dict[str, Any]:
    """One tool call, its output, and the protocol's flag."""
    return {"name": name, "arguments": arguments or {}, "output": output, "failed": failed, **fields}


def bash(command: str, output: str = "", *, failed: bool | None = False) -> dict[str, Any]:
    return call("Bash", {"command": command}, output=output, failed=failed)


def edit(path: str) -> dict[str, Any]:
    return call("Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, failed=False)


def step(number: int, calls: Sequence[dict[str, Any]] = (), *, text: str = "", **fields: Any) -> dict[str, Any]:
    """One step of the agent, a second a step."""
    made = [
        {"tool_call_id": f"c{number}-{i}", "function_name": c["name"], "arguments": c["arguments"]}
        for i, c in enumerate(calls)
    ]
    results = []
    for i, c in enumerate(calls):
        extra = {} if c["failed"] is None else {"tool_result_is_error": c["failed"]}
        if c["output"] is not None:
            results.append({"source_call_id": f"c{number}-{i}", "content": c["output"], "extra": extra})
    return {
        "step_id": number,
        "source": "agent",
        "timestamp": f"2026-01-02T03:{number // 60:02}:{number % 60:02}Z",
        "message": text,
        "tool_calls": made,
        "observation": {"results": results},
        **fields,
    }


def trajectory(
    *calls: dict[str, Any] | list[dict[str, Any]], agent: str = CLAUDE, asked: str = "Fix it.", **fields: Any
) -> dict[str, Any]:
    """A document with one agent step for each call, or for each list of calls; the first step is the task."""
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "user", "message": asked, "timestamp": "2026-01-02T03:00:01Z"}
    ]
    steps += [step(n, c if isinstance(c, list) else [c]) for n, c in enumerate(calls, start=2)]
    return {"schema_version": "ATIF-v1.7", "agent": {"name": agent, "version": "1"}, "steps": steps, **fields}


def keys(*keystrokes: str, screen: str = "$ ", number: int = 2) -> dict[str, Any]:
    """One step of Terminus-2: commands that share one screen, as Harbor writes it."""
    calls = [
        {
            "tool_call_id": f"call_{number}_{i}",
            "function_name": "bash_command",
            "arguments": {"keystrokes": k, "duration": 1.0},
        }
        for i, k in enumerate(keystrokes)
    ]
    shared = calls[0]["tool_call_id"] if len(calls) == 1 else None
    result = {"content": screen} if shared is None else {"content": screen, "source_call_id": shared}
    return {
        "step_id": number,
        "source": "agent",
        "message": "m",
        "tool_calls": calls,
        "observation": {"results": [result]},
    }


def put(trial: Path, document: Any, name: str = "trajectory.json") -> Path:
    """Leave a trajectory in a trial folder."""
    path = trial / "agent" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    path.write_bytes(data)
    return path
