"""The network of one trial's sandbox through its phases: what the task and the experiment allow, whichever is narrower.

    "kwargs": {"network": {"setup": "public", "agent": "model-only", "verifier": ["pypi.org", "*.example.org"],
                           "model": ["${ANTHROPIC_BASE_URL}"], "declared": ["http://127.0.0.1:8080/mcp"]}}

`model` are the endpoints of the profile's model, `declared` other addresses that the profile names: both may be on this
machine. `"network": "host"` gives the host's own network, and is never chosen unasked.
"""

import json
import os
import re
import shutil
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from harbor.models.task.config import NetworkMode, NetworkPolicy

from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.network.client import MOST_FORWARDS, EgressWay
from terminalbench.sandbox.network.egress import FILE
from terminalbench.sandbox.network.policy import CLOSED, OPEN, AddressPlace, EgressPolicy, canonical, literal, place_of

PHASES = ("setup", "agent", "verifier")
HOST_NETWORK = "host"
PASTA = "pasta"
_MODEL_ONLY = "model-only"
_WORDS = {"public": OPEN, "none": CLOSED, _MODEL_ONLY: EgressPolicy(lists=((),))}
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PORTS = {"http": 80, "https": 443}
_UPSTREAMS = {
    **dict.fromkeys(("repo", "repository", "repo_url", "upstream", "source", "source_url", "git_url"), "github.com"),
    **dict.fromkeys(("dataset", "dataset_url", "hf_dataset"), "huggingface.co"),
}
_ADDRESS = re.compile(r"(?:[a-z+]+://(?:[^/@]*@)?|[^/@:]+@)(?P<host>[A-Za-z0-9.-]+)")
_SHORT = re.compile(r"[\w.-]+/[\w.-]+")
_NEEDS_UDP = "needs_udp"
_TUN = "/dev/net/tun"
_OTHERS = 'run it with container_env = "docker", or with network = "host" if it may share this machine\'s network'
_NO_PASTA = f"install the package passt (it has pasta) where /dev/net/tun is open to its user, or {_OTHERS}"
_NO_LIST = f'set "public" or "none" for each phase, or {_OTHERS}'
_told: list[str] = []
_live: "WeakSet[TrialNetwork]" = WeakSet()


@dataclass(frozen=True)
class NetworkSettings:
    """What a job says of the network of its sandboxes."""

    host: bool = False
    phases: Mapping[str, EgressPolicy] = field(default_factory=dict)
    model: frozenset[tuple[str, int]] = frozenset()
    declared: frozenset[tuple[str, int]] = frozenset()
    model_hosts: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, Any] | str | None) -> "NetworkSettings":
        """The settings of an environment's option `network`; what cannot be understood is refused."""
        if given == HOST_NETWORK:
            return cls(host=True)
        if given is not None and not isinstance(given, Mapping):
            raise Refused(f'network = "{given}"', hint='use "host", or a table with setup, agent and verifier')
        table = dict(given or {})
        named = [str(text) for text in table.pop("model", ())]
        hosts = tuple(host for host in named if "*" in host)
        model = _endpoints(set(named).difference(hosts))
        declared = _endpoints(table.pop("declared", ()), only_urls=True)
        phases = {}
        for phase, value in table.items():
            if phase not in PHASES:
                raise Refused(f'network has no phase "{phase}"', hint=f"use {', '.join(PHASES)}")
            phases[phase] = _policy(value, phase)
        return cls(False, phases, model, declared, hosts)

    def policy(self, phase: str, asked: NetworkPolicy) -> EgressPolicy:
        """Return what is allowed in a phase, if the task asks for this."""
        own, task = self.phases.get(phase, OPEN), task_policy(asked)
        if phase == "verifier" and any(own.lists):
            return own.narrowed(task)
        both = (*own.lists, *task.lists)
        # The model is reached whatever else may be; other addresses of the profile only where everything public is.
        endpoints = self.model if own.lists else self.model | self.declared
        return EgressPolicy(own.closed or task.closed, tuple((*hosts, *self.model_hosts) for hosts in both), endpoints)


def task_policy(asked: NetworkPolicy) -> EgressPolicy:
    """Return what a task asks for, in our words."""
    if asked.network_mode == NetworkMode.NO_NETWORK:
        return CLOSED
    if asked.network_mode == NetworkMode.ALLOWLIST:
        return EgressPolicy(lists=(tuple(asked.allowed_hosts),))
    return OPEN


