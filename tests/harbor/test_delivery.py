"""Did the treatment arrive: MCP servers, hooks and prompt, from what a session left behind."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from results_kit import CLAUDE, claude, result, write_trial

from terminalbench.harbor.read.results import read_trial
from terminalbench.harbor.read.session_start import LONGEST_NAME, MOST_NAMES, server_of
from terminalbench.records.trial import Delivery, Trial

NOTE = {
    "mcp_servers": ["lab"],
    "source_commit": "c0ffee",
    "hooks_digest": "sha256:1",
    "prompt_digest": "sha256:2",
    "cli_version": "2.1.325",
}


def read(tmp_path: Path, agent: dict[str, str], **changes: Any) -> Trial:
    streams = {"agent_info": CLAUDE} if "claude-code.txt" in agent else {}
    reading = read_trial(write_trial(tmp_path, result(**streams, **changes), agent))
    assert reading.trial is not None
    return reading.trial


def config(**agent: Any) -> dict[str, Any]:
    return {**result()["config"], "agent": {"name": "claude-code", "kwargs": {}, "mcp_servers": [], **agent}}


def trajectory(*calls: str) -> str:
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "do it"}]
    steps += [{"step_id": 2, "source": "agent", "message": "", "tool_calls": [{"function_name": c} for c in calls]}]
    return json.dumps({"schema_version": "ATIF-v1.7", "session_id": "s", "steps": steps})


def test_real_session(tmp_path: Path) -> None:
    trial = read(tmp_path, {"claude-code.txt": claude("mcp_and_hooks"), "delivery.json": json.dumps(NOTE)})
    assert trial.delivery == Delivery(
        mcp_configured=["lab", "broken"],
        mcp_connected=["lab"],
        mcp_calls={"mcp__lab__ping": 1},
        hooks_fired={"PreToolUse": 2, "SessionStart": 1, "Stop": 1},
        prompt_delivered=True,
        prompt_digest="sha256:2",
        hooks_digest="sha256:1",
        source_commit="c0ffee",
        cli_version="2.1.325",
        told_by="claude-code",
        model="claude-sonnet-4-5",
        permission_mode="bypassPermissions",
        tools=["Bash", "Edit", "Read", "Write"],
        mcp_tools={"lab": ["ping"]},
        mcp_state={"lab": "connected", "broken": "failed"},
        mcp_undeclared=["broken"],
    )
    assert trial.suspect == ["mcp_not_connected:broken"]
    assert trial.tool_calls == 2


def test_nothing_is_claimed_of_an_agent_that_left_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {}).delivery == Delivery()


def test_server_still_pending_at_the_start_counts_when_its_tools_are_there(tmp_path: Path) -> None:
    text = claude("mcp_and_hooks").replace('"status":"connected"', '"status":"pending"')
    assert read(tmp_path, {"claude-code.txt": text}).delivery.mcp_connected == ["lab"]


def test_pending_server_without_tools_or_calls_is_not_connected(tmp_path: Path) -> None:
    lines = [line for line in claude("denied").splitlines() if line]
    init = json.loads(lines[0])
    init["mcp_servers"] = [{"name": "lab", "status": "pending"}]
    trial = read(tmp_path, {"claude-code.txt": "\n".join([json.dumps(init), *lines[1:]])})
    assert trial.delivery.mcp_connected == []
    assert "mcp_not_connected:lab" in trial.suspect
    assert "permission_denied" in trial.suspect


def test_configured_server_without_any_evidence_is_unknown(tmp_path: Path) -> None:
    trial = read(tmp_path, {}, config=config(mcp_servers=[{"name": "lab", "transport": "stdio"}]))
    assert (trial.delivery.mcp_configured, trial.delivery.mcp_connected) == (["lab"], None)
    assert trial.suspect == []


def test_calls_of_other_agents_come_from_the_trajectory(tmp_path: Path) -> None:
    trial = read(tmp_path, {"trajectory.json": trajectory("bash", "mcp__my_db__query", "mcp__my_db__query")},
                 config=config(kwargs={"mcp_config": {"mcpServers": {"my.db": {}, "other": {}}}}))  # fmt: skip
    assert trial.delivery.mcp_configured == ["my.db", "other"]
    assert trial.delivery.mcp_connected == ["my.db"]
    assert trial.delivery.mcp_calls == {"mcp__my_db__query": 2}
    assert trial.tool_calls == 3


def test_server_that_was_never_called_is_told_from_one_nobody_watched(tmp_path: Path) -> None:
    watched = read(tmp_path, {"trajectory.json": trajectory("bash")}, config=config(mcp_servers=[{"name": "lab"}]))
    assert watched.delivery.mcp_calls == {}


def test_hooks_that_never_fired(tmp_path: Path) -> None:
    text = "\n".join(line for line in claude("mcp_and_hooks").splitlines() if "hook_" not in line)
    ours = read(tmp_path, {"claude-code.txt": text, "delivery.json": json.dumps(NOTE)})
    assert ours.delivery.hooks_fired == {}
    other = read(tmp_path / "other", {"claude-code.txt": text})
    assert other.delivery.hooks_fired is None, "without our agent nobody asked for hook events"


def test_prompt_that_did_not_arrive(tmp_path: Path) -> None:
    note = json.dumps({**NOTE, "prompt_digest": None})
    trial = read(tmp_path, {"delivery.json": note}, config=config(kwargs={"append_system_prompt": "Be brief."}))
    assert trial.delivery.prompt_delivered is False


def test_the_note_in_harbors_result_outranks_the_file_the_agent_can_write(tmp_path: Path) -> None:
    told = {"delivery": {"mcp_servers": ["lab"], "system_prompt_sha256": "ab", "mcp_source": {"commit": "1234"}}}
    forged = json.dumps({**NOTE, "source_commit": "forged"})
    trial = read(tmp_path, {"delivery.json": forged}, agent_result={"metadata": told})
    assert (trial.delivery.source_commit, trial.delivery.prompt_digest) == ("1234", "ab")


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"mcp_servers": 3}', '{"mcp_servers": [1, null]}', "[" * 5000])
def test_bad_note_is_no_note(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, {"delivery.json": text}).delivery.mcp_configured is None


@pytest.mark.parametrize("name", ["claude-code.txt", "trajectory.json", "delivery.json"])
def test_link_or_pipe_planted_by_the_agent_is_not_followed(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(claude("mcp_and_hooks") if name == "claude-code.txt" else json.dumps({**NOTE, "steps": []}))
    linked = write_trial(tmp_path / "a", result())
    (linked / "agent" / name).symlink_to(secret)
    piped = write_trial(tmp_path / "b", result())
    os.mkfifo(piped / "agent" / name)
    for folder in (linked, piped):
        trial = read_trial(folder).trial
        assert trial is not None
        assert trial.delivery == Delivery()
        assert trial.trajectory_paths == []


def init(**fields: Any) -> str:
    return json.dumps({"type": "system", "subtype": "init", "session_id": "s", **fields}) + "\n"


def test_what_the_session_says_of_itself_is_bounded_and_cannot_act(tmp_path: Path) -> None:
    text = init(
        model="m\x1b[31m\nodel",
        tools=["Bash", "Bash", 3, None, {"name": "Edit"}, "x" * 10_000, *(f"tool{n:04}" for n in range(5000))],
        mcp_servers=[{"name": "lab\x07"}, "plain", {"status": "connected"}, 7],
        permissionMode=["default"],
        slash_commands="none",
        skills=[],
    )
    delivery = read(tmp_path, {"claude-code.txt": text}).delivery
    assert (delivery.model, delivery.permission_mode, delivery.slash_commands) == ("m␊odel", None, None)
    assert delivery.tools is not None
    assert len(delivery.tools) == MOST_NAMES
    assert max(map(len, delivery.tools)) == LONGEST_NAME
    assert {"Bash", "Edit"} < set(delivery.tools)
    assert delivery.left_out == 5003 - MOST_NAMES
    assert delivery.mcp_state == {"lab␇": "unknown", "plain": "unknown"}
    assert delivery.skills == []


def test_the_steps_of_a_task_are_several_sessions(tmp_path: Path) -> None:
    steps = [{"step_name": "one"}, {"step_name": "two"}]
    folder = write_trial(tmp_path, result(step_results=steps, agent_info=CLAUDE))
    for step, model, tools in (("one", "m", ["Bash"]), ("two", "n", ["Bash", "Edit"])):
        (folder / "steps" / step / "agent").mkdir(parents=True)
        (folder / "steps" / step / "agent" / "claude-code.txt").write_text(init(model=model, tools=tools))
    trial = read_trial(folder).trial
    assert trial is not None
    assert (trial.delivery.model, trial.delivery.tools) == ("m and n", ["Bash", "Edit"])


def test_agents_without_a_stream_tell_in_their_trajectory(tmp_path: Path) -> None:
    document = json.loads(trajectory("bash"))
    tools = [{"type": "function", "function": {"name": "bash"}}, {"name": "mcp__lab__ping"}]
    document["agent"] = {"name": "openhands", "version": "1.2", "model_name": "m", "tool_definitions": tools}
    delivery = read(tmp_path, {"trajectory.json": json.dumps(document)}).delivery
    assert (delivery.told_by, delivery.cli_version, delivery.model) == ("trajectory", "1.2", "m")
    assert (delivery.tools, delivery.mcp_tools) == (["bash"], {"lab": ["ping"]})
    document["agent"] = {"name": "terminus-2", "version": "unknown", "model_name": None}
    assert read(tmp_path / "silent", {"trajectory.json": json.dumps(document)}).delivery.told_by is None


def _named(agent: str) -> dict[str, Any]:
    return {"agent_info": {"name": agent, "version": "1"}, "config": config(name=agent)}


def test_codex_and_cursor_tell_in_logs_of_their_own(tmp_path: Path) -> None:
    told = init(model="gpt", permissionMode="default", apiKeySource="env", cwd="/app")
    cursor = read(tmp_path / "cursor", {"cursor-cli.txt": f"noise\n{told}"}, **_named("cursor-cli")).delivery
    assert (cursor.told_by, cursor.model, cursor.permission_mode) == ("cursor-cli", "gpt", "default")
    assert (cursor.tools, cursor.mcp_state) == (None, None), "it says nothing of them"
    folder = write_trial(tmp_path / "codex", result(**_named("codex")))
    day = folder / "agent" / "sessions" / "2026" / "01" / "02"
    day.mkdir(parents=True)
    turn = {"model": "gpt-5", "approval_policy": "never", "sandbox_policy": {"type": "danger-full-access"}}
    events = [{"type": "session_meta", "payload": {"cli_version": "0.99"}}, {"type": "turn_context", "payload": turn}]
    (day / "rollout-2026-01-02T03-04-05-x.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in events))
    trial = read_trial(folder).trial
    assert trial is not None
    codex = trial.delivery
    assert (codex.told_by, codex.cli_version, codex.model) == ("codex", "0.99", "gpt-5")
    assert codex.permission_mode == "never, danger-full-access"
    day.rename(tmp_path / "elsewhere")
    day.symlink_to(tmp_path / "elsewhere")
    linked = read_trial(folder).trial
    assert linked is not None
    assert linked.delivery.told_by is None, "a link that the agent made is not followed"


@pytest.mark.parametrize(
    ("tool", "server"),
    [("mcp__lab__ping", "lab"), ("mcp__a_b__c__d", "a_b"), ("Bash", None), ("mcp__", None), ("mcp__lab", None)],
)
def test_server_of_a_tool(tool: str, server: str | None) -> None:
    assert server_of(tool) == server
