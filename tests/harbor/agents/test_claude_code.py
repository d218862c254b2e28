"""What the agent does in the sandbox, on an environment that only writes it down: commands, files, record."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harbor.agents.installed.base import (
    AgentAuthenticationError,
    ApiInternalServerError,
    ApiOverloadedError,
    ApiRateLimitError,
    ContextWindowExceededError,
    ModelNotFoundError,
    NonZeroAgentExitCodeError,
    UnknownApiError,
)
from harbor.agents.installed.claude_code import ClaudeCode
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import MCPServerConfig

from terminalbench.experiments.claude_settings import digest
from terminalbench.harbor.agents.claude_code import ClaudeCodeAgent
from terminalbench.harbor.agents.claude_source import McpSetupError

SECRET = "sk-never-on-a-command-line"
MCP_CONFIG = {
    "mcpServers": {
        "lab": {"command": "uv", "args": ["run", "python", "server.py"], "env": {"LAB_TOKEN": "${LAB_TOKEN}"}},
        "docs": {"type": "http", "url": "http://docs/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN:-none}"}},
    }
}
HOOKS = {
    "hooks": {"PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "python hooks/stamp.py"}]}]}
}

COMMAND = (
    'set -o pipefail; export PATH="$HOME/.local/bin:$PATH"; instruction="$INSTRUCTION"; unset INSTRUCTION; '
    'printf "%s" "$instruction" | claude --verbose --output-format=stream-json '
    "--settings /tmp/claude-code-settings/settings.json --effort low "
    "--append-system-prompt 'Use the lab'\"'\"'s tools.' --permission-mode=bypassPermissions "
    "--mcp-config /opt/tbench-mcp/mcp.json --strict-mcp-config --include-hook-events "
    "--print 2>&1 | tee /logs/agent/claude-code.txt"
)
SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {
                "matcher": "*",
                "hooks": [{"type": "command", "command": "python3 /opt/tbench-mcp/src/hooks/stamp.py", "timeout": 60}],
            }
        ]
    },
    "permissions": {"allow": ["mcp__lab", "mcp__docs"]},
}
MCP_FILE = {
    "mcpServers": {
        "lab": {
            "command": "python3",
            "args": ["/opt/tbench-mcp/src/server.py"],
            "env": {"LAB_TOKEN": "${LAB_TOKEN}"},
        },
        "docs": {"type": "http", "url": "http://docs/mcp", "headers": {"Authorization": "Bearer ${DOCS_TOKEN:-none}"}},
    }
}


class RecordingEnvironment:
    """Answers every command with success and writes down what was run and uploaded."""

    default_user = None

    def __init__(self, answers: Mapping[str, ExecResult] | None = None) -> None:
        self.commands: list[str] = []
        self.envs: list[dict[str, str]] = []
        self.files: dict[str, str] = {}
        self.answers = dict(answers or {})

    async def exec(self, command: str, env: dict[str, str] | None = None, **_: Any) -> ExecResult:
        self.commands.append(command)
        self.envs.append(env or {})
        for part, answer in self.answers.items():
            if part in command:
                return answer
        return ExecResult(stdout="2.1.325 (Claude Code)\n", stderr="", return_code=0)

    async def upload_file(self, source_path: Path, target_path: str) -> None:
        self.files[target_path] = Path(source_path).read_text()

    async def upload_dir(self, source_dir: Path, target_dir: str) -> None:
        for path in sorted(Path(source_dir).rglob("*")):
            if path.is_file():
                self.files[f"{target_dir}/{path.relative_to(source_dir)}"] = path.read_text()

    @property
    def launch(self) -> str:
        """The one command that starts the agent, with its random names made plain."""
        [command] = [command for command in self.commands if "claude --verbose" in command]
        command = re.sub(r"HARBOR_CLAUDE_CODE_INSTRUCTION_\w+", "INSTRUCTION", command)
        return re.sub(r"harbor_claude_code_instruction_\w+", "instruction", command)

    @property
    def launch_env(self) -> dict[str, str]:
        """The variables the agent is started with, beyond those of the agent's env."""
        return next(env for command, env in zip(self.commands, self.envs, strict=True) if "claude --verbose" in command)


LISTING = ExecResult(stdout="folder\nserver.py\nhooks/stamp.py\n", stderr="", return_code=0)


def drive(agent: ClaudeCode, environment: RecordingEnvironment) -> AgentContext:
    """Set the agent up and run it, as a trial does."""
    context = AgentContext()
    real = cast(BaseEnvironment, environment)

    async def go() -> None:
        await agent.setup(real)
        await agent.run("Do it.", real, context)

    asyncio.run(go())
    agent.populate_context_post_run(context)
    return context


