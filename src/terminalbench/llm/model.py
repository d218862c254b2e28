"""The contract of a chat model: messages and a schema go in, one reply comes out, or one clear error."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import msgspec

from terminalbench.errors import EXIT_FAILURE, EXIT_USAGE, TbenchError
from terminalbench.records import Usage

OUTPUT_TOKENS = 8192
"""The longest answer that is asked for."""
TIMEOUT_SEC = 300.0


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a model answered. `parsed` is the answer after its check; `usage.cost_usd` is None when nobody knows it."""

    text: str
    model: str
    usage: Usage = Usage()
    latency_sec: float = 0.0
    parsed: Any = None
    cut_off: bool = False
    tries: int = 1


class Fault(StrEnum):
    """Why a model did not answer."""

    AUTH = "auth"
    NOT_FOUND = "not_found"
    UNREACHABLE = "unreachable"
    RATE_LIMIT = "rate_limit"
    SERVER = "server"
    TIMEOUT = "timeout"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    BAD_REQUEST = "bad_request"
    BAD_ANSWER = "bad_answer"
    MISSING = "missing"
    STOPPED = "stopped"


RETRYABLE = frozenset({Fault.RATE_LIMIT, Fault.SERVER, Fault.TIMEOUT, Fault.UNREACHABLE})
"""What may be over in a moment."""
FATAL = frozenset({Fault.AUTH, Fault.NOT_FOUND, Fault.UNREACHABLE, Fault.MISSING})
"""What every further question to the same model would meet too."""


class ModelError(TbenchError):
    """A model did not answer, or not usably. The message holds no secret."""

    def __init__(
        self,
        fault: Fault,
        what: str,
        *,
        hint: str | None = None,
        retry_after_sec: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(what, hint=hint)
        self.fault = fault
        self.exit_code = EXIT_USAGE if fault in (Fault.AUTH, Fault.NOT_FOUND, Fault.MISSING) else EXIT_FAILURE
        self.retry_after_sec = retry_after_sec
        self.usage = usage
        """What the failed answer was billed, when it was."""


class BadAnswer(Exception):
    """An answer that does not fit its schema; the message says where."""


@dataclass(frozen=True)
class Schema:
    """The form of an answer: as JSON Schema for the model, and as a check for us that raises BadAnswer."""

    name: str
    json: dict[str, Any]
    check: Callable[[Any], Any]


@dataclass(frozen=True)
class Options:
    """How a model is asked. A model that cannot be asked so refuses it; nothing is left out silently.

    `base_url` is where its server is, when it is not where the environment says. Without a `seed` none is sent; Ollama,
    whose answers would differ at each call, gets 0.
    """

    temperature: float = 0.0
    seed: int | None = None
    base_url: str | None = None


@dataclass(frozen=True)
class Price:
    """USD per token, and whose word it is."""

    input_usd: float
    output_usd: float
    source: str


class ChatModel(ABC):
    """A model that can be asked. Built from the part of its name after the colon; safe to use from several threads."""

    name: str
    options: Options = Options()

    @abstractmethod
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        """One call, no retries. Raises ModelError."""

    def ready(self) -> None:  # noqa: B027  most models have nothing to find out
        """Find out cheaply what would make every call fail. Raises ModelError."""

    def stop(self) -> None:  # noqa: B027  most models cannot
        """Give up the calls that are under way, where that can be done. Takes less than a second."""

    def price(self) -> Price | None:
        """What it charges; None when that is not known."""
        return None

    def context_tokens(self) -> int | None:
        """How much it can read; None when that is not known."""
        return None

    def count(self, messages: Sequence[Message]) -> "Count":
        """How many tokens the messages are."""
        from terminalbench.llm.tokens import count_text

        return Count(sum(count_text(m.content) + 4 for m in messages), exact=False)


@dataclass(frozen=True)
class Count:
    """A number of tokens; `exact` when the model's own tokenizer counted."""

    tokens: int
    exact: bool
