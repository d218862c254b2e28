"""The way out of one sandbox: what arrives at its sockets is judged, passed on, counted and logged."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from terminalbench.sandbox.network import proxy_protocols
from terminalbench.sandbox.network.egress import EgressLog
from terminalbench.sandbox.network.policy import SAID, ConnectionRefusal, EgressPolicy, canonical, literal
from terminalbench.sandbox.network.upstream import Proxies, RefusedError, Tunnel, Upstream

RELAY_ADDRESS = "198.18.0.1"
"""What the relay is called inside: it answers for names there, and as an HTTP proxy on `PROXY_PORT`."""
PROXY_PORT = 3128
MOST_CONNECTIONS = 256
MOST_NAMES = 4096
_MOST_QUESTIONS = 64
_FIRST_NAME = int(IPv4Address(RELAY_ADDRESS)) + 1
_NAME_PORT = 53
_SO_ORIGINAL_DST = 80
_HEAD_SEC = 30.0
_KNOWN_SEC = 60.0
_PAUSE_SEC = 0.1
_RESET = struct.pack("ii", 1, 0)

Work = Callable[[socket.socket], Awaitable[None]]


class ProxiedSandbox:
    """One sandbox, as long as its caller holds it."""

    def __init__(self, about: dict[str, Any], sockets: list[socket.socket], log: EgressLog, upstream: Upstream) -> None:
        self._loop = asyncio.get_running_loop()
        self.policy, self.phase = EgressPolicy.of(about["policy"]), about["phase"]
        self._log, self._upstream, self._sockets = log, upstream, sockets
        self._static: dict[str, str] = about["static"]
        self._beside = {canonical(name): address for name, address in about["beside"].items()}
        self._proxies = Proxies.of(about["proxies"])
        self._names: dict[str, int] = {}
        self._numbers: dict[int, str] = {}
        self._known: dict[str, float] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._live: dict[Tunnel, tuple[str, int]] = {}
        self._questions = self._connections = 0
        self._datagrams, rest = None, sockets
        if about["way"] in ("redirect", "redirect6"):
            self._listen(sockets[0], self._arrived)
            self._datagrams, rest = sockets[1], sockets[2:]
            self._datagrams.setblocking(False)
            self._loop.add_reader(self._datagrams, self._packet)
            if about["way"] == "redirect6":
                self._listen(rest[0], self._arrived_by_six)
                rest = rest[1:]
        elif about["way"] == "proxy":
            self._listen(sockets[0], self._proxy)
            rest = sockets[1:]
        for listener, (host, port) in zip(rest, about["forwards"], strict=True):
            self._listen(listener, lambda client, host=host, port=port: self._through(client, host, port))

    def enter(self, policy: EgressPolicy, phase: str) -> None:
        """A new phase: connections that it does not allow any more are cut."""
        self.policy, self.phase = policy, phase
        for tunnel, (host, port) in list(self._live.items()):
            if policy.refuses(host, port):
                tunnel.cut()

    async def close(self) -> None:
        """End every connection."""
        if self._datagrams is not None:
            self._loop.remove_reader(self._datagrams)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()
        self._sockets, self._datagrams = [], None

    # Connections

    def _listen(self, listener: socket.socket, work: Work) -> None:
        listener.setblocking(False)
        self._spawn(self._accept(listener, work))

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket, work: Work) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(listener)
            except OSError:  # out of file handles: what waits is accepted when some are free again
                await asyncio.sleep(_PAUSE_SEC)
                continue
            if self._connections >= MOST_CONNECTIONS:
                self._log.refused(self.phase, "", None, ConnectionRefusal.TOO_MANY)
                _reset(client)
                continue
            client.setblocking(False)
            self._connections += 1
            self._spawn(self._serve(client, work))

    async def _serve(self, client: socket.socket, work: Work) -> None:
        try:
            await work(client)
        except (OSError, ValueError, RefusedError):
            _reset(client)
        finally:
            self._connections -= 1
            client.close()

    async def _arrived(self, client: socket.socket) -> None:
        """A redirected connection: to the relay itself, to a name it has given an address, or to an address."""
        place = client.getsockopt(socket.IPPROTO_IP, _SO_ORIGINAL_DST, 16)
        (port,), address = struct.unpack_from("!H", place, 2), IPv4Address(place[4:8])
        if str(address) == RELAY_ADDRESS:
            doors_here: dict[int, Work] = {PROXY_PORT: self._proxy, _NAME_PORT: self._name_stream}
            if port in doors_here:
                await doors_here[port](client)
            else:
                _reset(client)
            return
        name = self._numbers.get(int(address) - _FIRST_NAME)
        await self._through(client, name or str(address), port)

    async def _arrived_by_six(self, client: socket.socket) -> None:
        """The same by IPv6: to an address, never a name's or the relay's."""
        place = client.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, 28)
        (port,), address = struct.unpack_from("!H", place, 2), IPv6Address(place[8:24])
        await self._through(client, canonical(str(address)), port)

    async def _through(
        self, client: socket.socket, host: str, port: int, start: bytes = b"", more: bytes = b""
    ) -> None:
        """Join a client with the host it wants; `start` is said to the client first, `more` to the host."""
        if self._proxies.http is not None and port == 80 and not more and self._by_proxy(host, port):
            await self._plain(client, await self._head(client), f"http://{host}")
            return
        try:
            up = await self._upstream.connect(self.policy, host, port, self._static, self._proxies)
        except RefusedError as refused:
            self._log.refused(self.phase, host, port, refused.why)
            raise
        except OSError as error:
            about = {**self._about(host, port), "failed": error.strerror or str(error)}
            self._log.connection(self.phase, host, port, up=0, down=0, **about)
            raise
        with up:
            await self._loop.sock_sendall(client, start)
            await self._loop.sock_sendall(up, more)
            await self._joined(client, up, host, port, len(more))

    async def _joined(self, client: socket.socket, up: socket.socket, host: str, port: int, sent: int) -> None:
        tunnel = Tunnel(client, up, host if literal(host) is None else None)
        phase, began, why = self.phase, time.monotonic(), self.policy.refuses(host, port)
        self._live[tunnel] = (host, port)
        try:
            if why is None:  # else the phase has changed meanwhile
                await tunnel.run()
        except RefusedError as refused:
            why = refused.why
            self._log.refused(phase, host, port, why)
            _reset(client)
        finally:
            del self._live[tunnel]
            if why is None:
                about = self._about(host, port) | ({"tls": tunnel.server_name} if tunnel.server_name else {})
                seconds = round(time.monotonic() - began, 3)
                self._log.connection(
                    phase, host, port, up=tunnel.sent + sent, down=tunnel.received, sec=seconds, **about
                )

    def _about(self, host: str, port: int) -> dict[str, Any]:
        return {"endpoint": True} if self.policy.is_endpoint(host, port) else {}

    # The HTTP proxy

    async def _head(self, client: socket.socket) -> tuple[bytes, bytes]:
        data = b""
        async with asyncio.timeout(_HEAD_SEC):
            while b"\r\n\r\n" not in data:
                more = await self._loop.sock_recv(client, 1 << 16)
                if not more or len(data) > proxy_protocols.MOST_HEAD_BYTES:
                    raise ValueError("no request")
                data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    async def _proxy(self, client: socket.socket) -> None:
        head, rest = await self._head(client)
        wanted = proxy_protocols.proxy_request(head)
        host = canonical(wanted.host)
        try:
            if wanted.head is not None:
                await self._plain(client, (head, rest), None)
            else:
                await self._through(client, host, wanted.port, b"HTTP/1.1 200 OK\r\n\r\n", rest)
        except RefusedError as refused:
            body = f"sandbox: {host} is refused: {SAID[refused.why]}\n"
            await self._answer(client, "403 Forbidden", body)
        except OSError as error:
            await self._answer(client, "502 Bad Gateway", f"sandbox: {host}: {error.strerror or error}\n")

    async def _answer(self, client: socket.socket, status: str, body: str) -> None:
        text = f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n{body}"
        await self._loop.sock_sendall(client, text.encode())

    def _by_proxy(self, host: str, port: int) -> bool:
        declared = (host, port) in self.policy.endpoints or host in self._static
        return self._proxies.for_host(host, port) is not None and not declared

    async def _plain(self, client: socket.socket, asked: tuple[bytes, bytes], origin: str | None) -> None:
        """One plain request: to its server, or to the host's own proxy; `origin` is the host of one that names none."""
        head, rest = asked
        first, *headers = head.decode("latin-1").split("\r\n")
        method, target, *_ = first.split(" ")
        target = target if origin is None else f"{origin}{target}"
        wanted = proxy_protocols.proxy_request("\r\n".join([f"{method} {target} HTTP/1.1", *headers]).encode("latin-1"))
        host, port = canonical(wanted.host), wanted.port
        if not self._by_proxy(host, port):
            await self._through(client, host, port, b"", (wanted.head or b"") + b"\r\n\r\n" + rest)
            return
        proxy = self._proxies.for_host(host, port)
        if proxy is None:
            raise ValueError("no proxy")
        try:
            with contextlib.suppress(OSError):  # a name that only the proxy knows
                await self._upstream.judged(self.policy, host, port, self._static)
        except RefusedError as refused:
            self._log.refused(self.phase, host, port, refused.why)
            raise
        login = [f"Proxy-Authorization: {proxy.authorization}"] if proxy.authorization else []
        kept = [header for header in headers if not header.lower().startswith("proxy-")]
        request = proxy_protocols.plain_head(method, target, kept, whole=True)
        for line in login:
            request += f"\r\n{line}".encode()
        with await self._upstream.to_proxy(proxy) as up:
            more = request + b"\r\n\r\n" + rest
            await self._loop.sock_sendall(up, more)
            await self._joined(client, up, host, port, len(more))

    # Names

    def _packet(self) -> None:
        with contextlib.suppress(OSError):
            packet, whence = self._datagrams.recvfrom(4096) if self._datagrams is not None else (b"", None)
            if self._questions < _MOST_QUESTIONS:  # else the client asks again
                self._spawn(self._answer_packet(packet, whence))

    async def _answer_packet(self, packet: bytes, whence: Any) -> None:
        answer = await self._asked(packet)
        if answer is not None and self._datagrams is not None:
            with contextlib.suppress(OSError):
                self._datagrams.sendto(answer, whence)

    async def _name_stream(self, client: socket.socket) -> None:
        """One question over a connection, as resolvers ask when they want to be sure."""
        async with asyncio.timeout(_HEAD_SEC):
            data = b""
            while len(data) < 2 or len(data) < 2 + int.from_bytes(data[:2]):
                more = await self._loop.sock_recv(client, 4096)
                if not more:
                    return
                data += more
        answer = await self._asked(data[2 : 2 + int.from_bytes(data[:2])])
        if answer is not None:
            await self._loop.sock_sendall(client, len(answer).to_bytes(2) + answer)

    async def _asked(self, packet: bytes) -> bytes | None:
        asked = proxy_protocols.question(packet)
        if asked is None:
            return None
        host = canonical(asked.name)
        if asked.name.endswith(".arpa"):
            return asked.answer(None, known=False)
        if host in self._beside:
            return asked.answer(IPv4Address(self._beside[host]).packed if asked.wants_address else None)
        if why := self.policy.refuses(host, None):
            self._log.refused(self.phase, host, None, why)
            return asked.answer(None, known=False)
        self._questions += 1
        try:
            if not await self._exists(host):
                return asked.answer(None, known=False)
        except OSError:
            return asked.answer(None, failed=True)
        finally:
            self._questions -= 1
        if not asked.wants_address:
            return asked.answer(None)
        if host not in self._names and len(self._names) >= MOST_NAMES:
            self._log.refused(self.phase, host, None, ConnectionRefusal.TOO_MANY)
            return asked.answer(None, failed=True)
        number = self._names.setdefault(host, len(self._names))
        self._numbers[number] = host
        return asked.answer(IPv4Address(_FIRST_NAME + number).packed)

    async def _exists(self, host: str) -> bool:
        """Return whether there is such a host; a name that only the host's own proxy may know is taken for one."""
        if self._known.get(host, 0.0) > time.monotonic() or self._by_proxy(host, 443):
            return True
        try:
            await self._upstream.addresses(host, self._static)
        except TimeoutError:
            raise
        except OSError as error:
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                raise
            return False
        if len(self._known) < MOST_NAMES:
            self._known[host] = time.monotonic() + _KNOWN_SEC
        return True


def _reset(client: socket.socket) -> None:
    """Close a connection so that its other side sees it fail, not end."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()
