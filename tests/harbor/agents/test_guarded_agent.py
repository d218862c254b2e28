"""The guarded agent by itself: the seed that its model is sent, and what it leaves of a long answer."""

import asyncio
import json
from pathlib import Path

import pytest
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Agent

from terminalbench.harbor.agents.chat import TrialChat
from terminalbench.harbor.agents.guarded import GuardedAgent, TraceRecorder
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.workflow.model import Artifact, Kind
from terminalbench.workflow.trace import TraceEventKind, read_artifact


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


def test_a_long_answer_is_whole_among_the_artifacts_and_begun_in_the_trajectory(tmp_path: Path) -> None:
    recorder = TraceRecorder(tmp_path, Agent(name="guarded", version="1"), "fix it", None)
    long = "0123456789" * 100_000
    artifact = Artifact(
        id=Artifact.name_of(Kind.PATCH, long), kind=Kind.PATCH, step="patch", cycle=1, attempt=1, content=long
    )
    recorder.keep(artifact)
    recorder.write(TraceEventKind.ATTEMPT, step="patch", cycle=1, attempt=1, artifact=artifact.id)
    recorder.hand_over(AgentContext(), tmp_path / "trajectory.json")
    said = json.loads((tmp_path / "trajectory.json").read_text())["steps"][1]["message"]
    assert len(said) < 201_000
    assert said.endswith(f"1,000,000 letters in all: workflow/objects/{artifact.id[:2]}/{artifact.id}")
    kept = read_artifact(tmp_path, artifact.id)
    assert kept is not None
    assert kept.content == long
