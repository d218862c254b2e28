"""An Ollama server by its own HTTP API: what it serves, exactly, one chat at a time as it streams; and `ollama:NAME`.

Every failure is a `ModelError` with the fault that it is: not there, silent, busy, without the model.
"""

import http.client
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from threading import Event
from typing import Any, override
from urllib.parse import urlsplit

from terminalbench.errors import did_you_mean
from terminalbench.llm.ask import retry_after, status_fault
from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema
from terminalbench.records.trial import Usage
from terminalbench.secrets.values import safe_message
from terminalbench.text.numbers import duration

WINDOW = 32_768
"""The window of a model when nobody says otherwise: at most this much of what it was made for."""
_TIMEOUT_SEC = 900.0
_MARGIN = 1.25
_LOOK_SEC = 30.0
_CLOUD = ("remote_host", "remote_model")


def server_url(host: str | None) -> str:
    """The address that $OLLAMA_HOST means: `host`, `host:port`, `:port` or a whole URL."""
    host = (host or "").strip().rstrip("/") or "127.0.0.1:11434"
    scheme, found, rest = host.partition("://")
    if not found:
        scheme, rest = "http", host
    parts = urlsplit(f"//{rest}")
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else name  # noqa: S104  where it listens is not where to call
    default = {"http": 11434 if not found else 80, "https": 443}.get(scheme, 11434)
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{parts.port or default}{parts.path}"


def with_tag(name: str) -> str:
    """A model as the server lists it: without a tag it is `:latest`."""
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


@dataclass(frozen=True)
class ServedModel:
    """A model as the server has it now. `digest` is of its weights, template and parameters together."""

    name: str
    digest: str
    context_tokens: int | None
    capabilities: frozenset[str]
    size: str | None = None
    quantization: str | None = None

    @property
    def tools(self) -> bool:
        """True when it calls tools by the server's own word."""
        return "tools" in self.capabilities


@dataclass(frozen=True)
class ToolCall:
    """A call as the server handed it on; `arguments` as they came, `id` where the server gives one."""

    name: str
    arguments: Any
    id: str | None = None


