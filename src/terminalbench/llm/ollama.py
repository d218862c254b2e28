"""A model of an Ollama server, through its own HTTP API: `ollama:NAME`, at $OLLAMA_HOST."""

import http.client
import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, override
from urllib.parse import urlsplit

from terminalbench.errors import did_you_mean
from terminalbench.llm.ask import retry_after, status_fault
from terminalbench.llm.model import OUTPUT_TOKENS, ChatModel, Fault, Message, ModelError, Options, Reply, Schema
from terminalbench.records import Usage
from terminalbench.secrets.values import safe_message
from terminalbench.text.numbers import duration

_TIMEOUT_SEC = 900.0
_CONTEXT = 32_768
_MARGIN = 1.25


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


class OllamaModel(ChatModel):
    """Structured answers by `format`; the context is set for each question, and nothing is cut silently.

    What it costs is unknown: a model of one's own is billed by nobody, and is not free.
    """

    def __init__(self, name: str, options: Options | None = None, timeout_sec: float = _TIMEOUT_SEC) -> None:
        self.options = options or Options()
        self.model = name
        self.name = f"ollama:{name}"
        self.url = server_url(self.options.base_url or os.environ.get("OLLAMA_HOST"))
        self.timeout_sec = timeout_sec
        self._context: int | None = None

    @override
    def ready(self) -> None:
        self._context = self._longest_context()

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        started = time.monotonic()
        longest = self.options.output_tokens or OUTPUT_TOKENS
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
        answer = self._post("/api/chat", body)
        message = answer.get("message")
        text = message.get("content") if isinstance(message, dict) else None
        prompt, output = answer.get("prompt_eval_count"), answer.get("eval_count")
        return Reply(
            text=str(text or ""),
            model=str(answer.get("model") or self.model),
            usage=Usage(
                input_tokens=prompt if isinstance(prompt, int) else None,
                output_tokens=output if isinstance(output, int) else None,
                source="ollama",
            ),
            latency_sec=time.monotonic() - started,
            cut_off=answer.get("done_reason") == "length",
        )

    @override
    def context_tokens(self) -> int | None:
        """At most 32k even of a longer window: its memory is the user's own."""
        if self._context is None:
            with suppress(ModelError):  # whoever asks it next will be told
                self._context = self._longest_context()
        return min(self._context or _CONTEXT, _CONTEXT)

    def _window(self, needed: int) -> int:
        # In steps of 4k: each new size makes the server load the model again.
        return min(-(-needed // 4096) * 4096, self._context or _CONTEXT)

    def _longest_context(self) -> int | None:
        shown = self._post("/api/show", {"model": self.model})
        info = shown.get("model_info")
        lengths = [v for k, v in (info or {}).items() if k.endswith(".context_length") and isinstance(v, int)]
        return max(lengths, default=None)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  the scheme is http or https
            self.url + path, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
        )
        return self._call(request)

    def _call(self, request: urllib.request.Request) -> dict[str, Any]:
        local = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
        try:
            with opener.open(request, timeout=self.timeout_sec) as answer:
                decoded = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except TimeoutError:
            raise ModelError(Fault.TIMEOUT, f"{self.url} did not answer in {duration(self.timeout_sec)}") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError | socket.timeout):
                raise ModelError(Fault.TIMEOUT, f"{self.url} did not answer in {duration(self.timeout_sec)}") from None
            raise ModelError(
                Fault.UNREACHABLE,
                safe_message(f"no Ollama server answers at {self.url}: {getattr(error, 'reason', None) or error}"),
                hint="start it with `ollama serve`, or set OLLAMA_HOST",
            ) from None
        except ValueError:
            raise ModelError(Fault.SERVER, f"{self.url} answered something that is not JSON") from None
        if not isinstance(decoded, dict) or "error" in decoded:
            said = decoded.get("error") if isinstance(decoded, dict) else decoded
            raise ModelError(Fault.SERVER, safe_message(f"Ollama: {said}"))
        return decoded

    def _refused(self, error: urllib.error.HTTPError) -> ModelError:
        try:
            said = str(json.loads(error.read()).get("error"))
        except (ValueError, AttributeError, OSError):
            said = error.reason
        if error.code == 404:
            return ModelError(
                Fault.NOT_FOUND, safe_message(f"Ollama at {self.url}: {said}"), hint=self._suggest(self.model)
            )
        fault = status_fault(error.code)
        if fault is Fault.BAD_REQUEST and "context" in said:
            fault = Fault.TOO_LONG
        after = retry_after(dict(error.headers or {}), time.time())
        return ModelError(fault, safe_message(f"Ollama: HTTP {error.code}: {said}"), retry_after_sec=after)

    def _suggest(self, model: str) -> str:
        try:
            listed = self._call(urllib.request.Request(self.url + "/api/tags"))  # noqa: S310
            names = [str(entry.get("name")) for entry in listed.get("models", [])]
        except (ModelError, AttributeError, TypeError):
            names = []
        return f"ollama pull {model}" + (f"; {did_you_mean(model, names)}" if names else "")
