"""A trial of the real Claude Code CLI, read back: outcome, usage to the token, and whether the treatment arrived."""

import platform
from pathlib import Path
from typing import Any

import pytest

from e2e.test_claude_code_real import ASK, CLIENTS, COST, DO, END, VERSION, init_event, run_claude
from servers.anthropic import AnthropicServer
from servers.base import Refusal
from servers.mcp_package import LAB
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import AgentStatus, Outcome, Trial

SERVER = {"mcpServers": {"lab": {"command": "uv", "args": ["run", "python", "server.py"]}}}
HOOKS = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "true"}]}]}}


@pytest.fixture
def cli() -> Path:
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return CLIENTS / "node_modules" / "@anthropic-ai" / f"claude-code-linux-{machine}" / "claude"


def read(folder: Path, cli: Path, server: AnthropicServer, kwargs: dict[str, Any], **env: str) -> Trial:
    trial = read_trial(run_claude(folder, cli, server, kwargs, env=env).folder).trial
    assert trial is not None
    return trial


def test_everything_that_was_delivered(tmp_path: Path, cli: Path) -> None:
    kwargs = {
        "mcp_config": SERVER,
        "mcp_source": {"path": str(LAB)},
        "hooks": HOOKS,
        "append_system_prompt": "The magic word is XYZZY.",
    }
    with AnthropicServer([ASK, DO, END], pace_sec=0.6) as server:
        ran = run_claude(tmp_path, cli, server, kwargs)
        trial = read_trial(ran.folder).trial
    assert trial is not None
    _assert_told_exactly(trial, init_event(ran))
    assert (trial.outcome, trial.agent_status, trial.suspect) == (Outcome.PASSED, AgentStatus.COMPLETED, [])
    assert (trial.agent, trial.agent_version, trial.model) == ("claude-code", VERSION, "claude-sonnet-4-5")
    usage = trial.usage
    assert (usage.input_tokens, usage.cache_write_tokens) == (3300, 210)
    assert (usage.cache_read_tokens, usage.output_tokens) == (1500, 180)
    assert usage.cost_usd == pytest.approx(COST)
    assert (usage.source, usage.cost_source) == ("claude-code", "claude-code")
    delivery = trial.delivery
    assert (delivery.mcp_configured, delivery.mcp_connected) == (["lab"], ["lab"])
    assert delivery.mcp_calls == {"mcp__lab__whoami": 1}
    assert delivery.hooks_fired == {"PreToolUse": 2}
    assert delivery.prompt_delivered is True
    assert delivery.cli_version == VERSION
    assert None not in (delivery.prompt_digest, delivery.hooks_digest, delivery.source_commit)
    assert trial.tool_calls == 2
    assert len(trial.trajectory_paths) == 1


def _assert_told_exactly(trial: Trial, told: dict[str, Any]) -> None:
    """The record holds what the event `init` of the real CLI says, no more and no less."""
    had = trial.delivery
    assert (had.told_by, had.model, had.permission_mode) == ("claude-code", told["model"], told["permissionMode"])
    assert (had.cli_version, had.model, had.permission_mode) == (VERSION, "claude-sonnet-4-5", "bypassPermissions")
    builtin = [tool for tool in told["tools"] if not tool.startswith("mcp__")]
    assert had.tools == sorted(builtin)
    assert {"Bash", "Edit", "Read", "Write"} < set(builtin)
    assert had.mcp_tools == {"lab": sorted(t.split("__")[2] for t in told["tools"] if t.startswith("mcp__"))}
    assert had.mcp_tools["lab"]
    assert had.mcp_state == {"lab": "connected"} == {one["name"]: one["status"] for one in told["mcp_servers"]}
    assert (had.mcp_undeclared, had.left_out) == ([], 0)
    for field in ("slash_commands", "skills", "agents"):
        assert getattr(had, field) == told.get(field)


def test_server_that_does_not_start_is_seen(tmp_path: Path, cli: Path) -> None:
    broken = {"mcpServers": {"lab": {"command": "/nonexistent/server"}}}
    with AnthropicServer([DO, END], pace_sec=0.6) as server:
        ran = run_claude(tmp_path, cli, server, {"mcp_config": broken})
        trial = read_trial(ran.folder).trial
    assert trial is not None
    assert (ran.reward, trial.outcome) == (1.0, Outcome.PASSED)
    assert [(s["name"], s["status"]) for s in init_event(ran)["mcp_servers"]] == [("lab", "failed")]
    assert (trial.delivery.mcp_configured, trial.delivery.mcp_connected) == (["lab"], [])
    assert trial.suspect == ["mcp_not_connected:lab"]


def test_refused_key_is_an_error_and_not_a_failure(tmp_path: Path, cli: Path) -> None:
    with AnthropicServer(refusal=Refusal(401, "authentication_error", "invalid x-api-key")) as server:
        ran = run_claude(tmp_path, cli, server, {}, env={"CLAUDE_CODE_MAX_RETRIES": "1"})
        trial = read_trial(ran.folder).trial
    assert (ran.reward, ran.error) == (0.0, "AgentAuthenticationError")
    end = ran.events()[-1]
    assert (end["type"], end["is_error"], end["api_error_status"]) == ("result", True, 401)
    assert "Invalid API key" in end["result"]
    assert len(server.main_requests) == 2, "the first try and one retry"
    assert trial is not None
    assert (trial.outcome, trial.error_class, trial.reward) == (Outcome.ERRORED, ErrorClass.AUTH, 0.0)
    assert (trial.usage.output_tokens, trial.usage.cost_usd) == (0, 0.0)


def test_running_out_of_turns_is_a_failure_of_the_agent(tmp_path: Path, cli: Path) -> None:
    with AnthropicServer([ASK, DO, END], pace_sec=0.6) as server:
        trial = read(tmp_path, cli, server, {"max_turns": 1, "mcp_config": SERVER, "mcp_source": {"path": str(LAB)}})
    assert (trial.outcome, trial.agent_status) == (Outcome.FAILED, AgentStatus.LIMIT_REACHED)
    assert trial.error_class is ErrorClass.AGENT_LIMIT
