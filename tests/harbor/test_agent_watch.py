"""What is seen of an agent on the host: exits and cancellations become crashes, its requests to models are counted."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.agents.installed.base import NonZeroAgentExitCodeError
from harbor.cli.jobs import _handle_sigterm
from watched import stub_trial

from terminalbench.harbor.agent_watch import AgentWatch
from terminalbench.harbor.read.notes import HostActivity

type Run = Callable[[], Awaitable[str | None]]


async def ready() -> None:
    pass


def watched(run: Run, setup: Run | None = None) -> SimpleNamespace:
    agent = SimpleNamespace(run=run, setup=setup or ready)
    AgentWatch(stub_trial(agent))
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


def test_requests_by_litellm_are_counted_for_the_trial_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By LiteLLM's own callbacks, whoever calls it: Harbor's client stays as it was installed."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm
    from harbor.llms.lite_llm import LiteLLM

    installed = dict(vars(LiteLLM))
    monkeypatch.setattr(litellm, "callbacks", [])
    waits = asyncio.Event()

    async def ask(answer: str, **options: bool) -> Any:
        request = [{"role": "user", "content": "hi"}]
        return await litellm.acompletion("openai/gpt-4o-mini", request, mock_response=answer, **options)

    async def lives() -> None:
        with pytest.raises(litellm.RateLimitError):
            await ask("litellm.RateLimitError")
        await asyncio.sleep(0.01)
        assert [chunk async for chunk in await ask("yes", stream=True)]
        await ask("yes")

    async def is_refused() -> None:
        for _ in range(2):
            with pytest.raises(litellm.RateLimitError):
                await ask("litellm.RateLimitError")
        waits.set()
        await asyncio.sleep(60)

    async def harbor() -> tuple[HostActivity, HostActivity]:
        agents = [SimpleNamespace(run=run, setup=ready) for run in (lives, is_refused)]
        watches = [AgentWatch(stub_trial(agent)) for agent in agents]
        late = asyncio.ensure_future(agents[1].run())
        await agents[0].run()
        await waits.wait()
        late.cancel()
        await asyncio.wait([late])
        await ask("outside of every trial")
        return watches[0].seen(), watches[1].seen()

    lived, refused = asyncio.run(harbor())
    assert lived.wait is not None
    assert refused.wait is not None
    assert (lived.asked, lived.answers) == (2, 2), "of an answer in parts only the end is told"
    assert (lived.wait.retries, lived.wait.refused, lived.wait.at_end) == (1, {"429": 1}, 0)
    assert lived.wait.backoff_sec
    assert (refused.asked, refused.answers) == (2, 0)
    assert (refused.wait.retries, refused.wait.refused, refused.wait.at_end) == (2, {"429": 2}, 2)
    assert dict(vars(LiteLLM)) == installed
