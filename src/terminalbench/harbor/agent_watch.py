"""Sees what an agent does on the host while it runs: commands in its environment, answers and refusals of its models.

An agent that is installed into its environment is one long command there: of it nothing is seen here, its logs tell.
Harbor's client for models tries again in silence, and so do others: LiteLLM, which sends their requests, tells a
callback of each one, in the task of the agent that makes it.

An agent that exits (`sys.exit`) or raises a cancellation that was not asked for would take Harbor's whole process with
it, and its trial would look interrupted: here it becomes what it is, a crash of the agent.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError

from terminalbench.experiments.mounts import Mount
from terminalbench.faults import ErrorClass
from terminalbench.harbor.model_calls import CURRENT, ModelPlaces, follow_models
from terminalbench.harbor.read.error_classes import OTHER_EXCEPTIONS, error_class
from terminalbench.harbor.read.provider_wait import Refusals
from terminalbench.harbor.read.seen import HostActivity

_RUNS = ("run", "resume", "load")
_KNOWN = ("harbor", "terminalbench")
"""Packages whose agents are known by their names: what they bring is in their profile's id, or the task's."""
_MOST_UPLOADS = 100
_SIGNALLED = ("asyncio.runners", "harbor.cli.jobs")
"""Where Harbor's process turns a signal into a KeyboardInterrupt, wherever it happens to be."""


class AgentWatch:
    """Follows the agent of one try of a trial."""

    def __init__(self, trial: Any) -> None:
        self.commands: int | None = None if isinstance(trial.agent, BaseInstalledAgent) else 0
        self.places = ModelPlaces(trial)
        self.asked = 0
        self.answers = 0
        self.refusals = Refusals()
        self._refused_at: float | None = None
        self._running = 0
        self._uploads: dict[str, str] = {}
        self._began = time.time()
        self._tell: Callable[[HostActivity], None] | None = None
        for name in _RUNS:
            if (method := getattr(trial.agent, name, None)) is not None:
                setattr(trial.agent, name, self._watched(method))
        trial.agent.setup = self._setting_up(_contained(trial.agent.setup))
        environment = trial.agent_environment
        if type(trial.agent).__module__.partition(".")[0] not in _KNOWN:
            environment.upload_file = self._noted(environment.upload_file)
            environment.upload_dir = self._noted(environment.upload_dir)
        if self.commands is not None:
            environment.exec = self._counted(environment.exec)

    def seen(self) -> HostActivity:
        """What there is to know so far."""
        if not (self.asked or self.answers or self.refusals.count):
            return HostActivity(self.commands, uploads=dict(self._uploads))
        return HostActivity(self.commands, self.asked, self.answers, self.refusals.told(), dict(self._uploads))

    def at_first_act(self, tell: Callable[[HostActivity], None]) -> None:
        """Tell now, if its commands can be seen, and once more when it first runs one or a model answers it."""
        self._tell = tell
        if self.commands is not None:
            tell(self.seen())

    def _acted(self) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(self.seen())

    def asks(self, *, stream: bool) -> None:
        """A request is sent to a model; after a refusal it is a new try.

        That an answer which comes in parts begins is not told: without a refusal it is taken to.
        """
        self._waited()
        if stream:
            self.refusals.answered()
        else:
            self.asked += 1

    def answered(self) -> None:
        """A model answered."""
        self.answers += 1
        self.refusals.answered()
        self._acted()

    def refused(self, error: BaseException) -> None:
        """A request failed; not where the agent asked for too much."""
        name = type(error).__name__
        if error_class(name, str(error), "agent").of_profile:
            return
        status = getattr(error, "status_code", None)
        reached = OTHER_EXCEPTIONS.get(name) is not ErrorClass.NETWORK and isinstance(status, int)
        self.refusals.refused(status if reached else None, retried=False)
        self._refused_at = time.monotonic()

    def _waited(self) -> None:
        if self._refused_at is not None:
            self.refusals.tried_again(time.monotonic() - self._refused_at)
            self._refused_at = None

    def _watched(self, method: Any) -> Any:
        contained = _contained(method)

        async def run(*arguments: Any, **named: Any) -> Any:
            follow_models()
            before = CURRENT.set(self)
            self._running += 1
            try:
                return await contained(*arguments, **named)
            except asyncio.CancelledError:
                self._waited()  # its time ran out before it had asked again
                raise
            finally:
                self._running -= 1
                CURRENT.reset(before)

        return run

    def _setting_up(self, method: Any) -> Any:
        async def setup(*arguments: Any, **named: Any) -> Any:
            self._running, self._began = self._running + 1, time.time()
            try:
                return await method(*arguments, **named)
            finally:
                self._running -= 1

        return setup

    def _noted(self, method: Any) -> Any:
        async def upload(*arguments: Any, **named: Any) -> Any:
            if self._running:
                with suppress(OSError):
                    await asyncio.to_thread(self._note, Path([*arguments, *named.values()][0]))
            return await method(*arguments, **named)

        return upload

    def _note(self, source: Path) -> None:
        """Note what the agent brings of this machine; not what it made for this trial, or what is installed with it."""
        installed = source.absolute().is_relative_to(sys.prefix)
        if source.stat().st_ctime < self._began and not installed and len(self._uploads) < _MOST_UPLOADS:
            here = Path.cwd()
            inside = source.absolute().is_relative_to(here)
            name = os.path.relpath(source, here) if inside else str(source.absolute())
            self._uploads[name] = Mount(source.resolve(), "").digest

    def _counted(self, method: Any) -> Any:
        async def exec_(*arguments: Any, **named: Any) -> Any:
            if self._running and self.commands is not None:
                self.commands += 1
                self._acted()
                follow_models()
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


def current_watch() -> AgentWatch | None:
    """The watch of the agent that runs in this task: for one whose client tells LiteLLM nothing."""
    return CURRENT.get()
