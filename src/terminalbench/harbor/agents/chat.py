"""The chat model of a trial on the host: asked in a thread, given up when the trial is, its failures named as Harbor
names those of other agents.

What a provider does is no attempt of the model: retries at a busy one are `llm.ask`'s, and what lasts is raised.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import override

from harbor.agents.installed.base import (
    AgentAuthenticationError,
    ApiInternalServerError,
    ApiRateLimitError,
    ApiResponseStalledError,
    ModelNotFoundError,
    NetworkConnectionError,
    NonZeroAgentExitCodeError,
    UnknownApiError,
)

from terminalbench.harbor.agent_watch import AgentWatch
from terminalbench.llm.ask import RetryPatience, ask
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema, chat_model
from terminalbench.workflow.apart import in_thread

_RAISED: dict[ModelFault, tuple[type[NonZeroAgentExitCodeError], int | None]] = {
    ModelFault.AUTH: (AgentAuthenticationError, 401),
    ModelFault.NOT_FOUND: (ModelNotFoundError, 404),
    ModelFault.RATE_LIMIT: (ApiRateLimitError, 429),
    ModelFault.SERVER: (ApiInternalServerError, 500),
    ModelFault.TIMEOUT: (ApiResponseStalledError, None),
    ModelFault.UNREACHABLE: (NetworkConnectionError, None),
}


def provider_error(error: ModelError) -> NonZeroAgentExitCodeError:
    """Harbor's exception for what a provider did: the one by which results know its class."""
    kind, status = _RAISED.get(error.fault, (UnknownApiError, 400))
    asked = error.retry_after_sec
    made = kind(f"{error.what}; Retry-After: {asked:g} s" if asked is not None else error.what)
    made.status_code = status  # ty: ignore[missing-attribute]  what the watch of agents reads of any client's errors
    return made


class TrialChat:
    """The port `Asking` of a workflow. One model for each temperature, all alike otherwise."""

    def __init__(
        self, name: str, options: Options, *, tries: int, watch: AgentWatch | None, window: int | None, fixed: bool
    ) -> None:
        """Take the model to ask; with `fixed`, every question has the temperature of `options`, whatever is asked
        for."""
        self.name = name
        self._options, self._window, self._watch, self._fixed = options, window, watch, fixed
        self._patience = RetryPatience(tries=tries)
        self._models: dict[float, ChatModel] = {}
        self._stop = Event()

    async def ready(self, temperatures: Sequence[float]) -> None:
        """Find out what would make every call fail. Raises ModelError."""
        for temperature in temperatures:
            await in_thread(self._model(temperature).ready)

    async def ask(self, messages: Sequence[Message], schema: Schema, temperature: float) -> Reply:
        """One checked answer. Raises ModelError; cancelled, the call is given up within a second."""
        model = _WatchedModel(self._model(temperature), self._watch)
        try:
            return await in_thread(lambda: ask(model, messages, schema, self._patience, self._stop))
        except asyncio.CancelledError:
            self._stop.set()
            raise

    def context_tokens(self) -> int | None:
        """Return how much it can read; None when that is not known."""
        return self._window if self._window is not None else self._model(0.0).context_tokens()

    def _model(self, temperature: float) -> ChatModel:
        temperature = self._options.temperature if self._fixed else temperature
        if temperature not in self._models:
            self._models[temperature] = chat_model(self.name, replace(self._options, temperature=temperature))
        return self._models[temperature]


class _WatchedModel(ChatModel):
    """A model whose answers and refusals the watch of the trial's agent hears of, one by one."""

    def __init__(self, model: ChatModel, watch: AgentWatch | None) -> None:
        self.name, self.options = model.name, model.options
        self._inner, self._watch = model, watch

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        if self._watch is not None:
            self._watch.asks(stream=False)
        try:
            reply = self._inner.ask(messages, schema)
        except ModelError as error:
            if self._watch is not None:
                self._watch.refused(provider_error(error))
            raise
        if self._watch is not None:
            self._watch.answered()
        return reply

    @override
    def stop(self) -> None:
        self._inner.stop()
