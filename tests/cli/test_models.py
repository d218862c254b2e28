"""`tbench models check`: any model, asked for real or by a scripted server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.base import Turn
from servers.ollama import OllamaServer
from servers.openai import OpenAIServer
from support.tiny_gguf import tiny_gguf
from terminalbench.overnight.models import check_again, check_model, parse_model, profile_of

PONG = Turn("1 2 3", (("ping", {"text": "hello"}),))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_a_file_is_served_and_asked(tbench: Callable[..., Any], tmp_path: Path) -> None:
    spec = f"local:{tiny_gguf(tmp_path / 'm.gguf', context=1024)}"
    ran = tbench("models", "check", spec, "--json")
    [told] = json.loads(ran.out)
    assert ran.code == 0
    assert (told["model"], told["tools"], told["context_tokens"], told["cost_usd"]) == ("m", "in words", 1024, 0)
    assert told["tokens_per_sec"] > 0


def test_tools_are_what_a_model_has_shown(tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with OllamaServer([PONG], model="qwen3:8b") as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        ran = tbench("models", "check", "ollama:qwen3:8b")
    assert ran.code == 0, ran.err
    assert "tools        shown" in ran.out
    assert "ok" in ran.out.splitlines()[0]
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.litellm
def test_a_model_of_litellm_that_does_not_call(tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Turn("ping hello")]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "scripted-key")
        ran = tbench("models", "check", "openai/scripted", "--json")
    [told] = json.loads(ran.out)
    assert (ran.code, told["tools"]) == (0, "declared, not shown")


def test_what_is_missing_is_said_for_each_and_is_no_crash(
    tbench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    ran = tbench("models", "check", "ollama:qwen3", f"local:{tmp_path}/none.gguf")
    assert ran.code == 2
    assert "no Ollama server answers" in ran.err
    assert "there is no model file" in ran.err
    assert tbench("models", "check", "ollama:qwen3").code == 1


def test_a_night_pins_the_file_that_it_checked(tmp_path: Path) -> None:
    file = tiny_gguf(tmp_path / "m.gguf", context=2048)
    model = parse_model("local:m.gguf,max_turns=3")
    facts = check_model(model)
    table = profile_of(model, facts=facts)
    assert (table["agent"], table["model"], table["price"]) == ("ollama", f"local:{file}", 0)
    assert table["options"] == {"digest": facts["digest"], "num_ctx": 2048, "max_turns": 3}
    check_again(model, facts)
    tiny_gguf(file, context=2048, seed=2)
    with pytest.raises(Exception, match="the file is another one"):
        check_again(model, facts)
