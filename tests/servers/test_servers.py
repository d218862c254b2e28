"""The scripted servers speak their protocols: streams, tool calls, counters, errors."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from servers.anthropic import AnthropicServer
from servers.base import Refusal, ScriptedServer, Tokens, Turn
from servers.ollama import OllamaServer
from servers.openai import OpenAIServer

SCRIPT = [Turn("Look.", [("bash", {"command": "ls"})], Tokens(10, 2, 3, 4)), Turn("Done.")]
ASK = [{"role": "user", "content": "Hi"}]
AFTER = [*ASK, {"role": "assistant", "content": "Look."}, {"role": "user", "content": "a file"}]


def call(server: ScriptedServer, path: str, body: Any = None) -> tuple[str, bytes]:
    """The content type and body of one answer; GET without a body."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + path, data=data), timeout=10) as answer:
        return answer.headers["content-type"], answer.read()


def sse(data: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in data.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_anthropic_stream_and_whole_answer_agree() -> None:
    body = {"model": "m", "messages": ASK, "tools": [{"name": "bash"}]}
    with AnthropicServer(SCRIPT) as server:
        kind, data = call(server, "/v1/messages?beta=true", {**body, "stream": True})
        whole = json.loads(call(server, "/v1/messages", body)[1])
    assert kind == "text/event-stream"
    events = sse(data)
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert json.loads(events[5]["delta"]["partial_json"]) == whole["content"][1]["input"] == {"command": "ls"}
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"
    assert whole["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
        "output_tokens": 4,
    }


def test_anthropic_side_questions_do_not_use_up_the_script() -> None:
    with AnthropicServer(SCRIPT) as server:
        aside = json.loads(call(server, "/v1/messages", {"model": "m", "messages": ASK})[1])
        later = json.loads(call(server, "/v1/messages", {"model": "m", "messages": AFTER, "tools": [{}]})[1])
    assert aside["content"] == [{"type": "text", "text": "aside"}]
    assert later["content"] == [{"type": "text", "text": "Done."}]
    assert (len(server.main_requests), len(server.side_requests)) == (1, 1)


@pytest.mark.parametrize("kind", [OpenAIServer, lambda script: OllamaServer(script, model="m")])
def test_openai_stream_and_whole_answer_agree(kind: Any) -> None:
    body = {"model": "m", "messages": ASK}
    with kind(SCRIPT) as server:
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        chunks = sse(call(server, "/v1/chat/completions", streamed)[1])
        whole = json.loads(call(server, "/v1/chat/completions", body)[1])
        later = json.loads(call(server, "/v1/chat/completions", {**body, "messages": AFTER})[1])
    message = whole["choices"][0]["message"]
    assert chunks[0]["choices"][0]["delta"] == message
    assert message["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert chunks[-1]["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["total_tokens"]) == (13, 17)
    assert later["choices"][0]["finish_reason"] == "stop"


def test_ollama_stream_and_whole_answer_agree() -> None:
    body = {"model": "qwen3", "messages": ASK}
    with OllamaServer(SCRIPT, model="qwen3:latest") as server:
        kind, data = call(server, "/api/chat", body)
        whole = json.loads(call(server, "/api/chat", {**body, "stream": False})[1])
    assert kind == "application/x-ndjson"
    first, last = [json.loads(line) for line in data.splitlines()]
    assert first["message"] == whole["message"]
    assert first["message"]["tool_calls"][0]["function"]["arguments"] == {"command": "ls"}, "an object, not a text"
    assert (last["done"], last["prompt_eval_count"], last["eval_count"]) == (True, 13, 4)


def test_ollama_leaves_zero_counters_out() -> None:
    with OllamaServer([Turn("x", (), Tokens(0, 0, 0, 1))]) as server:
        whole = json.loads(call(server, "/api/chat", {"model": "scripted", "messages": ASK, "stream": False})[1])
    assert "prompt_eval_count" not in whole


def test_ollama_tells_about_its_model() -> None:
    with OllamaServer(model="qwen3:30b", context_length=4096) as server:
        assert json.loads(call(server, "/api/tags")[1])["models"][0]["name"] == "qwen3:30b"
        assert json.loads(call(server, "/api/ps")[1])["models"][0]["context_length"] == 4096
        assert json.loads(call(server, "/api/show", {"model": "qwen3:30b"})[1])["capabilities"] == [
            "completion",
            "tools",
        ]
        assert call(server, "/")[1] == b"Ollama is running"
        with pytest.raises(urllib.error.HTTPError) as missing:
            call(server, "/api/chat", {"model": "other", "messages": ASK})
    assert missing.value.code == 404
    assert json.loads(missing.value.read()) == {"error": "model 'other' not found"}


@pytest.mark.parametrize(
    ("kind", "path"),
    [(AnthropicServer, "/v1/messages"), (OpenAIServer, "/v1/chat/completions"), (OllamaServer, "/api/chat")],
)
def test_a_refusal_answers_everything(kind: Any, path: str) -> None:
    refusal = Refusal(429, "rate_limit_error", "slow down", {"retry-after": "1"})
    with kind(SCRIPT, refusal) as server, pytest.raises(urllib.error.HTTPError) as refused:
        call(server, path, {"model": "m", "messages": ASK})
    assert (refused.value.code, refused.value.headers["retry-after"]) == (429, "1")
    assert "slow down" in refused.value.read().decode()
