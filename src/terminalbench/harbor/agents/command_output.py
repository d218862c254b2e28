"""The output of a command as steps and tokens. Pure: bytes in, plain values out. Nothing in it is trusted.

text                 all of it is one step
lines                each line is one
claude-stream-json   Claude Code's `--output-format stream-json`
codex-json           Codex's `exec --json`
openai-messages      a message of a chat on each line: role, content, tool_calls; perhaps usage
atif                 one document in Harbor's own format
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from terminalbench.experiments.command import USAGE_KEYS

_MOST_STEPS = 5000
_MOST_TEXT = 100_000
_LOOKED_AT = 50


@dataclass(frozen=True)
class CommandUsage:
    """Tokens and cost as far as they are told; the input counts what came from a cache too."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())


@dataclass(frozen=True)
class CommandOutput:
    """The readable part of an output: its format, steps as Harbor's `Step` takes them, and usage.

    `document` is a whole trajectory, where the command prints one.
    """

    format: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    usage: CommandUsage = CommandUsage()
    document: dict[str, Any] | None = None


def read_output(data: bytes, wanted: str = "auto", paths: Mapping[str, str] | None = None) -> CommandOutput:
    """Return what an output says; where it is not in the format that is wanted, it is text."""
    text = data.decode("utf-8", errors="replace")
    records = list(_records(text))
    kind = _detected(text, records) if wanted == "auto" else wanted
    if kind == "atif":
        document = _document(text)
        if document is not None:
            return CommandOutput(kind, document=document, usage=_of_document(document))
        kind = "text"
    if kind in _READERS and records:
        steps, used = _READERS[kind](records)
        if steps:
            return CommandOutput(kind, steps[:_MOST_STEPS], _told(records[-1], paths) or used)
    lines = text.splitlines() if kind == "lines" else [text]
    steps = [_step("agent", line) for line in lines if line.strip()][:_MOST_STEPS]
    told = _told(records[-1], paths) if records else CommandUsage()
    return CommandOutput("lines" if kind == "lines" else "text", steps, told)


def read_usage(data: bytes | None, paths: Mapping[str, str] | None = None) -> CommandUsage | None:
    """Return what a file of usage says: `input_tokens`, `output_tokens`, `cached_tokens`, `cost_usd`, or at `paths`."""
    try:
        told = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    usual = {"input": "input_tokens", "output": "output_tokens", "cached": "cached_tokens", "cost": "cost_usd"}
    return (_told(told, paths or usual) or None) if isinstance(told, dict) else None


def _records(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def _detected(text: str, records: list[dict[str, Any]]) -> str:
    first = records[:_LOOKED_AT]
    kinds = {str(one.get("type")) for one in first}
    if any(str(one.get("type")) in ("assistant", "user") and isinstance(one.get("message"), dict) for one in first):
        return "claude-stream-json"
    if any(kind.startswith(("item.", "turn.", "thread.")) for kind in kinds):
        return "codex-json"
    if any(one.get("role") in ("assistant", "tool") for one in first):
        return "openai-messages"
    return "atif" if (document := _document(text)) is not None and "steps" in document else "text"


def _document(text: str) -> dict[str, Any] | None:
    for candidate in (text, text.strip().rpartition("\n")[2]):
        try:
            found = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("steps"), list):
            return found
    return None


def _of_document(document: Mapping[str, Any]) -> CommandUsage:
    paths = {"input": "prompt_tokens", "output": "completion_tokens", "cached": "cached_tokens", "cost": "cost_usd"}
    return _told(document, {name: f"final_metrics.total_{key}" for name, key in paths.items()})


def _told(record: Mapping[str, Any], paths: Mapping[str, str] | None) -> CommandUsage:
    """Return what a record says at paths like `result.usage.input_tokens`."""
    if not paths:
        return CommandUsage()
    count = {name: _count(_at(record, paths[name])) for name in USAGE_KEYS if name in paths and name != "cost"}
    cost = _amount(_at(record, paths["cost"])) if "cost" in paths else None
    return CommandUsage(count.get("input"), count.get("output"), count.get("cached"), cost)


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list) and part.lstrip("-").isdigit() and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def _count(value: Any) -> int | None:
    number = _amount(value)
    return int(number) if number is not None and number < 1e15 else None


