"""A model of one's own file as a chat model: `local:FILE.gguf`. Its server is shared with all who use the file."""

import re
from collections.abc import Sequence
from threading import Lock
from typing import override

import msgspec

from terminalbench.llm.local.gguf import read_model_file
from terminalbench.llm.local.lease import ServerLease, ServerOrder, check_engine, window_of
from terminalbench.llm.local.lease import lease as take_lease
from terminalbench.llm.local.spec import PREFIX, parse_local
from terminalbench.llm.model import OUTPUT_TOKENS, Message, ModelError, ModelFault, Options, Reply, Schema, TokenPrice
from terminalbench.llm.ollama import OllamaModel, OllamaServer

_OLLAMA = re.compile(r"^Ollama: (?:HTTP \d+: )?")
_NO_FORM = "output that does not match"


class LocalModel(OllamaModel):
    """Nothing is started before the first question, or `ready`; the server ends when no process uses it any more."""

    def __init__(self, name: str, options: Options | None = None) -> None:
        super().__init__(name, options)
        self.spec = parse_local(name)
        self.name = f"{PREFIX}{name}"
        self._lease: ServerLease | None = None
        self._starting = Lock()

    @override
    def ready(self) -> None:
        _ = self.lease

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        served = self.lease.served.order
        try:
            reply = super().ask(messages, schema)
        except ModelError as error:
            raise _own_words(error, served) from None
        usage = msgspec.structs.replace(reply.usage, cost_usd=0.0, source="local", cost_source="local")
        return msgspec.structs.replace(reply, usage=usage)

    @override
    def price(self) -> TokenPrice:
        return TokenPrice(0.0, 0.0, "local")

    @override
    def context_tokens(self) -> int | None:
        try:
            check_engine()
            return window_of(read_model_file(self.spec.path), self.spec.num_ctx)
        except ModelError:  # whoever asks it next will be told
            return None

    @property
    def lease(self) -> ServerLease:
        """Its share of the server, which is started if it does not run."""
        with self._starting:
            if self._lease is None:
                self._lease = take_lease(self.spec)
                self.model = self._lease.name
                self.server = OllamaServer(self._lease.url, self.server.timeout_sec, self._lease.token)
            return self._lease

    def close(self) -> None:
        """Give up its share of the server."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    @override
    def _longest(self) -> int:
        """A quarter of the window: a small model may not find its end by itself."""
        return min(OUTPUT_TOKENS, self.lease.served.order.window // 4)

    @override
    def _window(self, needed: int) -> int:
        return self.lease.served.order.window


def _own_words(error: ModelError, served: ServerOrder) -> ModelError:
    """Return what the server refused, as it concerns who named the file."""
    what = _OLLAMA.sub("", error.what)
    if _NO_FORM in what:  # the model's doing, for which llama.cpp says 500
        return ModelError(ModelFault.BAD_ANSWER, f"{served.name}: {what}")
    if error.fault is not ModelFault.TOO_LONG:
        return ModelError(error.fault, f"{served.name}: {what}", hint=error.hint)
    hint = f"its maximal window is {served.context_tokens}: set local:FILE,num_ctx=N"
    more = (
        hint if served.context_tokens > served.window else "give it less to read, or use a model with a larger window"
    )
    return ModelError(error.fault, f"{served.name}: {what.partition(', try')[0]}", hint=more)
