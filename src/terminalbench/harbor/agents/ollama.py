"""The agent `ollama`: a model of an Ollama server that works with a shell in the trial's environment.

The model is asked from this process by the server's own API, with an explicit window, seed and temperature; commands
run in the environment, each with a limit. It ends when the model calls `finish`, stops to act, goes in circles, or has
used what it may: the task's tests judge what it leaves. What the server does is no attempt of the model: one that is
dead, silent or refuses ends the trial as an error of the bench.
"""

import asyncio
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import (
    Agent,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
    Trajectory,
)
from pydantic import Field

from terminalbench.harbor.agent_watch import current_watch
from terminalbench.harbor.agents.chat import provider_error
from terminalbench.harbor.agents.dialogue import Dialogue, DialogueCall, DialogueLimits, Message, Tool
from terminalbench.harbor.attempt_numbers import ATTEMPT
from terminalbench.json_files import write_json
from terminalbench.llm.ask import RetryPatience
from terminalbench.llm.local.lease import ServerLease, lease
from terminalbench.llm.local.spec import is_local, parse_local
from terminalbench.llm.model import RETRYABLE, ModelError, ModelFault, count_text
from terminalbench.llm.ollama import WINDOW, ChatReply, OllamaServer, ServedModel, server_url
from terminalbench.version import __version__
from terminalbench.workflow.apart import in_thread

_ANSWER = 4096
_SYSTEM = """\
You solve a task in a Linux environment by running commands. Work until the task is done: look around, act, check the
result of what you did. Nobody answers questions. Each command runs in a new shell, without a terminal, in the same
folder to begin with; it is ended after {command_sec:g} seconds. Only the beginning and the end of a long output are
shown. When everything that the task asks for is done and checked, call finish."""


