"""What an agent raises that is no error: exits and cancellations become crashes of the agent, unless they were asked for."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.cli.jobs import _handle_sigterm

from terminalbench.harbor.agent_watch import AgentWatch

type Run = Callable[[], Awaitable[str | None]]


def watched(run: Run, setup: Run | None = None) -> SimpleNamespace:
    async def ready() -> None:
        pass

    agent = SimpleNamespace(run=run, setup=setup or ready)
    AgentWatch(SimpleNamespace(agent=agent, agent_environment=SimpleNamespace(exec=ready)))
    return agent


async def exits() -> None:
    sys.exit(3)


async def is_cancelled() -> None:
    raise asyncio.CancelledError


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def interrupts() -> None:
    raise KeyboardInterrupt


CRASHES = {exits: "SystemExit: 3", is_cancelled: "CancelledError", cancels_itself: "CancelledError"}


@pytest.mark.parametrize(("run", "said"), [*CRASHES.items(), (interrupts, "KeyboardInterrupt")])
def test_an_agent_that_leaves_has_crashed(run: Run, said: str) -> None:
    async def harbor(method: str) -> None:
        await asyncio.wait_for(getattr(watched(run, run), method)(), 60)

    for method in ("run", "setup"):
        with pytest.raises(NonZeroAgentExitCodeError) as raised:
            asyncio.run(harbor(method))
        assert str(raised.value) == f"the agent raised {said}"


def test_an_agent_that_exits_with_zero_has_ended() -> None:
    async def ends() -> None:
        sys.exit()

    assert asyncio.run(watched(ends).run()) is None


def test_what_was_asked_for_stays_what_it_is() -> None:
    async def sleeps() -> None:
        await asyncio.sleep(60)

    async def too_long() -> None:
        await asyncio.wait_for(watched(sleeps).run(), 0.01)

    async def cancelled() -> None:
        task = asyncio.ensure_future(watched(sleeps).run())
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    async def terminated() -> None:
        _handle_sigterm(signal.SIGTERM, None)

    with pytest.raises(TimeoutError):
        asyncio.run(too_long())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watched(terminated).run())
