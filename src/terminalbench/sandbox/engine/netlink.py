"""The few things to ask of the kernel's network by netlink: local routes, links, rules that redirect what goes
out, and the memory in the buffers of sockets, which is no process's own.

Written by hand, as the rest of what runs in a sandbox: neither `ip` nor `nft` need be installed.
"""

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_ACK, _REQUEST, _CREATE, _EXCLUSIVE, _APPEND = 4, 1, 0x400, 0x200, 0x800
_NEW_LINK, _OLD_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_LINK_ADDRESS, _LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_PROCESS = 1, 3, 10, 18, 19
_UP = 1
_TABLE_LOCAL, _BY_STATIC = 255, 4
_SCOPE_HOST, _SCOPE_LINK = 254, 253
_TYPE_UNICAST, _TYPE_LOCAL = 1, 2
_BYTE = 8
_NETFILTER, _NFTABLES = 12, 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 3, 6
_HOOK_OUTPUT, _FIRST, _ADDRESSES, _LAST = 3, -300, -100, 0
_EQUAL, _UNEQUAL, _NOT_ABOVE, _NOT_BELOW = 0, 1, 3, 5
_OUT_INTERFACE, _PROTOCOL = 5, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_TABLE = "relay"
_LO = 1  # the first interface of every network namespace
_LINK_BLANK = bytes(16)

_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_ANSWER_BYTES = 1 << 18
_ALL = 0xFFFFFFFF


class _Family(NamedTuple):
    """Of IPv4 or IPv6: where a packet says where it goes, what of that says loopback, and which address that is."""

    number: int
    destination: int
    loopback: bytes
    own: bytes


_FOUR = _Family(socket.AF_INET, 16, b"\x7f", b"\x7f\0\0\x01")
_SIX = _Family(socket.AF_INET6, 24, bytes(15) + b"\x01", bytes(15) + b"\x01")


def redirect(port: int, beside: bytes = b"") -> None:
    """Let TCP to any IPv4 address but loopback, and questions for names, arrive at 127.0.0.1:`port`; refuse all else.

    An accepted socket tells by SO_ORIGINAL_DST where its client wanted to go. What goes to an address that begins with
    `beside` is left alone.
    """
    _redirect(_FOUR, port, beside, (socket.IPPROTO_TCP, b""), (socket.IPPROTO_UDP, _NAME_PORT))


def redirect_six(port: int) -> None:
    """The same for IPv6, at `port` of ::1; there are no questions for names to answer."""
    _redirect(_SIX, port, b"", (socket.IPPROTO_TCP, b""))


def _redirect(family: _Family, port: int, beside: bytes, *what: tuple[int, bytes]) -> None:
    to_port = _expression("immediate", _number(1, 1) + _nest(2, _attribute(1, struct.pack("!H", port))))
    to_port += _expression("redir", _number(1, 1))
    destination = _payload(_NETWORK_HEADER, family.destination, len(family.loopback))
    outside = destination + _compare(_UNEQUAL, family.loopback)
    if beside:
        outside += _payload(_NETWORK_HEADER, family.destination, len(beside)) + _compare(_UNEQUAL, beside)
    # Connections between programs inside are not followed: the kernel's table of them has an end.
    inside = destination + _compare(_EQUAL, family.loopback)
    inside += _payload(_TRANSPORT_HEADER, 0, 2) + _compare(_UNEQUAL, struct.pack("!H", port))
    ways = [_protocol(number) + outside + more + to_port for number, more in what]
    _change(
        (_NEW_TABLE, _CREATE, _text(1, _TABLE)),
        (_NEW_CHAIN, _CREATE, _chain("first", "filter", _FIRST)),
        (_NEW_CHAIN, _CREATE, _chain("way", "nat", _ADDRESSES)),
        (_NEW_CHAIN, _CREATE, _chain("end", "filter", _LAST)),
        (_NEW_RULE, _CREATE | _APPEND, _rule("first", inside + _expression("notrack", b""))),
        *((_NEW_RULE, _CREATE | _APPEND, _rule("way", way)) for way in ways),
        (_NEW_RULE, _CREATE | _APPEND, _rule("end", outside + _REFUSE)),
        family=family.number,
    )
    _everything_is_local(family)


def _everything_is_local(family: _Family) -> None:
    """Let this network namespace take every address for its own, and speak from loopback."""
    header = struct.pack("BBBBBBBBI", family.number, 0, 0, 0, _TABLE_LOCAL, _BY_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0)
    body = header + _attribute(4, struct.pack("I", _LO)) + _attribute(7, family.own)
    message = _message(_NEW_ROUTE, _ACK | _CREATE | _EXCLUSIVE, body, 1)
    _ask(socket.NETLINK_ROUTE, message, 1)


