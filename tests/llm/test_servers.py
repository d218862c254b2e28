"""Each kind of chat model against a scripted server of its protocol, and the real Claude Code CLI."""

import ssl
from collections.abc import Callable

import msgspec
import pytest

from servers.anthropic import AnthropicServer
from servers.base import Handler, Refusal, Request, Tokens, Turn
from servers.ollama import OllamaServer
from servers.openai import OpenAIServer
from terminalbench.llm.ask import RetryPatience, ask
from terminalbench.llm.model import (
    OUTPUT_TOKENS,
    ChatModel,
    Message,
    ModelError,
    ModelFault,
    Options,
    chat_model,
    schema_of,
)
from terminalbench.llm.ollama import OllamaModel, server_url

CANARY = "sk-canary-0123456789abcdef"


class Verdict(msgspec.Struct, forbid_unknown_fields=True):
    grade: str


SCHEMA = schema_of(Verdict, "verdict")
GOOD = Turn('{"grade": "fine"}', tokens=Tokens(input=1000, output=100))
ASKED = [Message("system", "You judge."), Message("user", "Well?")]


class JudgingServer(AnthropicServer):
    tools_expected = False


class Flaky(OpenAIServer):
    """Refuses the first requests, then answers."""

    refusals = 2

    def reply(self, to: Handler, request: Request) -> None:
        refused = len(self.chats) <= self.refusals
        self.refusal = Refusal(429, "rate_limit", "slow down", {"retry-after": "7"}) if refused else None
        super().reply(to, request)


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Callable[[OpenAIServer], ChatModel]:
    def at(server: OpenAIServer) -> ChatModel:
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        return chat_model("openai/gpt-4o")

    return at


def refused(model: ChatModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(model, ASKED, SCHEMA, RetryPatience(tries=1))
    assert CANARY not in str(caught.value)
    return caught.value


def test_litellm_answers_with_schema_tokens_and_list_price(openai) -> None:
    with OpenAIServer([GOOD]) as server:
        reply = ask(openai(server), ASKED, SCHEMA)
        sent = server.chats[0]
    assert reply.parsed == Verdict("fine")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 100)
    assert reply.usage.cost_usd == pytest.approx((1000 * 2.5 + 100 * 10) / 1e6)
    assert (reply.usage.cost_source or "").startswith("litellm:")
    form = sent.body["response_format"]["json_schema"]
    assert (form["schema"], form["strict"]) == (SCHEMA.json, True)
    assert [m["role"] for m in sent.body["messages"]] == ["system", "user"]


def test_litellm_waits_as_the_server_asks(openai) -> None:
    slept: list[float] = []
    with Flaky([GOOD]) as server:
        reply = ask(openai(server), ASKED, SCHEMA, RetryPatience(sleep=slept.append))
        assert len(server.chats) == 3
    assert (reply.tries, slept) == (3, [7.0, 7.0])


@pytest.mark.parametrize(
    ("status", "kind", "fault"),
    [
        (401, "invalid_api_key", ModelFault.AUTH),
        (403, "forbidden", ModelFault.AUTH),
        (404, "model_not_found", ModelFault.NOT_FOUND),
        (429, "rate_limit", ModelFault.RATE_LIMIT),
        (500, "server_error", ModelFault.SERVER),
        (503, "overloaded", ModelFault.SERVER),
        (400, "bad", ModelFault.BAD_REQUEST),
    ],
)
def test_litellm_faults_are_told_apart_and_hold_no_key(openai, status: int, kind: str, fault: ModelFault) -> None:
    with OpenAIServer(refusal=Refusal(status, kind, f"no, {CANARY}")) as server:
        error = refused(openai(server))
    assert error.fault is fault
    name, _, said = error.what.partition(": ")
    assert name.endswith("Error")
    assert said.startswith("no, "), "the name of the error is said once"


def test_a_dead_endpoint_is_unreachable(openai) -> None:
    with OpenAIServer([GOOD]) as server:
        model = openai(server)
    error = refused(model)
    assert error.fault is ModelFault.UNREACHABLE, error
    assert "nothing answers at http://127.0.0.1:" in error.what


def test_litellm_knows_what_is_missing_before_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match="needs OPENAI_API_KEY") as caught:
        chat_model("openai/gpt-4o").ready()
    assert caught.value.exit_code == 2
    with pytest.raises(ModelError, match="does not know the provider"):
        chat_model("nosuchmodel").ready()


