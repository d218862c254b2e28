"""`tbench check` asks the model of the agent `ollama` at its own server."""

import pytest

from servers.base import Turn
from servers.ollama import OllamaServer
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.profiles import Profile
from terminalbench.lab.check import _endpoint


@pytest.mark.parametrize("name", ["qwen3:8b", "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"])
def test_a_model_is_asked_by_the_name_that_ollama_lists(name: str) -> None:
    agent = agent_info("ollama")
    assert agent is not None
    with OllamaServer([Turn("ok")], model=name) as server:
        host = {"OLLAMA_HOST": server.url}
        assert _endpoint(Profile("p", agent, name), host) == "ok"
        (chat,) = server.native_chats
        assert _endpoint(Profile("p", agent, name, options={"base_url": server.url}), {}) == "ok"
        other = _endpoint(Profile("p", agent, f"{name}x"), host) or ""
        assert f'no model "{name}x"' in other
    assert "no Ollama server answers" in (_endpoint(Profile("p", agent, name), host) or "")
    assert name in str(chat)
