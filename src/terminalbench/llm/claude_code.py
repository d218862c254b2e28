"""The Claude Code CLI as a chat model: print mode, no tools, no settings, a folder of its own.

`claude-code` uses the CLI's default model, `claude-code:NAME` another one.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, override

from terminalbench.llm.ask import status_fault
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema
from terminalbench.records.trial import Usage
from terminalbench.secrets.values import safe_message
from terminalbench.text.numbers import duration

_TIMEOUT_SEC = 600.0
_GRACE_SEC = 5.0
_STOP_SEC = 0.4
_KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
}
_OPTIONS = (
    "--print",
    "--output-format", "json",
    "--tools", "",
    "--safe-mode",
    "--strict-mcp-config",
    "--disable-slash-commands",
    "--no-session-persistence",
)  # fmt: skip


class ClaudeCodeModel(ChatModel):
    """One process for each question, in its own process group; it is gone when the answer or the timeout comes."""

    def __init__(
        self, name: str | None = None, options: Options | None = None, timeout_sec: float = _TIMEOUT_SEC
    ) -> None:
        self.options = options or Options()
        self.model = name or None
        self.name = f"claude-code:{name}" if name else "claude-code"
        self.timeout_sec = timeout_sec
        self._running: set[subprocess.Popen[bytes]] = set()

    @override
    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in list(self._running):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + _STOP_SEC
            while self._running and time.monotonic() < deadline:
                time.sleep(0.01)

    @override
    def ready(self) -> None:
        _program()
        given = {
            "a seed": self.options.seed is not None,
            "a temperature": bool(self.options.temperature),
            "a longest answer": self.options.output_tokens is not None,
        }
        if told := next((what for what, yes in given.items() if yes), None):
            raise ModelError(
                ModelFault.MISSING,
                f"the Claude Code CLI does not accept {told}",
                hint="use the LiteLLM name of the model",
            )

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        self.ready()
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tbench-judge-", ignore_cleanup_errors=True) as folder:
            home = Path(folder)
            system = "\n\n".join(m.content for m in messages if m.role == "system")
            argv = [_program(), *_OPTIONS, "--system-prompt", system or "Answer the question."]
            if self.model:
                argv += ["--model", self.model]
            # The question goes through standard input: one argument holds at most 128 kB.
            output = self._run(argv, _conversation(messages, schema).encode(), home)
        return _reply(output, self.name, time.monotonic() - started)

    @override
    def context_tokens(self) -> int | None:
        return 200_000

    def _run(self, argv: list[str], question: bytes, home: Path) -> bytes:
        work = home / "work"
        work.mkdir()
        process = subprocess.Popen(
            argv,
            cwd=work,
            env=_environment(home, self.options.base_url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            output, errors = process.communicate(question, timeout=self.timeout_sec)
        except subprocess.TimeoutExpired:
            raise ModelError(
                ModelFault.TIMEOUT, f"Claude Code did not answer in {duration(self.timeout_sec)}"
            ) from None
        finally:
            self._running.discard(process)
            _end(process)
        if output.strip():
            return output
        said = safe_message(errors.decode(errors="replace")) or f"exit code {process.returncode}"
        raise ModelError(ModelFault.BAD_REQUEST, f"Claude Code gave no answer: {said}")


def _program() -> str:
    found = shutil.which("claude")
    if found is None:
        raise ModelError(
            ModelFault.MISSING,
            "the Claude Code CLI `claude` is not on PATH",
            hint="npm install -g @anthropic-ai/claude-code, or name another model",
        )
    return found


def _environment(home: Path, base_url: str | None) -> dict[str, str]:
    """Ours, without the marks of a session that may be around us.

    With a key in the environment the CLI gets a configuration folder of its own; without one it needs the user's
    login, which lives in the user's.
    """
    env = {k: v for k, v in os.environ.items() if k not in ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT")} | _QUIET
    if base_url is not None:
        env["ANTHROPIC_BASE_URL"] = base_url
    if any(env.get(name) for name in _KEYS):
        env |= {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "config")}
    return env


def _conversation(messages: Sequence[Message], schema: Schema | None) -> str:
    turns = [m for m in messages if m.role != "system"]
    parts = [turns[0].content] if turns else []
    for message in turns[1:]:
        who = "You answered" if message.role == "assistant" else "The reader replied"
        parts.append(f"{who}:\n{message.content}")
    if schema is not None:
        form = json.dumps(schema.json, ensure_ascii=False)
        parts.append(f"Answer with one JSON object, no other text, that fits this JSON Schema:\n{form}")
    return "\n\n".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SEC)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # whatever it left behind in its group
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _reply(output: bytes, name: str, latency_sec: float) -> Reply:
    try:
        result = json.loads(output)
    except ValueError:
        raise ModelError(ModelFault.BAD_REQUEST, "Claude Code's answer is not JSON") from None
    if isinstance(result, list):  # verbose settings make it print every event
        result = next((e for e in reversed(result) if isinstance(e, dict) and e.get("type") == "result"), None)
    if not isinstance(result, dict):
        raise ModelError(ModelFault.BAD_REQUEST, "Claude Code's answer holds no result")
    usage = _usage(result)
    if result.get("is_error") or result.get("subtype") != "success":
        raise _failure(result, usage)
    used = next(iter(_table(result, "modelUsage")), None)
    return Reply(
        text=str(result.get("result") or ""),
        model=str(used or name),
        usage=usage,
        latency_sec=latency_sec,
        cut_off=result.get("stop_reason") == "max_tokens",
    )


def _table(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = result.get(name)
    return value if isinstance(value, dict) else {}


def _usage(result: Mapping[str, Any]) -> Usage:
    counts, models = _table(result, "usage"), _table(result, "modelUsage")
    cost = result.get("total_cost_usd")
    # It invents a price for models it does not know, and says so only here.
    invented = any(isinstance(m, dict) and m.get("costBasis") == "unknown" for m in models.values())
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and not invented

    def count(field: str) -> int | None:
        value = counts.get(field)
        return value if type(value) is int else None

    return Usage(
        input_tokens=count("input_tokens"),
        cache_read_tokens=count("cache_read_input_tokens"),
        cache_write_tokens=count("cache_creation_input_tokens"),
        output_tokens=count("output_tokens"),
        cost_usd=float(cost) if known else None,
        source="claude-code",
        cost_source="claude-code" if known else None,
    )


def _failure(result: Mapping[str, Any], usage: Usage) -> ModelError:
    status = result.get("api_error_status")
    said = safe_message(f"Claude Code: {result.get('result') or result.get('subtype') or 'it failed'}")
    fault = status_fault(status if isinstance(status, int) else 0)
    if status is None and "onnect" in said:
        fault = ModelFault.UNREACHABLE
    if "/login" in said:
        fault = ModelFault.AUTH
    return ModelError(fault, said, usage=usage)