def _policy(value: Any, phase: str) -> EgressPolicy:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, list | tuple) and all(isinstance(host, str) for host in value):
        return EgressPolicy(lists=(tuple(host.lower() for host in value),))
    raise Refused(f"network.{phase} = {value!r}", hint=f"use {', '.join(_WORDS)}, or a list of hosts")


def _endpoints(given: Iterable[str], *, only_urls: bool = False) -> frozenset[tuple[str, int]]:
    """Host and port of each address; a variable that is not set, or holds something else, stands for none."""
    found = set()
    for text in given:
        url = _REFERENCE.sub(lambda match: os.environ.get(match[1], match[2] or ""), text).strip()
        if only_urls and "://" not in url:
            continue
        parts = urlsplit(url if "//" in url else f"https://{url}")
        try:
            port = parts.port or _PORTS.get(parts.scheme, 443)
        except ValueError:
            continue
        if parts.hostname and canonical(parts.hostname) not in ("0.0.0.0", "::"):  # noqa: S104  where a server listens
            found.add((canonical(parts.hostname), port))
    return frozenset(found)


def upstreams(metadata: Mapping[str, Any]) -> list[str]:
    """The hosts of the repositories and datasets that a task's `[metadata]` says it was made from.

    By an address, or, as is usual, by `owner/name` alone.
    """
    found = set()
    for key, usual in _UPSTREAMS.items():
        given = metadata.get(key, ())
        for text in [given] if isinstance(given, str) else given if isinstance(given, list) else ():
            named = _ADDRESS.match(text) if isinstance(text, str) else None
            if named is not None:
                found.add(named["host"].lower())
            elif isinstance(text, str) and _SHORT.fullmatch(text):
                found.add(usual)
    return sorted(found)


def _is_private(host: str) -> bool:
    """Return whether it is an address of a private network, or of this machine without being its loopback."""
    address = literal(host)
    return address is not None and not address.is_loopback and place_of(address) is not AddressPlace.PUBLIC


