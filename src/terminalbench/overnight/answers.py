"""What a model answered, kept before anything is made of it: a process that is killed then does not pay again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import override

from terminalbench.json_files import decode_plain, write_json
from terminalbench.llm.model import ChatModel, Message, Reply, Schema, TokenCount, TokenPrice
from terminalbench.llm.replay import RecordedAnswer, request_digest
from terminalbench.records.values import known_total

_LARGEST = 16 << 20
_ASKED = ".asked"


class KeptAnswers(ChatModel):
    """A model whose answers are kept in a folder, and which answers from there what it was asked before.

    <folder>/
      <digest>.asked    a question that is under way, or whose asker was killed
      <digest>.json     its answer
    """

    def __init__(self, model: ChatModel, folder: Path) -> None:
        self.name, self.options = model.name, model.options
        self._model, self._folder = model, folder

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        digest = request_digest(messages, schema, self.options)
        file = self._folder / f"{digest[:40]}.json"
        kept = decode_plain(file, RecordedAnswer, _LARGEST)
        if kept is not None:
            return Reply(text=kept.text, model=kept.model, usage=kept.usage)
        under_way = file.with_suffix(_ASKED)
        write_json(under_way, digest)
        try:
            reply = self._model.ask(messages, schema)
            if not reply.cut_off:
                write_json(file, RecordedAnswer(reply.text, digest, model=reply.model, usage=reply.usage))
        finally:
            under_way.unlink()
        return reply

    @override
    def ready(self) -> None:
        self._model.ready()

    @override
    def stop(self) -> None:
        self._model.stop()

    @override
    def price(self) -> TokenPrice | None:
        return self._model.price()

    @override
    def context_tokens(self) -> int | None:
        return self._model.context_tokens()

    @override
    def count(self, messages: Sequence[Message]) -> TokenCount:
        return self._model.count(messages)

    def take_unanswered(self) -> bool:
        """Whether a question was asked before, by a process that was killed, to which no answer is kept; told once."""
        found = list(self._folder.glob(f"*{_ASKED}"))
        for file in found:
            file.unlink()
        return bool(found)

    @property
    def paid_usd(self) -> float | None:
        """What the answers cost that are kept; None where one does not say so."""
        costs = [one.usage.cost_usd for one in self._kept()]
        return None if None in costs else known_total(costs) or 0.0

    def _kept(self) -> Iterator[RecordedAnswer]:
        found = (decode_plain(file, RecordedAnswer, _LARGEST) for file in self._folder.glob("*.json"))
        return (one for one in found if one is not None)
