"""The chat model of a trial: whose fault its failures are, who hears of them, and that it can be given up."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, override

import pytest
from watched import stub_trial

from terminalbench.faults import ErrorClass
from terminalbench.harbor.agent_watch import AgentWatch
from terminalbench.harbor.agents import chat
from terminalbench.harbor.agents.chat import TrialChat, provider_error
from terminalbench.harbor.read.error_classes import error_class
from terminalbench.llm.model import BadAnswer, ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema
from terminalbench.records.trial import NO_ANSWER

OPTIONS = Options(seed=7, base_url="http://here", output_tokens=1000)
QUESTION = [Message("user", "?")]


class Scripted(ChatModel):
    """Says what it is told: a text, an error, or nothing until it is stopped."""

    def __init__(self, options: Options, script: list[Any]) -> None:
        self.name, self.options = "scripted", options
        self.script = script
        self.asked, self.stopped = Event(), Event()

    @override
    def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
        self.asked.set()
        said = self.script.pop(0) if self.script else None
        if isinstance(said, ModelError):
            raise said
        if said is None:
            self.stopped.wait()
            raise ModelError(ModelFault.STOPPED, "stopped")
        return Reply(text=said, model="scripted")

    @override
    def stop(self) -> None:
        self.stopped.set()


def anything(value: Any) -> Any:
    if value == "bad":
        raise BadAnswer("bad")
    return value


SCHEMA = Schema("any", {}, anything)


def watch() -> AgentWatch:
    return AgentWatch(stub_trial(SimpleNamespace(setup=None)))


def talk(monkeypatch: pytest.MonkeyPatch, script: list[Any], **more: Any) -> tuple[TrialChat, list[Scripted]]:
    made: list[Scripted] = []

    def build(name: str, options: Options) -> Scripted:
        made.append(Scripted(options, script))
        return made[-1]

    monkeypatch.setattr(chat, "chat_model", build)
    given = {"tries": 2, "watch": None, "window": None, "fixed": False, **more}
    return TrialChat("scripted", OPTIONS, **given), made


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (ModelFault.AUTH, ErrorClass.AUTH),
        (ModelFault.NOT_FOUND, ErrorClass.MODEL_NOT_FOUND),
        (ModelFault.RATE_LIMIT, ErrorClass.RATE_LIMIT),
        (ModelFault.SERVER, ErrorClass.PROVIDER),
        (ModelFault.TIMEOUT, ErrorClass.PROVIDER),
        (ModelFault.UNREACHABLE, ErrorClass.NETWORK),
        (ModelFault.BAD_REQUEST, ErrorClass.PROVIDER),
    ],
)
def test_what_a_provider_does_is_an_error_of_the_bench(fault: ModelFault, expected: ErrorClass) -> None:
    raised = provider_error(ModelError(fault, "said so", retry_after_sec=12))
    found = error_class(type(raised).__name__, str(raised), "agent")
    assert found is expected
    assert not found.of_profile
    assert "Retry-After: 12 s" in str(raised)


def test_no_credit_is_told_by_the_words_of_the_refusal() -> None:
    raised = provider_error(ModelError(ModelFault.RATE_LIMIT, "Error code 429: insufficient_quota"))
    assert error_class(type(raised).__name__, str(raised), "agent") is ErrorClass.CREDIT


def test_a_dead_endpoint_is_a_network_error() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    dead = TrialChat("ollama:x", Options(base_url=url), tries=1, watch=None, window=4000, fixed=False)
    with pytest.raises(ModelError) as caught:
        asyncio.run(dead.ask(QUESTION, SCHEMA, 0.0))
    assert error_class(type(provider_error(caught.value)).__name__, "", "agent") is ErrorClass.NETWORK


def test_the_watch_of_the_agent_hears_of_every_refusal_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch()
    busy = ModelError(ModelFault.RATE_LIMIT, "busy", retry_after_sec=0)
    model, _ = talk(monkeypatch, [busy, '"yes"'], watch=seen)
    reply = asyncio.run(model.ask(QUESTION, SCHEMA, 0.0))
    assert (reply.parsed, reply.tries) == ("yes", 2)
    told = seen.seen()
    assert (told.asked, told.answers, told.wait and told.wait.refused) == (2, 1, {"429": 1})
    down = ModelError(ModelFault.UNREACHABLE, "down")
    model, _ = talk(monkeypatch, [down], watch=seen, tries=1)
    with pytest.raises(ModelError):
        asyncio.run(model.ask(QUESTION, SCHEMA, 0.0))
    wait = seen.seen().wait
    assert wait is not None
    assert (wait.at_end, wait.last) == (1, NO_ANSWER), "at a time limit now, it is the provider's"


def test_a_call_that_is_given_up_ends_while_the_model_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = talk(monkeypatch, [])

    async def cut() -> None:
        asking = asyncio.create_task(model.ask(QUESTION, SCHEMA, 0.0))
        while not made or not made[0].asked.is_set():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while not made[0].stopped.is_set():
            await asyncio.sleep(0.01)

    asyncio.run(cut())


def test_each_temperature_is_asked_alike_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = talk(monkeypatch, ['"a"'] * 4)
    for temperature in (0.0, 0.4, 0.4):
        asyncio.run(model.ask(QUESTION, SCHEMA, temperature))
    assert [one.options for one in made] == [OPTIONS, replace(OPTIONS, temperature=0.4)]
    model, made = talk(monkeypatch, ['"a"'], fixed=True)
    asyncio.run(model.ask(QUESTION, SCHEMA, 0.4))
    assert [one.options.temperature for one in made] == [0.0]
