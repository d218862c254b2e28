"""The real Claude Code CLI in the local sandbox against a scripted Anthropic server, through real Harbor."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, override

import pytest
from harbor.models.trajectories import Trajectory

from servers.anthropic import AnthropicServer
from servers.base import Handler, Refusal, Request, Tokens, Turn
from servers.git_http import GitServer
from servers.harbor_job import INSTRUCTION, SOLVE, Trial, run_trial
from servers.mcp_package import LAB, write_package, write_repository
from support.pace import seconds
from support.tools import CLAUDE, CLIENTS
from terminalbench.analytics.long_trajectory import running_trajectory, spent_so_far
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import AgentStatus, Outcome
from terminalbench.records.trial import Trial as Read
from terminalbench.secrets.values import Secrets

AGENT = "terminalbench.harbor.agents.claude_code:ClaudeCodeAgent"
VERSION = json.loads((CLIENTS / "package.json").read_text())["optionalDependencies"][
    "@anthropic-ai/claude-code-linux-x64"
]
KEY, LAB_TOKEN, GITHUB_TOKEN = "sk-ant-scripted-key", "lab-scripted-token", "ghp-scripted-token"
ASK = Turn("I ask the lab.", [("mcp__lab__whoami", {})], Tokens(1000, 200, 300, 50))
DO = Turn("", [("Bash", {"command": SOLVE, "description": "Write the file"})], Tokens(1100, 10, 500, 60))
END = Turn("Done.", (), Tokens(1200, 0, 700, 70))
# List prices of claude-sonnet-4-5 in USD per million: input, cache write, cache read, output.
COST = (3300 * 3 + 210 * 3.75 + 1500 * 0.3 + 180 * 15) / 1e6


@pytest.fixture(scope="session")
def claude() -> Path:
    """The pinned CLI."""
    return CLAUDE.path()


def run_claude(
    folder: Path, claude: Path, server: AnthropicServer, kwargs: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> Trial:
    """One trial of the agent with `kwargs`; secrets come from the child's environment, as templates."""
    secrets = {"ANTHROPIC_API_KEY": KEY, "LAB_TOKEN": LAB_TOKEN, "GITHUB_TOKEN": GITHUB_TOKEN}
    agent = {
        "import_path": AGENT,
        "model_name": "claude-sonnet-4-5",
        "env": {"ANTHROPIC_BASE_URL": server.url, **{name: f"${{{name}}}" for name in secrets}, **(env or {})},
        "kwargs": {"version": VERSION, **kwargs},
    }
    mount = {"type": "bind", "source": str(claude), "target": "/usr/local/bin/claude", "read_only": True}
    trial = run_trial(folder, agent, env=secrets, mounts=[mount])
    leaks = [path for path in (folder / "jobs").rglob("*") if path.is_file() and _holds_secret(path)]
    assert leaks == [], "a secret is in the results"
    return trial


def _holds_secret(path: Path) -> bool:
    data = path.read_bytes()
    return any(secret.encode() in data for secret in (KEY, LAB_TOKEN, GITHUB_TOKEN))


def lab_answers(server: AnthropicServer) -> list[dict[str, Any]]:
    """What the lab's tools told the model in the first turn, read from the request that followed."""
    blocks = [b for b in server.main_requests[1].body["messages"][-1]["content"] if b["type"] == "tool_result"]
    texts = [b["content"][0]["text"] if isinstance(b["content"], list) else b["content"] for b in blocks]
    return [json.loads(text) for text in texts]


def init_event(trial: Trial) -> dict[str, Any]:
    return next(event for event in trial.events() if event.get("subtype") == "init")


