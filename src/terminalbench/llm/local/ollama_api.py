"""Ollama's words for what llama.cpp says in OpenAI's, and back. Pure."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from terminalbench.llm.local.lease import ServerOrder

_OPTIONS = {
    "num_predict": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
    "seed": "seed", "stop": "stop", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
    "repeat_penalty": "repeat_penalty",
}  # fmt: skip


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def listed(order: ServerOrder) -> dict[str, Any]:
    """The model as `/api/tags` and `/api/ps` list it."""
    name = f"{order.name}:latest"
    entry = {"name": name, "model": name, "modified_at": now(), "size": order.size, "digest": order.digest}
    return {**entry, "details": _details(order), "context_length": order.window, "size_vram": 0}


def shown(order: ServerOrder) -> dict[str, Any]:
    """The model as `/api/show` tells of it. Its window is the one that it is served with."""
    info = {"general.architecture": order.architecture, f"{order.architecture}.context_length": order.window}
    capabilities = ["completion", *(["tools"] if order.tools else [])]
    return {"details": _details(order), "model_info": info, "capabilities": capabilities}


def question(body: Mapping[str, Any], order: ServerOrder) -> dict[str, Any]:
    """A body of `/api/chat` as OpenAI's. Raises `ValueError`: it cannot be asked so."""
    options = body.get("options")
    options = options if isinstance(options, Mapping) else {}
    window = options.get("num_ctx")
    if isinstance(window, int) and window > order.window:
        raise ValueError(f"num_ctx is {window}: the context window of this server is {order.window} tokens")
    asked: dict[str, Any] = {"model": order.name, "messages": _messages(body.get("messages") or ())}
    asked |= {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS}
    if body.get("tools"):
        asked["tools"] = body["tools"]
    form = body.get("format")
    if form == "json":
        asked["response_format"] = {"type": "json_object"}
    elif isinstance(form, Mapping):
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
    return asked


def answer(said: Mapping[str, Any], order: ServerOrder) -> dict[str, Any]:
    """A whole answer of llama.cpp as that of `/api/chat`."""
    choice = said["choices"][0]
    message = choice["message"]
    calls = [_call(index, one) for index, one in enumerate(message.get("tool_calls") or ())]
    shown: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
    if message.get("reasoning_content"):
        shown["thinking"] = message["reasoning_content"]
    if calls:
        shown["tool_calls"] = calls
    return {**ending(said, choice.get("finish_reason"), order), "message": shown}


def piece(delta: Mapping[str, Any], order: ServerOrder) -> dict[str, Any]:
    """A part of a streamed answer."""
    message = {"role": "assistant", "content": delta.get("content") or ""}
    if delta.get("reasoning_content"):
        message["thinking"] = delta["reasoning_content"]
    return {"model": order.name, "created_at": now(), "message": message, "done": False}


def ending(said: Mapping[str, Any], reason: str | None, order: ServerOrder) -> dict[str, Any]:
    """The last words of an answer: why it ended, and what it took, in tokens and nanoseconds."""
    usage, timings = said.get("usage") or {}, said.get("timings") or {}
    read, written = (int(1e6 * (timings.get(name) or 0)) for name in ("prompt_ms", "predicted_ms"))
    return {
        "model": order.name, "created_at": now(), "message": {"role": "assistant", "content": ""}, "done": True,
        "done_reason": "length" if reason == "length" else "stop", "total_duration": read + written,
        "prompt_eval_count": usage.get("prompt_tokens", 0), "prompt_eval_duration": read,
        "eval_count": usage.get("completion_tokens", 0), "eval_duration": written,
    }  # fmt: skip


def _details(order: ServerOrder) -> dict[str, Any]:
    family = order.architecture
    told = {"format": "gguf", "family": family, "families": [family]}
    return told | ({"quantization_level": order.quantization} if order.quantization else {})


def _messages(messages: Sequence[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    ids: list[str] = []
    for message in messages:
        if not isinstance(message, Mapping):
            raise ValueError("a message is no object")
        one: dict[str, Any] = {"role": message.get("role"), "content": message.get("content") or ""}
        for call in message.get("tool_calls") or ():
            ids.append(call.get("id") or f"call_{len(ids)}")
            function = {
                "name": call["function"]["name"], "arguments": json.dumps(call["function"].get("arguments") or {})
            }  # fmt: skip
            one.setdefault("tool_calls", []).append({"id": ids[-1], "type": "function", "function": function})
        if message.get("role") == "tool":
            one["tool_call_id"] = message.get("tool_call_id") or (ids[-1] if ids else "call_0")
        found.append(one)
    return found


def _call(index: int, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = {}
    return {"id": call.get("id"), "function": {"index": index, "name": function.get("name"), "arguments": given}}
