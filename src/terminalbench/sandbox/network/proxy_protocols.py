"""What arrives: requests to an HTTP proxy, questions for names, and the hellos of TLS, which name a host."""

import struct
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_HEAD_BYTES = 1 << 16
HANDSHAKE = 0x16
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


class Hello:
    """Takes the first bytes of a client until its hello is complete."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, chunk: bytes) -> bool:
        """Take more; True when the hello is there, or will not come: it is no TLS, or too long."""
        self.data += chunk
        if not self.data:
            return False
        if self.data[0] != HANDSHAKE or len(self.data) > MOST_HEAD_BYTES:
            return True
        message = self._message()
        return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4])

    def _message(self) -> bytes:
        """The handshake message, out of as many records as it came in."""
        found, at = b"", 0
        while at + 5 <= len(self.data) and self.data[at] == HANDSHAKE:
            length = int.from_bytes(self.data[at + 3 : at + 5])
            found += self.data[at + 5 : at + 5 + length]
            at += 5 + length
        return found

    def server_name(self) -> str | None:
        """The name that the client asks for; None without one, or if this is no TLS hello."""
        message = self._message() if self.data[:1] == bytes([HANDSHAKE]) else b""
        if message[:1] != b"\x01":
            return None
        try:
            at = 4 + 2 + 32
            at += 1 + message[at]
            at += 2 + int.from_bytes(message[at : at + 2])
            at += 1 + message[at]
            end = at + 2 + int.from_bytes(message[at : at + 2])
            at += 2
            while at + 4 <= end:
                kind, length = int.from_bytes(message[at : at + 2]), int.from_bytes(message[at + 2 : at + 4])
                if kind == 0:  # a list with one entry: its length, its kind, the name's length, the name
                    return message[at + 9 : at + 4 + length].decode("ascii").lower().rstrip(".")
                at += 4 + length
        except (IndexError, UnicodeDecodeError):
            return ""
        return None
