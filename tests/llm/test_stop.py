"""A model that never answers holds up neither a caller that is stopped nor a process that gets a signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread

import pytest

from servers.base import Handler, Request, ScriptedServer
from terminalbench.llm.ask import RetryPatience, ask
from terminalbench.llm.model import ChatModel, Message, ModelError, ModelFault, Options, Reply, Schema, chat_model
from terminalbench.locks import start_ticks

ASKED = [Message("user", "Well?")]
LATE_SEC = 60.0
"""Far less than the five minutes and more that a model is waited for."""


class Silent(ScriptedServer):
    """Takes every request and answers none until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = Event()

    def reply(self, to: Handler, request: Request) -> None:
        self.released.wait(300)


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent() as server:
        yield server
        server.released.set()


def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.02)


def stopped(model: ChatModel, asked: Callable[[], object], patience: RetryPatience | None = None) -> ModelError:
    """How a question ends that is stopped once the model has been asked."""
    stop, ends = Event(), []

    def work() -> None:
        with pytest.raises(ModelError) as caught:
            ask(model, ASKED, patience=patience, stop=stop)
        ends.append(caught.value)

    thread = Thread(target=work, daemon=True)
    thread.start()
    wait_for(asked)
    stop.set()
    thread.join(LATE_SEC)
    assert not thread.is_alive()
    return ends[0]


@pytest.mark.parametrize("spec", ["openai/mine", "ollama:mine"])
def test_a_server_that_never_answers_is_not_waited_for(silent: Silent, spec: str) -> None:
    model = chat_model(spec, Options(base_url=f"{silent.url}/v1" if "openai" in spec else silent.url))
    assert stopped(model, lambda: silent.requests).fault is ModelFault.STOPPED


def test_claude_code_that_never_answers_is_ended_although_it_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "claude"
    fake.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\n"
                    "while true; do sleep 1; done\n")  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    pid = tmp_path / "pid"
    assert stopped(chat_model("claude-code"), pid.exists).fault is ModelFault.STOPPED
    wait_for(lambda: start_ticks(int(pid.read_text())) is None)


def test_a_pause_between_tries_ends_too() -> None:
    class Busy(ChatModel):
        name = "busy"
        asked = 0

        def ask(self, messages: Sequence[Message], schema: Schema | None = None) -> Reply:
            self.asked += 1
            raise ModelError(ModelFault.SERVER, "busy")

    model = Busy()
    error = stopped(model, lambda: model.asked, RetryPatience(first_sec=300.0, longest_sec=300.0))
    assert (error.fault, model.asked) == (ModelFault.STOPPED, 1)


PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from terminalbench.llm.ask import ask, interrupted_by_sigterm
from terminalbench.llm.model import Message, Options, chat_model

stop = Event()
model = chat_model("ollama:mine", Options(base_url=sys.argv[1]))
question = [Message("user", "Well?")]
try:
    with interrupted_by_sigterm():
        if sys.argv[2] == "threads":  # as a judge asks
            pool = ThreadPoolExecutor(2)
            list(pool.map(lambda _: ask(model, question, stop=stop), range(2)))
        ask(model, question)
except KeyboardInterrupt:
    stop.set()
    print("interrupted")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["threads", "main"])
def test_a_process_that_is_asked_to_stop_does_not_wait_for_a_model(
    silent: Silent, number: signal.Signals, where: str
) -> None:
    argv = [sys.executable, "-c", PROGRAM, silent.url, where]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_for(lambda: len(silent.requests) == (2 if where == "threads" else 1) or process.poll() is not None)
        process.send_signal(number)
        out, _ = process.communicate(timeout=LATE_SEC)
    finally:
        process.kill()
    assert (out.strip(), process.returncode) == ("interrupted", 0)