def _amount(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if usable else None


def _step(source: str, message: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "message": message[:_MOST_TEXT], **more}


def _text(content: Any) -> str:
    """The text of a message, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(one.get("text") or "") for one in parts if isinstance(one, dict) and one.get("text"))


def _call(name: str, number: Any, arguments: Any) -> dict[str, Any]:
    known = arguments if isinstance(arguments, dict) else {"input": str(arguments)[:_MOST_TEXT]}
    return {"tool_call_id": str(number), "function_name": name, "arguments": known}


def _observed(steps: list[dict[str, Any]], call: Any, text: str, *, failed: bool | None = None) -> None:
    """Put what a tool said to the step that called it; to the last one where that is not known."""
    owner = next((one for one in reversed(steps) if any(c["tool_call_id"] == str(call) for c in _calls(one))), None)
    if owner is None:
        if text and steps:
            steps.append(_step("system", text))
        return
    results = owner.setdefault("observation", {"results": []})["results"]
    told = {} if failed is None else {"extra": {"is_error": failed}}
    results.append({"source_call_id": str(call), "content": text[:_MOST_TEXT], **told})


def _calls(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    return step.get("tool_calls") or []


def _claude(records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], CommandUsage]:
    """A step for each message of the model, which comes in as many events as it has parts."""
    steps: list[dict[str, Any]] = []
    by_message: dict[str, dict[str, Any]] = {}
    used: dict[str, Mapping[str, Any]] = {}
    result: Mapping[str, Any] = {}
    for place, record in enumerate(records):
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        parts = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
        if record.get("type") == "assistant" and isinstance(message, dict):
            key = str(message.get("id") or f"line {place}")
            if key not in by_message:
                by_message[key] = _step("agent", "", **_model(message))
                steps.append(by_message[key])
            _said(by_message[key], content, parts)
            if isinstance(message.get("usage"), dict):
                used[key] = message["usage"]
                # How much the model wrote is told at the end of the session alone.
                by_message[key]["metrics"] = _metrics(message["usage"], _SENT, (), "cache_read_input_tokens")
        elif record.get("type") == "user":
            for part in parts:
                if part.get("type") == "tool_result":
                    failed = part.get("is_error") if isinstance(part.get("is_error"), bool) else None
                    _observed(steps, part.get("tool_use_id"), _text(part.get("content")), failed=failed)
        elif record.get("type") == "result":
            result = record
    whole = result.get("usage")
    all_used = [whole] if isinstance(whole, dict) else list(used.values())
    return steps, CommandUsage(
        _sum(all_used, *_SENT),
        _sum(all_used, "output_tokens"),
        _sum(all_used, "cache_read_input_tokens"),
        _amount(result.get("total_cost_usd")),
    )


_SENT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _model(message: Mapping[str, Any]) -> dict[str, str]:
    model = message.get("model")
    return {"model_name": model} if isinstance(model, str) and model else {}


def _said(step: dict[str, Any], content: Any, parts: list[dict[str, Any]]) -> None:
    """Add the parts of a message to its step."""
    thought = "\n\n".join(str(p["thinking"]) for p in parts if p.get("type") == "thinking" and p.get("thinking"))
    for name, text in (("message", _text(content)), ("reasoning_content", thought)):
        if text:
            step[name] = "\n\n".join(filter(None, (step.get(name), text)))[:_MOST_TEXT]
    calls = [_call(str(p.get("name")), p.get("id"), p.get("input")) for p in parts if p.get("type") == "tool_use"]
    if calls:
        step.setdefault("tool_calls", []).extend(calls)


def _metrics(
    usage: Mapping[str, Any], sent: Sequence[str], came: Sequence[str], cached: str | None = None
) -> dict[str, Any]:
    """Return what one step used, as Harbor's `Metrics` takes it."""
    told = {
        "prompt_tokens": _sum([usage], *sent),
        "completion_tokens": _sum([usage], *came),
        "cached_tokens": _sum([usage], cached) if cached else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _sum(records: list[Mapping[str, Any]], *names: str) -> int | None:
    found = [number for one in records for name in names if (number := _count(one.get(name))) is not None]
    return sum(found) if found else None


def _codex(records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], CommandUsage]:
    steps: list[dict[str, Any]] = []
    turns: list[Mapping[str, Any]] = []
    begun: set[str] = set()
    for number, record in enumerate(records):
        item, kind = record.get("item"), record.get("type")
        if kind == "turn.completed" and isinstance(record.get("usage"), dict):
            turns.append(record["usage"])
            if steps and steps[-1]["source"] == "agent":
                names = ("input_tokens",), ("output_tokens",), "cached_input_tokens"
                steps[-1]["metrics"] = _metrics(record["usage"], *names)
        if kind not in ("item.started", "item.completed") or not isinstance(item, dict):
            continue
        ended, call = kind == "item.completed", str(item.get("id") or number)
        if item.get("type") == "command_execution":
            if call not in begun:
                told = {"command": str(item.get("command") or "")[:_MOST_TEXT]}
                steps.append(_step("agent", "", tool_calls=[_call("shell", call, told)]))
                begun.add(call)
            if ended:
                _observed(steps, call, str(item.get("aggregated_output") or ""))
        elif not ended:
            continue
        elif item.get("type") in ("agent_message", "assistant_message"):
            steps.append(_step("agent", str(item.get("text") or "")))
        elif item.get("type") == "reasoning":
            steps.append(_step("agent", "", reasoning_content=str(item.get("text") or "")[:_MOST_TEXT]))
        else:
            kept = {name: value for name, value in item.items() if name not in ("id", "type")}
            steps.append(_step("agent", "", tool_calls=[_call(str(item.get("type")), call, kept)]))
    return steps, CommandUsage(
        _sum(turns, "input_tokens"), _sum(turns, "output_tokens"), _sum(turns, "cached_input_tokens")
    )


def _messages(records: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], CommandUsage]:
    steps: list[dict[str, Any]] = []
    used: list[Mapping[str, Any]] = []
    cached: list[Mapping[str, Any]] = []
    for number, record in enumerate(records):
        usage = record.get("usage")
        if isinstance(usage, dict):
            used.append(usage)
            details = usage.get("prompt_tokens_details")
            cached += [details] if isinstance(details, dict) else []
        text, role = _text(record.get("content")), record.get("role")
        if role == "assistant":
            calls = []
            for place, call in enumerate(
                record.get("tool_calls") or () if isinstance(record.get("tool_calls"), list) else ()
            ):
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(function, dict):
                    name, given = str(function.get("name")), _arguments(function.get("arguments"))
                    calls.append(_call(name, call.get("id") or f"{number}-{place}", given))
            more = {"metrics": _chat_metrics(usage)} if isinstance(usage, dict) else {}
            steps.append(_step("agent", text, **({"tool_calls": calls} if calls else {}), **more))
        elif role == "tool":
            _observed(steps, record.get("tool_call_id"), text)
        elif role in ("user", "system", "developer"):
            steps.append(_step("user" if role == "user" else "system", text))
    return steps, CommandUsage(
        _sum(used, "prompt_tokens"), _sum(used, "completion_tokens"), _sum(cached, "cached_tokens")
    )


def _chat_metrics(usage: Mapping[str, Any]) -> dict[str, Any]:
    details = usage.get("prompt_tokens_details")
    told = {**usage, "cached_tokens": details.get("cached_tokens") if isinstance(details, dict) else None}
    return _metrics(told, ("prompt_tokens",), ("completion_tokens",), "cached_tokens")


def _arguments(given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given


_READERS: dict[str, Callable[[list[dict[str, Any]]], tuple[list[dict[str, Any]], CommandUsage]]] = {
    "claude-stream-json": _claude,
    "codex-json": _codex,
    "openai-messages": _messages,
}
