"""The network as a profile declares it: where its model is, and which other addresses it names.

Values of variables are not known here: an address may be a reference, `${VAR}` or `${VAR:-address}`.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import NetworkTable, RunTable
from terminalbench.strict import Problems

_BASES = ("api_base", "base_url")


MOST_HOSTS = 200


def phases(table: NetworkTable) -> dict[str, str | list[str]]:
    """Return what the phases may reach, those left out that may reach what they may by default."""
    named = {declared.name: (getattr(table, declared.name), declared.default) for declared in fields(table)}
    return {name: value for name, (value, default) in named.items() if value != default}


def check_network(run: RunTable, problems: Problems) -> None:
    """Note what of `run.network` cannot be kept."""
    network, at = run.network, "run.network"
    if network is None or (isinstance(network, NetworkTable) and not phases(network)):
        return
    if run.container_env != "local":
        what = f'works only with container_env = "local"; with "{run.container_env}", each task sets its own network'
        hint = 'use container_env = "local", or set network_mode and allowed_hosts in the task.toml of the tasks'
        problems.add(at, what, hint)
    if not isinstance(network, NetworkTable):
        return
    for phase, hosts in phases(network).items():
        if isinstance(hosts, str):
            continue
        if not hosts:
            problems.add(f"{at}.{phase}", "is empty", 'write "none"')
        if len(hosts) > MOST_HOSTS:
            problems.add(f"{at}.{phase}", f"has {len(hosts)} hosts", f"at most {MOST_HOSTS}: use *.name or a network")
        for index, host in enumerate(hosts):
            if problem := _host_problem(host):
                problems.add(f"{at}.{phase}[{index}]", *problem)


def _host_problem(host: str) -> tuple[str, str] | None:
    own = (
        f"{host} is this machine, which no sandbox can reach",
        "the profile's own model and MCP servers can always be reached",
    )
    if host.lower() == "localhost":
        return own
    if not (":" in host or host.replace(".", "").replace("/", "").isdigit()):
        return None
    from ipaddress import ip_network

    try:
        network = ip_network(host)
    except ValueError:
        return f"{host} is neither an address nor a network", 'write "192.0.2.7", "192.0.2.0/24" or "2001:db8::/32"'
    return own if network.is_loopback else None


@cache
def _providers() -> dict[str, dict[str, list[str]]]:
    return json.loads((Path(__file__).parent / "providers.json").read_bytes())


def base_url_variables() -> list[str]:
    """Every variable that says where models of some provider are."""
    return [name for provider in _providers().values() for name in provider["variables"]]


def base_urls_of(provider: str) -> list[str]:
    """The variables that say where the models of one provider are."""
    usual = [f"{provider.upper()}_API_BASE", f"{provider.upper()}_BASE_URL"]
    return list(dict.fromkeys([*_providers().get(provider, {}).get("variables", []), *usual]))


def provider_hosts(provider: str) -> list[str]:
    """The hosts of a provider."""
    return _providers().get(provider, {}).get("hosts", [])


def model_endpoints(profile: Profile) -> list[str]:
    """Return where the model of a profile is reached: by its options, by variables, else at its provider's hosts.

    The MCP servers that it reaches by address belong to it too. Empty for an agent without a model, and for one whose
    model is asked from the host: what runs in its sandbox has no use for it.
    """
    servers = [entry["url"] for entry in profile.mcp.servers.values() if isinstance(entry.get("url"), str)]
    if not profile.agent.model or profile.agent.simulated or _from_host(profile):
        return servers
    bases = [base for name in _BASES if isinstance(base := profile.options.get(name), str)]
    if bases:
        return [*bases, *servers]
    provider, _, rest = (profile.model or "").partition("/")
    known = _providers().get(provider if rest else profile.agent.provider or "", {})
    variables = [*filter(None, [profile.agent.base_url_env]), *known.get("variables", [])]
    hosts = known.get("hosts", [])
    found = [f"${{{name}}}" for name in dict.fromkeys(variables)]
    if len(hosts) == 1 and found and "*" not in hosts[0]:  # with the variable set, the provider itself is not asked
        found[0] = f"{found[0][:-1]}:-{hosts[0]}}}"
    else:
        found += hosts
    own = [value for name, value in profile.env.items() if name in variables]
    return list(dict.fromkeys([*found, *own, *servers]))


def _from_host(profile: Profile) -> bool:
    return profile.agent.workflow or profile.agent.asks_from_host


def two_endpoints(profile: Profile) -> tuple[str, str] | None:
    """The variable and the option of a profile that place its model differently, if they do."""
    provider, _, rest = (profile.model or "").partition("/")
    variables = [*filter(None, [profile.agent.base_url_env]), *base_urls_of(provider if rest else "")]
    named = {name: value for name, value in profile.env.items() if name in variables and value}
    for option in _BASES:
        base = profile.options.get(option)
        for name, value in named.items():
            if isinstance(base, str) and base and base.rstrip("/") != value.rstrip("/"):
                return name, option
    return None


def declared_addresses(profile: Profile) -> list[str]:
    """Other addresses that a profile names: in its variables, its options, and the source of its MCP servers."""
    if _from_host(profile):
        return []
    own = profile.command.table.env.values() if profile.command is not None else ()
    texts = [*profile.env.values(), *own, *_texts(profile.options), *filter(None, [profile.mcp_git_source])]
    return list(dict.fromkeys(text for text in texts if "://" in text or text.startswith("${")))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