@pytest.fixture(autouse=True)
def _no_price_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Harbor prices a trajectory with LiteLLM, which else fetches its table at import."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    (folder / "hooks").mkdir(parents=True)
    (folder / "server.py").write_text("serve")
    (folder / "hooks" / "stamp.py").write_text("stamp")
    for secret in (".env", ".env.local", ".git/config", ".venv/pyvenv.cfg", "__pycache__/server.pyc"):
        (folder / secret).parent.mkdir(exist_ok=True)
        (folder / secret).write_text(SECRET)
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ClaudeCodeAgent]:
    def build(**kwargs: Any) -> ClaudeCodeAgent:
        env = kwargs.pop("extra_env", {"ANTHROPIC_API_KEY": SECRET})
        return ClaudeCodeAgent(tmp_path / "agent", model_name="claude-sonnet-4-5", extra_env=env, **kwargs)

    (tmp_path / "agent").mkdir()
    return build


def test_without_our_options_it_is_harbors_agent(tmp_path: Path, make: Callable[..., ClaudeCodeAgent]) -> None:
    ours, theirs = RecordingEnvironment(), RecordingEnvironment()
    options: dict[str, Any] = {"max_turns": 3, "config": {"model": "x"}, "disallowed_tools": "WebFetch"}
    drive(make(**options), ours)
    drive(ClaudeCode(tmp_path / "agent", model_name="claude-sonnet-4-5", **options), theirs)
    assert ours.launch == theirs.launch
    assert len(ours.commands) == len(theirs.commands)
    assert ours.files == theirs.files
    assert ClaudeCodeAgent.name() == ClaudeCode.name() == "claude-code"


def test_the_whole_treatment_reaches_the_command_line_and_the_files(
    make: Callable[..., ClaudeCodeAgent], source: Path
) -> None:
    environment = RecordingEnvironment({"inspect the source": LISTING, "LAB_TOKEN": ExecResult(return_code=0)})
    agent = make(
        mcp_config=MCP_CONFIG,
        mcp_source={"path": str(source)},
        hooks=HOOKS,
        append_system_prompt="Use the lab's tools.",
        reasoning_effort="low",
        extra_env={"ANTHROPIC_API_KEY": SECRET, "LAB_TOKEN": SECRET},
    )
    drive(agent, environment)
    assert environment.launch == COMMAND
    assert json.loads(environment.files["/tmp/claude-code-settings/settings.json"]) == SETTINGS
    assert json.loads(environment.files["/opt/tbench-mcp/mcp.json"]) == MCP_FILE
    uploaded = {name for name in environment.files if name.startswith("/opt/tbench-mcp/src")}
    assert uploaded == {"/opt/tbench-mcp/src/server.py", "/opt/tbench-mcp/src/hooks/stamp.py"}
    assert environment.launch_env["ENABLE_TOOL_SEARCH"] == "false"
    assert not [text for text in [*environment.commands, *environment.files.values()] if SECRET in text]


def test_user_settings_are_merged_not_replaced(make: Callable[..., ClaudeCodeAgent], tmp_path: Path) -> None:
    own = tmp_path / "settings.json"
    own.write_text(json.dumps({"env": {"A": "1"}, "permissions": {"deny": ["WebFetch"]}}))
    environment = RecordingEnvironment({"LAB_TOKEN": ExecResult(return_code=0)})
    drive(make(config=str(own), mcp_config=MCP_CONFIG), environment)
    assert json.loads(environment.files["/tmp/claude-code-settings/settings.json"]) == {
        "env": {"A": "1"},
        "permissions": {"deny": ["WebFetch"], "allow": ["mcp__lab", "mcp__docs"]},
    }
    assert environment.launch.count("--settings") == 1


def test_servers_of_the_task_stay_beside_ours(make: Callable[..., ClaudeCodeAgent]) -> None:
    environment = RecordingEnvironment({"LAB_TOKEN": ExecResult(return_code=0)})
    task_servers = [
        MCPServerConfig(name="tasks", transport="streamable-http", url="http://task/mcp"),
        MCPServerConfig(name="lab", transport="stdio", command="overridden"),
    ]
    drive(make(mcp_config=MCP_CONFIG, mcp_servers=task_servers), environment)
    servers = json.loads(environment.files["/opt/tbench-mcp/mcp.json"])["mcpServers"]
    assert servers["tasks"] == {"type": "http", "url": "http://task/mcp"}
    assert servers["lab"]["command"] == "uv"
    assert list(servers) == ["tasks", "lab", "docs"]