class OllamaOptions(AgentOptions):
    """The options of the agent."""

    base_url: str | None = Field(
        default=None, description="Address of the server. Default: $OLLAMA_HOST of the profile."
    )
    digest: str | None = Field(
        default=None, description="Digest of the expected model: another model of the same name is refused."
    )
    num_ctx: int | None = Field(
        default=None, ge=2048, description="Context window in tokens. Default: the model's, up to 32768."
    )
    keep_alive: str = Field(
        default="30m", description="How long the server keeps the model in memory after a question."
    )
    seed: int | None = Field(default=None, description="Seed, different for each attempt at a task; set by `run.seed`.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="Default: the model's own.")
    think: bool | str | None = Field(
        default=None, description="Whether a thinking model thinks. Default: the model's own setting."
    )
    tools: bool | None = Field(
        default=None,
        description="Offer tools through the API, or describe them in the prompt. Default: through the "
        "API if the server supports it.",
    )
    max_turns: int = Field(default=100, ge=1, description="Limit of the model's answers in a trial.")
    max_tokens: int | None = Field(
        default=None, ge=1, description="Limit of the tokens read and written in a trial. Default: none."
    )
    max_sec: float | None = Field(
        default=None, gt=0, description="Limit of the work in seconds. Default: the limit of the task."
    )
    answer_tokens: int = Field(
        default=_ANSWER, ge=64, description="Limit of an answer in tokens; at most a quarter of the window."
    )
    command_sec: float = Field(default=120.0, gt=0, description="Limit of a command in seconds.")
    output_chars: int = Field(default=8000, ge=200, description="How much of a command's output the model sees.")
    silence_sec: float = Field(default=900.0, gt=0, description="How many seconds the server may be silent.")
    tries: int = Field(default=5, ge=1, le=100, description="How often a question is sent to a failing server.")


class OllamaAgent(BaseAgent):
    """Works on a task with a local model. See the module."""

    AGENT_INFO: ClassVar = {
        "mcp": False, "skills": False, "usage": "harbor", "seeded": "seed", "asks_from_host": True,
        "provider": "ollama_chat", "base_url_env": "OLLAMA_HOST", "example_model": "qwen3:8b",
    }  # fmt: skip
    capabilities: ClassVar[AgentCapabilities] = AgentCapabilities(atif=True)
    options_model: ClassVar[type[AgentOptions] | None] = OllamaOptions
    options: OllamaOptions

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._stop = Event()
        self._lease: ServerLease | None = None
        self._served: ServedModel | None = None
        self._record: _Record | None = None
        self._patience = RetryPatience(tries=self.options.tries)

    @staticmethod
    @override
    def name() -> str:
        return "ollama"

    @override
    def version(self) -> str:
        return __version__

    @property
    def _server(self) -> OllamaServer:
        if self._lease is not None:
            return OllamaServer(self._lease.url, self.options.silence_sec, self._lease.token)
        host = self.options.base_url or self.extra_env.get("OLLAMA_HOST") or os.environ.get("OLLAMA_HOST")
        return OllamaServer(server_url(host), self.options.silence_sec)

    @property
    def _window(self) -> int:
        made_for = self._served.context_tokens if self._served is not None else None
        return self.options.num_ctx or min(made_for or WINDOW, WINDOW)

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Find out whether the server has this model, and no other under its name."""
        if not self.model_name:
            raise RuntimeError("the agent ollama needs a model: name it in the profile, as `ollama list` shows it")
        try:
            name = await self._name(self.model_name)
            served = self._served = await self._patiently(lambda: self._server.find(name))
        except ModelError as error:
            raise provider_error(error) from error
        wanted = self.options.digest
        if wanted is not None and served.digest != wanted:
            raise RuntimeError(
                f"{served.name} was pulled again: its digest is {served.digest[:12]}, but the profile expects "
                f"{wanted[:12]}"
            )

    async def _name(self, model: str) -> str:
        """Return what the server calls the model. One that is a file is served by us, for as long as it is used."""
        if not is_local(model):
            return model
        spec = parse_local(model)
        wanted = replace(spec, num_ctx=self.options.num_ctx or spec.num_ctx)
        self._lease = await in_thread(lambda: lease(wanted))
        return self._lease.name

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Work until it is over; `context` and the trajectory grow with each answer."""
        dialogue = self._dialogue(instruction)
        record = self._record = _Record(self, instruction, context)
        record.metadata |= {"model_digest": self._served.digest if self._served else None, "num_ctx": self._window}
        shell = ShellTools(environment, self.options.command_sec, min(self.options.output_chars, self._window))
        began = time.monotonic()
        try:
            while (messages := dialogue.request(time.monotonic() - began)) is not None:
                reply = await self._ask(dialogue, messages)
                calls = dialogue.heard(reply)
                record.heard(reply, calls)
                for call in calls:
                    shown = dialogue.answered(call, await shell.perform(call))
                    record.answered(call, shown)
                    if dialogue.ending is not None:
                        break
                record.save()
        except ModelError as error:
            record.metadata |= {"ending": "error", "reason": str(error)}
            raise provider_error(error) from error
        except asyncio.CancelledError:
            self._stop.set()
            record.metadata["ending"] = "cancelled"
            raise
        finally:
            told = {"turns": dialogue.turns, "steps_left_out": dialogue.left_out, "native_tools": dialogue.native}
            record.metadata |= told | ({"ending": dialogue.ending.value} if dialogue.ending is not None else {})
            record.save()

    def _dialogue(self, instruction: str) -> Dialogue:
        options = self.options
        native = options.tools if options.tools is not None else self._served is None or self._served.tools
        return Dialogue(
            system=_SYSTEM.format(command_sec=options.command_sec),
            instruction=instruction,
            tools=TOOLS,
            limits=DialogueLimits(self._window - self._answer, options.max_turns, options.max_tokens, options.max_sec),
            count=count_text,
            native=native,
        )

    @property
    def _answer(self) -> int:
        return min(self.options.answer_tokens, self._window // 4)

    async def _ask(self, dialogue: Dialogue, messages: list[Message]) -> ChatReply:
        """One answer. What does not fit the window is shortened; a model that takes no tools is told of them."""
        sent: list[Message] | None = messages
        while True:
            body = self._body(dialogue, sent)
            try:
                return await self._patiently(lambda body=body: self._server.chat(body, self._stop))
            except ModelError as error:
                no_tools = error.fault is ModelFault.BAD_REQUEST and "does not support tools" in error.what
                if no_tools and dialogue.native:
                    dialogue.without_tools()
                elif error.fault is not ModelFault.TOO_LONG or not dialogue.too_long():
                    raise
            sent = dialogue.request()
            if sent is None:
                raise ModelError(ModelFault.TOO_LONG, "what is left of the conversation exceeds the context window")

    def _body(self, dialogue: Dialogue, messages: list[Message] | None) -> dict[str, Any]:
        options: dict[str, Any] = {"num_ctx": self._window, "num_predict": self._answer, "seed": self._seed}
        if self.options.temperature is not None:
            options["temperature"] = self.options.temperature
        body: dict[str, Any] = {
            "model": self._served.name if self._served is not None else self.model_name,
            "messages": messages,
            "options": options,
            "keep_alive": self.options.keep_alive,
            "truncate": False,
        }
        if tools := dialogue.schemas():
            body["tools"] = tools
        if self.options.think is not None:
            body["think"] = self.options.think
        return body

    @property
    def _seed(self) -> int:
        return ((self.options.seed or 0) + int(self.extra_env.get(ATTEMPT, "1")) - 1) % 2**31

    async def _patiently[T](self, work: Callable[[], T]) -> T:
        """Return what the server answers, asked again while its failure may pass. Raises ModelError."""
        watch, failed = current_watch(), 0
        while True:
            if watch is not None:
                watch.asks(stream=False)
            try:
                answer = await in_thread(work)
            except ModelError as error:
                failed += 1
                if watch is not None:
                    watch.refused(provider_error(error))
                if error.fault not in RETRYABLE or failed >= self._patience.tries:
                    raise
                await asyncio.sleep(self._patience.pause(failed, error.retry_after_sec))
            else:
                if watch is not None:
                    watch.answered()
                return answer

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        """Called by Harbor when it has fetched the environment's log folder, over which ours is written."""
        if self._record is not None:
            self._record.save()


class _Record:
    """Tells Harbor what happens: tokens as the server counted them, and the trajectory."""

    def __init__(self, agent: OllamaAgent, instruction: str, context: AgentContext) -> None:
        self._agent, self._context = agent, context
        self.metadata: dict[str, Any] = {}
        self._steps = [Step(step_id=1, timestamp=_now(), source="user", message=instruction)]

    def heard(self, reply: ChatReply, calls: list[DialogueCall]) -> None:
        """An answer of the model."""
        used, context = reply.usage, self._context
        step = Step(
            step_id=len(self._steps) + 1,
            timestamp=_now(),
            source="agent",
            model_name=self._agent.model_name,
            message=reply.content,
            reasoning_content=reply.thinking or None,
            llm_call_count=1,
            metrics=Metrics(prompt_tokens=used.input_tokens, completion_tokens=used.output_tokens),
        )
        if calls:
            step.tool_calls = [
                ToolCall(tool_call_id=call.id, function_name=call.name or "unknown", arguments=dict(call.arguments))
                for call in calls
            ]
        self._steps.append(step)
        first = len(self._steps) == 2
        context.n_input_tokens = _sum(context.n_input_tokens, used.input_tokens, first=first)
        context.n_output_tokens = _sum(context.n_output_tokens, used.output_tokens, first=first)

    def answered(self, call: DialogueCall, output: str) -> None:
        """The result of one of its calls."""
        step = self._steps[-1]
        result = ObservationResult(source_call_id=call.id, content=output)
        step.observation = Observation(results=[*(step.observation.results if step.observation else ()), result])

    def save(self) -> None:
        """Write the trajectory as it is now."""
        agent, context = self._agent, self._context
        context.metadata = {name: value for name, value in self.metadata.items() if value is not None}
        document = Trajectory(
            session_id=agent.session_id,
            agent=Agent(name=agent.name(), version=agent.version(), model_name=agent.model_name),
            steps=self._steps,
            final_metrics=FinalMetrics(
                total_prompt_tokens=context.n_input_tokens,
                total_completion_tokens=context.n_output_tokens,
                total_steps=len(self._steps),
            ),
            extra=dict(context.metadata),
        )
        write_json(agent.logs_dir / "trajectory.json", document.to_json_dict())


def _sum(before: int | None, more: int | None, *, first: bool) -> int | None:
    """A sum of which a part is unknown is unknown."""
    if first:
        return more
    return None if before is None or more is None else before + more


def _now() -> str:
    return datetime.now(UTC).isoformat()


_LARGEST_FILE = 64_000
_KILL_SEC = 5
_GRACE_SEC = 30
_WRITE_SEC = 60

TOOLS = (
    Tool("bash", "Run a command with bash and get its output.", {"command": "the command"}, ("command",)),
    Tool(
        "write_file",
        "Write a text file, replacing what is there.",
        {"path": "the file's path", "content": "all of its text"},
        ("path", "content"),
    ),
    Tool("finish", "The task is done: end the work.", {"summary": "one sentence on what was done"}),
)


class ShellTools:
    """Runs calls in an environment. Each has an answer, also one that cannot be run."""

    def __init__(self, environment: BaseEnvironment, command_sec: float, output_chars: int) -> None:
        self._environment = environment
        self._command_sec = command_sec
        self._half = output_chars // 2

    async def perform(self, call: DialogueCall) -> str:
        """Return what a call gives."""
        if call.problem is not None:
            return f"Error: {call.problem}. Nothing was run."
        if call.name == "bash":
            return await self._bash(call.arguments["command"])
        if call.name == "write_file":
            return await self._write(call.arguments["path"], call.arguments["content"])
        return "The work is ended."

    async def _bash(self, command: str) -> str:
        if "\0" in command:
            return "Error: a command cannot hold a NUL character. Nothing was run."
        limit, half = self._command_sec, self._half
        # In a file of its own: what runs on in the background keeps no pipe open, and no output is too long to hold.
        script = (
            f'o=$(mktemp) || exit 125; t=$(command -v timeout) && t="$t -k {_KILL_SEC} {limit:g}"\n'
            f'$t bash -c {shlex.quote(command)} >"$o" 2>&1 </dev/null; c=$?; s=$(wc -c <"$o")\n'
            f'if [ "$s" -le {2 * half} ]; then cat "$o"; else head -c {half} "$o"; '
            f'printf "\\n[%s bytes left out]\\n" $((s - {2 * half})); tail -c {half} "$o"; fi; rm -f "$o"; exit $c'
        )
        try:
            done = await self._environment.exec(script, timeout_sec=int(limit) + _KILL_SEC + _GRACE_SEC)
        except RuntimeError as error:
            if "timed out" not in str(error):
                raise
            return f"[the command was ended after {limit:g} s]"
        printed = (done.stdout or "") + (done.stderr or "")
        if done.return_code in (124, 137):
            return f"{printed}\n[the command was ended after {limit:g} s, or was killed]"
        return printed if done.return_code == 0 and printed.strip() else f"{printed}\n[exit code {done.return_code}]"

    async def _write(self, path: str, content: str) -> str:
        if not path.strip() or "\0" in path + content:
            return "Error: a file needs a path, and its text cannot hold a NUL character. Nothing was written."
        if len(content.encode(errors="replace")) > _LARGEST_FILE:
            return f"Error: more than {_LARGEST_FILE} bytes at once. Write it in parts, or by a program."
        script = 'mkdir -p -- "$(dirname -- "$TBENCH_PATH")" && printf %s "$TBENCH_CONTENT" >"$TBENCH_PATH"'
        env = {"TBENCH_PATH": path, "TBENCH_CONTENT": content}
        done = await self._environment.exec(script, env=env, timeout_sec=_WRITE_SEC)
        said = ((done.stdout or "") + (done.stderr or "")).strip()
        return f"Wrote {path}." if done.return_code == 0 else f"Error: {said or f'exit code {done.return_code}'}"