def test_an_unknown_price_stays_unknown(openai, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([GOOD]) as server:
        openai(server)
        model = chat_model("openai/some-model-of-mine")
        reply = ask(model, ASKED, SCHEMA)
    assert (reply.usage.cost_usd, reply.usage.cost_source, model.price()) == (None, None, None)
    assert chat_model("openrouter/openai/no-such-model").price() is None
    assert not model.count(ASKED).exact
    assert chat_model("openai/gpt-4o").count(ASKED).exact


def test_litellm_speaks_anthropic(monkeypatch: pytest.MonkeyPatch) -> None:
    with JudgingServer([GOOD]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
        monkeypatch.setenv("ANTHROPIC_API_BASE", server.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        model = chat_model("anthropic/claude-sonnet-4-5")
        reply = ask(model, ASKED, SCHEMA)
    assert reply.parsed == Verdict("fine")
    assert reply.usage.cost_usd == pytest.approx((1000 * 3 + 100 * 15) / 1e6)


def test_ollama_answers_by_format_with_room_for_all_of_it() -> None:
    with OllamaServer([GOOD], model="qwen3:latest") as server:
        model = OllamaModel("qwen3", Options(base_url=server.url))
        model.ready()
        reply = ask(model, [Message("user", "word " * 10_000)], SCHEMA)
        body = server.native_chats[0].body
    assert reply.parsed == Verdict("fine")
    assert (body["format"], body["truncate"], body["stream"]) == (SCHEMA.json, False, False)
    assert 10_000 + 8192 < body["options"]["num_ctx"] <= 32768
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 100)
    assert (reply.usage.cost_usd, model.price()) == (None, None), "unknown, not nothing"


def test_ollama_says_which_models_there_are() -> None:
    with OllamaServer([GOOD], model="qwen3:8b") as server, pytest.raises(ModelError) as caught:
        OllamaModel("qwen3:8", Options(base_url=server.url)).ready()
    assert caught.value.fault is ModelFault.NOT_FOUND
    assert 'did you mean "qwen3:8b"?' in str(caught.value)


def test_certificates_are_read_once_for_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(1))
    with OllamaServer([GOOD], model="qwen3:8b") as server:
        for _ in range(3):
            OllamaModel("qwen3:8b", Options(base_url=server.url)).ready()
    assert len(read) <= 1


def test_ollama_that_is_not_there() -> None:
    with OllamaServer([GOOD]) as server:
        model = OllamaModel("scripted", Options(base_url=server.url))
    error = refused(model)
    assert error.fault is ModelFault.UNREACHABLE
    assert "ollama serve" in str(error)


def test_an_ollama_queue_that_is_full_is_tried_again() -> None:
    with OllamaServer(refusal=Refusal(503, "x", "server busy", {"retry-after": "3"})) as server:
        error = refused(OllamaModel("scripted", Options(base_url=server.url)))
    assert (error.fault, error.retry_after_sec) == (ModelFault.SERVER, 3.0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (None, "http://127.0.0.1:11434"),
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("https://box", "https://box:443"),
        ("http://box:80/ollama/", "http://box:80/ollama"),
        ("[::1]:9", "http://[::1]:9"),
    ],
)
def test_ollama_host_in_all_its_forms(host: str | None, url: str) -> None:
    assert server_url(host) == url


class Picky(OpenAIServer):
    """Refuses the forms of structured output that it does not know."""

    known: tuple[str, ...] = ()

    def reply(self, to: Handler, request: Request) -> None:
        form = request.body.get("response_format", {}).get("type", "")
        wrong = bool(form) and form not in self.known
        self.refusal = Refusal(400, "invalid_request", f"unknown response_format {form}") if wrong else None
        super().reply(to, request)


@pytest.mark.parametrize(
    ("known", "tried"),
    [
        (("json_schema",), ["json_schema", "json_schema"]),
        (("json_object",), ["json_schema", "json_object", "json_object"]),
        ((), ["json_schema", "json_object", None, None]),
    ],
)
def test_an_openai_compatible_server_is_asked_in_the_form_it_takes(
    monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...], tried: list[str | None]
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with Picky([GOOD, GOOD]) as server:
        server.known = known
        model = chat_model("openai/mine", Options(0.5, 7, f"{server.url}/v1", output_tokens=900))
        model.ready()
        for _ in range(2):
            assert ask(model, ASKED, SCHEMA, RetryPatience(tries=1)).parsed == Verdict("fine")
        bodies = [chat.body for chat in server.chats]
    assert [body.get("response_format", {}).get("type") for body in bodies] == tried
    assert {(body["temperature"], body["seed"], body["max_tokens"]) for body in bodies} == {(0.5, 7, 900)}


