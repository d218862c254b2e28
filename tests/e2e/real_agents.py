"""Real agents against scripted servers of their APIs, each with the profile that docs/agents.md has for it."""

import json
import re
import socket
import threading
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, override

from servers.anthropic import AnthropicServer
from servers.base import Refusal, Request, ScriptedServer, Tokens, Turn
from servers.gemini import GeminiServer
from servers.openai import OpenAIServer
from servers.responses import ResponsesServer
from support.tasks import ANSWER, SOLVE

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
FIRST, LAST = Tokens(1000, 0, 200, 60), Tokens(1200, 0, 300, 70)
SERVED, DOWN = ("works", "401", "429"), "down"
CASES = (*SERVED, DOWN)
_OPENAI = {
    "401": Refusal(401, "invalid_api_key", "Incorrect API key provided: sk-scri***6789."),
    "429": Refusal(429, "rate_limit_exceeded", "Rate limit reached for requests.", {"retry-after": "1"}),
}
REFUSALS: dict[type[ScriptedServer], dict[str, Refusal]] = {
    AnthropicServer: {
        "401": Refusal(401, "authentication_error", "invalid x-api-key"),
        "429": Refusal(429, "rate_limit_error", "This request would exceed the rate limit of your organization."),
    },
    GeminiServer: {
        "401": Refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
        "429": Refusal(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    },
    OpenAIServer: _OPENAI,
    ResponsesServer: _OPENAI,
}
"""How the providers say it."""


@dataclass(frozen=True)
class RealAgent:
    """One of Harbor's agents: the server of its API, what that says, and its variables.

    `key` and `base` are the variables with its key and with the address of its provider, which is `path` of the server.
    `get` is the command that gets its program into a folder of this machine, from where its profile takes it; None: it
    is installed in the sandbox, or is Harbor's own. `more` are further variables. `limit_sec` is longer than it waits for a provider that refuses it.
    `gaps` are cases of which another class is known to be told, as the page says.
    """

    name: str
    server: type[ScriptedServer]
    script: Sequence[Turn]
    key: str
    base: str
    path: str = ""
    get: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    limit_sec: float = 300.0
    gaps: Mapping[str, str] = field(default_factory=dict)

    def profile(self, key: str, url: str) -> str:
        """Return its profile under another key, at the address of a server."""
        text = profiles()[self.name]
        variables = {self.key: f"${{{self.key}}}", self.base: f"{url}{self.path}", **self.more}
        told = ", ".join(f"{name} = '{value}'" for name, value in variables.items())
        text = re.sub(rf"^\[profiles\.{self.name}\b", f"[profiles.{key}", text, flags=re.MULTILINE)
        return re.sub(r"^env = \[.*\]$", lambda _: f"env = {{ {told} }}", text, count=1, flags=re.MULTILINE)

    def serve(self) -> ScriptedServer:
        """Return its server, which refuses where the instruction of the task asks for that."""
        refusals = next(told for kind, told in REFUSALS.items() if issubclass(self.server, kind))
        told = threading.local()
        kind: Any = self.server

        class Behaving(kind):
            @override
            def record(self, request: Request) -> None:
                super().record(request)
                told.body = json.dumps(request.body)

            @override
            def refused(self) -> Refusal | None:
                return next((refusal for case, refusal in refusals.items() if behaviour(case) in told.body), None)

        return Behaving(self.script, pace_sec=0.6)


def behaviour(case: str) -> str:
    """Return how an instruction asks for a case."""
    return f"The server behaves as in case {case}."


class ToolServer(OpenAIServer):
    """Chat completions for clients that call tools."""

    tools_expected = True


def calls(tool: str, argument: str, end: str = "", **more: str) -> tuple[Turn, ...]:
    """Return a script that solves the task by a command; `end` is a command that ends it, else a text does."""
    last = Turn("", [(tool, {argument: end, **more})], LAST) if end else Turn("Done.", (), LAST)
    return Turn("", [(tool, {argument: SOLVE, **more})], FIRST), last


def _terminus(commands: str, complete: str) -> str:
    return f'{{"analysis": "a", "plan": "p", "commands": {commands}, "task_complete": {complete}}}'


TYPED = f'[{{"keystrokes": "{SOLVE}\\n", "duration": 1.0}}]'.replace("\n", "\\n")
OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1")
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
AGENTS = (
    RealAgent(
        "claude-code",
        AnthropicServer,
        calls("Bash", "command", description="Write the file"),
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        get="npm install --prefix {} @anthropic-ai/claude-code",
        more={"CLAUDE_CODE_MAX_RETRIES": "1"},
    ),
    RealAgent(
        "codex",
        ResponsesServer,
        calls("exec_command", "cmd"),
        *OPENAI,
        get="npm install --prefix {} @openai/codex@0.169.0",
    ),
    RealAgent(
        "terminus-2",
        OpenAIServer,
        (
            Turn(_terminus(TYPED, "false"), (), FIRST),
            Turn(_terminus("[]", "true"), (), LAST),
            Turn(_terminus("[]", "true"), (), LAST),
        ),
        *OPENAI,
    ),
    RealAgent(
        "gemini-cli",
        GeminiServer,
        calls("run_shell_command", "command", description="Write the file"),
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
    ),
    RealAgent(
        "qwen-coder",
        ToolServer,
        calls("run_shell_command", "command", is_background="false"),
        *OPENAI,
        limit_sec=120,
        gaps={"429": "agent_timeout"},
    ),
    RealAgent(
        "opencode",
        ResponsesServer,
        calls("bash", "command", description="Write the file"),
        *OPENAI,
        more={"OPENCODE_CONFIG_CONTENT": '{"provider":{"openai":{"options":{"baseURL":"{env:OPENAI_BASE_URL}"}}}}'},
    ),
    RealAgent(
        "aider",
        OpenAIServer,
        (Turn(f"answer.txt\n```\n<<<<<<< SEARCH\n=======\n{ANSWER}\n>>>>>>> REPLACE\n```\n", (), FIRST),),
        "OPENAI_API_KEY",
        "OPENAI_API_BASE",
        "/v1",
        more=QUIET,
    ),
    RealAgent(
        "mini-swe-agent",
        ToolServer,
        calls("bash", "command", end="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        *OPENAI,
        get="python3 -m venv {0} && {0}/bin/pip install mini-swe-agent==2.4.6 mcp",
        more={"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2"},
    ),
)
BY_NAME = {agent.name: agent for agent in AGENTS}


def profiles() -> dict[str, str]:
    """Return the profiles of the page, by agent."""
    (block,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert tomllib.loads(block)
    parts = re.split(r"^(?=\[profiles\.[^.\]]+\]$)", block, flags=re.MULTILINE)
    return {re.findall(r"\[profiles\.([^.\]]+)\]", part)[0]: part for part in parts if part.strip()}


def usage_script() -> str:
    """Return usage.py of the page."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return block


def nowhere() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
