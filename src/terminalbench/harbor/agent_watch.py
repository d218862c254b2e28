"""Sees what an agent does on the host while it runs: commands in its environment, answers and refusals of its models.

An agent that is installed into its environment is one long command there: of it nothing is seen here, its logs tell.
Harbor's client for models tries again in silence; so its calls are followed, for the trial whose agent makes them.

An agent that exits (`sys.exit`) or raises a cancellation that was not asked for would take Harbor's whole process with
it, and its trial would look interrupted: here it becomes what it is, a crash of the agent.
"""

import asyncio
import sys
from contextvars import ContextVar
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError

from terminalbench.harbor.read.error_classes import OTHER_EXCEPTIONS, error_class
from terminalbench.harbor.read.provider_wait import Refusals
from terminalbench.harbor.read.seen import Seen
from terminalbench.records import ErrorClass

_CLIENT = "harbor.llms.lite_llm"
_FOLLOWED = "_tbench_follows"
_RUNS = ("run", "resume", "load")
_SIGNALLED = ("asyncio.runners", "harbor.cli.jobs")
"""Where Harbor's process turns a signal into a KeyboardInterrupt, wherever it happens to be."""


class AgentWatch:
    """Follows the agent of one try of a trial."""

    def __init__(self, trial: Any) -> None:
        self.commands: int | None = None if isinstance(trial.agent, BaseInstalledAgent) else 0
        self.asked = 0
        self.answers = 0
        self.refusals = Refusals()
        self._running = 0
        for name in _RUNS:
            if (method := getattr(trial.agent, name, None)) is not None:
                setattr(trial.agent, name, self._watched(method))
        trial.agent.setup = _contained(trial.agent.setup)
        if self.commands is not None:
            environment = trial.agent_environment
            environment.exec = self._counted(environment.exec)

    def seen(self) -> Seen:
        """What there is to know so far."""
        if not self.asked:
            return Seen(self.commands)
        return Seen(self.commands, self.asked, self.answers, self.refusals.told())

    def refused(self, error: BaseException | None, pause_sec: float | None, *, retried: bool) -> None:
        """A call of a model failed; not where the agent asked for too much."""
        name = type(error).__name__
        found = error_class(name, str(error), "agent")
        if error is None or found.of_profile:
            return
        status = getattr(error, "status_code", None)
        reached = OTHER_EXCEPTIONS.get(name) is not ErrorClass.NETWORK and isinstance(status, int)
        self.refusals.refused(status if reached else None, pause_sec, retried=retried)

    def _watched(self, method: Any) -> Any:
        contained = _contained(method)

        async def run(*arguments: Any, **named: Any) -> Any:
            _follow_client()
            before = _CURRENT.set(self)
            self._running += 1
            try:
                return await contained(*arguments, **named)
            finally:
                self._running -= 1
                _CURRENT.reset(before)

        return run

    def _counted(self, method: Any) -> Any:
        async def exec_(*arguments: Any, **named: Any) -> Any:
            if self._running and self.commands is not None:
                self.commands += 1
            return await method(*arguments, **named)

        return exec_


def _contained(method: Any) -> Any:
    """The method of an agent, whose exit or own cancellation is an error as any other.

    It runs in a task of its own: there a cancellation that this task was not asked for is the agent's.
    """

    async def inside(*arguments: Any, **named: Any) -> Any:
        try:
            return await method(*arguments, **named)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if _from_a_signal(error):
                raise
            if isinstance(error, SystemExit) and not error.code:
                return None
            raise _crash(error) from error

    async def contained(*arguments: Any, **named: Any) -> Any:
        task = asyncio.current_task()
        asked = task.cancelling() if task is not None else 0
        try:
            return await asyncio.ensure_future(inside(*arguments, **named))
        except asyncio.CancelledError as error:
            if task is None or task.cancelling() > asked:
                raise
            raise _crash(error) from error

    return contained


def _crash(error: BaseException) -> NonZeroAgentExitCodeError:
    said = f": {error}" if str(error) else ""
    return NonZeroAgentExitCodeError(f"the agent raised {type(error).__name__}{said}")


def _from_a_signal(error: BaseException) -> bool:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return isinstance(error, KeyboardInterrupt) and (
        place is not None and place.tb_frame.f_globals.get("__name__") in _SIGNALLED
    )


_CURRENT: ContextVar[AgentWatch | None] = ContextVar("agent_watch", default=None)


def _follow_client() -> None:
    """Follow Harbor's client for models, once, where an agent has loaded it: loading it takes seconds."""
    client: Any = getattr(sys.modules.get(_CLIENT), "LiteLLM", None)
    if client is None or hasattr(client, _FOLLOWED):
        return
    ask = client.call

    async def call(*arguments: Any, **named: Any) -> Any:
        watch = _CURRENT.get()
        if watch is None:
            return await ask(*arguments, **named)
        watch.asked += 1
        try:
            answer = await ask(*arguments, **named)
        except Exception as error:
            watch.refused(error, None, retried=False)
            raise
        watch.answers += 1
        watch.refusals.answered()
        return answer

    def pause(state: Any) -> None:
        watch = _CURRENT.get()
        if watch is not None:
            error = state.outcome.exception() if state.outcome is not None else None
            watch.refused(error, state.next_action.sleep if state.next_action else None, retried=True)

    if getattr(ask, "retry", None) is not None:
        ask.retry.before_sleep = pause
    client.call = call
    setattr(client, _FOLLOWED, True)