def add_bridge(name: str) -> None:
    """Add a bridge to this network namespace."""
    _ask_link(_CREATE | _EXCLUSIVE, _text(_LINK_NAME, name) + _nest(_LINK_INFO, _text(1, "bridge")))


def add_cable(name: str, bridge: str, end: str, pid: int, hardware: bytes) -> None:
    """Add a pair of interfaces: `name` here, at `bridge`, and `end` with this address in the network of a process."""
    away = _LINK_BLANK + _text(_LINK_NAME, end) + _attribute(_LINK_PROCESS, struct.pack("I", pid))
    pair = _nest(2, _nest(1, away + _attribute(_LINK_ADDRESS, hardware)))
    master = _attribute(_LINK_MASTER, struct.pack("I", socket.if_nametoindex(bridge)))
    _ask_link(_CREATE | _EXCLUSIVE, _text(_LINK_NAME, name) + master + _nest(_LINK_INFO, _text(1, "veth") + pair))
    raise_link(name)


def remove_link(name: str) -> None:
    """Remove an interface, and with it the other end of its cable."""
    _ask_link(0, _text(_LINK_NAME, name), _OLD_LINK)


def raise_link(name: str) -> None:
    """Have an interface carry packets."""
    index = socket.if_nametoindex(name)
    _ask(socket.NETLINK_ROUTE, _message(_NEW_LINK, _ACK, struct.pack("BxHiII", 0, 0, index, _UP, _UP), 1), 1)


def take_address(name: str, address: str, common: bytes) -> None:
    """Give an interface its address; all that begin with `common` are reached by it, before any other route."""
    own, index, bits = socket.inet_aton(address), socket.if_nametoindex(name), len(common) * _BYTE
    body = struct.pack("BBBBI", socket.AF_INET, bits, 0, 0, index) + _attribute(1, own) + _attribute(2, own)
    _ask(socket.NETLINK_ROUTE, _message(_NEW_ADDRESS, _ACK | _CREATE | _EXCLUSIVE, body, 1), 1)
    raise_link(name)
    kinds = (_TABLE_LOCAL, _BY_STATIC, _SCOPE_LINK, _TYPE_UNICAST)
    header = struct.pack("BBBBBBBBI", socket.AF_INET, bits, 0, 0, *kinds, 0)
    body = header + _attribute(1, common.ljust(4, b"\0")) + _attribute(4, struct.pack("I", index)) + _attribute(7, own)
    _ask(socket.NETLINK_ROUTE, _message(_NEW_ROUTE, _ACK | _CREATE | _EXCLUSIVE, body, 1), 1)


def _ask_link(flags: int, body: bytes, kind: int = _NEW_LINK) -> None:
    _ask(socket.NETLINK_ROUTE, _message(kind, _ACK | flags, _LINK_BLANK + body, 1), 1)


def keep_away(places: list[tuple[str, str]], name_server: str) -> None:
    """Refuse what would leave by an interface to `places`, ranges of IPv4 addresses, or by IPv6.

    Questions for names to `name_server` may leave all the same. By the header of each packet, not by routes: a socket
    that is bound to an interface is sent past a route that refuses.
    """
    leaves = _expression("meta", _number(1, 1) + _number(2, _OUT_INTERFACE)) + _compare(_UNEQUAL, struct.pack("I", _LO))
    accept = _expression("immediate", _number(1, 0) + _nest(2, _nest(2, _number(1, 1))))
    asks = _payload(_NETWORK_HEADER, 16, 4) + _compare(_EQUAL, socket.inet_aton(name_server)) + _NAME_PORT
    rules = [_protocol(number) + asks + accept for number in (socket.IPPROTO_TCP, socket.IPPROTO_UDP)]
    for first, last in places:
        within = _payload(_NETWORK_HEADER, 16, 4) + _compare(_NOT_BELOW, socket.inet_aton(first))
        rules.append(leaves + within + _compare(_NOT_ABOVE, socket.inet_aton(last)) + _REFUSE)
    _change(
        (_NEW_TABLE, _CREATE, _text(1, _TABLE)),
        (_NEW_CHAIN, _CREATE, _chain("end", "filter", _LAST)),
        *((_NEW_RULE, _CREATE | _APPEND, _rule("end", rule)) for rule in rules),
    )
    _change(
        (_NEW_TABLE, _CREATE, _text(1, _TABLE)),
        (_NEW_CHAIN, _CREATE, _chain("end", "filter", _LAST)),
        (_NEW_RULE, _CREATE | _APPEND, _rule("end", leaves + _REFUSE)),
        family=socket.AF_INET6,
    )


