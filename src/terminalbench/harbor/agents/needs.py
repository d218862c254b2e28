"""What an agent needs before its first trial, as far as it can be told: a key for its model, and its program.

In the local sandbox an agent's program is either in the host's system folders, mounted in, or fetched by its
installer. Without the installer's host every trial would break in its set-up. Of keys only names are ever reported.
"""

import shutil
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from terminalbench.experiments.agents import AgentInfo
from terminalbench.registry import BUILTIN
from terminalbench.sandbox.engine.run import DEFAULT_PATH as SYSTEM_PATH

LOCAL_SANDBOX = BUILTIN["environments"]["local"]

KEYLESS = {"ollama", "ollama_chat", "lm_studio", "llamafile", "hosted_vllm", "vllm", "simulated"}
"""Providers that run on the user's own machine."""

CLOUD_LOGINS = (
    "AWS_PROFILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "VERTEXAI_PROJECT",
)
"""Logins that open models of several providers; where one is there, it cannot be told what is missing."""


def missing_key(
    agent: Any, logins: Sequence[str], model: str | None, options: Mapping[str, Any], env: Mapping[str, str]
) -> str | None:
    """What an agent class is missing. None: it has a key or one of `logins`, needs none, or it cannot be told."""
    from harbor.agents.model_connection import _PROVIDER_ALIASES, PROVIDERS

    spec = agent.MODEL_CONNECTION
    provider = spec.default_provider if spec is not None else None
    if provider is None and model and "/" in model:
        provider = model.split("/", 1)[0]
    if provider is None or provider in KEYLESS:
        return None
    provider = _PROVIDER_ALIASES.get(provider, provider)
    access = PROVIDERS.get(provider)
    own = spec.api_key_envs if spec is not None else ()
    keys = list(dict.fromkeys([*own, *(access.api_key_envs if access else ())]))
    addresses = [*(spec.base_url_envs if spec is not None else ()), *(access.base_url_envs if access else ())]
    elsewhere = any(env.get(name) for name in addresses) or any(options.get(k) for k in ("api_base", "base_url"))
    if not keys or elsewhere:
        return None
    if any(env.get(name) for name in (*keys, *logins, *CLOUD_LOGINS)):
        return None
    names = " or ".join(keys)
    return f"{agent.name()} needs {names} for {provider}"


def not_installable(agent: AgentInfo, environment: dict[str, Any], arguments: Sequence[str]) -> str | None:
    """Why the agent cannot be installed in this environment, or None when it can or cannot be told."""
    if environment.get("import_path") != LOCAL_SANDBOX or not agent.program or not agent.installer:
        return None
    program, host = agent.program, agent.installer
    mounted = any(f"/{program}" in text for text in (str(environment.get("mounts") or ""), *arguments))
    if mounted or shutil.which(program, path=SYSTEM_PATH) or _resolves(host):
        return None
    return (
        f"{agent.name} cannot be installed in the local sandbox: {host} cannot be reached, and no program {program} is "
        f"in {SYSTEM_PATH.replace(':', ', ')} or mounted (docs/sandbox.md: Agents of this machine)"
    )


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True
