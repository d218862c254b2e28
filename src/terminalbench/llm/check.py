"""The check of a model by two or three short questions: does it answer, how fast, does it call tools.

What one model can do is never taken from another: a tool call counts when it was made.
"""

import re
import time
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.errors import EXIT_OK, EXIT_USAGE, UserError
from terminalbench.llm.claude_code import ClaudeCodeModel
from terminalbench.llm.litellm_model import LiteLLMModel, load
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Options, chat_model
from terminalbench.llm.ollama import OllamaModel

_TOKENS = 32
"""The longest answer to the first question."""
_TOOL_TOKENS = 256
_QUESTION = "Count from 1 to 10."
CALL = "Call the tool ping with the text hello."
PING: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "ping",
        "description": "Says pong.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


_NAME = re.compile(r"^\w+(?:Error|Timeout): ")
_ADDRESS = "check that it is running; LiteLLM reads its address from PROVIDER_API_BASE, e.g. OPENAI_API_BASE"
_FAULTS = {
    ModelFault.UNREACHABLE: ("its server does not answer", _ADDRESS),
    ModelFault.AUTH: (
        "the server refuses the key",
        "set the right key in the environment, or in experiments/.env, which has precedence",
    ),
    ModelFault.NOT_FOUND: ("the server does not have this model", "write its name as the provider lists it"),
    ModelFault.RATE_LIMIT: ("the server answers, but accepts no questions now", "try again later"),
    ModelFault.SERVER: ("the server failed", "try again later"),
    ModelFault.TIMEOUT: (
        "the model did not answer in time",
        "use a larger machine, a smaller model, or a less busy server",
    ),
}


class ToolCalling(StrEnum):
    """The ways in which a model calls tools."""

    SHOWN = "shown"
    DECLARED = "declared, not shown"
    IN_WORDS = "in words"
    OWN = "its own"
    """Claude Code brings its tools along."""


class ModelReport(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The findings about a model. `problem` is why it cannot be used; what is None is not known.

    `ready_sec` is until it could be asked: a file is loaded then. `latency_sec` is that of one short answer.
    """

    spec: str
    model: str | None = None
    problem: str | None = None
    hint: str | None = None
    ready_sec: float | None = None
    latency_sec: float | None = None
    output_tokens: int | None = None
    tokens_per_sec: float | None = None
    tools: ToolCalling | None = None
    context_tokens: int | None = None
    cost_usd: float | None = None
    exit_code: int = EXIT_OK

    def lines(self) -> list[str]:
        """The report for a person, at most 80 columns but for names."""
        if self.problem is not None:
            return [f"{self.spec}: {self.problem}" + (f" ({self.hint})" if self.hint else "")]
        told = {
            "answered by": self.model,
            "ready after": _seconds(self.ready_sec),
            "answered in": _seconds(self.latency_sec),
            "tokens/s": f"{self.tokens_per_sec:.1f}" if self.tokens_per_sec is not None else None,
            "tools": self.tools,
            "window": f"{self.context_tokens} tokens" if self.context_tokens else None,
            "cost": f"${self.cost_usd:.6f}" if self.cost_usd is not None else None,
        }
        return [f"{self.spec}: ok", *(f"  {name:<12} {value or 'unknown'}" for name, value in told.items())]


def check_model(spec: str) -> ModelReport:
    """Ask the model that `spec` names. What is wrong with it is in the report."""
    try:
        short = Options(output_tokens=_TOKENS)
        model = chat_model(spec, None if spec.partition(":")[0] == "claude-code" else short)
        if isinstance(model, LiteLLMModel):
            load()  # some seconds that are not the model's
        began = time.monotonic()
        model.ready()
        ready_sec = time.monotonic() - began
        reply = model.ask([Message("user", _QUESTION)])
        tools = _tools(model)
    except ModelError as error:
        words, hint = _FAULTS.get(error.fault, (None, None))
        said = _NAME.sub("", error.what)
        known = error.hint is not None or words is None  # whoever has a hint has said it well
        problem = error.what if known else f"{words}: {said}"
        return ModelReport(spec=spec, problem=problem, hint=error.hint or hint, exit_code=error.exit_code)
    except UserError as error:
        return ModelReport(spec=spec, problem=error.what, hint=error.hint, exit_code=error.exit_code or EXIT_USAGE)
    written = reply.usage.output_tokens
    return ModelReport(
        spec=spec,
        model=reply.model,
        ready_sec=round(ready_sec, 3),
        latency_sec=round(reply.latency_sec, 3),
        output_tokens=written,
        tokens_per_sec=round(written / reply.latency_sec, 2) if written and reply.latency_sec else None,
        tools=tools,
        context_tokens=model.context_tokens(),
        cost_usd=reply.usage.cost_usd,
    )


def _tools(model: ChatModel) -> ToolCalling | None:
    if isinstance(model, OllamaModel):
        return ollama_tools(model)
    if isinstance(model, LiteLLMModel):
        return _litellm_tools(model)
    return ToolCalling.OWN if isinstance(model, ClaudeCodeModel) else None


def ollama_tools(model: OllamaModel) -> ToolCalling:
    """Return how a model of an Ollama server calls tools: as it has just shown, as the server says, or in words."""
    if not model.server.find(model.model).tools:
        return ToolCalling.IN_WORDS
    body = {
        "model": model.model,
        "messages": [{"role": "user", "content": CALL}],
        "options": {"num_predict": _TOOL_TOKENS, "seed": 0, "temperature": 0},
        "tools": [PING],
    }
    called = any(call.name == "ping" for call in model.server.chat(body).tool_calls)
    return ToolCalling.SHOWN if called else ToolCalling.DECLARED


def _litellm_tools(model: LiteLLMModel) -> ToolCalling | None:
    """None: it is not known. LiteLLM itself takes tools only where the package mcp is installed; else its list says."""
    offered = {"tools": [PING]}
    try:
        answer = model.complete([Message("user", CALL)], {"extra_body": offered} if model.speaks_openai else offered)
    except ModelError as error:
        if "No module named" in error.what:
            return ToolCalling.DECLARED if model.takes_tools else None
        if error.fault is not ModelFault.BAD_REQUEST:
            raise
        return ToolCalling.IN_WORDS
    calls = answer.choices[0].message.tool_calls if answer.choices else None
    return ToolCalling.SHOWN if any(call.function.name == "ping" for call in calls or ()) else ToolCalling.DECLARED


def _seconds(value: float | None) -> str | None:
    return f"{value:.2f} s" if value is not None else None