def test_a_profile_without_servers_has_those_of_the_task_and_no_others(make: Callable[..., ClaudeCodeAgent]) -> None:
    environment = RecordingEnvironment()
    tasks = MCPServerConfig(name="tasks", transport="streamable-http", url="http://task/mcp")
    drive(make(strict_mcp_config=True, mcp_servers=[tasks]), environment)
    assert list(json.loads(environment.files["/opt/tbench-mcp/mcp.json"])["mcpServers"]) == ["tasks"]
    assert "--mcp-config /opt/tbench-mcp/mcp.json --strict-mcp-config" in environment.launch
    environment = RecordingEnvironment()
    drive(make(strict_mcp_config=True), environment)
    assert "--strict-mcp-config" in environment.launch
    assert "--mcp-config" not in environment.launch.replace("--strict-mcp-config", "")


def test_the_record_says_what_was_delivered(make: Callable[..., ClaudeCodeAgent], source: Path) -> None:
    environment = RecordingEnvironment({"inspect the source": LISTING, "LAB_TOKEN": ExecResult(return_code=0)})
    agent = make(mcp_config=MCP_CONFIG, mcp_source={"path": str(source)}, hooks=HOOKS, append_system_prompt="Hi.")
    context = drive(agent, environment)
    delivery = json.loads((agent.logs_dir / "delivery.json").read_text())
    assert context.metadata == {"delivery": delivery}
    record = delivery.pop("mcp_source")
    assert re.fullmatch("[0-9a-f]{64}", record.pop("sha256"))
    assert record == {"path": str(source), "installed": False, "extras": [], "extras_missing": []}
    assert delivery == {
        "agent": "claude-code",
        "cli_version": "2.1.325",
        "mcp_servers": ["lab", "docs"],
        "mcp_config_sha256": digest(MCP_CONFIG),
        "hook_events": ["PreToolUse"],
        "hooks_sha256": digest(HOOKS),
        "system_prompt_sha256": digest("Hi."),
        "settings_sha256": digest(SETTINGS),
    }


def test_without_treatment_the_record_says_so(make: Callable[..., ClaudeCodeAgent]) -> None:
    delivery = (drive(make(), RecordingEnvironment()).metadata or {})["delivery"]
    assert delivery["mcp_servers"] == delivery["hook_events"] == []
    absent = ("mcp_config_sha256", "mcp_source", "hooks_sha256", "system_prompt_sha256", "settings_sha256")
    assert {name: delivery[name] for name in absent} == dict.fromkeys(absent)


def test_a_failing_install_ends_the_setup_with_the_log(make: Callable[..., ClaudeCodeAgent], source: Path) -> None:
    failed = ExecResult(stdout="ERROR: no matching distribution\n", stderr="", return_code=1)
    package = ExecResult(stdout="package\n", stderr="", return_code=0)
    pip = ExecResult(stdout="pip\n", stderr="", return_code=0)
    answers = {"inspect the source": package, "create a virtual environment": pip, "== install": failed}
    with pytest.raises(McpSetupError, match=r"failed at: install \(exit 1\)\nERROR: no matching distribution"):
        drive(make(mcp_config=MCP_CONFIG, mcp_source={"path": str(source)}), RecordingEnvironment(answers))


def test_a_package_is_installed_with_its_extras(make: Callable[..., ClaudeCodeAgent], source: Path) -> None:
    answers = {
        "inspect the source": ExecResult(stdout="package\nserver.py\n", return_code=0),
        "create a virtual environment": ExecResult(stdout="pip\n", return_code=0),
        "== install": ExecResult(stdout="b\n", return_code=0),
        "LAB_TOKEN": ExecResult(return_code=0),
    }
    environment = RecordingEnvironment(answers)
    agent = make(mcp_config=MCP_CONFIG, mcp_source={"path": str(source)}, mcp_extras=["a", "b"])
    drive(agent, environment)
    [install] = [command for command in environment.commands if "== install" in command]
    assert "/opt/tbench-mcp/venv/bin/python -m pip install" in install
    assert "/opt/tbench-mcp/src[a,b]" in install
    servers = json.loads(environment.files["/opt/tbench-mcp/mcp.json"])["mcpServers"]
    assert servers["lab"]["command"] == "/opt/tbench-mcp/venv/bin/python"
    record = agent.delivery()["mcp_source"]
    assert (record["installed"], record["extras"], record["extras_missing"]) == (True, ["a"], ["b"])


