"""Who may be reached from a sandbox. Pure; the relay asks it for each name, and again for each address."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_network
from typing import Any

from terminalbench.sandbox.network.addresses import Address, AddressPlace, literal


class ConnectionRefusal(StrEnum):
    """Why a connection was refused."""

    NO_NETWORK = "no_network"
    NOT_LISTED = "not_listed"
    MACHINE = "this_machine"
    PRIVATE = "private_network"
    TLS_NAME = "tls_name"
    TOO_MANY = "too_many"
    SHAPE = "not_understood"


SAID = {
    ConnectionRefusal.NO_NETWORK: "there is no network in this phase",
    ConnectionRefusal.NOT_LISTED: "the host is not on the list of this phase",
    ConnectionRefusal.MACHINE: "it is an address of the machine that runs the trial",
    ConnectionRefusal.PRIVATE: "it is an address of a private network",
    ConnectionRefusal.TLS_NAME: "the TLS name differs from the requested host",
    ConnectionRefusal.TOO_MANY: "there are too many connections or names",
    ConnectionRefusal.SHAPE: "the request is not understood",
}


def canonical(host: str) -> str:
    """A host as it is compared: lower case, no dot at the end; an address in its usual spelling."""
    text = host.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")
    address = literal(text)
    return str(address) if address is not None else text


@dataclass(frozen=True)
class EgressPolicy:
    """What is allowed in a phase.

    A host has to be on each of `lists`: names, `*.name`, addresses, networks. Without a list any public host will do.
    `endpoints` (host and port) are what the profile itself declares, and may be on this machine.
    """

    closed: bool = False
    lists: tuple[tuple[str, ...], ...] = ()
    endpoints: frozenset[tuple[str, int]] = frozenset()

    def narrowed(self, other: "EgressPolicy") -> "EgressPolicy":
        """Return what both allow; the endpoints stay those of this one."""
        return replace(self, closed=self.closed or other.closed, lists=(*self.lists, *other.lists))

    def refuses(self, host: str, port: int | None) -> ConnectionRefusal | None:
        """Return why a host must not be looked up or reached, by its canonical name; without a port, any port will
        do."""
        if self.closed:
            return ConnectionRefusal.NO_NETWORK
        if self.is_endpoint(host, port) or all(_listed(host, hosts) for hosts in self.lists):
            return None
        return ConnectionRefusal.NOT_LISTED

    def refuses_place(self, host: str, port: int, place: AddressPlace) -> ConnectionRefusal | None:
        """Return why an address of `host` must not be connected to, although the name may."""
        if place is AddressPlace.PUBLIC or self.is_endpoint(host, port):
            return None
        if (
            place is AddressPlace.PRIVATE
            and self.lists
            and all(_listed(host, hosts, exactly=True) for hosts in self.lists)
        ):
            return None
        return ConnectionRefusal(place.value)

    def is_endpoint(self, host: str, port: int | None) -> bool:
        """Return whether the profile itself declares it."""
        return any(host == name and port in (None, its_port) for name, its_port in self.endpoints)

    def plain(self) -> dict[str, Any]:
        """Return the policy as the relay is told."""
        return {"closed": self.closed, "lists": self.lists, "endpoints": sorted(self.endpoints)}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "EgressPolicy":
        """The policy of a message."""
        endpoints = frozenset((host, port) for host, port in plain["endpoints"])
        return cls(plain["closed"], tuple(tuple(hosts) for hosts in plain["lists"]), endpoints)


OPEN = EgressPolicy()
CLOSED = EgressPolicy(closed=True)


def _listed(host: str, hosts: tuple[str, ...], *, exactly: bool = False) -> bool:
    """Return whether a host is on a list; `exactly`: not only because of a wildcard, whose names others make."""
    address = literal(host)
    return any(_matches(host, address, entry, exactly=exactly) for entry in hosts)


def _matches(host: str, address: Address | None, entry: str, *, exactly: bool) -> bool:
    if address is not None:
        if "/" in entry:
            network = ip_network(entry)
            return network.version == address.version and address in network
        return literal(entry) == address
    if "*" in entry:
        return not exactly and re.fullmatch(_pattern(entry), host) is not None
    return host == entry


def _pattern(entry: str) -> str:
    """`*.name`: whatever is below it; elsewhere, `*` is a part of one label."""
    below, rest = ("[^/]+[.]", entry[2:]) if entry.startswith("*.") else ("", entry)
    return below + "[^.]*".join(map(re.escape, rest.split("*")))
