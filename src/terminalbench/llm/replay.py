"""Recorded answers: `replay:FILE` (JSON lines) or `replay:FOLDER` (a judge's cache). Nothing is called.

A line is `{"request": "<digest>", "text": "..."}`, or `{"contains": ["...", ...], "text": "..."}` for the first
question that holds all those texts; `usage` and `model` are optional. A line may hold `error` instead of `text`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import override

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema
from terminalbench.records.trial import Usage


def request_digest(messages: Sequence[Message], schema: Schema | None, options: Options = Options()) -> str:  # noqa: B008
    """Return what a question is known by: its messages, the form of its answer and how it is asked, not the model."""
    told = {name: value for name, value in asdict(options).items() if name != "output_tokens" or value is not None}
    asked = [] if options == Options() else [told]  # answers that were recorded before there were any
    known = [messages, schema.json if schema else None, *asked]
    return sha256(msgspec.json.encode(known, order="sorted")).hexdigest()


class RecordedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One recorded answer."""

    text: str = ""
    request: str | None = None
    contains: list[str] = []
    model: str = "replay"
    usage: Usage = Usage()
    error: str | None = None


class ReplayModel(ChatModel):
    """Answers from a file; a question that is not in it is an error, never a guess."""

    def __init__(self, name: str, options: Options | None = None) -> None:
        self.options = options or Options()
        self.path = Path(name)
        self.name = f"replay:{name}"

    @override
    def ready(self) -> None:
        if not self._answers:
            raise ModelError(ModelFault.MISSING, f"{self.path} holds no recorded answers")

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        digest = request_digest(messages, schema, self.options)
        whole = "\n".join(message.content for message in messages)
        for answer in self._answers:
            named = answer.request == digest
            if named or (answer.contains and all(text in whole for text in answer.contains)):
                if answer.error is not None:
                    raise ModelError(ModelFault.BAD_REQUEST, answer.error)
                return Reply(text=answer.text, model=answer.model, usage=answer.usage)
        raise ModelError(ModelFault.BAD_REQUEST, f"{self.path} has no answer to this question")

    @cached_property
    def _answers(self) -> list[RecordedAnswer]:
        if self.path.is_dir():
            return [found for file in sorted(self.path.glob("*.json")) if (found := _read(file)) is not None]
        if not self.path.is_file():
            raise ModelError(ModelFault.MISSING, f"there are no recorded answers at {self.path}")
        lines = read_jsonl(self.path, RecordedAnswer)
        if lines.bad:
            raise ModelError(ModelFault.MISSING, f"{self.path}: line {lines.bad[0].number}: {lines.bad[0].reason}")
        return lines.records


def _read(file: Path) -> RecordedAnswer | None:
    try:
        return read_json(file, RecordedAnswer)
    except (TbenchError, OSError):
        return None  # a torn cache file answers nothing; its question is reported as unanswered
