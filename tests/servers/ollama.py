"""A scripted Ollama server: its own API (NDJSON streams, arguments as objects) and its OpenAI-compatible one."""

import json
import threading
from collections.abc import Sequence
from typing import Any, override

from servers.base import Handler, Refusal, Request, Turn
from servers.openai import OpenAIServer

CREATED = "2025-01-01T00:00:00Z"


class OllamaServer(OpenAIServer):
    """`/api/{chat,tags,show,ps,version}` and, as Ollama has it, `/v1/chat/completions`.

    An unknown model is 404 as in Ollama. Counters that are zero are left out of the answer, as Ollama does. `others` are
    further tags that it lists. `digest` can be changed while it runs, as a pull does. The first `breaks` answers break
    off in the middle, those of `silent` never come while the server lives.
    """

    def __init__(
        self,
        script: Sequence[Turn] = (),
        refusal: Refusal | None = None,
        *,
        model: str = "scripted:latest",
        context_length: int = 32768,
        capabilities: Sequence[str] = ("completion", "tools"),
        others: Sequence[str] = (),
        breaks: int = 0,
        silent: int = 0,
        ids: bool = False,
        loaded_context: int | None = None,
        pace_sec: float = 0.0,
    ) -> None:
        super().__init__(script, refusal, pace_sec=pace_sec)
        self.digest = "0" * 64
        self.capabilities = list(capabilities)
        self.others = others
        self.breaks, self.silent, self.ids = breaks, silent, ids
        self.over = threading.Event()
        self.loaded_context = loaded_context or context_length
        self.model = model
        self.context_length = context_length

    @override
    def __exit__(self, *raised: object) -> None:
        self.over.set()
        super().__exit__(*raised)

    @property
    def native_chats(self) -> list[Request]:
        """The requests to `/api/chat`, in order."""
        return [request for request in self.requests if request.path == "/api/chat"]

    @override
    def reply(self, to: Handler, request: Request) -> None:
        path = request.path.split("?")[0]
        if path.startswith("/v1/"):
            return super().reply(to, request)
        if request.method != "POST":
            return self._get(to, path)
        if (refusal := self.refused()) is not None:
            return to.send_json({"error": refusal.message}, refusal.status, refusal.headers)
        name = request.body.get("model") or request.body.get("name")
        if name not in (self.model, self.model.removesuffix(":latest")):
            return to.send_json({"error": f"model '{name}' not found"}, 404)
        if path == "/api/show":
            return to.send_json(self._show())
        if path != "/api/chat":
            return to.send_json({"error": "not found"}, 404)
        return self._chat(to, request)

    def _get(self, to: Handler, path: str) -> None:
        listed = {"name": self.model, "model": self.model, "modified_at": CREATED, "size": 1, "digest": self.digest}
        others = [{**listed, "name": name, "model": name, "digest": "f" * 64} for name in self.others]
        answers: dict[str, Any] = {
            "/api/tags": {"models": [{**entry, "details": _DETAILS} for entry in (listed, *others)]},
            "/api/ps": {"models": [{**listed, "size_vram": 0, "context_length": self.loaded_context}]},
            "/api/version": {"version": "0.0.0-scripted"},
        }
        if path in ("", "/"):
            to.send_bytes(b"Ollama is running")
        elif path in answers:
            to.send_json(answers[path])
        else:
            to.send_json({"error": "not found"}, 404)

    def due(self, what: str) -> bool:
        """Whether one of the counted failures happens now."""
        with self._lock:
            left = getattr(self, what)
            setattr(self, what, max(0, left - 1))
            return left > 0

    def _show(self) -> dict[str, Any]:
        return {
            "details": _DETAILS,
            "model_info": {"general.architecture": "scripted", "scripted.context_length": self.context_length},
            "capabilities": self.capabilities,
            "modified_at": CREATED,
        }

    def _chat(self, to: Handler, request: Request) -> None:
        if request.body.get("tools") and "tools" not in self.capabilities:
            return to.send_json({"error": f"registry.ollama.ai/{self.model} does not support tools"}, 400)
        if self.due("silent"):
            self.over.wait()
        turn = self.turn(request.body.get("messages", []))
        head = {"model": request.body["model"], "created_at": CREATED}
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if turn.tools:
            message["tool_calls"] = [
                {
                    **({"id": f"served-{number}"} if self.ids else {}),
                    "function": {"index": number, "name": name, "arguments": arguments},
                }
                for number, (name, arguments) in enumerate(turn.tools)
            ]
        prompt = turn.tokens.input + turn.tokens.cache_read
        counters = {"prompt_eval_count": prompt, "eval_count": turn.tokens.output, "total_duration": 1_000_000}
        end = {"done": True, "done_reason": "stop", **{name: count for name, count in counters.items() if count}}
        if not request.body.get("stream", True):
            return to.send_json({**head, "message": message, **end})
        to.start_chunks("application/x-ndjson")
        to.chunk(json.dumps({**head, "message": message, "done": False}).encode() + b"\n")
        if self.due("breaks"):
            return to.wfile.close()
        last = {**head, "message": {"role": "assistant", "content": ""}, **end}
        to.chunk(json.dumps(last).encode() + b"\n")
        return to.end_chunks()


_DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "scripted",
    "families": ["scripted"],
    "parameter_size": "0B",
    "quantization_level": "none",
}