def test_folders_by_server_are_kept_apart(make: Callable[..., ClaudeCodeAgent], source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "server.py").write_text("serve differently")
    environment = RecordingEnvironment({"inspect the source": LISTING})
    server = {"command": "python", "args": ["server.py"]}
    agent = make(
        mcp_config={"mcpServers": {"lab": server, "the other": server, "again": server}},
        mcp_source={"paths": {"lab": str(source), "the other": str(other), "again": str(source)}},
    )
    drive(agent, environment)
    assert environment.files["/opt/tbench-mcp/1-lab/src/server.py"] == "serve"
    assert environment.files["/opt/tbench-mcp/2-the_other/src/server.py"] == "serve differently"
    servers = json.loads(environment.files["/opt/tbench-mcp/mcp.json"])["mcpServers"]
    assert {name: entry["args"][0] for name, entry in servers.items()} == {
        "lab": "/opt/tbench-mcp/1-lab/src/server.py",
        "the other": "/opt/tbench-mcp/2-the_other/src/server.py",
        "again": "/opt/tbench-mcp/1-lab/src/server.py",
    }
    record = agent.delivery()["mcp_source"]
    assert record["paths"]["lab"] == record["paths"]["again"] != record["paths"]["the other"]
    assert re.fullmatch("[0-9a-f]{64}", record["sha256"])


def test_a_hook_that_fits_several_sources_ends_the_setup(
    make: Callable[..., ClaudeCodeAgent], source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    environment = RecordingEnvironment({"inspect the source": LISTING})
    with pytest.raises(McpSetupError, match="could belong to any of"):
        drive(make(hooks=HOOKS, mcp_source={"paths": {"a": str(source), "b": str(other)}}), environment)


@pytest.mark.parametrize("placeholder", ["{mcp_bin}", "{mcp_dir}"])
def test_a_placeholder_that_means_nothing_is_refused(
    make: Callable[..., ClaudeCodeAgent], source: Path, placeholder: str
) -> None:
    environment = RecordingEnvironment({"inspect the source": LISTING})
    config = {"mcpServers": {"bare": {"command": "x", "args": [placeholder]}}}
    with pytest.raises(McpSetupError, match="no source or package"):
        drive(make(mcp_config=config, mcp_source={"paths": {"lab": str(source)}}), environment)


def test_a_missing_variable_ends_the_setup(make: Callable[..., ClaudeCodeAgent]) -> None:
    environment = RecordingEnvironment({"LAB_TOKEN+set": ExecResult(stdout="LAB_TOKEN\n", return_code=0)})
    with pytest.raises(McpSetupError, match="LAB_TOKEN"):
        drive(make(mcp_config=MCP_CONFIG), environment)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mcp_confg": {}}, "Unknown option 'mcp_confg'"),
        ({"mcp_config": {}}, "mcpServers"),
        ({"mcp_config": {"mcpServers": {}}}, "mcpServers"),
        ({"mcp_config": {"mcpServers": {"a": {}}}}, "server 'a' needs either command or url"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "x", "args": "y"}}}}, "a.args must be a list of texts"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "x", "env": []}}}}, "a.env must be a table of texts"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "x", "env": {"PORT": 1}}}}}, "a.env must be a table of texts"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "x", "env": {"API_KEY": SECRET}}}}}, r"write \$\{API_KEY\}"),
        ({"mcp_config": {"mcpServers": {"a": {"url": "x", "headers": {"Authorization": SECRET}}}}}, "Authorization"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "{mcp_bin}/a"}}}}, "{mcp_bin} needs mcp_source"),
        ({"mcp_config": {"mcpServers": {"a": {"command": "x", "disabled": True}}}}, "server 'a' is disabled"),
        ({"hooks": {}}, "hooks"),
        ({"hooks": {"hooks": {"Stop": {}}}}, "hooks of Stop must be a list"),
        ({"hooks": {"hooks": {"Stop": [{"command": "{mcp_dir}/x"}]}}}, "{mcp_dir} needs mcp_source"),
        ({"mcp_extras": ["a"]}, "mcp_extras needs mcp_source"),
        ({"mcp_source": {"path": "x"}, "mcp_extras": ["a]; x"]}, "not names of extras"),
        ({"mcp_source": {"git": "https://github.com/a/b"}}, "needs ref"),
        ({"mcp_source": {"path": "/no/such/folder"}}, "no such folder: /no/such/folder"),
        ({"mcp_source": {"paths": {"a": "/no/such/folder"}}}, "no such folder: /no/such/folder"),
    ],
)
def test_wrong_options_are_refused_before_any_trial(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ClaudeCodeAgent.preflight(kwargs, {})
    assert SECRET not in str(caught.value)


def test_harbor_publishes_our_options() -> None:
    known = ClaudeCodeAgent.options_schema()["properties"]
    assert {"mcp_config", "mcp_source", "mcp_extras", "hooks", "append_system_prompt", "reasoning_effort"} <= set(known)


def result_event(status: int | None, text: str) -> str:
    return json.dumps({"type": "result", "is_error": True, "api_error_status": status, "result": text})


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (401, "Failed to authenticate. API Error: 401 no", AgentAuthenticationError),
        (403, "API Error: 403 no", AgentAuthenticationError),
        (404, "There's an issue with the selected model", ModelNotFoundError),
        (429, "API Error: Request rejected (429)", ApiRateLimitError),
        (500, "API Error: 500 oops", ApiInternalServerError),
        (529, "API Error: 529 busy", ApiOverloadedError),
        (400, "API Error: 400 prompt is too long: 9 tokens > 8 maximum", ContextWindowExceededError),
        (400, "API Error: 400 no", UnknownApiError),
        (None, "something else", NonZeroAgentExitCodeError),
    ],
)
def test_errors_are_told_apart_by_status(
    make: Callable[..., ClaudeCodeAgent], status: int | None, text: str, expected: type
) -> None:
    said = json.dumps({"type": "assistant", "message": "rate limit, 401, Not logged in"})
    result = SimpleNamespace(return_code=1, stdout=f"{said}\n{result_event(status, text)}\n", stderr="")
    error = make()._classify_exec_error("claude --output-format=stream-json", result)
    assert type(error) is expected


