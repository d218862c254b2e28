"""From the relay to the host that was asked for: looked up, judged, connected to; or through the host's own proxy.

The two sockets are joined until one of them is done; what goes through is counted."""

import asyncio
import base64
import contextlib
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from terminalbench.sandbox.network.policy import Address, ConnectionRefusal, EgressPolicy, literal, place_of
from terminalbench.sandbox.network.proxy_protocols import Hello

CONNECT_SEC = 20.0
LOOKUP_SEC = 20.0
_LOOKUPS = 64
_LONGEST_ANSWER = 1 << 14

IDLE_SEC = 3600.0
"""A model may think for long before it says something."""
HALF_OPEN_SEC = 600.0
HELLO_SEC = 30.0
_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class RefusedError(Exception):
    """The policy refuses a host, or each of its addresses."""

    def __init__(self, why: ConnectionRefusal) -> None:
        super().__init__(why)
        self.why = why


class Proxy(NamedTuple):
    """The proxy that this machine itself uses."""

    host: str
    port: int
    authorization: str | None


@dataclass(frozen=True)
class Proxies:
    """The proxies of this machine's environment, by scheme, and the hosts that go past them."""

    http: Proxy | None = None
    https: Proxy | None = None
    past: tuple[str, ...] = ()

    @classmethod
    def of(cls, plain: dict[str, str]) -> "Proxies":
        """Return the proxies that `http`, `https`, `all` and `no` name among the variables of the environment."""
        everything = plain.get("all", "")
        past = tuple(entry.strip().lower().lstrip(".") for entry in plain.get("no", "").split(",") if entry.strip())
        return cls(_proxy(plain.get("http") or everything), _proxy(plain.get("https") or everything), past)

    def for_host(self, host: str, port: int) -> Proxy | None:
        """The proxy on the way to a host, if there is one."""
        for entry in self.past:
            name = entry.partition(":")[0] if entry.count(":") == 1 else entry
            if name == "*" or host == name or host.endswith(f".{name}"):
                return None
        return self.http if port == 80 else self.https


def _proxy(url: str) -> Proxy | None:
    parts = urlsplit(url if "//" in url else f"//{url}") if url else None
    if parts is None or not parts.hostname or parts.scheme not in ("", "http"):
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
    secret = base64.b64encode(login.encode()).decode() if login else None
    return Proxy(parts.hostname, parts.port or 80, f"Basic {secret}" if secret else None)


class Upstream:
    """Connects for all sandboxes of a relay."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(_LOOKUPS, "lookup")

    async def addresses(self, host: str, static: dict[str, str]) -> list[Address]:
        """Every address of a host; raises OSError when it has none."""
        fixed = literal(static.get(host, host))
        if fixed is not None:
            return [fixed]
        work = self._loop.run_in_executor(self._pool, _look_up, host)
        found = await asyncio.wait_for(asyncio.shield(work), LOOKUP_SEC)
        return [address for text in found if (address := literal(text)) is not None]

    async def judged(self, policy: EgressPolicy, host: str, port: int, static: dict[str, str]) -> list[Address]:
        """The addresses of a host that may be connected to; raises `RefusedError` when none may."""
        if why := policy.refuses(host, port):
            raise RefusedError(why)
        found = await self.addresses(host, static)
        if host in static:
            return found
        reasons = [policy.refuses_place(host, port, place_of(address)) for address in found]
        allowed = [address for address, why in zip(found, reasons, strict=True) if why is None]
        if not allowed and reasons:
            raise RefusedError(next(why for why in reasons if why is not None))
        return allowed

    async def connect(
        self, policy: EgressPolicy, host: str, port: int, static: dict[str, str], proxies: Proxies
    ) -> socket.socket:
        """A connection to a host that the policy allows; the addresses that were judged are the ones connected to.

        Raises `RefusedError`, or OSError when it cannot be reached.
        """
        proxy = proxies.for_host(host, port) if (host, port) not in policy.endpoints else None
        try:
            allowed = await self.judged(policy, host, port, static)
        except OSError:
            if proxy is None or "." not in host:
                raise
            allowed = []  # a name that only the proxy knows
        if proxy is not None and host not in static:
            return await self._through(proxy, host, port)
        last: OSError = OSError(0, "no address")
        for address in allowed:
            try:
                return await self._to(str(address), port)
            except OSError as error:
                last = error
        raise last

    async def _to(self, address: str, port: int) -> socket.socket:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            await asyncio.wait_for(self._loop.sock_connect(made, (address, port)), CONNECT_SEC)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            made.close()
            raise
        return made

    async def to_proxy(self, proxy: Proxy) -> socket.socket:
        """A connection to the host's own proxy."""
        found = await asyncio.wait_for(self._loop.run_in_executor(self._pool, _look_up, proxy.host), LOOKUP_SEC)
        return await self._to(found[0].partition("%")[0], proxy.port)

    async def _through(self, proxy: Proxy, host: str, port: int) -> socket.socket:
        made = await self.to_proxy(proxy)
        try:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            login = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
            request = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{login}\r\n"
            await self._loop.sock_sendall(made, request.encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                more = await asyncio.wait_for(self._loop.sock_recv(made, 1), CONNECT_SEC)
                if not more or len(answer) > _LONGEST_ANSWER:
                    raise OSError(0, "the proxy of this machine did not answer")
                answer += more
            if answer.split(b" ", 2)[1:2] != [b"200"]:
                raise OSError(0, "the proxy of this machine refused")
        except BaseException:
            made.close()
            raise
        return made


def _look_up(host: str) -> list[str]:
    found: list[Any] = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(entry[4][0] for entry in found))


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