def _change(*steps: tuple[int, int, bytes], family: int = socket.AF_INET) -> None:
    """Change the rules of a family, all at once or not at all: (what, flags, of what)."""
    batch = _netfilter(_BATCH_BEGIN, 0, b"", 1, family)
    for number, (kind, flags, body) in enumerate(steps, 2):
        batch += _netfilter(_NFTABLES << 8 | kind, _ACK | flags, body, number, family)
    _ask(_NETFILTER, batch + _netfilter(_BATCH_END, 0, b"", len(steps) + 2, family), len(steps))


def _ask(protocol: int, message: bytes, answers: int) -> None:
    """Send a message and read as many acknowledgements; raises OSError with the first refusal."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as channel:
        channel.settimeout(10)
        channel.bind((0, 0))
        channel.send(message)
        while answers:
            data = channel.recv(1 << 16)
            while data:
                length, kind = struct.unpack_from("IH", data)
                if kind == 2:  # an error, or 0 for done
                    (code,) = struct.unpack_from("i", data, 16)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    answers -= 1
                data = data[(length + 3) & ~3 :]


def _message(kind: int, flags: int, body: bytes, number: int) -> bytes:
    return struct.pack("IHHII", 16 + len(body), kind, flags | _REQUEST, number, 0) + body


def _netfilter(kind: int, flags: int, body: bytes, number: int, family: int) -> bytes:
    bracket = kind in (_BATCH_BEGIN, _BATCH_END)
    head = struct.pack("!BBH", 0 if bracket else family, 0, _NFTABLES if bracket else 0)
    return _message(kind, flags, head + body, number)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _nest(kind: int, data: bytes) -> bytes:
    return _attribute(kind | 0x8000, data)


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("!i", value))


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _chain(name: str, kind: str, priority: int) -> bytes:
    hook = _nest(4, _number(1, _HOOK_OUTPUT) + _number(2, priority))
    return _text(1, _TABLE) + _text(3, name) + hook + _text(7, kind)


def _rule(chain: str, expressions: bytes) -> bytes:
    return _text(1, _TABLE) + _text(2, chain) + _nest(4, expressions)


def _expression(name: str, data: bytes) -> bytes:
    return _nest(1, _text(1, name) + _nest(2, data))


def _payload(header: int, offset: int, length: int) -> bytes:
    return _expression("payload", _number(1, 1) + _number(2, header) + _number(3, offset) + _number(4, length))


def _protocol(number: int) -> bytes:
    return _expression("meta", _number(1, 1) + _number(2, _PROTOCOL)) + _compare(_EQUAL, bytes([number]))


def _compare(how: int, data: bytes) -> bytes:
    return _expression("cmp", _number(1, 1) + _number(2, how) + _nest(3, _attribute(1, data)))


_REFUSE = _expression("reject", _number(1, 0) + _attribute(2, b"\0"))
_NAME_PORT = _payload(_TRANSPORT_HEADER, 2, 2) + _compare(_EQUAL, struct.pack("!H", 53))


def _inet(family: int, protocol: int) -> tuple[bytes, int, int]:
    return struct.pack("=BBBxI48x", family, protocol, 1 << 6, _ALL), 72, 7


# Each a question, the size of what an answer begins with, and the attribute that tells of memory.
_QUESTIONS = (
    (struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, _ALL, 0, 0x20, _ALL, _ALL), 16, 5),
    (struct.pack("=BBHIIII", socket.AF_NETLINK, 255, 0, 0, 1, _ALL, _ALL), 28, 0),
    *(_inet(family, protocol) for family in (socket.AF_INET, socket.AF_INET6) for protocol in (6, 17)),
)


def open_channel() -> socket.socket:
    """Return what tells of the sockets in the network of this process, also when it is used from elsewhere."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)


def buffer_bytes(channel: socket.socket) -> int | None:
    """Return what sits in the buffers of all sockets; None where the kernel does not tell of the local ones."""
    total = 0
    for number, (question, start, wanted) in enumerate(_QUESTIONS):
        try:
            total += sum(_memory(channel, question, start, wanted))
        except OSError:
            if number == 0:
                return None
    return total


def _memory(channel: socket.socket, question: bytes, start: int, wanted: int) -> Iterator[int]:
    channel.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _DUMP, 1, 0) + question)
    while True:
        data, at = channel.recv(_ANSWER_BYTES), 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", data, at + _HEADER.size)[0], "sock_diag")
            place, end = at + _HEADER.size + start, at + length
            while place + _ATTRIBUTE.size <= end:
                size, name = _ATTRIBUTE.unpack_from(data, place)
                if name == wanted and size >= 28:
                    received, _, sent, _, ahead, queued = struct.unpack_from("=6I", data, place + _ATTRIBUTE.size)
                    yield received + max(sent, queued) + ahead
                place += max(4, (size + 3) & ~3)
            at += max(16, (length + 3) & ~3)
