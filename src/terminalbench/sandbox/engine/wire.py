"""Messages between the caller and the helper: one JSON document per packet, with file descriptors.

A request travels in a memory file because a command can be larger than a packet. Its descriptors are, in
order: the request, the socket for answers, then what the operation needs.
"""

import array
import json
import os
import select
import socket
from typing import Any

_MAX_PACKET = 1 << 16
_MAX_DESCRIPTORS = 16


def send(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send one message; raises OSError when the other side is gone."""
    data = json.dumps(message).encode()
    if len(data) > _MAX_PACKET:
        data = json.dumps({"error": data.decode()[: _MAX_PACKET // 4]}).encode()
    if descriptors:
        socket.send_fds(channel, [data], list(descriptors), socket.MSG_NOSIGNAL)
    else:
        channel.send(data, socket.MSG_NOSIGNAL)


def complain(control: int, error: BaseException) -> None:
    """Tell the other side of the channel `control` why this process ends."""
    channel = socket.socket(fileno=control)
    try:
        send(channel, {"error": str(error), "kind": type(error).__name__})
    except OSError:
        pass
    finally:
        channel.detach()  # it may be the number of another object


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; None when the other side is gone."""
    try:
        data, descriptors = take(channel, _MAX_PACKET)
    except ConnectionResetError:
        return None, []
    return (json.loads(data) if data else None), descriptors


def take(channel: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """The next packet and its descriptors, closed on exec: a program in the sandbox must not inherit them.

    Not `socket.recv_fds`: that takes the flag for it and forgets it (Python 3.12 and 3.13).
    """
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, _, _ = channel.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def hung_up(handle: int) -> bool:
    """Return whether the other side of an open channel is gone."""
    asked = select.poll()
    asked.register(handle, 0)  # the end of the other side is told unasked
    return bool(asked.poll(0))


def memory_file(data: bytes) -> int:
    """`data` in a file in memory, read from its start."""
    handle = os.memfd_create("data", os.MFD_CLOEXEC)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def adopt(handle: int) -> socket.socket:
    """The channel of packets that is open as `handle`."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, handle)


def unpack_request(handle: int) -> dict[str, Any]:
    """The request in a memory file; closes it."""
    size = os.fstat(handle).st_size
    data = b""
    while len(data) < size and (chunk := os.pread(handle, size - len(data), len(data))):
        data += chunk
    os.close(handle)
    return json.loads(data)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a packet channel, both closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
