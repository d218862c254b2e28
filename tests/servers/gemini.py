"""A scripted Gemini API: generateContent, whole or as server-sent events, and token counts."""

import json
from collections.abc import Mapping
from typing import Any, override

from servers.base import Handler, Request, ScriptedServer, Turn


class GeminiServer(ScriptedServer):
    """`POST /v1beta/models/MODEL:generateContent`, `:streamGenerateContent` and `:countTokens`.

    A request that offers no tools is a side question of the client, and gets a short text.
    """

    @override
    def reply(self, to: Handler, request: Request) -> None:
        if request.method != "POST":
            return to.send_json({"models": []})
        if (refusal := self.refused()) is not None:
            error = {"code": refusal.status, "message": refusal.message, "status": refusal.kind}
            return to.send_json({"error": error}, refusal.status, refusal.headers)
        method = request.path.partition("?")[0].rpartition(":")[2]
        if method == "countTokens":
            return to.send_json({"totalTokens": 1})
        if method not in ("generateContent", "streamGenerateContent"):
            return to.send_json({"error": {"code": 404, "message": request.path, "status": "NOT_FOUND"}}, 404)
        said = [{"role": "assistant"} for one in request.body.get("contents", []) if one.get("role") == "model"]
        answer = _answer(request, self.turn(said) if request.body.get("tools") else self.aside())
        if method == "generateContent":
            return to.send_json(answer)
        to.start_chunks("text/event-stream")
        to.chunk(f"data: {json.dumps(answer)}\r\n\r\n".encode())
        return to.end_chunks()


def _answer(request: Request, turn: Turn) -> Mapping[str, Any]:
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    parts += [{"functionCall": {"name": name, "args": dict(given)}} for name, given in turn.tools]
    prompt = turn.tokens.input + turn.tokens.cache_read
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": prompt,
            "candidatesTokenCount": turn.tokens.output,
            "cachedContentTokenCount": turn.tokens.cache_read,
            "totalTokenCount": prompt + turn.tokens.output,
        },
        "modelVersion": request.path.rpartition("/")[2].partition(":")[0],
        "responseId": "scripted",
    }
