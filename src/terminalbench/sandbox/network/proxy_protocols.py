"""What arrives in another form than a plain connection: requests to an HTTP proxy, questions for names."""

import struct
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_HEAD_BYTES = 1 << 16
_HOP_BY_HOP = ("proxy-", "connection:", "keep-alive:", "host:")
_KIND_A, _CLASS_IN = 1, 1
_NO_SUCH_NAME, _FAILED = 3, 2
_TTL_SEC = 60


@dataclass(frozen=True)
class ProxyRequest:
    """What a client asks of its HTTP proxy. `head` is what a plain request looks like to the server; None: a tunnel."""

    host: str
    port: int
    head: bytes | None


def proxy_request(head: bytes) -> ProxyRequest:
    """The request that `head`, without the empty line at its end, makes; ValueError if it makes none."""
    first, *headers = head.decode("latin-1").split("\r\n")
    method, target, *_ = first.split(" ")
    if method == "CONNECT":
        parts = urlsplit(f"//{target}")
        return ProxyRequest(parts.hostname or "", _port(parts.port), None)
    parts = urlsplit(target)
    if parts.scheme.lower() != "http" or not parts.hostname:
        raise ValueError("not a request to a proxy")
    return ProxyRequest(parts.hostname, parts.port or 80, plain_head(method, target, headers))


def plain_head(method: str, target: str, headers: list[str], *, whole: bool = False) -> bytes:
    """A request for one server, or for another proxy (`whole`): one a connection, for the host of its address only."""
    parts = urlsplit(target)
    path = target if whole else (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [header for header in headers if not header.lower().startswith(_HOP_BY_HOP)]
    place = parts.netloc.rpartition("@")[2]
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {place}", *kept, "Connection: close"]).encode("latin-1")


def _port(port: int | None) -> int:
    if not port:
        raise ValueError("no port")
    return port


@dataclass(frozen=True)
class DnsQuestion:
    """A question for a name: what of it the answer repeats, and whether an IPv4 address is wanted."""

    name: str
    number: bytes
    asked: bytes
    wants_address: bool

    def answer(self, address: bytes | None, *, known: bool = True, failed: bool = False) -> bytes:
        """Return an answer with an address, with none of the kind that was asked for, or that there is no such name."""
        code = _FAILED if failed else 0 if known else _NO_SUCH_NAME
        head = self.number + struct.pack("!HHHHH", 0x8180 | code, 1, 1 if address else 0, 0, 0)
        record = b"\xc0\x0c" + struct.pack("!HHIH", _KIND_A, _CLASS_IN, _TTL_SEC, 4) + address if address else b""
        return head + self.asked + record


def question(packet: bytes) -> DnsQuestion | None:
    """The one question in a packet; None if it is not one."""
    labels, at = [], 12
    try:
        flags, count = struct.unpack_from("!HH", packet, 2)
        if flags & 0xF800 or count != 1:  # an answer, or no plain question
            return None
        while length := packet[at]:
            if length > 63:
                return None
            labels.append(packet[at + 1 : at + 1 + length].decode("ascii"))
            at += length + 1
        kind, space = struct.unpack_from("!HH", packet, at + 1)
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    name = ".".join(labels).lower()
    if not name or len(name) > 253 or not all(c.isalnum() or c in "-_." for c in name):
        return None
    return DnsQuestion(name, packet[:2], packet[12 : at + 5], kind == _KIND_A and space == _CLASS_IN)
