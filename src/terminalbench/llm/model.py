"""The contract of a chat model: messages and a schema go in, one reply comes out, or one clear error.

Besides: the model that a name means, the form that a type demands of an answer, and how many tokens a text is, the same
for every model, so that what a judge is shown does not depend on who judges.
"""

import inspect
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from terminalbench import registry
from terminalbench.decode import convert
from terminalbench.errors import EXIT_FAILURE, EXIT_USAGE, TbenchError, UserError
from terminalbench.records.trial import Usage

OUTPUT_TOKENS = 8192
"""The longest answer that is asked for."""
TIMEOUT_SEC = 300.0
KIND = "chat models"
WITH_ARGUMENT = ("litellm", "local", "ollama", "replay")
_OF_FILES = ("local", "replay")
_FENCE = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL)
_PIECE = 2000


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The answer of a model. `parsed` is the answer after its check; `usage.cost_usd` is None when nobody knows it.

    `rejected` are answers that did not fit, before this one; `own_temperature`: the server takes none and used its own.
    """

    text: str
    model: str
    usage: Usage = Usage()
    latency_sec: float = 0.0
    parsed: Any = None
    cut_off: bool = False
    tries: int = 1
    rejected: tuple[str, ...] = ()
    own_temperature: bool = False


class ModelFault(StrEnum):
    """The reasons why a model does not answer."""

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


RETRYABLE = frozenset({ModelFault.RATE_LIMIT, ModelFault.SERVER, ModelFault.TIMEOUT, ModelFault.UNREACHABLE})
"""What may be over in a moment."""
FATAL = frozenset({ModelFault.AUTH, ModelFault.NOT_FOUND, ModelFault.UNREACHABLE, ModelFault.MISSING})
"""What every further question to the same model would meet too."""


class ModelError(TbenchError):
    """A model did not answer, or not usably. The message holds no secret."""

    def __init__(
        self,
        fault: ModelFault,
        what: str,
        *,
        hint: str | None = None,
        retry_after_sec: float | None = None,
        usage: Usage | None = None,
        rejected: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, hint=hint)
        self.fault = fault
        self.exit_code = (
            EXIT_USAGE if fault in (ModelFault.AUTH, ModelFault.NOT_FOUND, ModelFault.MISSING) else EXIT_FAILURE
        )
        self.retry_after_sec = retry_after_sec
        self.usage = usage
        """What the failed answer was billed, when it was."""
        self.rejected = rejected
        """Answers that were given and did not fit."""


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
    """The settings of a question. A model that cannot be asked so refuses it; nothing is left out silently.

    `base_url` is where its server is, when it is not where the environment says. Without a `seed` none is sent; Ollama,
    whose answers would differ at each call, gets 0. `output_tokens` is the longest answer, for a model whose window is
    small; without one it is `OUTPUT_TOKENS`.
    """

    temperature: float = 0.0
    seed: int | None = None
    base_url: str | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class TokenPrice:
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

    def price(self) -> TokenPrice | None:
        """Return what it charges; None when that is not known."""
        return None

    def context_tokens(self) -> int | None:
        """Return how much it can read; None when that is not known."""
        return None

    def count(self, messages: Sequence[Message]) -> "TokenCount":
        """Return how many tokens the messages are."""
        return TokenCount(sum(count_text(m.content) + 4 for m in messages), exact=False)


@dataclass(frozen=True)
class TokenCount:
    """A number of tokens; `exact` when the model's own tokenizer counted."""

    tokens: int
    exact: bool


def chat_model(spec: str, options: Options | None = None) -> ChatModel:
    """The model that `spec` names: `ollama:NAME`, `local:FILE.gguf`, `claude-code[:NAME]`, `replay:FILE`, an
    installed part, `pkg.mod:Class`, else a LiteLLM name. Nothing is called yet.

    A class that takes no `options` is given none.
    """
    name, colon, argument = spec.partition(":")
    if not spec.strip():
        raise UserError("the model's name is empty")
    if name in WITH_ARGUMENT and not argument:
        raise UserError(
            f'"{spec}" does not name a model', hint=f'write "{name}:{"FILE" if name in _OF_FILES else "NAME"}"'
        )
    if name in registry.names(KIND):
        kind, arguments = registry.resolve(KIND, name), [argument] if colon else []
    elif registry.is_import_path(spec):
        kind, arguments = registry.resolve(KIND, spec), []
    else:
        kind, arguments = registry.resolve(KIND, "litellm"), [spec]
    if options is not None and "options" not in inspect.signature(kind).parameters:
        raise UserError(f'"{spec}" takes no options', hint="let its constructor take `options`, or give no options")
    model = kind(*arguments) if options is None else kind(*arguments, options=options)
    if not isinstance(model, ChatModel):
        raise UserError(f'"{spec}" is not a chat model', hint="derive it from terminalbench.llm.model.ChatModel")
    return model


def schema_of(kind: Any, name: str) -> Schema:
    """The form that `kind` (a msgspec struct, or any type it knows) demands, without references."""

    def check(value: Any) -> Any:
        try:
            return convert(value, kind)
        except msgspec.ValidationError as error:
            raise BadAnswer(str(error)) from None

    document = msgspec.json.schema(kind)
    return Schema(name, _inline(document, document.get("$defs", {})), check)


def parse(text: str, schema: Schema) -> Any:
    """The object in a model's answer: the whole text, a fenced block, or the outermost braces. Raises BadAnswer."""
    stripped = text.strip()
    candidates = [stripped, *(block.strip() for block in reversed(_FENCE.findall(text)))]
    start, end = stripped.find("{"), stripped.rfind("}")
    if 0 <= start < end:
        candidates.append(stripped[start : end + 1])
    problem: str | None = None
    for candidate in filter(None, candidates):
        try:
            found = json.loads(candidate, strict=False)  # small models put raw line breaks into strings
        except (ValueError, RecursionError) as error:
            problem = problem or f"not JSON: {error}"
        else:
            return schema.check(found)
    raise BadAnswer(problem or "the answer is empty")


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**_inline(definitions[reference.rsplit("/", 1)[1]], definitions), **_inline(rest, definitions)}
    found = {key: _inline(value, definitions) for key, value in node.items() if key != "$defs"}
    if "type" not in found and all(isinstance(value, str) for value in found.get("enum", [None])):
        found["type"] = "string"  # some servers refuse an enum without it
    return found


def count_text(text: str) -> int:
    """Return how many tokens `text` is in a common vocabulary (cl100k); a model's own count differs by some tenths."""
    encode = _encoding().encode_ordinary
    # In pieces: one endless word would take the tokenizer quadratic time.
    return sum(len(encode(text[at : at + _PIECE])) for at in range(0, len(text), _PIECE))


@cache
def _encoding() -> Any:
    # LiteLLM carries the tables; without them the first use would need the network.
    found = find_spec("litellm")
    tables = Path(found.origin).parent / "litellm_core_utils" / "tokenizers" if found and found.origin else None
    if tables is not None and tables.is_dir():
        os.environ["TIKTOKEN_CACHE_DIR"] = str(tables)  # as LiteLLM itself does
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")
