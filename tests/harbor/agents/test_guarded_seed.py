"""The seed of a run is sent by a guarded workflow to a model that takes one, and keeps no other from running."""

import asyncio
from pathlib import Path

import pytest

from terminalbench.harbor.agents.chat import TrialChat
from terminalbench.harbor.agents.guarded import GuardedAgent
from terminalbench.llm.model import ModelError, ModelFault


def test_a_model_without_seeds_is_asked_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int | None] = []

    async def ready(chat: TrialChat, _temperatures: list[float]) -> None:
        sent.append(chat._options.seed)
        if chat._options.seed is not None:
            raise ModelError(ModelFault.MISSING, "it cannot be given a seed")

    monkeypatch.setattr(TrialChat, "ready", ready)
    agent = GuardedAgent(tmp_path, model_name="a/b", workflow={"workflow.toml": ""}, run_seed=7)
    asyncio.run(agent._ready([0.0]))
    assert sent == [7, None]
    own = GuardedAgent(tmp_path, model_name="a/b", workflow={"workflow.toml": ""}, seed=7)
    with pytest.raises(ModelError, match="cannot be given a seed"):
        asyncio.run(own._ready([0.0]))