class Cold(OpenAIServer):
    """Takes no temperature, as models that reason do."""

    def reply(self, to: Handler, request: Request) -> None:
        wrong = "temperature" in request.body
        said = "Unsupported value: 'temperature' does not support 0.0 with this model."
        self.refusal = Refusal(400, "invalid_request_error", said) if wrong else None
        super().reply(to, request)


def test_a_server_that_takes_no_temperature_is_asked_without_one(openai) -> None:
    with Cold([GOOD, GOOD]) as server:
        openai(server)
        model = chat_model("openai/mine")
        replies = [ask(model, ASKED, SCHEMA, RetryPatience(tries=1)) for _ in range(2)]
        sent = ["temperature" in chat.body for chat in server.chats]
    assert [(reply.parsed, reply.own_temperature) for reply in replies] == [(Verdict("fine"), True)] * 2
    assert sent == [True, False, False], "what it refused once it is not sent again"


class Bare(OpenAIServer):
    """Answers without what is left out."""

    without = "usage"

    def _whole(self, to: Handler, request: Request, turn: Turn) -> None:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": turn.text}}
        answer = {**self._envelope(request, "chat.completion", [choice]), "usage": {}}
        to.send_json({**answer, self.without: []} if self.without == "choices" else answer)


def test_tokens_that_a_server_does_not_tell_are_unknown(openai) -> None:
    with Bare([GOOD]) as server:
        usage = ask(openai(server), ASKED, SCHEMA).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cost_usd) == (None, None, None, None)


def test_an_answer_without_choices_is_the_servers_fault(openai) -> None:
    with Bare([GOOD]) as server:
        server.without = "choices"
        assert refused(openai(server)).fault is ModelFault.SERVER


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "input exceeds the context window of this model",
    ],
)
def test_a_prompt_that_is_too_long_is_told_by_the_servers_words(openai, said: str) -> None:
    with OpenAIServer(refusal=Refusal(400, "invalid_request_error", said)) as server:
        openai(server)
        assert refused(chat_model("openai/mine")).fault is ModelFault.TOO_LONG


def test_half_a_character_in_an_answer_is_replaced(openai) -> None:
    broken = Turn('{"grade": "\ud800fine \ud83d\ude00"}')
    with OpenAIServer([broken]) as server:
        reply = ask(openai(server), ASKED, SCHEMA)
    assert reply.parsed == Verdict("\ufffdfine \U0001f600")


def test_a_request_that_is_bad_in_every_form_is_one_error(openai) -> None:
    with OpenAIServer(refusal=Refusal(400, "bad", "no")) as server:
        openai(server)
        assert refused(chat_model("openai/mine")).fault is ModelFault.BAD_REQUEST
        assert len(server.chats) == 3


def test_what_a_model_cannot_be_given_is_refused_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/false")
    for spec, options, what in (
        ("anthropic/claude-sonnet-4-5", Options(seed=1), "a seed"),
        ("claude-code", Options(seed=1), "a seed"),
        ("claude-code", Options(temperature=1.0), "a temperature"),
        ("claude-code", Options(output_tokens=900), "a longest answer"),
    ):
        with pytest.raises(ModelError, match=f"does not accept {what}") as caught:
            chat_model(spec, options).ready()
        assert caught.value.exit_code == 2
    with pytest.raises(ModelError, match="does not accept a seed"):
        chat_model("claude-code", Options(seed=1)).ask(ASKED)


def test_ollama_is_asked_with_seed_and_temperature() -> None:
    with OllamaServer([GOOD, GOOD]) as server:
        for options in (Options(0.7, 5, server.url, 900), Options(base_url=server.url)):
            ask(OllamaModel("scripted", options), ASKED, SCHEMA)
        sent = [chat.body["options"] for chat in server.native_chats]
    assert [(body["temperature"], body["seed"]) for body in sent] == [(0.7, 5), (0.0, 0)]
    assert [body["num_predict"] for body in sent] == [900, OUTPUT_TOKENS]
