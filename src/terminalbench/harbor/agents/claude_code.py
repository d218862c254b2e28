"""Harbor's Claude Code agent, plus the treatments our profiles give it: MCP servers, their source, hooks.

Everything else (install, model, auth, options, trajectory) is Harbor's. What reached the agent is written to
`agent/delivery.json` of the trial and to `agent_result.metadata["delivery"]` of its result.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, override

from harbor.agents.installed.base import (
    AgentAuthenticationError,
    ApiInternalServerError,
    ApiOverloadedError,
    ApiRateLimitError,
    ModelNotFoundError,
    NonZeroAgentExitCodeError,
    UnknownApiError,
)
from harbor.agents.installed.claude_code import ClaudeCode, ClaudeCodeOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.utils.env import is_sensitive_env_key
from pydantic import Field, field_validator, model_validator

from terminalbench import json_files
from terminalbench.experiments import claude_settings as settings
from terminalbench.harbor.agents.claude_source import (
    ROOT,
    InstalledSource,
    McpSetupError,
    McpSource,
    install_source,
)

MCP_CONFIG_PATH = ROOT / "mcp.json"
DELIVERY_NAME = "delivery.json"
_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_ERROR_BY_STATUS: dict[int, type[NonZeroAgentExitCodeError]] = {
    401: AgentAuthenticationError,
    403: AgentAuthenticationError,
    404: ModelNotFoundError,
    429: ApiRateLimitError,
    500: ApiInternalServerError,
    503: ApiOverloadedError,
    529: ApiOverloadedError,
}


class ClaudeCodeAgentOptions(ClaudeCodeOptions):
    """Harbor's options for Claude Code, plus ours."""

    mcp_config: dict[str, Any] | None = Field(
        default=None, description='{"mcpServers": {name: server}} as in .mcp.json; ${VAR} is expanded in the sandbox.'
    )
    mcp_source: McpSource | None = Field(
        default=None,
        description='Their code: {"git": url, "ref": commit or tag}, {"path": folder} or {"paths": {server: folder}}.',
    )
    mcp_extras: list[str] = Field(default_factory=list, description="Extras of the source's package to install.")
    strict_mcp_config: bool = Field(
        default=False,
        description="Use only these MCP servers and those of the task, and ignore any .mcp.json of the workspace.",
    )
    hooks: dict[str, Any] | None = Field(default=None, description='{"hooks": {event: [...]}} as in a settings file.')

    @field_validator("mcp_config")
    @classmethod
    def _check_mcp_config(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        servers = value.get("mcpServers")
        if set(value) != {"mcpServers"} or not isinstance(servers, dict) or not servers:
            raise ValueError('expected {"mcpServers": {name: server, ...}}')
        for name, server in servers.items():
            if not isinstance(server, dict) or ("command" in server) == ("url" in server):
                raise ValueError(f"server {name!r} needs either command or url")
            if server.get("disabled"):
                raise ValueError(f"server {name!r} is disabled, but Claude Code would start it anyway")
            if not _are_texts(server.get("args", [])):
                raise ValueError(f"{name}.args must be a list of texts")
            for key in ("env", "headers"):
                _check_variables(f"{name}.{key}", server.get(key, {}))
        return value

    @field_validator("hooks")
    @classmethod
    def _check_hooks(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        events = value.get("hooks")
        if set(value) != {"hooks"} or not isinstance(events, dict):
            raise ValueError('expected {"hooks": {event: [matcher, ...]}}')
        for event, matchers in events.items():
            if not isinstance(matchers, list):
                raise ValueError(f"hooks of {event} must be a list")
        return value

    @field_validator("mcp_extras")
    @classmethod
    def _check_extras(cls, value: list[str]) -> list[str]:
        if bad := [extra for extra in value if not _EXTRA.fullmatch(extra)]:
            raise ValueError(f"not names of extras: {', '.join(map(repr, bad))}")
        return value

    @model_validator(mode="after")
    def _source_for_what_needs_it(self) -> Self:
        if self.mcp_source is not None:
            return self
        if self.mcp_extras:
            raise ValueError("mcp_extras needs mcp_source")
        for placeholder in ("{mcp_dir}", "{mcp_bin}"):
            if any(placeholder in text for text in settings.strings([self.mcp_config, self.hooks])):
                raise ValueError(f"{placeholder} needs mcp_source")
        return self


class ClaudeCodeAgent(ClaudeCode):
    """Claude Code with MCP servers, hooks and their permissions, as Harbor agent "claude-code"."""

    AGENT_INFO: ClassVar = {
        "hooks": True, "usage": "claude-code", "provider": "anthropic", "base_url_env": "ANTHROPIC_BASE_URL",
        # MCP tools are offered directly, not behind a search tool, and so every profile has the same built-in tools.
        # A workspace may bring an .mcp.json, which a profile with servers does not see.
        "conditions": {"env": {"ENABLE_TOOL_SEARCH": "false"}, "options": {"strict_mcp_config": True}},
    }  # fmt: skip
    options_model = ClaudeCodeAgentOptions
    options: ClaudeCodeAgentOptions  # ty: ignore[incompatible-mutable-override]  # as Harbor's own agents do

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._own_settings = self._base_settings
        self._servers: dict[str, dict[str, Any]] = {}
        self._source: InstalledSource | None = None
        self._ready = False
        if self.options.mcp_config is not None:
            # For job files of one's own, and for batches planned without these conditions. The agent's env wins.
            self._resolved_env_vars["ENABLE_TOOL_SEARCH"] = "false"

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None, env: Any = None) -> None:
        """Refuse wrong options and a source folder that is not there, before any trial starts."""
        super().preflight(kwargs, env)
        options = cls.parse_options(kwargs, env)
        source = options.mcp_source if isinstance(options, ClaudeCodeAgentOptions) else None
        for folder in source.folders if source is not None else ():
            if not Path(folder).is_dir():
                raise ValueError(f"mcp_source: no such folder: {folder}")

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        await super().install(environment)
        if self.options.mcp_source is not None:
            self._source = await install_source(self, environment, self.options.mcp_source, self.options.mcp_extras)
        locations = self._source.locations if self._source is not None else settings.Locations()
        try:
            hooks = settings.render_hooks((self.options.hooks or {}).get("hooks", {}), locations)
        except settings.AmbiguousCommand as error:
            raise McpSetupError(str(error)) from error
        if self.options.mcp_config is not None or self.options.strict_mcp_config:
            wanted = {**self._harbor_servers(), **(self.options.mcp_config or {}).get("mcpServers", {})}
            self._servers = settings.render_servers(wanted, locations)
            await self._require_variables(environment)
        for placeholder in ("{mcp_dir}", "{mcp_bin}"):
            if any(placeholder in text for text in settings.strings([self._servers, hooks])):
                raise McpSetupError(f"{placeholder} is used, but no source or package defines it")
        merged = settings.merge_settings(self._own_settings, hooks, list(self._servers))
        if isinstance(merged.get("hooks"), dict):
            merged["hooks"] = settings.bound_hooks(merged["hooks"], settings.HOOK_SEC)
        if merged:
            # Harbor uploads these and passes them with --settings.
            self._base_settings = self._config = merged
        self._ready = True

    @override
    def build_cli_flags(self) -> str:
        flags = [super().build_cli_flags()]
        if self._servers:
            flags.append(f"--mcp-config {MCP_CONFIG_PATH}")
        if self._servers or self.options.strict_mcp_config:
            flags.append("--strict-mcp-config")
        if self._base_settings.get("hooks"):
            flags.append("--include-hook-events")
        return " ".join(flag for flag in flags if flag)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        if not self._ready:
            raise RuntimeError("ClaudeCodeAgent.run() was called before setup()")
        if self._servers:
            await self.exec_as_root(environment, command=f"mkdir -p {ROOT}")
            await self._upload_config_text(
                environment,
                content=json.dumps({"mcpServers": self._servers}, indent=2),
                remote_path=str(MCP_CONFIG_PATH),
                filename=MCP_CONFIG_PATH.name,
            )
        json_files.write_json(self.logs_dir / DELIVERY_NAME, self.delivery())
        await super().run(instruction, environment, context)

    @override
    async def acp_install(self, environment: BaseEnvironment) -> None:
        if self.options.mcp_config or self.options.hooks:
            raise McpSetupError("mcp_config and hooks do not reach Claude Code through an ACP bridge")
        await super().acp_install(environment)

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        trajectory = self.logs_dir / "trajectory.json"
        if trajectory.is_symlink():
            # The agent can write here; Harbor would follow the link and write outside the trial.
            trajectory.unlink()
        super().populate_context_post_run(context)
        delivery = self.delivery()
        json_files.write_json(self.logs_dir / DELIVERY_NAME, delivery)
        context.metadata = {**(context.metadata or {}), "delivery": delivery}

    def delivery(self) -> dict[str, Any]:
        """Return what this agent was given: versions and digests, no contents."""
        prompt, hooks = self.options.append_system_prompt, self.options.hooks
        return {
            "agent": self.name(),
            "cli_version": self.version(),
            "mcp_servers": list(self._servers),
            "mcp_config_sha256": settings.digest(self.options.mcp_config) if self.options.mcp_config else None,
            "mcp_source": self._source.record if self._source is not None else None,
            "hook_events": sorted(self._base_settings.get("hooks", {})),
            "hooks_sha256": settings.digest(hooks) if hooks else None,
            "system_prompt_sha256": settings.digest(prompt) if prompt else None,
            "settings_sha256": settings.digest(self._base_settings) if self._base_settings else None,
        }

    def _harbor_servers(self) -> dict[str, dict[str, Any]]:
        """Servers given by the task or through Harbor's own field; `--strict-mcp-config` would hide them."""
        servers: dict[str, dict[str, Any]] = {}
        for server in self.mcp_servers:
            if server.transport == "stdio":
                servers[server.name] = {"type": "stdio", "command": server.command, "args": server.args}
            else:
                kind = "http" if server.transport == "streamable-http" else server.transport
                servers[server.name] = {"type": kind, "url": server.url}
        return servers

    async def _require_variables(self, environment: BaseEnvironment) -> None:
        names = settings.required_variables(self._servers)
        if not names:
            return
        checks = "; ".join(f'[ -n "${{{name}+set}}" ] || echo {name}' for name in names)
        result = await environment.exec(command=f"{checks}; true")
        if missing := (result.stdout or "").split():
            raise McpSetupError(f"mcp_config uses variables that are missing in the agent's env: {', '.join(missing)}")

    @override
    def _classify_exec_error(self, command: str, result: Any) -> NonZeroAgentExitCodeError:
        """Harbor's reading of the text, made precise by the HTTP status the CLI reports of its last API call."""
        error = super()._classify_exec_error(command, result)
        if type(error) in (NonZeroAgentExitCodeError, UnknownApiError):
            status = next(
                (e.get("api_error_status") for e in _events(result.stdout or "") if e.get("type") == "result"), None
            )
            if status in _ERROR_BY_STATUS:
                return _ERROR_BY_STATUS[status](str(error))
        return error

    @override
    def _get_session_dir(self, logs_dir: Path | None = None) -> Path | None:
        """The folder with the session that the CLI's stream names; without a stream, the one with most in it."""
        folder = logs_dir if logs_dir is not None else self.logs_dir
        candidates = self._session_dirs(folder)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        session = _stream_session_id(folder / "claude-code.txt")
        for candidate in candidates:
            if session is not None and (candidate / f"{session}.jsonl").is_file():
                return candidate
        return max(candidates, key=lambda path: (sum(f.stat().st_size for f in path.glob("*.jsonl")), path.name))


def _stream_session_id(stream: Path) -> str | None:
    """The id of the first session in the CLI's output; None when there is none."""
    try:
        text = stream.read_text(errors="replace")
    except OSError:
        return None
    starts = (e for e in _events(text) if e.get("type") == "system" and e.get("subtype") == "init")
    return next((start.get("session_id") for start in starts), None)


def _events(stream: str) -> Iterator[dict[str, Any]]:
    """The events among the lines of the CLI's output."""
    for line in stream.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _check_variables(where: str, values: Any) -> None:
    if not isinstance(values, dict) or not _are_texts(list(values.values())):
        raise ValueError(f"{where} must be a table of texts")
    for key, value in values.items():
        if is_sensitive_env_key(key) and value and "${" not in value:
            raise ValueError(
                f"{where}.{key} looks like a secret, which would be stored in plain text; write ${{{key}}} and give "
                f"{key} in "
                f"the agent's env, or ${{{key}:-value}} if it is no secret"
            )
