"""An agent that is a command: any program, in any language, as it is.

Its files are copied into the sandbox, its install commands run once, and the command gets the instruction: as a word,
as a file, or on its standard input. What it prints is kept in `agent/stdout.txt` and `agent/stderr.txt`, and is its
trajectory as far as it can be understood (`command_output`).
"""

import json
import shlex
import shutil
import signal
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, override

from harbor.agents.installed.base import (
    AgentAuthenticationError,
    ApiInternalServerError,
    ApiRateLimitError,
    BaseInstalledAgent,
    ErrorPattern,
    NetworkConnectionError,
    NonZeroAgentExitCodeError,
    with_prompt_template,
)
from harbor.agents.options import InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Agent, FinalMetrics, Step, Trajectory
from harbor.trial.errors import AgentTimeoutError
from pydantic import Field, ValidationError

from terminalbench.experiments.command import PLACE
from terminalbench.experiments.profiles import CommandFile, handed_files
from terminalbench.files import read_plain
from terminalbench.harbor.agents.command_output import CommandOutput, read_output, read_usage
from terminalbench.harbor.read.agent_logs import UNTOLD_CALLS
from terminalbench.json_files import write_json

STDOUT, STDERR, USAGE = "stdout.txt", "stderr.txt", "usage.json"
_LOGS = "/logs/agent"
_TAIL_BYTES = 4000
_MOST_BYTES = 64 << 20
_NOT_STARTED = (126, 127)
_HOW_IN = "provide it with programs, files or install of the profile"
_SIGNALS = frozenset(int(one) for one in signal.Signals)
_INSTRUCTION, _MCP = f"{PLACE}/.instruction.md", f"{PLACE}/.mcp.json"


_REFUSALS = [
    ErrorPattern(
        r"\bAuthenticationError\b|\bUNAUTHENTICATED\b|\bAPI key not valid\b|"
        r"\"(?:code|statusCode)\": ?40[13]\b|\bstatus: 40[13]\b|\bAPI Error: 40[13]\b",
        AgentAuthenticationError,
    ),
    ErrorPattern(
        r"\bRESOURCE_EXHAUSTED\b|\bResource has been exhausted\b|"
        r"\"(?:code|statusCode)\": ?429\b|\bstatus: 429\b|\bAPI Error: 429\b",
        ApiRateLimitError,
    ),
    ErrorPattern(
        r"\bfetch failed\b|\bConnection\s+error\b|\bAPIConnectionError\b|\bE(?:CONNREFUSED|CONNRESET|NOTFOUND)\b",
        NetworkConnectionError,
    ),
    *(
        ErrorPattern(rf"(?m)^[\w.]*HTTP(?:Status)?Error: (?:HTTP Error |\w+ error ')?{status}\b", named)
        for status, named in (
            ("40[13]", AgentAuthenticationError),
            ("429", ApiRateLimitError),
            (r"5\d\d", ApiInternalServerError),
        )
    ),
]
"""How clients of models say in their last words what Harbor's patterns, which are its own agents', do not name."""


class CommandOptions(InstalledAgentOptions):
    """The options of the command agent: its profile's table `command`, with the files where they are."""

    command: dict[str, Any] = Field(description="The table `command` of the profile.")


