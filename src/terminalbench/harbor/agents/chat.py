"""The chat model of a trial on the host: asked in a thread, given up when the trial is, its failures named as Harbor
names those of other agents.

What a provider does is no attempt of the model: retries at a busy one are `llm.ask`'s, and what lasts is raised.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
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
from terminalbench.llm.ask import Patience, ask
from terminalbench.llm.model import ChatModel, Fault, Message, ModelError, Options, Reply, Schema, chat_model

_RAISED: dict[Fault, tuple[type[NonZeroAgentExitCodeError], int | None]] = {
    Fault.AUTH: (AgentAuthenticationError, 401),
    Fault.NOT_FOUND: (ModelNotFoundError, 404),
    Fault.RATE_LIMIT: (ApiRateLimitError, 429),
    Fault.SERVER: (ApiInternalServerError, 500),
    Fault.TIMEOUT: (ApiResponseStalledError, None),
    Fault.UNREACHABLE: (NetworkConnectionError, None),
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
        """With `fixed`, every question has the temperature of `options`, whatever is asked for."""
        self.name = name
        self._options, self._window, self._watch, self._fixed = options, window, watch, fixed
        self._patience = Patience(tries=tries)
        self._models: dict[float, ChatModel] = {}
        self._stop = Event()

    async def ready(self, temperatures: Sequence[float]) -> None:
        """Find out what would make every call fail. Raises ModelError."""
        for temperature in temperatures:
            await in_thread(self._model(temperature).ready)

    async def ask(self, messages: Sequence[Message], schema: Schema, temperature: float) -> Reply:
        """One checked answer. Raises ModelError; cancelled, the call is given up within a second."""
        model = _Watched(self._model(temperature), self._watch)
        try:
            return await in_thread(lambda: ask(model, messages, schema, self._patience, self._stop))
        except asyncio.CancelledError:
            self._stop.set()
            raise

    def context_tokens(self) -> int | None:
        """How much it can read; None when that is not known."""
        return self._window if self._window is not None else self._model(0.0).context_tokens()

    def _model(self, temperature: float) -> ChatModel:
        temperature = self._options.temperature if self._fixed else temperature
        if temperature not in self._models:
            self._models[temperature] = chat_model(self.name, replace(self._options, temperature=temperature))
        return self._models[temperature]


class _Watched(ChatModel):
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


async def in_thread[T](work: Callable[[], T]) -> T:
    """Wait for work in a thread of its own, which neither a pool nor the end of the process waits for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # ty: ignore[invalid-argument-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  it is raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop has been closed: no one waits any more
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="chat", daemon=True).start()
    return await done
