"""The traffic that left a trial's sandbox, from the log that the relay has written beside the result."""

from collections.abc import Iterator, Set
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import is_plain, read_plain
from terminalbench.records.trial import Contact, Egress

FILE = "egress.jsonl"
_SIZE_LIMIT = 16 << 20
_MOST_HOSTS = 100


class _EgressLine(msgspec.Struct):
    phase: str = ""
    host: str = ""
    up: int = 0
    down: int = 0
    refused: str | None = None
    failed: str | None = None
    tls: str | None = None
    endpoint: bool = False
    times: int = 0
    left_out: int = 0
    network: str | None = None
    upstreams: list[str] | None = None


def _lines(trial_dir: Path) -> Iterator[_EgressLine]:
    for text in (read_plain(f"{trial_dir}/{FILE}", _SIZE_LIMIT) or b"").splitlines():
        try:
            yield decode(text, _EgressLine)
        except NOT_DECODED:  # its last line, of a relay that was killed
            continue


def never_reached(trial_dir: Path) -> bool:
    """Return whether the agent tried to reach what its profile declares, its model above all, and never did."""
    tries = [line.failed is not None for line in _lines(trial_dir) if line.endpoint and line.phase == "agent"]
    return bool(tries) and all(tries)


def read_egress(trial_dir: Path) -> Egress | None:
    """The hosts of a trial's log; None without one: then it is unknown, or there was no network at all."""
    if not is_plain(f"{trial_dir}/{FILE}"):
        return None
    found: dict[str, Contact] = {}
    networks, left_out, upstreams = set(), 0, None
    for line in _lines(trial_dir):
        networks, left_out = networks | {line.network}, left_out + line.left_out
        upstreams = line.upstreams if upstreams is None else upstreams
        host = _host(line)
        if host:
            found[host] = _added(found.get(host) or Contact(host), line)
    contacts = sorted(found.values(), key=lambda one: (-one.connections, -one.refused, one.host))
    return Egress(
        connections=sum(one.connections for one in contacts),
        refused=sum(one.refused for one in contacts),
        up=sum(one.up for one in contacts),
        down=sum(one.down for one in contacts),
        hosts=contacts[:_MOST_HOSTS],
        left_out=left_out + max(0, len(contacts) - _MOST_HOSTS),
        host_network="host" in networks,
        pasta="pasta" in networks,
        upstreams=upstreams,
    )


def _host(line: _EgressLine) -> str:
    """The host; of a connection to a bare address the name that its TLS client asked for."""
    try:
        ip_address(line.host)
    except ValueError:
        return line.host
    return line.tls or line.host


def _added(known: Contact, line: _EgressLine) -> Contact:
    if line.refused is not None:
        why = known.why if line.refused in known.why else [*known.why, line.refused]
        return msgspec.structs.replace(known, refused=known.refused + max(1, line.times), why=why)
    return msgspec.structs.replace(
        known,
        connections=known.connections + 1,
        by_agent=known.by_agent + (line.phase == "agent"),
        up=known.up + line.up,
        down=known.down + line.down,
    )


class _SolutionHosts(msgspec.Struct, frozen=True):
    """Hosts that serve solutions of any task, by kind, and those that serve one upstream, by its host."""

    always: dict[str, list[str]]
    upstreams: dict[str, list[str]]


@cache
def _solution_hosts() -> _SolutionHosts:
    return decode((Path(__file__).parent / "solution_hosts.json").read_bytes(), _SolutionHosts)


def solution_hosts(egress: Egress | None, of_task: frozenset[str]) -> list[str]:
    """Hosts that the agent got something from and that may serve the task's solution.

    `of_task` are those that the task itself comes from. Where nothing says what its upstream is, each that serves
    upstreams may be it.
    """
    if egress is None:
        return []
    table = _solution_hosts()
    upstreams = table.upstreams.keys() if egress.upstreams is None else set(egress.upstreams)
    known = {host for hosts in table.always.values() for host in hosts}
    for upstream in upstreams | of_task:
        served = next((served for host, served in table.upstreams.items() if _is_among(upstream, {host})), ())
        known |= {upstream, *served}
    return sorted(one.host for one in egress.hosts if one.by_agent and one.down and _is_among(one.host, known))


def _is_among(host: str, known: Set[str]) -> bool:
    parts = host.split(".")
    return any(".".join(parts[place:]) in known for place in range(len(parts)))