class CommandAgent(BaseInstalledAgent):
    """Runs a command. See the module."""

    AGENT_INFO: ClassVar = {"model": True, "skills": False, "command": True, "usage": "harbor"}
    SUPPORTS_ATIF: ClassVar[bool] = True
    ERROR_PATTERNS: ClassVar = [*_REFUSALS, *BaseInstalledAgent.ERROR_PATTERNS]
    options_model: ClassVar[type[InstalledAgentOptions] | None] = CommandOptions
    options: CommandOptions

    @staticmethod
    @override
    def name() -> str:
        return "command"

    @override
    def version(self) -> str:
        return "1"  # of how commands are run: what the program is says the profile

    @property
    def _table(self) -> dict[str, Any]:
        return self.options.command

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        """Copy its files in, and run what installs it, as root."""
        await self.exec_as_root(environment, f"mkdir -p {PLACE}")
        for source, told in (self._table.get("files") or {}).items():
            path, target = Path(source), told["target"]
            if CommandFile(path.name, path, target).digest != told["digest"]:
                raise RuntimeError(f"{path} has changed since the batch was planned; start a new batch with tbench run")
            await self.exec_as_root(environment, f"mkdir -p {shlex.quote(str(PurePosixPath(target).parent))}")
            if path.is_dir():
                await _upload_folder(environment, path, target)
            else:
                await environment.upload_file(path, target)
        for command in self._table.get("install") or ():
            await self.exec_as_root(environment, command, env=self._env())

    def _env(self) -> dict[str, str]:
        return dict(self._table.get("env") or {})

    @override
    @with_prompt_template
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run the command on an instruction; an exit code other than 0 is an error of the agent."""
        words = {"instruction": instruction, "instruction_file": _INSTRUCTION, "model": self.model_name or ""}
        words |= {"files": PLACE, "mcp_file": _MCP}
        argv = [_filled(word, words) for word in self._table["run"]]
        await _write(environment, instruction, _INSTRUCTION)
        if "{mcp_file}" in " ".join(self._table["run"]):
            await _write(environment, json.dumps({"mcpServers": _servers(self.mcp_servers)}), _MCP)
        told = any("{instruction" in word for word in self._table["run"])
        entrance = "/dev/null" if told else _INSTRUCTION
        path, out, err = f"export PATH={PLACE}:$PATH", f"{_LOGS}/{STDOUT}", f"{_LOGS}/{STDERR}"
        tails = f"tail -c {_TAIL_BYTES} {out}; tail -c {_TAIL_BYTES} {err} >&2"
        command = f"{path}; {shlex.join(argv)} < {entrance} > {out} 2> {err}; code=$?; {tails}; exit $code"
        limit = self._table.get("timeout_sec")
        try:
            await self._exec(
                environment,
                command,
                user=self._table.get("user"),
                env=self._env(),
                cwd=self._table.get("workdir"),
                timeout_sec=int(limit) if limit else None,
            )
        except RuntimeError as error:
            if isinstance(error, NonZeroAgentExitCodeError) or not str(error).startswith("Command timed out"):
                raise
            raise AgentTimeoutError(f"the command did not end within {limit:g} s (timeout_sec)") from None

    @override
    def _classify_exec_error(self, command: str, result: Any) -> NonZeroAgentExitCodeError:
        """Tell of the command as the profile has it, and what is missing where it could not be started."""
        code = result.return_code
        if command.startswith("export PATH="):
            command = shlex.join(self._table["run"])
            if code in _NOT_STARTED:
                said = f"{result.stderr or ''}\n{self._table['run'][0]} cannot be run in the sandbox: {_HOW_IN}"
                result = result.model_copy(update={"stderr": said})
            elif code - 128 in _SIGNALS:
                said = f"{result.stderr or ''}\nkilled by {signal.Signals(code - 128).name}"
                result = result.model_copy(update={"stderr": said})
            elif not f"{result.stdout or ''}{result.stderr or ''}".strip():
                result = result.model_copy(update={"stderr": "it printed nothing"})
        return super()._classify_exec_error(command, result)

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Tell Harbor what the command printed: its steps, and its tokens where it tells them."""
        data = read_plain(self.logs_dir / STDOUT, _MOST_BYTES) or b""
        found = read_output(data, self._table.get("format") or "auto", self._table.get("usage"))
        told = read_usage(read_plain(self.logs_dir / USAGE, _MOST_BYTES), self._table.get("usage"))
        used = told or found.usage
        context.n_input_tokens, context.n_cache_tokens = used.input_tokens, used.cached_tokens
        context.n_output_tokens, context.cost_usd = used.output_tokens, used.cost_usd
        context.metadata = {**(context.metadata or {}), "output_format": found.format}
        trajectory = self._trajectory(found)
        if trajectory is not None:
            write_json(self.logs_dir / "trajectory.json", trajectory)

    def _trajectory(self, found: CommandOutput) -> dict[str, Any] | None:
        if found.document is not None:
            try:
                return Trajectory.model_validate(found.document).to_json_dict()
            except ValidationError as error:
                self.logger.warning("its trajectory cannot be read: %s", str(error)[:300])
                return None
        steps = [Step(step_id=number, **step) for number, step in enumerate(found.steps, 1)]
        if not steps:
            return None
        agent = Agent(name=self.name(), version=self.version(), model_name=self.model_name)
        used = found.usage
        totals = FinalMetrics(
            total_prompt_tokens=used.input_tokens,
            total_cached_tokens=used.cached_tokens,
            total_completion_tokens=used.output_tokens,
            total_cost_usd=used.cost_usd,
            total_steps=len(steps),
        )
        extra = {UNTOLD_CALLS: True} if found.format in ("text", "lines") else None
        return Trajectory(session_id=None, agent=agent, steps=steps, final_metrics=totals, extra=extra).to_json_dict()


def _filled(word: str, values: dict[str, str]) -> str:
    """A word of the command with what stands in braces; other braces stay."""
    parts = word.split("{")
    filled = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        filled += values[name] + rest if closed and name in values else "{" + part
    return filled


async def _upload_folder(environment: BaseEnvironment, folder: Path, target: str) -> None:
    """Copy a folder in, as its digest counts it."""
    with tempfile.TemporaryDirectory() as kept:
        for file in handed_files(folder):
            copy = Path(kept, file.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
        await environment.upload_dir(kept, target)


async def _write(environment: BaseEnvironment, text: str, target: str) -> None:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        Path(file.name).chmod(0o644)
        await environment.upload_file(file.name, target)


def _servers(servers: Any) -> dict[str, Any]:
    """MCP servers as most programs read them."""
    found = {}
    for server in servers or ():
        told = server.model_dump(exclude_none=True)
        name = told.pop("name")
        if told.get("transport") == "stdio":
            found[name] = {"command": told["command"], "args": told.get("args", [])}
        else:
            found[name] = {"type": {"streamable-http": "http"}.get(told["transport"], "sse"), "url": told["url"]}
    return found
