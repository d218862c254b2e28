"""Requests to models that Harbor's own process makes, through LiteLLM: where they go, and what is told of them.

An agent that works from the host (Terminus-2, a class of one's own) asks its model from this process. Its profile says
where that is in its variables, which LiteLLM does not read for every provider: a request without an address of its own
gets the declared one. Under a policy of hosts a request to another place is refused. Each is a line in `egress.jsonl`.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, override
from urllib.parse import urlsplit

from terminalbench.experiments.network import base_urls_of, provider_hosts
from terminalbench.registry import BUILTIN
from terminalbench.sandbox.network.egress import FILE
from terminalbench.sandbox.network.policy import EgressPolicy, canonical

if TYPE_CHECKING:
    from terminalbench.harbor.agent_watch import AgentWatch

_CLIENT = "litellm"
_BASES = ("api_base", "base_url")
_PORTS = {"http": 80, "https": 443}


class ModelHostRefused(Exception):
    """The policy of the agent's phase has no place for the host of a model."""


class ModelPlaces:
    """Where the model of a trial may be asked: as its agent's variables, options and network say."""

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
                f"the model is asked at {host}, which the network of the agent's phase does not allow "
                "(declare it as the profile's endpoint, or name it in run.network.agent)"
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
    """Where a request goes, as LiteLLM tells; its provider's own host where it tells nothing."""
    told: Iterable[Any] = (
        (kwargs.get("additional_args") or {}).get("api_base"),
        (kwargs.get("litellm_params") or {}).get("api_base"),
        next(iter(provider_hosts(provider)), ""),
    )
    return next((str(one) for one in told if one), "")
