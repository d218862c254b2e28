"""A scripted Anthropic Messages API: server-sent events, tool_use, cache tokens, error answers."""

import json
from collections.abc import Mapping
from typing import Any, override

from servers.base import Handler, Request, ScriptedServer, Turn


class AnthropicServer(ScriptedServer):
    """`POST /v1/messages` (streamed or whole) and `/v1/messages/count_tokens`.

    A request that offers no tools is a side question of the client (a title, a summary): it gets a short
    text and is listed in `side_requests`, never in `main_requests`. A server with `tools_expected` False answers every
    request from its script.
    """

    tools_expected = True

    @property
    def main_requests(self) -> list[Request]:
        """The requests of the agent's own loop, in order."""
        return [request for request in self.requests if _is_messages(request) and request.body.get("tools")]

    @property
    def side_requests(self) -> list[Request]:
        """Message requests that offered no tools."""
        return [request for request in self.requests if _is_messages(request) and not request.body.get("tools")]

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.method != "POST":
            return to.send_json({"data": [], "has_more": False})
        if (refusal := self.refused()) is not None:
            error = {"type": refusal.kind, "message": refusal.message}
            return to.send_json({"type": "error", "error": error}, refusal.status, refusal.headers)
        if request.path.split("?")[0].endswith("/count_tokens"):
            return to.send_json({"input_tokens": 1})
        if not _is_messages(request):
            return to.send_json({"type": "error", "error": {"type": "not_found_error", "message": request.path}}, 404)
        main = request.body.get("tools") or not self.tools_expected
        turn = self.turn(request.body.get("messages", [])) if main else Turn("aside")
        message = self._message(request, turn)
        if request.body.get("stream"):
            return _stream(to, message)
        return to.send_json(message)

    def _message(self, request: Request, turn: Turn) -> dict[str, Any]:
        said = sum(m.get("role") == "assistant" for m in request.body.get("messages", []))
        blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        for number, (name, arguments) in enumerate(turn.tools):
            blocks.append(
                {"type": "tool_use", "id": f"toolu_{said:03}_{number:03}", "name": name, "input": dict(arguments)}
            )
        return {
            "id": f"msg_{said:03}_{len(self.requests):06}",
            "type": "message",
            "role": "assistant",
            "model": request.body.get("model"),
            "content": blocks,
            "stop_reason": "tool_use" if turn.tools else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": turn.tokens.input,
                "cache_creation_input_tokens": turn.tokens.cache_write,
                "cache_read_input_tokens": turn.tokens.cache_read,
                "output_tokens": turn.tokens.output,
            },
        }


def _is_messages(request: Request) -> bool:
    return request.method == "POST" and request.path.split("?")[0].endswith("/v1/messages")


def _stream(to: Handler, message: Mapping[str, Any]) -> None:
    def event(name: str, **fields: Any) -> None:
        to.chunk(f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode())

    to.start_chunks("text/event-stream")
    usage = message["usage"]
    event(
        "message_start",
        message={**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}},
    )
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = (
                {**block, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            )
        event("content_block_start", index=index, content_block=empty)
        event("content_block_delta", index=index, delta=delta)
        event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    event("message_delta", delta=ending, usage={"output_tokens": usage["output_tokens"]})
    event("message_stop")
    to.end_chunks()
