"""What a set-up of an agent does again, it does while the network is still that of the set-up."""

import asyncio
import time
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from sandbox.driving import Driver
from terminalbench.sandbox.answers import CommandResult
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.network.trial import TrialNetwork
from terminalbench.sandbox.setups import AgentSetup


class FakePlace:
    """A trial whose set-up leaves a process behind: it cannot be kept, and is done again."""

    def __init__(self) -> None:
        self.alive, self.started = 1, 0

    async def bring_up(self, setup: Path | None = None, building: Path | None = None, hold: int | None = None) -> None:
        self.alive, self.started = 1, self.started + 1

    async def take_down(self) -> None:
        self.alive = 0

    async def processes(self) -> int:
        return self.alive


@pytest.mark.parametrize("codes", [(0, 0), (0, 1)])
def test_a_set_up_that_is_done_again_is_done_before_the_agents_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    policy = NetworkPolicy(network_mode=NetworkMode.PUBLIC)
    network, place, phases = TrialNetwork(None, tmp_path, [policy]), FakePlace(), []

    async def install() -> CommandResult:
        phases.append(network._phase)
        place.alive += 1
        return CommandResult(codes[min(len(phases), 2) - 1], "", "")

    async def trial() -> None:
        setup = AgentSetup(place, "key", tmp_path)
        network.before_phase = setup.before_phase
        await setup.start()
        setup.begin({})
        await setup.call("install", install)
        setup.end(failed=False)
        await network.enter("agent")
        try:
            await setup.settle()
        finally:
            await setup.close()

    if codes == (0, 0):
        asyncio.run(trial())
    else:
        with pytest.raises(SandboxError, match="ended with 0 and 1 when it ran a second time"):
            asyncio.run(trial())
    assert phases == ["setup", "setup"]
    assert network._phase == "agent"
    assert place.started == 3, "the usual one, one to keep, the usual one again"


@pytest.mark.parametrize("command", ["true", "sleep 4321 > /dev/null 2>&1 &"])
def test_what_was_uploaded_is_there_also_when_the_set_up_is_done_again(driver: Driver, command: str) -> None:
    """From a folder that is removed at once, as many agents upload; by one that is kept, and one that cannot be."""
    text = str(time.monotonic_ns())
    for _ in range(2):
        box = driver.box()
        box.do("set_up", text, command)
        assert box.out("cat /up/file") == text
        box.call("stop", True)
    box = driver.box()
    box.do("set_up", text, f"{command} # another")  # answered at first, then not
    assert box.out("cat /up/file") == text
