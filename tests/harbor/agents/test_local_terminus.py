"""Terminus-2 with a model file: what its LiteLLM is told before any server runs."""

from pathlib import Path

import pytest

from support.tiny_gguf import tiny_gguf
from terminalbench.llm.model import ModelError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def test_it_knows_the_window_and_ends_an_answer_that_would_not_end(tmp_path: Path) -> None:
    from terminalbench.harbor.agents.local_terminus import LocalTerminus

    file = tiny_gguf(tmp_path / "m.gguf", context=8192)
    agent = LocalTerminus(tmp_path / "logs", f"local:{file}", llm_call_kwargs={"seed": 1})
    assert agent._llm_call_kwargs == {"max_tokens": 2048, "seed": 1}
    assert agent._llm.get_model_context_limit() == 8192
    own = LocalTerminus(tmp_path / "logs", f"local:{file},num_ctx=4096", llm_call_kwargs={"max_tokens": 100})
    assert own._llm_call_kwargs == {"max_tokens": 100}


def test_a_window_that_its_own_prompt_would_fill_is_refused(tmp_path: Path) -> None:
    from terminalbench.harbor.agents.local_terminus import LocalTerminus

    file = tiny_gguf(tmp_path / "m.gguf", context=4096)
    with pytest.raises(ModelError, match="terminus-2 needs a window of at least 4096 tokens, but m has 2048"):
        LocalTerminus(tmp_path / "logs", f"local:{file},num_ctx=2048")