class _WatchedServer(AnthropicServer):
    """Gives its last answer when the steps before it are seen in the folder of the trial that runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__([ASK, DO, END])
        self._folder = folder
        self.seen: tuple[str, list[str]] | None = None

    @override
    def record(self, request: Request) -> None:
        super().record(request)
        until = time.monotonic() + seconds(60)
        while len(self.main_requests) == 3 and self.seen is None and time.monotonic() < until:
            time.sleep(0.05)
            for trial in self._folder.glob("jobs/job/*__*"):
                found = running_trajectory(trial, Secrets())
                if found is not None and len(found[1].steps) == 2 and found[1].steps[1].results:
                    calls = [call.name for step in found[1].steps for call in step.calls]
                    self.seen = spent_so_far(found[1], trial).words(), calls


def test_a_profile_with_everything(tmp_path: Path, claude: Path) -> None:
    """Its steps are seen while it runs, too."""
    stamp = "uv run python hooks/stamp.py /logs/agent/stamps.txt"
    with _WatchedServer(tmp_path) as server:
        trial = run_claude(
            tmp_path,
            claude,
            server,
            {
                "append_system_prompt": "The magic word is XYZZY.",
                "mcp_config": {
                    "mcpServers": {
                        "lab": {
                            "command": "uv",
                            "args": ["run", "python", "server.py"],
                            "env": {"LAB_GREETING": "${LAB_TOKEN}"},
                        }
                    }
                },
                "mcp_source": {"path": str(LAB)},
                "hooks": {
                    "hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": stamp}]}]}
                },
            },
        )
    assert (trial.reward, trial.error) == (1.0, None)
    assert server.seen == ("2 steps, 3,110 tokens, at least $0.0072", ["mcp__lab__whoami", "Bash"])

    used = trial.result["agent_result"]
    assert (used["n_input_tokens"], used["n_cache_tokens"], used["n_output_tokens"]) == (5010, 1500, 180)
    assert used["cost_usd"] == pytest.approx(COST, abs=1e-12)
    end = trial.events()[-1]
    assert {name: end["usage"][name] for name in end["usage"] if name.endswith("input_tokens")} == {
        "input_tokens": 3300,
        "cache_creation_input_tokens": 210,
        "cache_read_input_tokens": 1500,
    }
    assert end["usage"]["output_tokens"] == 180
    assert end["total_cost_usd"] == pytest.approx(COST, abs=1e-12)

    first = server.main_requests[0]
    assert first.headers["x-api-key"] == KEY
    assert first.body["model"] == "claude-sonnet-4-5"
    assert "The magic word is XYZZY." in json.dumps(first.body["system"])
    assert INSTRUCTION.strip() in json.dumps(first.body["messages"])
    assert "mcp__lab__whoami" in [tool["name"] for tool in first.body["tools"]]
    assert (len(server.main_requests), len(server.side_requests)) == (3, 0)

    assert [(s["name"], s["status"]) for s in init_event(trial)["mcp_servers"]] == [("lab", "connected")]
    [told] = lab_answers(server)
    assert (told["file"], told["greeting"]) == ("/opt/tbench-mcp/src/server.py", LAB_TOKEN)
    stamps = (trial.folder / "agent" / "stamps.txt").read_text().splitlines()
    assert stamps == ["PreToolUse mcp__lab__whoami", "PreToolUse Bash"]
    fired = [event["hook_name"] for event in trial.events() if event.get("subtype") == "hook_response"]
    assert fired == ["PreToolUse:mcp__lab__whoami", "PreToolUse:Bash"]

    delivery = trial.json("agent/delivery.json")
    assert used["metadata"]["delivery"] == delivery
    assert (delivery["cli_version"], delivery["mcp_servers"]) == (VERSION, ["lab"])
    assert delivery["mcp_source"]["installed"] is False
    trajectory = Trajectory.model_validate(trial.json("agent/trajectory.json"))
    calls = [call.function_name for step in trajectory.steps for call in step.tool_calls or []]
    assert calls == ["mcp__lab__whoami", "Bash"]
    assert trajectory.agent.version == VERSION
    read = read_trial(trial.folder).trial
    assert read is not None
    _assert_read_back(read)
    _assert_told_exactly(read, init_event(trial))


def _assert_read_back(trial: Read) -> None:
    """The record has the outcome, the usage to the token, and that the treatment arrived."""
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


def _assert_told_exactly(trial: Read, told: dict[str, Any]) -> None:
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


def test_a_server_from_a_pinned_commit_of_a_private_repository(tmp_path: Path, claude: Path) -> None:
    repository, commit = write_repository(tmp_path)
    with GitServer(repository, GITHUB_TOKEN) as host, AnthropicServer([ASK, DO, END]) as server:
        source = {"git": f"{host.url}/repo.git", "ref": "v1"}
        trial = run_claude(
            tmp_path,
            claude,
            server,
            {
                "mcp_config": {
                    "mcpServers": {"lab": {"command": "uv", "args": ["run", "python", "-m", "tbench_lab.server"]}}
                },
                "mcp_source": source,
                "mcp_extras": ["fancy", "absent"],
            },
            env={"GH_HOST": host.url.removeprefix("http://")},
        )
    assert (trial.reward, trial.error) == (1.0, None)
    [told] = lab_answers(server)
    assert told["python"] == "/opt/tbench-mcp/venv/bin/python"
    assert told["file"].startswith("/opt/tbench-mcp/venv/lib/")
    assert trial.json("agent/delivery.json")["mcp_source"] == {
        **source,
        "commit": commit,
        "installed": True,
        "extras": ["fancy"],
        "extras_missing": ["absent"],
    }
    assert host.sent_credentials == {f"x-access-token:{GITHUB_TOKEN}"}


def test_a_server_that_cannot_be_installed_ends_the_trial_before_the_agent(tmp_path: Path, claude: Path) -> None:
    package = write_package(tmp_path / "package")
    (package / "backend.py").write_text("raise RuntimeError('this backend is broken')\n")
    with AnthropicServer([END]) as server:
        trial = run_claude(
            tmp_path,
            claude,
            server,
            {"mcp_config": {"mcpServers": {"lab": {"command": "python"}}}, "mcp_source": {"path": str(package)}},
        )
    assert (trial.reward, trial.error) == (None, "McpSetupError")
    assert "this backend is broken" in trial.result["exception_info"]["exception_message"]
    assert "this backend is broken" in (trial.folder / "agent" / "setup" / "mcp-install.log").read_text()
    assert trial.result["agent_execution"] is None
    assert server.main_requests == []


def test_two_servers_from_two_folders_and_one_that_does_not_start(tmp_path: Path, claude: Path) -> None:
    package = write_package(tmp_path / "package")
    servers = {
        "lab": {"command": "python", "args": ["server.py"]},
        "packaged": {"command": "uv", "args": ["run", "python", "-m", "tbench_lab.server"], "cwd": "tbench_lab"},
    }
    broken = {"broken": {"command": "/nonexistent/server"}}
    both = Turn("", [("mcp__lab__whoami", {}), ("mcp__packaged__whoami", {})])
    with AnthropicServer([both, DO, END], pace_sec=0.6) as server:
        trial = run_claude(
            tmp_path,
            claude,
            server,
            {
                "mcp_config": {"mcpServers": servers | broken},
                "mcp_source": {"paths": {"lab": str(LAB), "packaged": str(package)}},
            },
        )
    assert trial.reward == 1.0
    states = {s["name"]: s["status"] for s in init_event(trial)["mcp_servers"]}
    assert states == {"lab": "connected", "packaged": "connected", "broken": "failed"}
    plain, packaged = lab_answers(server)
    assert plain["file"] == "/opt/tbench-mcp/1-lab/src/server.py"
    assert packaged["python"] == "/opt/tbench-mcp/2-packaged/venv/bin/python"
    assert packaged["folder"] == "/opt/tbench-mcp/2-packaged/src/tbench_lab"
    read = read_trial(trial.folder).trial
    assert read is not None
    assert (read.outcome, read.suspect) == (Outcome.PASSED, ["mcp_not_connected:broken"])
    assert read.delivery.mcp_configured == ["lab", "packaged", "broken"]
    assert sorted(read.delivery.mcp_connected or []) == ["lab", "packaged"]


def test_tool_search_is_off_unless_the_profile_turns_it_on_and_running_out_of_turns_is_the_agents_failure(
    tmp_path: Path, claude: Path
) -> None:
    with AnthropicServer([ASK, DO, END], pace_sec=0.6) as server:
        trial = run_claude(
            tmp_path,
            claude,
            server,
            {
                "mcp_config": {"mcpServers": {"lab": {"command": "python", "args": ["server.py"]}}},
                "mcp_source": {"path": str(LAB)},
                "max_turns": 1,
            },
            env={"ENABLE_TOOL_SEARCH": "true"},
        )
    offered = [tool["name"] for tool in server.main_requests[0].body["tools"]]
    assert "mcp__lab__whoami" not in offered
    assert "ToolSearch" in offered
    read = read_trial(trial.folder).trial
    assert read is not None
    assert (read.outcome, read.agent_status) == (Outcome.FAILED, AgentStatus.LIMIT_REACHED)
    assert read.error_class is ErrorClass.AGENT_LIMIT


def test_a_failing_provider_is_named_in_the_result(tmp_path: Path, claude: Path) -> None:
    """One that limits rates is in test_rate_limits, a refused key in test_harbor_agents."""
    with AnthropicServer(refusal=Refusal(500, "api_error", "scripted refusal")) as server:
        trial = run_claude(tmp_path, claude, server, {}, env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    assert (trial.reward, trial.error) == (0.0, "ApiInternalServerError")
    end = trial.events()[-1]
    assert (end["type"], end["is_error"], end["api_error_status"]) == ("result", True, 500)
    assert "scripted refusal" in end["result"]
    assert len(server.main_requests) == 2, "the first try and one retry"
    read = read_trial(trial.folder).trial
    assert read is not None
    assert (read.outcome, read.reward) == (Outcome.ERRORED, 0.0)
    assert (read.usage.output_tokens, read.usage.cost_usd) == (0, 0.0)


class CutOnce(AnthropicServer):
    """Ends one answer in the middle of its text, after it has told what was sent."""

    cut_at = 2

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.body.get("tools") and len(self.main_requests) == self.cut_at:
            self.cut_at = 0
            usage = {"input_tokens": 1100, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 10}
            message = {"id": "msg_cut", "type": "message", "role": "assistant", "model": request.body["model"]}
            start = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "I beg"}
            to.start_chunks("text/event-stream")
            for event in (
                {"type": "message_start", "message": start},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
            ):
                to.chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            to.close_connection = True
            return None
        return super().reply(to, request)


def test_tokens_of_an_answer_that_was_cut_off_are_unknown_and_the_others_are_counted(
    tmp_path: Path, claude: Path
) -> None:
    with CutOnce([Turn("", [("Bash", {"command": "true", "description": "x"})], ASK.tokens), DO, END]) as server:
        trial = run_claude(tmp_path, claude, server, {})
        assert len(server.main_requests) == 4
    found = read_trial(trial.folder).trial
    assert found is not None
    used = found.usage
    assert (used.input_tokens, used.cache_write_tokens, used.cache_read_tokens) == (3300, 210, 1500)
    assert used.source in ("claude-code", "claude-code:cut"), "the CLI counts a cut answer at times"
    assert found.wait is not None
    assert found.wait.refused == {"none": 1}
