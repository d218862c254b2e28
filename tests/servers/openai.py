"""A scripted OpenAI-compatible server: chat completions (whole or streamed) and the model list."""

import json
from typing import Any, override

from servers.base import Handler, Request, ScriptedServer, Turn


class OpenAIServer(ScriptedServer):
    """`POST /v1/chat/completions` and `GET /v1/models`; `tokens.cache_read` is reported as cached prompt tokens.

    With `tools_expected`, a request that offers no tools is a side question of the client.
    """

    model = "scripted"
    tools_expected = False

    @property
    def chats(self) -> list[Request]:
        """The chat requests, in order."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.method != "POST":
            return to.send_json({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        if (refusal := self.refused()) is not None:
            error = {"message": refusal.message, "type": refusal.kind, "code": refusal.kind}
            return to.send_json({"error": error}, refusal.status, refusal.headers)
        if not request.path.endswith("/chat/completions"):
            return to.send_json({"error": {"message": f"no such path: {request.path}", "type": "not_found"}}, 404)
        main = request.body.get("tools") or not self.tools_expected
        turn = self.turn(self._said(request)) if main else self.aside()
        return self._stream(to, request, turn) if request.body.get("stream") else self._whole(to, request, turn)

    def _said(self, request: Request) -> list[dict[str, Any]]:
        """What stands for the turns so far: with `tools_expected` what tools said, as clients invent answers of the model."""
        messages = request.body.get("messages", [])
        if not self.tools_expected:
            return messages
        return [{"role": "assistant"} for message in messages if message.get("role") == "tool"]

    def _envelope(self, request: Request, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        number = len(self.requests)
        return {
            "id": f"chatcmpl-{number}",
            "object": kind,
            "created": 0,
            "model": request.body.get("model"),
            "choices": choices,
        }

    def _whole(self, to: Handler, request: Request, turn: Turn) -> None:
        choice = {"index": 0, "finish_reason": _reason(turn), "message": {"role": "assistant", **_content(turn)}}
        to.send_json({**self._envelope(request, "chat.completion", [choice]), "usage": usage(turn)})

    def _stream(self, to: Handler, request: Request, turn: Turn) -> None:
        def data(value: Any) -> None:
            to.chunk(f"data: {json.dumps(value)}\n\n".encode())

        to.start_chunks("text/event-stream")
        delta = {"role": "assistant", **_content(turn)}
        kind = "chat.completion.chunk"
        data(self._envelope(request, kind, [{"index": 0, "delta": delta, "finish_reason": None}]))
        data(self._envelope(request, kind, [{"index": 0, "delta": {}, "finish_reason": _reason(turn)}]))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            data({**self._envelope(request, kind, []), "usage": usage(turn)})
        to.chunk(b"data: [DONE]\n\n")
        to.end_chunks()


def usage(turn: Turn) -> dict[str, Any]:
    """`turn.tokens` in OpenAI's words: the prompt count includes the cached part."""
    prompt = turn.tokens.input + turn.tokens.cache_read
    return {
        "prompt_tokens": prompt,
        "completion_tokens": turn.tokens.output,
        "total_tokens": prompt + turn.tokens.output,
        "prompt_tokens_details": {"cached_tokens": turn.tokens.cache_read},
    }


def _reason(turn: Turn) -> str:
    return "tool_calls" if turn.tools else "stop"


def _content(turn: Turn) -> dict[str, Any]:
    content: dict[str, Any] = {"content": turn.text}
    if turn.tools:
        content["tool_calls"] = [
            {
                "index": number,
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(turn.tools)
        ]
    return content