@dataclass(frozen=True)
class ChatReply:
    """One answer. `usage` counts what the server says it served."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    usage: Usage = field(default_factory=Usage)
    cut_off: bool = False


@dataclass
class _Parts:
    """The pieces of a streamed answer so far."""

    content: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, message: Any) -> None:
        if not isinstance(message, Mapping):
            return
        for name, into in (("content", self.content), ("thinking", self.thinking)):
            if isinstance(text := message.get(name), str):
                into.append(text)
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                own = call.get("id")
                name = str(function.get("name") or "")
                self.calls.append(ToolCall(name, function.get("arguments"), own if isinstance(own, str) else None))

    def reply(self, last: Mapping[str, Any]) -> ChatReply:
        return ChatReply(
            content="".join(self.content),
            tool_calls=tuple(self.calls),
            thinking="".join(self.thinking),
            usage=usage_of(last),
            cut_off=last.get("done_reason") == "length",
        )


def usage_of(last: Mapping[str, Any]) -> Usage:
    """The tokens of an answer. A prompt of which nothing was read anew is left out by the server: then it is 0."""
    prompt, output = last.get("prompt_eval_count"), last.get("eval_count")
    known = isinstance(output, int)
    return Usage(
        input_tokens=prompt if isinstance(prompt, int) else 0 if known else None,
        output_tokens=output if known else None,
        source="ollama",
    )


class OllamaServer:
    """One server. `timeout_sec` is how long it may stay silent: until its answer begins, and within a stream.

    `token` is for one that asks for it, as that of a `local:` model does.
    """

    def __init__(self, url: str, timeout_sec: float = _TIMEOUT_SEC, token: str | None = None) -> None:
        self.url = url
        self.timeout_sec = timeout_sec
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})

    def version(self) -> str:
        """The version of the server, which answers."""
        return str(self._get("/api/version").get("version") or "unknown")

    def names(self) -> list[str]:
        """The models that it has, with their tags."""
        return [str(entry.get("name") or entry.get("model")) for entry in self._listed()]

    def find(self, name: str) -> ServedModel:
        """The model of exactly this tag. Another tag of it does not do, nor one that is passed on to other servers."""
        wanted = with_tag(name)
        listed = self._listed()
        entry = next((e for e in listed if wanted in (e.get("name"), e.get("model"))), None)
        if entry is None or not isinstance(entry.get("digest"), str):
            raise self._missing(wanted, [str(e.get("name")) for e in listed])
        shown = self.show(wanted)
        if any(shown.get(key) for key in _CLOUD):
            raise ModelError(
                ModelFault.BAD_REQUEST, f"{wanted} is not served by this server, which passes it on to another"
            )
        details = shown.get("details")
        details = details if isinstance(details, Mapping) else {}
        told = shown.get("capabilities")
        return ServedModel(
            name=wanted,
            digest=str(entry["digest"]).removeprefix("sha256:"),
            context_tokens=longest_context(shown),
            capabilities=frozenset(map(str, told)) if isinstance(told, list) else frozenset(),
            size=_text(details, "parameter_size"),
            quantization=_text(details, "quantization_level"),
        )

    def loaded_context(self, name: str) -> int | None:
        """The window with which a model is in memory now; None where it is not, or the server does not tell."""
        with suppress(ModelError):
            running = self._get("/api/ps").get("models")
            entries = [e for e in running if isinstance(e, Mapping)] if isinstance(running, list) else []
            found = next(
                (e.get("context_length") for e in entries if with_tag(name) in (e.get("name"), e.get("model"))), None
            )
            return found if isinstance(found, int) and found > 0 else None
        return None

    def show(self, name: str) -> dict[str, Any]:
        """Return what the server tells of a model."""
        return self._decoded(self._open("/api/show", {"model": name}, _LOOK_SEC, name), name)

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """One answer as a whole."""
        name = str(body.get("model") or "")
        return self._decoded(self._open(path, body, self.timeout_sec, name), name)

    def chat(self, body: Mapping[str, Any], stop: Event | None = None) -> ChatReply:
        """One answer of `/api/chat`, streamed: given up when `stop` is set, and when the server falls silent."""
        name = str(body.get("model") or "")
        parts = _Parts()
        with self._open("/api/chat", {**body, "stream": True}, self.timeout_sec, name) as answer:
            for line in self._lines(answer, stop):
                parts.add(line.get("message"))
                if line.get("done"):
                    return parts.reply(line)
        raise ModelError(ModelFault.SERVER, f"{self.url} closed the connection in the middle of its answer")

    def _lines(self, answer: Any, stop: Event | None) -> Iterator[dict[str, Any]]:
        while True:
            if stop is not None and stop.is_set():
                raise ModelError(ModelFault.STOPPED, "stopped while waiting for the model")
            try:
                raw = answer.readline()
            except TimeoutError:
                raise self._silent(self.timeout_sec) from None
            except (http.client.HTTPException, OSError) as error:
                said = safe_message(str(error) or type(error).__name__)
                raise ModelError(ModelFault.SERVER, f"{self.url} broke off its answer: {said}") from None
            if not raw:
                return
            if raw.strip():
                yield self._checked(raw)

    def _listed(self) -> Sequence[Mapping[str, Any]]:
        listed = self._get("/api/tags").get("models")
        return [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []

    def _get(self, path: str) -> dict[str, Any]:
        return self._decoded(self._open(path, None, _LOOK_SEC, ""), "")

    def _decoded(self, answer: Any, name: str) -> dict[str, Any]:
        try:
            with answer:
                return self._checked(answer.read())
        except TimeoutError:
            raise self._silent(self.timeout_sec) from None
        except (http.client.HTTPException, OSError) as error:
            said = safe_message(f"{name}: {error}" if name else str(error))
            raise ModelError(ModelFault.SERVER, f"{self.url} broke off its answer: {said}") from None

    def _checked(self, raw: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(raw)
        except ValueError:
            raise ModelError(ModelFault.SERVER, f"{self.url} answered something that is not JSON") from None
        if not isinstance(decoded, dict) or "error" in decoded:
            said = decoded.get("error") if isinstance(decoded, dict) else decoded
            raise ModelError(ModelFault.SERVER, safe_message(f"Ollama: {said}"))
        return decoded

    def _open(self, path: str, body: Mapping[str, Any] | None, timeout_sec: float, model: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  the scheme is http or https
            self.url + path, data=data, headers=self._headers
        )
        local = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        direct = [urllib.request.ProxyHandler({})] if local else []
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_certificates()), *direct)
        try:
            return opener.open(request, timeout=timeout_sec)
        except urllib.error.HTTPError as error:
            raise self._refused(error, model) from None
        except TimeoutError:
            raise self._silent(timeout_sec) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError | socket.timeout):
                raise self._silent(timeout_sec) from None
            raise ModelError(
                ModelFault.UNREACHABLE,
                safe_message(f"no Ollama server answers at {self.url}: {getattr(error, 'reason', None) or error}"),
                hint="start it with `ollama serve`, or set OLLAMA_HOST",
            ) from None

    def _silent(self, timeout_sec: float) -> ModelError:
        return ModelError(ModelFault.TIMEOUT, f"{self.url} did not answer in {duration(timeout_sec)}")

    def _refused(self, error: urllib.error.HTTPError, model: str) -> ModelError:
        try:
            said = str(json.loads(error.read()).get("error"))
        except (ValueError, AttributeError, OSError):
            said = error.reason
        if error.code == 404 and model:
            names: list[str] = []
            with suppress(ModelError):
                names = self.names()
            return self._missing(model, names, said)
        fault = status_fault(error.code)
        if fault is ModelFault.BAD_REQUEST and "context" in said:
            fault = ModelFault.TOO_LONG
        after = retry_after(dict(error.headers or {}), time.time())
        return ModelError(fault, safe_message(f"Ollama: HTTP {error.code}: {said}"), retry_after_sec=after)

    def _missing(self, model: str, names: Sequence[str], said: str | None = None) -> ModelError:
        pull = f"ollama pull {model}"
        hint = f"{pull}; {did_you_mean(model, names)}" if names else pull
        what = said or f'it has no model "{model}"'
        return ModelError(ModelFault.NOT_FOUND, safe_message(f"Ollama at {self.url}: {what}"), hint=hint)


def longest_context(shown: Mapping[str, Any]) -> int | None:
    """The window that a model was made for, as `/api/show` tells it."""
    info = shown.get("model_info")
    lengths = [v for k, v in (info or {}).items() if k.endswith(".context_length") and isinstance(v, int)]
    return max(lengths, default=None)


def _text(table: Mapping[str, Any], name: str) -> str | None:
    value = table.get(name)
    return value if isinstance(value, str) and value else None


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates of servers, read once: an opener without them reads all for every request."""
    return ssl.create_default_context()


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
