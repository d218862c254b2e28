"""A model of an Ollama server, through its own HTTP API: `ollama:NAME`, at $OLLAMA_HOST."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, override

from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel, Message, ModelError, Options, Reply, Schema
from terminalbench.llm.ollama_server import WINDOW, OllamaServer, longest_context, server_url, usage_of

_TIMEOUT_SEC = 900.0
_MARGIN = 1.25


class OllamaModel(ChatModel):
    """Structured answers by `format`; the context is set for each question, and nothing is cut silently.

    What it costs is unknown: a model of one's own is billed by nobody, and is not free.
    """

    def __init__(self, name: str, options: Options | None = None, timeout_sec: float = _TIMEOUT_SEC) -> None:
        self.options = options or Options()
        self.model = name
        self.name = f"ollama:{name}"
        self.server = OllamaServer(server_url(self.options.base_url or os.environ.get("OLLAMA_HOST")), timeout_sec)
        self._context: int | None = None

    @override
    def ready(self) -> None:
        self._context = longest_context(self.server.show(self.model))

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        started = time.monotonic()
        longest = self.options.output_tokens or self._longest()
        needed = int(self.count(messages).tokens * _MARGIN) + longest
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "stream": False,
            "truncate": False,
            "options": {
                "temperature": self.options.temperature,
                "seed": self.options.seed or 0,
                "num_ctx": self._window(needed),
                "num_predict": longest,
            },
        }
        if schema is not None:
            body["format"] = schema.json
        answer = self.server.ask("/api/chat", body)
        message = answer.get("message")
        text = message.get("content") if isinstance(message, dict) else None
        return Reply(
            text=str(text or ""),
            model=str(answer.get("model") or self.model),
            usage=usage_of(answer),
            latency_sec=time.monotonic() - started,
            cut_off=answer.get("done_reason") == "length",
        )

    @override
    def context_tokens(self) -> int | None:
        """Return the model's window, at most 32k: its memory is the user's own."""
        if self._context is None:
            with suppress(ModelError):  # whoever asks it next will be told
                self._context = longest_context(self.server.show(self.model))
        return min(self._context or WINDOW, WINDOW)

    def _longest(self) -> int:
        """The longest answer, in tokens."""
        return OUTPUT_TOKENS

    def _window(self, needed: int) -> int:
        # In steps of 4k: each new size makes the server load the model again.
        return min(-(-needed // 4096) * 4096, self._context or WINDOW)
