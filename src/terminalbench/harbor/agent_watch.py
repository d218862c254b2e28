"""Sees what an agent does on the host while it runs: commands in its environment, answers and refusals of its models.

An agent that is installed into its environment is one long command there: of it nothing is seen here, its logs tell.
Harbor's client for models tries again in silence, and so do others: LiteLLM, which sends their requests, tells a
callback of each one, in the task of the agent that makes it.

An agent that exits (`sys.exit`) or raises a cancellation that was not asked for would take Harbor's whole process with
it, and its trial would look interrupted: here it becomes what it is, a crash of the agent.

A profile says in its variables where its model is, which LiteLLM does not read for every provider: a request of this
process without an address of its own gets the declared one. Under a policy of hosts a request to another place is
refused. Each is a line in `egress.jsonl`.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, override
from urllib.parse import urlsplit

from harbor.agents.installed.base import BaseInstalledAgent, NonZeroAgentExitCodeError

from terminalbench.experiments.mounts import Mount
from terminalbench.experiments.network import base_urls_of, provider_hosts
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.error_classes import OTHER_EXCEPTIONS, error_class
from terminalbench.harbor.read.notes import HostActivity
from terminalbench.harbor.read.provider_wait import Refusals
from terminalbench.registry import BUILTIN
from terminalbench.sandbox.network.egress import FILE
from terminalbench.sandbox.network.policy import EgressPolicy, canonical

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
        """Return what there is to know so far."""
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


_CLIENT = "litellm"
_BASES = ("api_base", "base_url")
_PORTS = {"http": 80, "https": 443}


class ModelHostRefused(Exception):
    """The policy of the agent's phase has no place for the host of a model."""


class ModelPlaces:
    """The addresses at which the model of a trial may be asked, by its agent's variables, options and network."""

    def __init__(self, trial: Any) -> None:
        agent, environment = trial.config.agent, trial.config.environment
        self._env: Mapping[str, str] = trial.agent.extra_env
        self._options = dict(agent.kwargs or {})
        self._local = environment.import_path == BUILTIN["environments"]["local"]
        network = (environment.kwargs or {}).get("network")
        self._network: dict[str, Any] = dict(network) if isinstance(network, Mapping) else {}
        self._log = trial.paths.trial_dir / FILE

    def declared(self, provider: str) -> str | None:
        """Return the address of a provider's models that the profile declares, if it does."""
        for name in base_urls_of(provider):
            told = self._env.get(name) or os.environ.get(name)
            if told and _place(told)[0] not in ("0.0.0.0", "::"):  # noqa: S104  where a server listens
                return told if "://" in told else f"http://{told}"
        return None

    def directed(self, request: dict[str, Any], provider: str) -> dict[str, Any] | None:
        """Return a request as it has to go to the declared place; None: as it is. Raises `ModelHostRefused`."""
        base = next((request[name] for name in _BASES if request.get(name)), None)
        declared = self.declared(provider) if base is None else None
        if (host := self._refuses(provider, base or declared)) is not None:
            raise ModelHostRefused(
                f"the agent calls its model at {host}, which run.network.agent does not allow (declare it as the "
                f"profile's endpoint, or add it to run.network.agent)"
            )
        return {**request, "api_base": declared} if declared is not None else None

    def _refuses(self, provider: str, base: str | None) -> str | None:
        """Return the host that must not be asked; None: it may be."""
        allowed = self._network.get("agent", "public")
        if base is None or allowed == "public":
            return None
        own = [self.declared(provider), *(self._options.get(name) for name in _BASES), *self._network.get("model", ())]
        hosts = {_place(text)[0] for text in own if isinstance(text, str) and "${" not in text}
        listed = tuple(allowed) if isinstance(allowed, list) else ()
        host = _place(base)[0]
        named = EgressPolicy(lists=((*provider_hosts(provider), *listed),))
        return host if host not in hosts and named.refuses(host, None) is not None else None

    def note(self, address: str) -> None:
        """Write a request to the trial's log, where it tells of the sandbox's connections too."""
        host, port = _place(address)
        if not self._local or not host:
            return
        line = {"time": round(time.time(), 3), "phase": "agent", "host": host, "port": port, "by": "harbor"}
        with suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line, separators=(",", ":")) + "\n")


def _place(address: str) -> tuple[str, int]:
    parts = urlsplit(address if "//" in address else f"https://{address}")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        port = 443
    return canonical(parts.hostname or ""), port


CURRENT: ContextVar["AgentWatch | None"] = ContextVar("agent_watch", default=None)
"""The watch of the agent that runs in this task."""


def _loaded() -> Any:
    """LiteLLM where an agent has loaded it; None while the thread of another trial still does."""
    found = sys.modules.get(_CLIENT)
    return None if getattr(getattr(found, "__spec__", None), "_initializing", False) else found


def follow_models() -> None:
    """Have LiteLLM tell of its requests, once, where an agent has loaded it: loading it takes seconds."""
    litellm = _loaded()
    if litellm is None or any(getattr(callback, "of_tbench", False) for callback in litellm.callbacks):
        return
    from litellm.integrations.custom_logger import CustomLogger

    class Follower(CustomLogger):
        """Its methods are called where the request is made, in the context of the agent."""

        of_tbench = True

        @override
        async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> dict[str, Any] | None:
            if (watch := CURRENT.get()) is None:
                return None
            directed = watch.places.directed(kwargs, _provider(litellm, kwargs))
            watch.asks(stream=bool(kwargs.get("stream")))
            return directed

        @override
        def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> None:
            if (watch := CURRENT.get()) is not None:
                watch.places.note(_address(kwargs, _provider(litellm, kwargs)))

        @override
        async def async_post_call_success_deployment_hook(
            self, request_data: Any, response: Any, call_type: Any
        ) -> None:
            if (watch := CURRENT.get()) is not None:
                watch.answered()

        @override
        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            if (watch := CURRENT.get()) is not None and kwargs.get("stream"):
                watch.answered()

        @override
        async def async_post_call_failure_deployment_hook(
            self, request_data: Any, exception: Exception, call_type: Any, fallback_depth: int | None = None
        ) -> None:
            if (watch := CURRENT.get()) is not None and not isinstance(exception, ModelHostRefused):
                watch.refused(exception)

    litellm.callbacks.append(Follower())


def _provider(litellm: Any, kwargs: Mapping[str, Any]) -> str:
    told = kwargs.get("custom_llm_provider")
    if isinstance(told, str) and told:
        return told
    try:
        return litellm.get_llm_provider(str(kwargs.get("model")))[1]
    except Exception:  # noqa: BLE001  a model that it does not know: its own error comes when it is asked
        return str(kwargs.get("model")).partition("/")[0]


def _address(kwargs: Mapping[str, Any], provider: str) -> str:
    """Return where a request goes, as LiteLLM tells; its provider's own host where it tells nothing."""
    told: Iterable[Any] = (
        (kwargs.get("additional_args") or {}).get("api_base"),
        (kwargs.get("litellm_params") or {}).get("api_base"),
        next(iter(provider_hosts(provider)), ""),
    )
    return next((str(one) for one in told if one), "")
