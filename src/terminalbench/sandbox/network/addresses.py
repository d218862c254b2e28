"""What kind of address a connection would go to."""

import re
import socket
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

Address = IPv4Address | IPv6Address


class AddressPlace(StrEnum):
    """Where an address is, as seen from here."""

    MACHINE = "this_machine"
    """This machine, what only it can reach (link-local, cloud metadata), and what is no address of a host."""
    PRIVATE = "private_network"
    PUBLIC = "public"


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
