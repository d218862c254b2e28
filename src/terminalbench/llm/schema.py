"""From a type to the form of an answer, and from a model's text to a checked object."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from terminalbench.llm.model import BadAnswer, Schema

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def schema_of(kind: Any, name: str) -> Schema:
    """The form that `kind` (a msgspec struct, or any type it knows) demands, without references."""

    def check(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise BadAnswer(str(error)) from None

    document = msgspec.json.schema(kind)
    return Schema(name, _inline(document, document.get("$defs", {})), check)


def parse(text: str, schema: Schema) -> Any:
    """The object in a model's answer: the whole text, a fenced block, or the outermost braces. Raises BadAnswer."""
    return schema.check(_json_in(text))


def _json_in(text: str) -> Any:
    stripped = text.strip()
    candidates = [stripped, *(block.strip() for block in reversed(_FENCE.findall(text)))]
    start, end = stripped.find("{"), stripped.rfind("}")
    if 0 <= start < end:
        candidates.append(stripped[start : end + 1])
    problem = "the answer is empty"
    for candidate in filter(None, candidates):
        try:
            # strict=False: small models put raw line breaks into strings.
            return json.loads(candidate, strict=False)
        except (ValueError, RecursionError) as error:
            problem = problem if problem.startswith("not JSON") else f"not JSON: {error}"
    raise BadAnswer(problem)


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**_inline(definitions[reference.rsplit("/", 1)[1]], definitions), **_inline(rest, definitions)}
    found = {key: _inline(value, definitions) for key, value in node.items() if key != "$defs"}
    if "type" not in found and all(isinstance(value, str) for value in found.get("enum", [None])):
        found["type"] = "string"  # some servers refuse an enum without it
    return found
