"""Two sockets joined until one of them is done; what went through is counted, and the name in a TLS hello is read."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable

from terminalbench.sandbox.network.policy import ConnectionRefusal
from terminalbench.sandbox.network.upstream import RefusedError

HANDSHAKE = 0x16
_MOST_BYTES = 1 << 16


class Hello:
    """Takes the first bytes of a client until its hello is complete."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, chunk: bytes) -> bool:
        """Take more; True when the hello is there, or will not come: it is no TLS, or too long."""
        self.data += chunk
        if not self.data:
            return False
        if self.data[0] != HANDSHAKE or len(self.data) > _MOST_BYTES:
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


IDLE_SEC = 3600.0
"""A model may think for long before it says something."""
HALF_OPEN_SEC = 600.0
HELLO_SEC = 30.0
_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class Tunnel:
    """One connection of a sandbox, `client`, and its other half; a TLS client has to ask for `name`, if given."""

    def __init__(self, client: socket.socket, up: socket.socket, name: str | None) -> None:
        self.sent = self.received = 0
        self.server_name: str | None = None
        self._client, self._up, self._name = client, up, name
        self._loop = asyncio.get_running_loop()
        self._last = time.monotonic()
        self._half = False

    def cut(self) -> None:
        """End it now."""
        for one in (self._client, self._up):
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RDWR)

    async def run(self) -> None:
        """Pass on until both sides are done, or nothing has moved for long; raises `RefusedError` for a wrong TLS
        name."""
        pumps = [
            asyncio.ensure_future(self._pump(self._client, self._up, self._count_sent, first=True)),
            asyncio.ensure_future(self._pump(self._up, self._client, self._count_received)),
        ]
        try:
            while pending := [pump for pump in pumps if not pump.done()]:
                self._half = len(pending) < len(pumps)
                left = self._last + (HALF_OPEN_SEC if self._half else IDLE_SEC) - time.monotonic()
                if left <= 0:
                    break
                done, _ = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for pump in done:
                    pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _count_sent(self, size: int) -> None:
        self.sent += size
        self._last = time.monotonic()

    def _count_received(self, size: int) -> None:
        self.received += size
        self._last = time.monotonic()

    async def _pump(
        self, source: socket.socket, sink: socket.socket, count: Callable[[int], None], *, first: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            if first:
                start = await self._start(source)
                await self._loop.sock_sendall(sink, start)
                count(len(start))
            buffer = bytearray(_CHUNK)
            view = memoryview(buffer)
            while size := await self._loop.sock_recv_into(source, buffer):
                await self._loop.sock_sendall(sink, view[:size])
                count(size)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    async def _start(self, source: socket.socket) -> bytes:
        """The first bytes of the client; those of a TLS client are looked at before they go out."""
        hello = Hello()
        chunk = await self._loop.sock_recv(source, _CHUNK)
        try:
            async with asyncio.timeout(HELLO_SEC):
                while chunk and not hello.add(chunk):
                    chunk = await self._loop.sock_recv(source, _CHUNK)
        except TimeoutError:
            raise RefusedError(ConnectionRefusal.SHAPE) from None
        self.server_name = hello.server_name()
        if self._name is not None and self.server_name is not None and self.server_name != self._name:
            raise RefusedError(ConnectionRefusal.TLS_NAME)
        return hello.data
