"""Asking a model the robust way: retries with patience, an answer that fits its schema, one chance to repair it."""

import json
import random
import signal
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from threading import Event, Thread, current_thread, main_thread

import msgspec

from terminalbench.llm.model import (
    RETRYABLE,
    BadAnswer,
    ChatModel,
    Message,
    ModelError,
    ModelFault,
    Reply,
    Schema,
    parse,
)
from terminalbench.records.trial import Usage

_SHOWN_OF_ANSWER = 20_000
_LOOK_SEC = 0.2


@dataclass(frozen=True)
class RetryPatience:
    """The number and the length of waits. The pause doubles, with jitter; a server's own Retry-After is kept to.

    `sleep` waits; without one a pause ends when the asking is stopped.
    """

    tries: int = 5
    first_sec: float = 1.0
    longest_sec: float = 60.0
    sleep: Callable[[float], None] | None = None
    chance: Callable[[], float] = random.random

    def pause(self, failed: int, retry_after_sec: float | None) -> float:
        """Return how long to wait after the `failed`th failure (from 1)."""
        backoff = min(self.longest_sec, self.first_sec * 2 ** (failed - 1)) * (0.5 + self.chance() / 2)
        return max(backoff, retry_after_sec or 0.0)


def ask(
    model: ChatModel,
    messages: Sequence[Message],
    schema: Schema | None = None,
    patience: RetryPatience | None = None,
    stop: Event | None = None,
    *,
    budget_usd: float | None = None,
) -> Reply:
    """The model's reply, its `parsed` checked against `schema`. Raises ModelError.

    An answer that does not fit gets one repair try, within `budget_usd` where that costs what the first has; the usage
    of both is added up. When `stop` is set, or a signal
    raises in the main thread, it ends within a second, also while a server keeps it waiting.
    """
    patience, stop = patience or RetryPatience(), stop or Event()
    first = _with_retries(model, messages, schema, patience, stop)
    if schema is None:
        return first
    try:
        return msgspec.structs.replace(first, parsed=_checked(first, schema))
    except BadAnswer as error:
        problem = str(error)
    if budget_usd is not None and (first.usage.cost_usd is None or 2 * first.usage.cost_usd > budget_usd):
        what = f"the answer does not have the required form, and the budget allows no second try: {problem}"
        raise ModelError(ModelFault.BAD_ANSWER, what, usage=first.usage, rejected=(first.text,))
    again = [*messages, Message("assistant", first.text[:_SHOWN_OF_ANSWER]), Message("user", _repair(problem, schema))]
    try:
        second = _with_retries(model, again, schema, patience, stop)
    except ModelError as error:
        error.usage = _both(first.usage, error.usage) if error.usage else first.usage
        error.rejected = (first.text, *error.rejected)
        raise
    usage = _both(first.usage, second.usage)
    try:
        parsed = _checked(second, schema)
    except BadAnswer as error:
        said = (first.text, second.text)
        what = f"the answer did not have the required form twice: {error}"
        raise ModelError(ModelFault.BAD_ANSWER, what, usage=usage, rejected=said) from None
    return msgspec.structs.replace(
        second,
        parsed=parsed,
        usage=usage,
        latency_sec=first.latency_sec + second.latency_sec,
        tries=first.tries + second.tries,
        rejected=(first.text,),
    )


def _both(one: Usage, other: Usage) -> Usage:
    return Usage.added((one, other), one.source, one.cost_source)


def status_fault(status: int) -> ModelFault:
    """Return what an HTTP status says about a call."""
    known = {
        401: ModelFault.AUTH,
        403: ModelFault.AUTH,
        404: ModelFault.NOT_FOUND,
        408: ModelFault.TIMEOUT,
        429: ModelFault.RATE_LIMIT,
    }
    return known.get(status) or (ModelFault.SERVER if status >= 500 else ModelFault.BAD_REQUEST)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds a server asks to wait: given as a number, or as a date."""
    value = next((v for k, v in headers.items() if k.lower().endswith("retry-after")), None)
    if value is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    return None


def _call(model: ChatModel, messages: Sequence[Message], schema: Schema | None, stop: Event) -> Reply:
    """One call in a thread of its own, which neither a waiting caller nor the end of the process waits for."""
    answers: SimpleQueue[Reply | BaseException] = SimpleQueue()

    def call() -> None:
        try:
            answers.put(model.ask(messages, schema))
        except BaseException as error:  # noqa: BLE001  it is raised where the answer is waited for
            answers.put(error)

    Thread(target=call, name="model call", daemon=True).start()
    try:
        while not stop.is_set():
            with suppress(Empty):
                found = answers.get(timeout=_LOOK_SEC)
                break
        else:
            raise _stopped()
    except BaseException:  # stopped, or a signal
        model.stop()
        raise
    if isinstance(found, BaseException):
        raise found
    return found


def _stopped() -> ModelError:
    return ModelError(ModelFault.STOPPED, "stopped while waiting for the model")


@contextmanager
def interrupted_by_sigterm() -> Generator[None]:
    """Raise KeyboardInterrupt at SIGTERM as at SIGINT in here: calls are given up, and what was answered is kept."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _with_retries(
    model: ChatModel, messages: Sequence[Message], schema: Schema | None, patience: RetryPatience, stop: Event
) -> Reply:
    failed = 0
    while True:
        try:
            reply = _call(model, messages, schema, stop)
        except ModelError as error:
            failed += 1
            if error.fault not in RETRYABLE or failed >= patience.tries:
                raise
            if error.retry_after_sec is not None and error.retry_after_sec > patience.longest_sec:
                raise  # an hour's wait is a decision for a person
            (patience.sleep or stop.wait)(patience.pause(failed, error.retry_after_sec))
            if stop.is_set():
                raise _stopped() from None
        else:
            return msgspec.structs.replace(reply, tries=failed + 1, text=_whole(reply.text))


def _whole(text: str) -> str:
    """An answer without half characters, which JSON can escape and no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _checked(reply: Reply, schema: Schema) -> object:
    if reply.cut_off:
        raise BadAnswer("the answer was cut off before its end")
    return parse(reply.text, schema)


def _repair(problem: str, schema: Schema) -> str:
    return (
        f"That answer cannot be used: {problem}. Answer again with exactly one JSON object, no other text, "
        f"that fits this JSON Schema:\n{json.dumps(schema.json, ensure_ascii=False)}"
    )
