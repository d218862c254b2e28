"""A trial of the real Claude Code CLI, read back: outcome, usage to the token, and whether the treatment arrived."""

import platform
from pathlib import Path
from typing import Any

import pytest

from e2e.test_claude_code_real import ASK, CLIENTS, DO, END, init_event, run_claude
from servers.anthropic import AnthropicServer
from servers.base import Refusal
from servers.mcp_package import LAB
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import AgentStatus, Outcome, Trial

SERVER = {"mcpServers": {"lab": {"command": "uv", "args": ["run", "python", "server.py"]}}}


@pytest.fixture
def cli() -> Path:
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return CLIENTS / "node_modules" / "@anthropic-ai" / f"claude-code-linux-{machine}" / "claude"


def read(folder: Path, cli: Path, server: AnthropicServer, kwargs: dict[str, Any], **env: str) -> Trial:
    trial = read_trial(run_claude(folder, cli, server, kwargs, env=env).folder).trial
    assert trial is not None
    return trial


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
