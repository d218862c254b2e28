"""Retries, checks and repairs, on models that do as they are told."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import pytest

from terminalbench.llm.ask import RetryPatience, ask, retry_after
from terminalbench.llm.model import (
    BadAnswer,
    ChatModel,
    Message,
    ModelError,
    ModelFault,
    Reply,
    Schema,
    chat_model,
    count_text,
    parse,
    schema_of,
)
from terminalbench.records.trial import Usage
from terminalbench.secrets.values import safe_message


class Verdict(msgspec.Struct, forbid_unknown_fields=True):
    grade: Literal["good", "bad"] | None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]


SCHEMA = schema_of(Verdict, "verdict")
GOOD = '{"grade": "good", "score": 0.5}'
ASKED = [Message("user", "Well?")]


class Scripted(ChatModel):
    name = "scripted"

    def __init__(self, *answers: str | ModelError, cost: float | None = 0.5) -> None:
        self.answers = list(answers)
        self.cost = cost
        self.seen: list[list[Message]] = []

    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        self.seen.append(list(messages))
        answer = self.answers.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        cut = answer.endswith("<cut>")
        usage = Usage(input_tokens=10, output_tokens=5, cost_usd=self.cost)
        return Reply(text=answer.removesuffix("<cut>"), model="s", usage=usage, cut_off=cut)


def patience(slept: list[float], **fields: float) -> RetryPatience:
    return RetryPatience(sleep=slept.append, chance=lambda: 1.0, **fields)  # ty: ignore[invalid-argument-type]


def test_what_may_be_over_in_a_moment_is_tried_again_with_growing_pauses() -> None:
    slept: list[float] = []
    model = Scripted(
        ModelError(ModelFault.SERVER, "x"),
        ModelError(ModelFault.TIMEOUT, "x"),
        ModelError(ModelFault.RATE_LIMIT, "x"),
        GOOD,
    )
    reply = ask(model, ASKED, SCHEMA, patience(slept))
    assert (reply.parsed, reply.tries) == (Verdict("good", 0.5), 4)
    assert slept == [1.0, 2.0, 4.0]


def test_a_servers_retry_after_is_kept_to() -> None:
    slept: list[float] = []
    model = Scripted(ModelError(ModelFault.RATE_LIMIT, "x", retry_after_sec=17.0), GOOD)
    ask(model, ASKED, SCHEMA, patience(slept))
    assert slept == [17.0]


def test_nobody_waits_an_hour() -> None:
    slept: list[float] = []
    with pytest.raises(ModelError, match="come back later"):
        ask(
            Scripted(ModelError(ModelFault.RATE_LIMIT, "come back later", retry_after_sec=3600)),
            ASKED,
            SCHEMA,
            patience(slept),
        )
    assert slept == []


@pytest.mark.parametrize(
    "fault", [ModelFault.AUTH, ModelFault.NOT_FOUND, ModelFault.BAD_REQUEST, ModelFault.TOO_LONG, ModelFault.REFUSED]
)
def test_what_will_not_change_is_not_tried_again(fault: ModelFault) -> None:
    slept: list[float] = []
    with pytest.raises(ModelError):
        ask(Scripted(ModelError(fault, "x")), ASKED, SCHEMA, patience(slept))
    assert slept == []


def test_tries_are_bounded() -> None:
    slept: list[float] = []
    with pytest.raises(ModelError):
        ask(Scripted(*[ModelError(ModelFault.SERVER, "x")] * 9), ASKED, SCHEMA, patience(slept, tries=3))
    assert len(slept) == 2


def test_jitter_stays_between_half_and_the_whole_pause() -> None:
    assert RetryPatience(chance=lambda: 0.0).pause(3, None) == 2.0
    assert RetryPatience(chance=lambda: 1.0).pause(3, None) == 4.0
    assert RetryPatience(chance=lambda: 1.0).pause(30, None) == 60.0


@pytest.mark.parametrize("bad", ["no", '{"grade": "fair", "score": 0.5}', '{"grade": "good"}', f"{GOOD}<cut>", ""])
def test_a_bad_answer_gets_one_repair_and_both_are_billed(bad: str) -> None:
    model = Scripted(bad, GOOD)
    reply = ask(model, ASKED, SCHEMA)
    assert reply.parsed == Verdict("good", 0.5)
    assert reply.usage.cost_usd == 1.0
    repair = model.seen[1]
    assert repair[: len(ASKED)] == ASKED
    assert json.dumps(SCHEMA.json, ensure_ascii=False) in repair[-1].content


def test_two_bad_answers_are_an_error_that_knows_its_cost() -> None:
    with pytest.raises(ModelError, match="did not have the required form twice") as caught:
        ask(Scripted("no", '{"grade": "fair"}'), ASKED, SCHEMA)
    assert caught.value.fault is ModelFault.BAD_ANSWER
    assert caught.value.usage is not None
    assert caught.value.usage.cost_usd == 1.0


def test_a_failed_repair_still_bills_the_first_answer() -> None:
    with pytest.raises(ModelError) as caught:
        ask(Scripted("no", ModelError(ModelFault.AUTH, "gone")), ASKED, SCHEMA)
    assert caught.value.usage is not None
    assert caught.value.usage.cost_usd == 0.5


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    parts = (Usage(cost_usd=1.0, input_tokens=2), Usage(input_tokens=3))
    assert Usage.added(parts, None, None) == Usage(input_tokens=5)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here it is:\n{GOOD}\nThat is all.",
        f"First {{x}}.\n```json\n{GOOD}\n```",
        f"\n {GOOD}\n",
    ],
)
def test_an_object_is_found_in_what_a_model_says(text: str) -> None:
    assert parse(text, SCHEMA) == Verdict("good", 0.5)


@pytest.mark.parametrize(
    "text", ["", "yes", "[1]", '{"grade": "good", "score": 7}', '{"grade": "good", "score": 0.5, "x": 1}', "{" * 50_000,
             "```" + "\n" * 1_000_000]
)  # fmt: skip
def test_what_does_not_fit_is_never_taken(text: str) -> None:
    with pytest.raises(BadAnswer):
        parse(text, SCHEMA)


def test_a_schema_holds_no_references_and_forbids_what_it_does_not_name() -> None:
    class Outer(msgspec.Struct, forbid_unknown_fields=True):
        inner: list[Verdict]

    schema = schema_of(Outer, "outer").json
    assert "$ref" not in json.dumps(schema)
    inner = schema["properties"]["inner"]["items"]
    assert (inner["additionalProperties"], inner["required"]) == (False, ["grade", "score"])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("12", 12.0), ("1.5", 1.5), ("-3", 0.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("soon", None)],
)
def test_retry_after_as_number_or_date(value: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": value}, now=60.0) == seconds


def test_messages_never_hold_what_the_environment_keeps_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-value-of-no-known-shape")
    monkeypatch.setenv("MY_TOKEN_FILE", "/run/secrets/token")
    monkeypatch.setenv("MY_AUTH", "disabled")
    assert safe_message("it is disabled") == "it is disabled"
    assert safe_message("got canary-value-of-no-known-shape, sk-abcdefghijklmnop and Bearer abcdefgh123") == (
        "got [redacted], [redacted] and Bearer [redacted]"
    )
    assert safe_message("at /run/secrets/token\n\nnow") == "at /run/secrets/token now"
    assert safe_message("http://me:pass@host/x") == "http://[redacted]@host/x"
    assert len(safe_message("word " * 1000)) <= 300


def test_counting_is_linear_and_adds_up() -> None:
    assert count_text("") == 0
    assert 5 <= count_text("def add(a, b): return a + b") <= 15
    assert count_text("<|endoftext|>") > 1  # text of an agent is never a control token
    assert count_text("a" * 300_000) > 10_000


@pytest.mark.parametrize("spec", ["ollama:", "replay", "litellm", " "])
def test_half_a_name_is_refused(spec: str) -> None:
    from terminalbench.errors import UserError

    with pytest.raises(UserError):
        chat_model(spec)


def test_names_lead_to_their_models() -> None:
    names = {
        "ollama:qwen3:8b": "ollama:qwen3:8b",
        "claude-code": "claude-code",
        "claude-code:haiku": "claude-code:haiku",
        "openai/gpt-4o": "openai/gpt-4o",
        "replay:x.jsonl": "replay:x.jsonl",
    }
    assert {spec: chat_model(spec).name for spec in names} == names


def test_another_package_can_bring_a_model() -> None:
    from terminalbench.errors import UserError

    with pytest.raises(UserError, match="is not a chat model"):
        chat_model("collections:OrderedDict")
