"""The needs of an agent before its first trial, as far as they are known: a key for its model, and its program.

In the local sandbox an agent's program is either found there by its set-up (the host's, the image's, a mounted one), or
fetched. Most of Harbor's agents look for none, and fetch it in any case: without the host that they fetch it from every
trial would break in its set-up. Of keys only names are ever reported.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench.experiments.agents import AgentInfo, SetupNeed
from terminalbench.registry import BUILTIN
from terminalbench.sandbox.engine import DEFAULT_PATH as SYSTEM_PATH
from terminalbench.sandbox.network.client import reached
from terminalbench.sandbox.network.policy import OPEN, literal, place_of

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
    """Return what an agent class lacks; None: it has a key or one of `logins`, needs none, or that is not known."""
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


def not_installable(
    agent: AgentInfo,
    environment: Mapping[str, Any],
    arguments: Sequence[str],
    tasks: Sequence[Mapping[str, Any]] = (),
    given: Collection[str] = (),
) -> str | None:
    """Return why the agent cannot be set up in this environment, or None when it can or cannot be told.

    `tasks` are those of its job: what its set-up looks for may be in their images. `given` are the names of the
    variables and options (`option:name`) that its profile sets.
    """
    if environment.get("import_path") != LOCAL_SANDBOX:
        return None
    needs = agent.needs or ([_declared(agent)] if agent.installer else [])
    there = _JobSurroundings(environment, arguments, tasks, given)
    lacking = [need for need in needs if not any(there.is_given(thing) for thing in need["unless"])]
    if not lacking:
        return None
    barred = _barred({host for need in lacking for host in need["hosts"]}, environment)
    for need in lacking:
        why = [barred[host] for host in need["hosts"] if host in barred]
        if len(why) == len(need["hosts"]) and not any(there.may_hold(thing) for thing in need["unless"]):
            said = " and ".join(dict.fromkeys(why))
            return f"{agent.name} cannot be installed in the local sandbox: {said}{_advice(agent, need)}"
    return None


def _declared(agent: AgentInfo) -> SetupNeed:
    return {"hosts": [agent.installer or ""], "unless": [agent.program] if agent.program else []}


def _barred(hosts: set[str], environment: Mapping[str, Any]) -> dict[str, str]:
    """The hosts that the set-up does not reach, each with a clause on why."""
    from terminalbench.sandbox.network.trial import PHASES, NetworkSettings

    settings = NetworkSettings.read((environment.get("kwargs") or {}).get("network"))
    policy = settings.phases.get(PHASES[0], OPEN)
    refused = {host for host in hosts if policy.refuses(host, 443)}
    found = {host: f"{host} is not allowed by run.network.setup" for host in refused}
    answered = reached(hosts - refused)
    for host in hosts - refused:
        address = literal(answered.get(host, ""))
        if host not in answered:
            found[host] = f"{host} cannot be reached"
        elif address is not None and not settings.host and policy.refuses_place(host, 443, place_of(address)):
            found[host] = f"{host} is in a private network, which run.network.setup does not list"
    return found


def _advice(agent: AgentInfo, need: SetupNeed) -> str:
    """Return what to do about a host that the set-up of an agent does not reach."""
    wanted = [
        thing.replace(">=", " of at least ") for thing in need["unless"] if thing[0].isalpha() and ":" not in thing
    ]
    wanted = [thing for thing in wanted if thing != "apk"] + [thing for thing in need["unless"] if thing[0] == "/"]
    ways = []
    if wanted:
        missing = f", and the sandbox has no {wanted[0]}"
        ways.append("mount it: docs/sandbox.md, Agents of this machine")
    else:
        missing = ", and Harbor installs it even if its program exists" if agent.program else ""
    if agent.package:
        ways.append(f'run its program by agent = "command", installed by `{agent.package}`: docs/agents.md')
    return f"{missing} ({'; or '.join(ways) or 'docs/agents.md'})"


@dataclass(frozen=True)
class _JobSurroundings:
    """The content of the sandboxes of a job, as far as it is known before they start."""

    environment: Mapping[str, Any]
    arguments: Sequence[str]
    tasks: Sequence[Mapping[str, Any]]
    given: Collection[str]

    def is_given(self, thing: str) -> bool:
        """Return whether the profile sets or mounts it: nothing else has to be looked at then."""
        if thing.startswith(("$", "option:")):
            return thing.removeprefix("$") in self.given
        name = thing.partition(">=")[0]
        if not name.startswith("/"):
            return any(f"/{name}" in text for text in (str(self.environment.get("mounts") or ""), *self.arguments))
        return any(name == target or name.startswith(f"{target.rstrip('/')}/") for target in self._targets())

    def _targets(self) -> Iterator[str]:
        for entries in (self.environment.get("mounts"), *map(_parsed, self.arguments)):
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict):
                    yield str(entry.get("target"))
                elif isinstance(entry, str) and ":" in entry:
                    yield entry.split(":")[1]

    def may_hold(self, thing: str) -> bool:
        """Return whether a task's image has it, or might; without tasks, whether this machine has it."""
        if thing.startswith(("$", "option:")):
            return False
        if not self.tasks:
            return _on_host(thing)
        return any("path" not in task or self._image_may_hold(Path(task["path"]), thing) for task in self.tasks)

    def _image_may_hold(self, task: Path, thing: str) -> bool:
        """Return whether the image of a task has it, or might: by a line of its Dockerfile, or as a service's."""
        from terminalbench.sandbox.builds.layers import define
        from terminalbench.sandbox.builds.needs import ImageTable, image_to_use, read_task_file
        from terminalbench.sandbox.builds.recipe import BuildSource
        from terminalbench.sandbox.compose.project import COMPOSE
        from terminalbench.sandbox.errors import Refused
        from terminalbench.sandbox.root_filesystem import HOST

        folder, kwargs = task / "environment", self.environment.get("kwargs") or {}
        name = thing.partition(">=")[0]
        if (folder / COMPOSE).exists():
            return True
        told = read_task_file(task)
        table = ImageTable(kwargs.get("images") or {}, kwargs.get("pins") or {}, host=told.says_host_base)
        try:
            image = image_to_use(folder, told.docker_image, rebuilt=bool(self.environment.get("force_build")))
            if image is None and name.rpartition("/")[2] in (folder / "Dockerfile").read_text(encoding="utf-8"):
                return True
            base = define(BuildSource(folder, image), table).base
            return _on_host(thing) if base == HOST else _base_holds(base, name)
        except (Refused, OSError, ValueError):
            return True


def _parsed(argument: str) -> Any:
    try:
        return json.loads(argument)
    except ValueError:
        return None


def _on_host(thing: str) -> bool:
    """Return whether the host's own system has it, as sandboxes on it do."""
    name, _, least = thing.partition(">=")
    found = shutil.which(name, path=SYSTEM_PATH) if not name.startswith("/") else None
    if found is None or not least:
        return found is not None
    try:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    major = re.search(r"\d+", told)
    return major is not None and int(major[0]) >= int(least)


def _base_holds(base: str, name: str) -> bool:
    from terminalbench.sandbox.images.store import ImageStore
    from terminalbench.sandbox.root_filesystem import IMAGE, SCRATCH

    if base == SCRATCH:
        return False
    if not base.startswith(IMAGE):
        roots = [Path(base)]
    else:
        store = ImageStore()
        image = store.image(base.removeprefix(IMAGE))
        if image is None:
            return True
        roots = store.folders(image)
    places = [name] if name.startswith("/") else [f"{folder}/{name}" for folder in SYSTEM_PATH.split(":")]
    return any(os.path.lexists(f"{root}{place}") for root in roots for place in places)
