"""Who may be reached from a sandbox, by name and by the kind of address. The relay asks for each name, then again."""

import re
import socket
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

Address = IPv4Address | IPv6Address
# Not `is_global`: some gateways use documentation ranges for real.
_MACHINE = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
        *("::/96", "::ffff:0:0:0/96", "fe80::/10", "fec0::/10", "ff00::/8", "2002::/16", "2001::/32", "64:ff9b:1::/48"),
    )
)
_PRIVATE = tuple(
    ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_NAT64 = ip_network("64:ff9b::/96")
_ROUTES = Path("/proc/net/fib_trie")
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n +/32 host LOCAL")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")


class AddressPlace(StrEnum):
    """Where an address is, as seen from here."""

    MACHINE = "this_machine"
    """This machine, what only it can reach (link-local, cloud metadata), and what is no address of a host."""
    PRIVATE = "private_network"
    PUBLIC = "public"


def literal(host: str) -> Address | None:
    """The address that `host` spells, however: decimal, hexadecimal, octal, shortened, mapped; None for a name."""
    text = host.partition("%")[0]
    try:
        return unwrapped(ip_address(text))
    except ValueError:
        pass
    if _NUMERIC.fullmatch(text.lower()):
        try:
            return IPv4Address(socket.inet_aton(text))
        except OSError:
            return None
    return None


def unwrapped(address: Address) -> Address:
    """The address; of an IPv6 one that stands for an IPv4 one (mapped, NAT64), that one."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def place_of(address: Address) -> AddressPlace:
    """Return where an address is."""
    address = unwrapped(address)
    if any(address in network for network in _MACHINE if network.version == address.version) or _is_own(address):
        return AddressPlace.MACHINE
    if any(address in network for network in _PRIVATE if network.version == address.version):
        return AddressPlace.PRIVATE
    return AddressPlace.PUBLIC


def not_public() -> list[tuple[str, str]]:
    """First and last of the IPv4 addresses that are no public ones, and of this machine's own."""
    networks = [network for network in (*_MACHINE, *_PRIVATE) if network.version == 4]
    own = [(address, address) for address in dict.fromkeys(_LOCAL.findall(_ROUTES.read_text(encoding="ascii")))]
    return [(str(network[0]), str(network[-1])) for network in networks] + own


def _is_own(address: Address) -> bool:
    """Return whether it is an address of this machine: then the kernel would speak to it from that very address."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False


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
