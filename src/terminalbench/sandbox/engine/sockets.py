"""Memory in the buffers of sockets, which is no process's own: the kernel tells it for all sockets of a network."""

import socket
import struct
from collections.abc import Iterator

_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_ANSWER_BYTES = 1 << 18
_ALL = 0xFFFFFFFF


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