def write_session(folder: Path, slug: str, session: str, size: int) -> Path:
    path = folder / "sessions" / "projects" / slug / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * size)
    return path.parent


def test_of_several_sessions_the_one_in_the_stream_is_taken(make: Callable[..., ClaudeCodeAgent]) -> None:
    agent = make()
    wanted = write_session(agent.logs_dir, "-app", "s1", 10)
    write_session(agent.logs_dir, "-tmp-other", "s2", 1000)
    init = {"type": "system", "subtype": "init", "session_id": "s1"}
    later = {"type": "system", "subtype": "init", "session_id": "s2"}
    (agent.logs_dir / "claude-code.txt").write_text(f"noise\n{{torn\n{json.dumps(init)}\n{json.dumps(later)}\n")
    assert agent._get_session_dir() == wanted


def test_without_a_stream_the_fullest_session_is_taken(make: Callable[..., ClaudeCodeAgent]) -> None:
    agent = make()
    assert agent._get_session_dir() is None
    small = write_session(agent.logs_dir, "-app", "s1", 10)
    assert agent._get_session_dir() == small
    full = write_session(agent.logs_dir, "-tmp-other", "s2", 1000)
    assert agent._get_session_dir() == full
    write_session(agent.logs_dir, "-aaa", "s3", 1000)
    assert agent._get_session_dir() == full, "a tie is broken by name"


def test_a_planted_link_is_not_written_through(make: Callable[..., ClaudeCodeAgent], tmp_path: Path) -> None:
    agent = make()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (agent.logs_dir / "trajectory.json").symlink_to(victim)
    (agent.logs_dir / "delivery.json").symlink_to(victim)
    session = write_session(agent.logs_dir, "-app", "s1", 0) / "s1.jsonl"
    event = {"type": "user", "uuid": "u", "timestamp": "2026-01-01T00:00:00Z", "sessionId": "s1"}
    session.write_text(json.dumps({**event, "message": {"role": "user", "content": "Do it."}}) + "\n")
    agent.populate_context_post_run(AgentContext())
    assert victim.read_text() == "mine"
    assert json.loads((agent.logs_dir / "trajectory.json").read_text())["steps"][0]["message"] == "Do it."
    assert not (agent.logs_dir / "delivery.json").is_symlink()


def test_running_before_setup_is_an_error(make: Callable[..., ClaudeCodeAgent]) -> None:
    with pytest.raises(RuntimeError, match="before setup"):
        asyncio.run(make().run("x", cast(BaseEnvironment, RecordingEnvironment()), AgentContext()))


def test_an_acp_bridge_cannot_carry_the_treatment(make: Callable[..., ClaudeCodeAgent]) -> None:
    with pytest.raises(McpSetupError, match="ACP"):
        asyncio.run(make(hooks=HOOKS).acp_install(cast(BaseEnvironment, RecordingEnvironment())))
