"""Claude Code's own account of a session: the stream of JSON events in `agent/claude-code.txt`.

Only the few event kinds we use are decoded; everything else is skipped over as bytes, so a stream of
hundreds of megabytes costs about as much as reading it.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.files import open_plain
from terminalbench.harbor.read.provider_wait import Refusals
from terminalbench.harbor.read.session_start import SessionStart, from_init

FILE_NAME = "claude-code.txt"
SOURCE = "claude-code"
"""What `Usage.source` says of numbers from a stream, and the record of an agent that writes one."""

SCAN_LIMIT = 256 << 20
"""A longer stream is read in its first and last parts only, and its calls are not counted."""
_TAIL = 4 << 20
_CHUNK = 1 << 20
_LINE_LIMIT = 32 << 20
_SYNTHETIC = "<synthetic>"
_SUBAGENTS = frozenset({"Task", "Agent"})


class StreamTokens(msgspec.Struct, frozen=True):
    """`usage` of a message or of a result."""

    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None


class ModelTokens(msgspec.Struct, frozen=True, rename="camel"):
    """One model's share of a session. `cost_basis` is "unknown" where the CLI invented the cost."""

    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = msgspec.field(default=None, name="costUSD")
    cost_basis: str | None = None


class ResultEvent(msgspec.Struct, frozen=True):
    """The last word of a session. `subtype` is "success" even for API errors: look at `is_error` too."""

    subtype: str | None = None
    is_error: bool = False
    api_error_status: int | None = None
    terminal_reason: str | None = None
    total_cost_usd: float | None = None
    usage: StreamTokens | None = None
    model_usage: dict[str, ModelTokens] = msgspec.field(default_factory=dict, name="modelUsage")
    permission_denials: list[Any] = []
    result: str | None = None
    errors: list[str] = []

    @property
    def refused(self) -> bool:
        """True when it ended by a refusal of the provider, or because no answer came."""
        return self.is_error and (self.api_error_status is not None or self.terminal_reason == "api_error")


class ClaudeStream:
    """The content of a session's stream. `calls` is None when the stream is too long to be counted.

    `late_hooks` are hooks that the CLI gave up because they did not end in time. `answers` counts messages of a model,
    not those that the CLI puts in its mouth. `refusals` are what the CLI tells of its provider: while it waits for a
    tool of its own it asks no provider, so what such a time tells is not its word. `cut` are model and tokens of the
    answers to requests that had to be repeated without a word of the provider: those before may have begun.
    """

    def __init__(self) -> None:
        self.init: SessionStart | None = None
        self.result: ResultEvent | None = None
        self.calls: Counter[str] | None = Counter()
        self.hooks: Counter[str] = Counter()
        self.late_hooks: Counter[str] = Counter()
        self.messages: dict[str, StreamTokens] = {}
        self.cut: list[tuple[str, StreamTokens]] = []
        self.unreached = 0
        self.answers = 0
        self.refusals = Refusals()
        self.open_calls: dict[str, str] = {}
        self.open_hooks: set[str] = set()
        self._seen: set[str] = set()

    def first_time(self, key: str | None) -> bool:
        """Return whether `key` is new; events without one always are."""
        if key is None:
            return True
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    @property
    def unanswered(self) -> bool:
        """True when the session began, asked its model, and never had an answer nor a refusal."""
        return self.init is not None and not (self.answers or self.refusals.count or self.open_hooks)


class _StreamBlock(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None


class _StreamMessage(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: StreamTokens | None = None
    content: list[_StreamBlock] | str | None = None


class _StreamEvent(msgspec.Struct):
    type: str | None = None
    subtype: str | None = None
    hook_id: str | None = None
    hook_event: str | None = None
    outcome: str | None = None
    message: _StreamMessage | None = None
    error_status: int | None = None
    retry_delay_ms: float | None = None


_MARK = re.compile(
    rb'"type":\s?"(?:assistant|result|user)"|"subtype":\s?"(?:init|hook_started|hook_response|api_retry)"'
)
_event = decoder(_StreamEvent)
_result = decoder(ResultEvent)


def read_stream(path: str | Path) -> ClaudeStream | None:
    """Read the stream at `path`; None when there is no such file. Lines that are not events are passed over."""
    with open_plain(path) as stream:
        if stream is None:
            return None
        found = ClaudeStream()
        try:
            size = os.fstat(stream.fileno()).st_size
            for line in _marked_lines(stream, min(size, SCAN_LIMIT)):
                _take(found, line)
            if size > SCAN_LIMIT:
                found.calls = None
                stream.seek(max(SCAN_LIMIT, size - _TAIL))
                for line in _marked_lines(stream, _TAIL):
                    _take(found, line)
        except OSError:
            return found if found.init or found.result else None
        return found


def _marked_lines(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    rest = b""
    left = limit
    while left > 0:
        chunk = stream.read(min(_CHUNK, left))
        if not chunk:
            break
        left -= len(chunk)
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        yield from _marked(data[:end])
        rest = data[end:]
        if len(rest) > _LINE_LIMIT:
            rest = b""
    yield from _marked(rest)


def _marked(data: bytes) -> Iterator[bytes]:
    done = 0
    for match in _MARK.finditer(data):
        if match.start() < done:
            continue
        start = data.rfind(b"\n", done, match.start()) + 1 or done
        end = data.find(b"\n", match.end())
        done = len(data) if end < 0 else end
        yield data[start:done]


def _take(found: ClaudeStream, line: bytes) -> None:
    try:
        event = _event.decode(line)
        if event.type == "result":
            found.result = last = _result.decode(line)
            if last.refused:
                found.refusals.refused(last.api_error_status, retried=False)
        elif event.type == "assistant":
            _take_message(found, event.message)
        elif event.type == "user":
            _take_results(found, event.message)
        elif event.type == "system" and event.subtype == "api_retry":
            if set(found.open_calls.values()) <= _SUBAGENTS:
                found.unreached += event.error_status is None
                delay = event.retry_delay_ms
                found.refusals.refused(event.error_status, None if delay is None else delay / 1000)
        elif event.type == "system" and event.subtype == "init":
            found.init = from_init(line, SOURCE)
        elif event.type == "system" and event.hook_event:
            if event.outcome == "cancelled":
                found.late_hooks[event.hook_event] += 1
            (found.open_hooks.add if event.subtype == "hook_started" else found.open_hooks.discard)(event.hook_id or "")
            if found.first_time(event.hook_id):
                found.hooks[event.hook_event] += 1
    except NOT_DECODED:
        return


def _take_message(found: ClaudeStream, message: _StreamMessage | None) -> None:
    if message is None:
        return
    if message.model != _SYNTHETIC:
        found.answers += 1
        found.refusals.answered()
    if message.id is not None and message.usage is not None:
        found.messages[message.id] = message.usage
        found.cut += [(message.model or "", message.usage)] * found.unreached
        found.unreached = 0
    for block in message.content if isinstance(message.content, list) else []:
        if block.type == "tool_use" and block.name:
            if block.id is not None:
                found.open_calls[block.id] = block.name
            if found.calls is not None and found.first_time(block.id):
                found.calls[block.name] += 1


def _take_results(found: ClaudeStream, message: _StreamMessage | None) -> None:
    for block in message.content if message is not None and isinstance(message.content, list) else []:
        found.open_calls.pop(block.tool_use_id or "", None)
