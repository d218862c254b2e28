"""Tool calls that a model writes as text: for models to which tools cannot be given, or which print their calls.

The form is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. What weak models make of it is read too: a tag
that is not closed, a fenced block, a bare object, escapes that JSON does not know. A call whose arguments cannot be
read is kept as a problem, for the model to hear of; a command is never guessed from a part of it.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FENCE = re.compile(r"```[ \t]*(?P<kind>[\w-]*)[ \t]*\n(?P<body>.*?)(?:```|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ARGUMENTS = ("arguments", "parameters", "args")
_WRAPPERS = ("tool_call", "function", "function_call")
_NAMES = ("name", "tool", "tool_name")


@dataclass(frozen=True)
class WrittenCall:
    """A call in a text. With a `problem`, its arguments could not be read."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def written_calls(text: str, tools: Collection[str]) -> list[WrittenCall]:
    """The calls of these tools in a text, in order; none where it only speaks."""
    text = _THOUGHT.sub("", text)
    tagged = [match[1] for match in _TAG.finditer(text)]
    if tagged:
        return [_call(body, tools) or WrittenCall("", problem=_problem(body)) for body in tagged]
    blocks = [match["body"] for match in _FENCE.finditer(text)] or [text]
    return [found for body in blocks if (found := _call(body, tools)) is not None and found.name in tools]


def read_arguments(given: Any) -> dict[str, Any]:
    """Arguments as an object, which some models hand over as text. Raises ValueError with what is wrong with them."""
    if isinstance(given, str):
        given = json.loads(given, strict=False)
    if not isinstance(given, Mapping):
        raise ValueError(f"the arguments must be an object, not {type(given).__name__}")
    return dict(given)


def _call(body: str, tools: Collection[str]) -> WrittenCall | None:
    for found in _objects(body):
        for wrapper in _WRAPPERS:
            if isinstance(inner := found.get(wrapper), Mapping):
                found = dict(inner)
        name = next((found[key] for key in _NAMES if isinstance(found.get(key), str)), None)
        if name is None:
            continue
        given = next((found[key] for key in _ARGUMENTS if key in found), None)
        if given is None and name in tools:
            given = {key: value for key, value in found.items() if key not in _NAMES}
        try:
            return WrittenCall(name, read_arguments(given))
        except ValueError as error:
            return WrittenCall(name, problem=str(error))
    return None


def _objects(body: str) -> Iterator[dict[str, Any]]:
    """The first object in a text, read as strictly as it can be."""
    start = body.find("{")
    if start < 0:
        return
    text = body[start:].rstrip()
    decoder = json.JSONDecoder(strict=False)  # small models put raw line breaks into strings
    for attempt in (text, _BAD_ESCAPE.sub(r"\\\\", text)):
        for closing in ("", "}", "}}"):  # the braces that end it are what is forgotten
            try:
                found, _ = decoder.raw_decode(attempt + closing)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found
                return


def _problem(body: str) -> str:
    start = body.find("{")
    if start < 0:
        return "there is no JSON object in it"
    try:
        json.JSONDecoder(strict=False).raw_decode(body[start:])
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return 'it has no "name" of a tool'