class TrialNetwork:
    """The network of one sandbox, whose task asks for these policies, one after the other.

    `enter_by` tells the sandbox of another policy and phase, once it runs. `before_phase` is awaited before a phase
    begins: what belongs to the one before is done by then.
    """

    def __init__(self, given: Mapping[str, Any] | str | None, trial_dir: Path, asked: Sequence[NetworkPolicy]) -> None:
        self.settings = NetworkSettings.read(given)
        self.enter_by: Callable[[EgressPolicy, str], Awaitable[None]] | None = None
        self.before_phase: Callable[[], Awaitable[None]] | None = None
        self._pasta: str | None = None
        self._upstreams: list[str] | None = None
        self._trial_dir, self._phase, self._asked, self._all = trial_dir, PHASES[0], asked[0], tuple(asked)
        self._place = trial_dir.resolve()
        _live.add(self)

    @property
    def host(self) -> bool:
        """Return whether commands use the host's own network, where the task allows any."""
        return self.settings.host and self._asked.network_mode == NetworkMode.PUBLIC

    def way(self) -> EgressWay | None:
        """The way out of the sandbox; None when it never has one."""
        if self.settings.host:
            self._note({"network": HOST_NETWORK})  # what is reached cannot be seen
            return None
        first, agent = (self.settings.phases.get(phase, OPEN) for phase in PHASES[:2])
        if first != agent and not _told:
            hint = "run it with tbench run, or with Harbor's --plugin terminalbench.harbor.plugin:EventPlugin"
            raise Refused("different networks for the agent and its set-up, in a job that reports no phases", hint=hint)
        if all(policy.closed for policy in self._policies()):
            return None
        self._note(*([{"network": PASTA}] if self._pasta is not None else []))  # the relay sees the forwards only
        return EgressWay(self._policy(), self._phase, self._forwards(), self._trial_dir / FILE, self._pasta)

    def another_way(self) -> EgressWay | None:
        """The way out of another sandbox of the trial, in which nothing of this machine is shown."""
        if self.settings.host or all(policy.closed for policy in self._policies()):
            return None
        return EgressWay(self._policy(), self._phase, log=self._trial_dir / FILE)

    def _note(self, *notes: dict[str, Any]) -> None:
        """Say in the log what it is to be read with. A trial with two environments has one log."""
        of_task = [{"upstreams": self._upstreams}] if self._upstreams is not None else []
        with self._trial_dir.joinpath(FILE).open("a", encoding="utf-8") as log:
            log.writelines(json.dumps(note, separators=(",", ":")) + "\n" for note in (*of_task, *notes))

    def _policies(self) -> list[EgressPolicy]:
        """Every policy that the sandbox may come to have."""
        return [self.settings.policy(phase, one) for one in self._all for phase in PHASES]

    def _policy(self) -> EgressPolicy:
        return self.settings.policy(self._phase, self._asked)

    def _forwards(self) -> tuple[tuple[str, str, int], ...]:
        """Return what of this machine's loopback is shown at the same place inside: only what the profile itself
        declares."""
        found = {}
        for host, port in sorted(self.settings.model | self.settings.declared):
            address = literal(host)
            if host == "localhost" or (address is not None and address.is_loopback):
                inside = "127.0.0.1" if host == "localhost" else str(address)
                found[inside, port] = (inside, host, port)
        if len(found) > MOST_FORWARDS:
            raise Refused(
                f"{len(found)} addresses of this machine in one profile", hint=f"name at most {MOST_FORWARDS}"
            )
        return tuple(found.values())

    async def ask(self, asked: NetworkPolicy) -> None:
        """The task asks for another policy from now on."""
        if self.before_phase is not None:
            await self.before_phase()
        self._asked = asked
        await self._tell()

    async def enter(self, phase: str) -> None:
        """Another phase of the trial has begun."""
        if self.before_phase is not None:
            await self.before_phase()
        self._phase = phase
        await self._tell()

    def check(self, folder: Path, *, services: bool = False) -> None:
        """Refuse what cannot be kept of what the task in `folder` asks for, before anything starts.

        `services`: it has some, which are reached by a network of their own. A task that needs what the relay does not
        pass on says so, `[metadata] needs_udp = true`, and gets it by pasta.
        """
        self._forwards()
        if self.settings.host and any(policy.network_mode == NetworkMode.ALLOWLIST for policy in self._all):
            raise Refused('a network allowlist together with network = "host"', hint='remove network = "host"')
        try:
            metadata = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8")).get("metadata", {})
        except (OSError, ValueError):  # Harbor has read it, or says what is wrong with it
            return
        if services and (self.settings.host or metadata.get(_NEEDS_UDP) is True):
            what = 'network = "host"' if self.settings.host else f"{_NEEDS_UDP} = true"
            raise Refused(f"a task with services together with {what}", where=str(folder))
        self._upstreams = upstreams(metadata)
        if metadata.get(_NEEDS_UDP) is True and not self.settings.host:
            self._take_pasta(str(folder))

    def _take_pasta(self, where: str) -> None:
        """Have pasta serve the sandbox, which passes everything on; refuse what is asked for and it cannot keep."""
        policies = [policy for policy in self._policies() if not policy.closed]
        if not policies:
            return
        what = "a task that needs UDP"
        if any(policy.lists for policy in policies):
            raise Refused(
                f"{what}, together with a list of hosts, which pasta cannot enforce", where=where, hint=_NO_LIST
            )
        for host, port in sorted(self.settings.model | self.settings.declared):
            if _is_private(host):
                raise Refused(f"{what}, with {host}:{port} of a private network for its profile", where=where)
        program = shutil.which("pasta")
        if program is None:
            raise Refused(f"{what}, without pasta, which is not on the PATH", where=where, hint=_NO_PASTA)
        if not os.access(_TUN, os.R_OK | os.W_OK):
            raise Refused(f"{what}: {_TUN}, which pasta needs, is not open to this user", where=where, hint=_NO_PASTA)
        self._pasta = program

    def belongs_to(self, place: Path) -> bool:
        """Return whether it is the network of the trial in that folder, which is resolved."""
        return self._place == place

    async def _tell(self) -> None:
        if self.enter_by is not None:
            await self.enter_by(self._policy(), self._phase)


def phases_are_told(by: str) -> None:
    """Tell from now on each phase of this process's trials by `enter_phase`."""
    _told.append(by)


async def enter_phase(trial_dir: Path, phase: str) -> None:
    """Tell the sandboxes of a trial, if it runs in some of ours, that a phase begins."""
    place = trial_dir.resolve()
    for network in [one for one in _live if one.belongs_to(place)]:
        await network.enter(phase)
