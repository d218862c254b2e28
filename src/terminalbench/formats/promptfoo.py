"""Results of promptfoo as JSON. A test is a task, a provider (with its prompt, of several) a profile.

The same test run again (`--repeat`) is a further attempt. `failureReason` 2 is an error: no verdict. Rows of its
versions 1 and 2 name no provider: it is the one of the configuration, else what the file is called.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

from terminalbench.errors import UserError
from terminalbench.formats.row import RowReader, identifier, message, table_of
from terminalbench.formats.source import SourceFile, parsed
from terminalbench.text.foreign import short

DATASET = "promptfoo"
_LABEL = 40
_NAME = 80
_ERROR = 2
_CELL = re.compile(rb'(?m)(?:^|,)"?\[(?:PASS|FAIL|ERROR)\] ')


class PromptfooFormat:
    """What `promptfoo eval -o results.json` (or .jsonl) writes."""

    def recognises(self, file: SourceFile) -> bool:
        """Recognise the format by rows with `success` that name a prompt, a test or a provider."""
        if _CELL.search(file.head) or (file.head.startswith(b"evalId:") and b"\nresults:" in file.head):
            hint = "write the results as JSON: promptfoo eval -o results.json"
            raise UserError(
                "is a promptfoo table or YAML file; only its JSON is supported", where=str(file.path), hint=hint
            )
        return any(_is_row(row) for row in _rows(file, first=True))

    def read(self, files: Sequence[SourceFile], reader: RowReader) -> None:
        """Each row is an attempt at a test."""
        rows = [_named(row, provider) for file in files for provider in (_only(file),) for row in _rows(file)]
        usable = [row for row in rows if _is_row(row)]
        if len(usable) < len(rows):
            reader.reject("the row has neither success nor a provider", len(rows) - len(usable))
        prompts: dict[str, set[str]] = defaultdict(set)
        tests: dict[str, set[str]] = defaultdict(set)
        for row in usable:
            prompts[_provider(row)].add(_prompt(row))
            tests[_test(row)].add(_content(row))
        for row in usable:
            _add(row, reader, prompts, tests)


def _rows(file: SourceFile, *, first: bool = False) -> list[Any]:
    found = file.json
    while isinstance(found, dict):  # what is shared has the results in `data`
        found = found.get("results", found.get("data"))
    if isinstance(found, list):
        return found[:20] if first else found
    if file.first_line is not None and _is_row(file.first_line):
        return [file.first_line] if first else [parsed(line) for line in file.data.splitlines() if line.strip()]
    return []


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and "success" in row
        and (bool({"promptIdx", "testIdx", "provider", "gradingResult"} & set(row)) or {"prompt", "vars"} <= set(row))
    )


def _only(file: SourceFile) -> str:
    """The provider of rows that name none."""
    told = table_of(file.json)
    told = table_of(told.get("config")) or table_of(table_of(told.get("data")).get("config"))
    named = told.get("providers")
    named = named[0] if isinstance(named, list) and len(named) == 1 else named
    return named if isinstance(named, str) and named else file.label


def _named(row: Any, provider: str) -> Any:
    return {"provider": provider, **row} if isinstance(row, dict) and _is_row(row) else row


def _provider(row: Mapping[str, Any]) -> str:
    told = row.get("provider")
    told = told.get("label") or told.get("id") if isinstance(told, dict) else told
    return identifier(told) or "unnamed"


def _prompt(row: Mapping[str, Any]) -> str:
    """Return what tells a prompt from others of the same provider: its label, by its number where that is long and
    told."""
    prompt = table_of(row.get("prompt"))
    label = next(filter(None, (identifier(prompt.get(name)) for name in ("label", "display", "raw"))), "")
    place = row.get("promptIdx")
    return f"prompt {place + 1}" if len(label) > _LABEL and isinstance(place, int) else label


def _profile(provider: str, prompt: str, prompts: Set[str]) -> str:
    """The provider, with the prompt where it has several: a long one by its place in their order."""
    if len(prompts) == 1:
        return provider
    return f"{provider}, {prompt if len(prompt) <= _LABEL else f'prompt {sorted(prompts).index(prompt) + 1}'}"


def _test(row: Mapping[str, Any]) -> str:
    """Return what a test is called: by its description, else by its first variable, else by its place."""
    case = table_of(row.get("testCase")) or table_of(row.get("test"))
    variables = table_of(row.get("vars")) or table_of(case.get("vars"))
    first = next((value for value in variables.values() if isinstance(value, str | int | float)), None)
    place = row.get("testIdx")
    named = identifier(row.get("description")) or identifier(case.get("description")) or identifier(first)
    return short(named, _NAME) if named else f"test {place + 1 if isinstance(place, int) else '?'}"


def _content(row: Mapping[str, Any]) -> str:
    case = table_of(row.get("testCase")) or table_of(row.get("test"))
    content = [row.get("vars") or case.get("vars"), case.get("assert"), case.get("description")]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:6]


def _add(
    row: Mapping[str, Any], reader: RowReader, prompts: Mapping[str, set[str]], tests: Mapping[str, set[str]]
) -> None:
    provider, test, response = _provider(row), _test(row), table_of(row.get("response"))
    success = row.get("success")
    if not isinstance(success, bool):
        reader.reject("success is neither true nor false")
        return
    reason = row.get("failureReason")
    broke = reason == _ERROR if reason is not None else bool(response.get("error"))
    broke = broke and not success
    used = table_of(row.get("tokenUsage")) or table_of(response.get("tokenUsage"))
    took = reader.amount(row.get("latencyMs"), "latencyMs")
    reader.add(
        test if len(tests[test]) == 1 else f"{test} ~{_content(row)}",
        _profile(provider, _prompt(row), prompts[provider]),
        DATASET,
        passed=None if broke else success,
        reward=None if broke or success else row.get("score"),
        cost_usd=reader.amount(row.get("cost"), "cost"),
        tokens=reader.count(used.get("total"), "tokens"),
        input_tokens=reader.count(used.get("prompt"), "tokens"),
        output_tokens=reader.count(used.get("completion"), "tokens"),
        seconds=None if took is None else took / 1000,
        error=message(row.get("error") or response.get("error")) or "an error without a message" if broke else None,
    )
