"""The form of predictions: patches by instance id, as JSON or JSON lines.

`[{"instance_id": ..., "patch" or "model_patch": ...}, ...]`, or a table from instance id to patch or entry. Of both
keys `model_patch` wins, as in the official evaluator of SWE-Bench Pro.
"""

import json
from typing import Any

from terminalbench.errors import UserError

_KEYS = ("model_patch", "patch")


def entries(data: bytes, where: str) -> list[tuple[str, str]]:
    """Instance id and patch of each entry, in order; a patch of null is an empty one. Raises UserError."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8: {error}", where=where) from error
    return [_entry(entry, f"{where}: entry {number}") for number, entry in enumerate(_listed(text, where), start=1)]


class _JsonObject(dict[str, Any]):
    """An object of JSON with all its pairs: a name may stand in it twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _listed(text: str, where: str) -> list[Any]:
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        found = json.loads(text, object_pairs_hook=_JsonObject) if lines else []
    except (ValueError, RecursionError) as error:
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise UserError(f"is neither JSON nor JSON lines: {error}", where=where) from error
    if isinstance(found, _JsonObject) and "instance_id" not in found:
        return [
            {"instance_id": name, **(value if isinstance(value, dict) else {"patch": value})}
            for name, value in found.pairs
        ]
    return found if isinstance(found, list) else [found]


def _entry(entry: Any, where: str) -> tuple[str, str]:
    name = entry.get("instance_id") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise UserError("has no instance_id", where=where)
    key = next((key for key in _KEYS if key in entry), None)
    if key is None:
        raise UserError("has neither patch nor model_patch", where=where)
    patch = "" if entry[key] is None else entry[key]
    if not isinstance(patch, str):
        raise UserError(f"{key} must be a text, not {type(patch).__name__}", where=where)
    try:
        patch.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{key} is not valid Unicode: {error}", where=where) from error
    return name, patch
