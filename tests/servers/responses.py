"""A scripted OpenAI Responses API, as Codex speaks it: server-sent events, function calls, cached tokens."""

import json
from collections.abc import Mapping
from typing import Any, override

from servers.base import Handler, Request, ScriptedServer, Turn


class ResponsesServer(ScriptedServer):
    """`POST /v1/responses`, streamed or whole; each turn is one text or one call.

    A request that offers no tools is a side question of the client, and gets a short text.
    """

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.method != "POST":
            return to.send_json({"object": "list", "data": [], "models": []})
        if (refusal := self.refused()) is not None:
            error = {"message": refusal.message, "type": refusal.kind, "code": refusal.kind}
            return to.send_json({"error": error}, refusal.status, refusal.headers)
        if not request.path.partition("?")[0].endswith("/responses"):
            return to.send_json({"error": {"message": f"no such path: {request.path}", "type": "not_found"}}, 404)
        told = request.body.get("input")
        said = [{"role": "assistant"} for one in told or () if isinstance(one, dict) and _is_turn(one)]
        whole = _response(self.turn(said) if request.body.get("tools") else self.aside(), len(said))
        if not request.body.get("stream"):
            return to.send_json(whole)
        to.start_chunks("text/event-stream")
        _event(to, "response.created", response={**whole, "status": "in_progress", "output": [], "usage": None})
        for index, item in enumerate(whole["output"]):
            _event(to, "response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                _event(to, "response.output_text.delta", **place, delta=item["content"][0]["text"])
            _event(to, "response.output_item.done", output_index=index, item=item)
        _event(to, "response.completed", response=whole)
        return to.end_chunks()


def _event(to: Handler, name: str, **fields: Any) -> None:
    to.chunk(f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode())


def _is_turn(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call" or item.get("role") == "assistant"


def _response(turn: Turn, number: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content})
    for name, given in turn.tools:
        call = {"call_id": f"call_{number}", "name": name, "arguments": json.dumps(given)}
        output.append({"type": "function_call", "id": f"fc_{number}", "status": "completed", **call})
    prompt = turn.tokens.input + turn.tokens.cache_read
    usage = {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": turn.tokens.cache_read},
        "output_tokens": turn.tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + turn.tokens.output,
    }
    return {"id": f"resp_{number}", "object": "response", "status": "completed", "output": output, "usage": usage}
