"""The caller's side of the relay: started once, for all sandboxes of this process; gone with it.

And which hosts it would reach, tried as the relay would: by this machine's proxy, else directly.
"""

import asyncio
import contextlib
import os
import ssl
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.request import getproxies_environment

from terminalbench.sandbox.engine import wire
from terminalbench.sandbox.errors import SandboxNetworkError
from terminalbench.sandbox.helper import Attendant
from terminalbench.sandbox.network import policy
from terminalbench.sandbox.network.egress_proxy import RELAY_ADDRESS
from terminalbench.sandbox.network.policy import OPEN, EgressPolicy
from terminalbench.sandbox.network.upstream import Proxies, Proxy

MOST_FORWARDS = 8
_PATIENCE_SEC = 10.0
_START_PATIENCE_SEC = 60.0
_ENDED = "the network relay of the sandbox has ended"

_guard = threading.Lock()
PATIENCE_SEC = 6.0
PROXY = "proxy"
"""The place of a host that is reached by a proxy, which alone knows its address."""
_PORT = 443
_known: dict[tuple[str, Proxy | None], str | None] = {}


class _RelayGone(Exception):
    """The relay ended before it served a sandbox; another one may."""


@dataclass(frozen=True)
class EgressWay:
    """The way out that a sandbox gets: its first policy, the places of this machine shown inside, its log file.

    A forward is the address inside, and the host and port that it stands for.
    With `pasta` its program serves the sandbox instead of the relay, which is left with the forwards and the log.
    `beside` are names of other sandboxes of the trial, which are reached without the relay.
    `redirect` and `static` (names with fixed addresses, taken as public) are for tests; no file of a user sets them.
    """

    policy: EgressPolicy = OPEN
    phase: str = "setup"
    forwards: tuple[tuple[str, str, int], ...] = ()
    log: Path | None = None
    pasta: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    redirect: bool = True
    static: Mapping[str, str] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Return what is to be made inside."""
        return {
            "redirect": self.redirect,
            "forwards": [(inside, port) for inside, _, port in self.forwards],
            "open": not self.policy.closed,
            "pasta": self._pasta() if self.pasta is not None else None,
        }

    def _pasta(self) -> dict[str, Any]:
        address = str(ip_address(RELAY_ADDRESS) + 1)
        return {"program": self.pasta, "gateway": RELAY_ADDRESS, "address": address, "away": policy.not_public()}


class Relay(Attendant):
    """A running relay process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        super().__init__("terminalbench.sandbox.network.relay")

    def send(self, message: dict[str, Any], handles: tuple[int, ...]) -> None:
        """Tell it of a sandbox."""
        try:
            with self._lock:
                wire.send(self.channel, message, handles)
        except OSError as error:
            raise _RelayGone(str(error)) from error


_current: Relay | None = None


def relay() -> Relay:
    """Return the relay of this process, started at the first call; it need not be up yet to be told something."""
    global _current
    with _guard:
        if _current is None or not _current.alive():
            _current = Relay()
        return _current


def _retire(server: Relay) -> None:
    """Give no further sandbox to a relay that did not take one; those that it serves keep it."""
    global _current
    with _guard:
        if _current is server:
            _current = None


async def connect(way: EgressWay, kind: str, sockets: list[int]) -> "Link":
    """Return the way of a sandbox once the relay serves the `sockets` that were made inside.

    A relay that is gone by then is replaced, once.
    """
    server = await running()
    try:
        return await _connect(server, way, kind, sockets)
    except _RelayGone:
        _retire(server)
    try:
        return await _connect(await running(), way, kind, sockets)
    except _RelayGone as error:
        raise SandboxNetworkError(f"the network relay of the sandboxes ended twice in a row: {error}") from error


async def _connect(server: Relay, way: EgressWay, kind: str, sockets: list[int]) -> "Link":
    link = Link(server, way, kind, sockets)
    try:
        await link.served()
    except BaseException:
        link.drop()
        raise
    return link


class Link:
    """The open way of one sandbox."""

    def __init__(self, server: Relay, way: EgressWay, kind: str, sockets: list[int]) -> None:
        """Hand the `sockets` that were made inside to the relay, which says when it serves them."""
        self.kind = kind
        self.gone = False
        self._ends: set[Callable[[], None]] = set()
        self._asking = asyncio.Lock()
        self._channel, theirs = wire.socket_pair()
        log = _open_log(way.log) if way.log is not None else None
        about = {
            "way": kind,
            "policy": way.policy.plain(),
            "phase": way.phase,
            "forwards": [(host, port) for _, host, port in way.forwards],
            "static": dict(way.static),
            "beside": dict(way.beside),
            "proxies": getproxies_environment(),
            "logged": log is not None,
        }
        try:
            with theirs:
                server.send(about, (theirs.fileno(), *((log,) if log is not None else ()), *sockets))
        except BaseException:
            self._channel.close()
            raise
        finally:
            if log is not None:
                os.close(log)
        self._channel.setblocking(False)
        self._answers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    def _read(self) -> None:
        try:
            message, _ = wire.receive(self._channel)
        except BlockingIOError:
            return
        if message is None:
            self.gone = True
            for end in tuple(self._ends):
                end()
            asyncio.get_running_loop().remove_reader(self._channel)
        self._answers.put_nowait(message)

    @contextlib.contextmanager
    def needed(self) -> Generator[None]:
        """End what is awaited meanwhile should the relay go: what a command would do without says nothing."""
        task = asyncio.current_task()
        if task is None or self.gone:
            raise SandboxNetworkError(_ENDED)
        before, ended = task.cancelling(), False

        def end() -> None:
            nonlocal ended
            ended = True
            task.cancel()

        self._ends.add(end)
        try:
            yield
        except asyncio.CancelledError as error:
            if ended and task.uncancel() <= before:
                raise SandboxNetworkError(_ENDED) from error
            raise
        finally:
            self._ends.discard(end)

    async def served(self) -> None:
        """Wait until the relay, which may still be starting, serves the sandbox."""
        try:
            answer = await asyncio.wait_for(self._answers.get(), _START_PATIENCE_SEC)
        except TimeoutError as error:
            raise SandboxNetworkError("the network relay of the sandboxes does not start") from error
        if answer is None:
            raise _RelayGone(_ENDED)

    async def enter(self, policy: EgressPolicy, phase: str) -> None:
        """A new phase; when this returns, connections that it does not allow are cut."""
        await self._ask({"policy": policy.plain(), "phase": phase})

    async def renew(self, kind: str, sockets: list[int]) -> None:
        """Serve these sockets, of a new network of the same sandbox, instead of those before; closes them here."""
        try:
            await self._ask({"way": kind}, sockets)
            self.kind = kind
        finally:
            for handle in sockets:
                os.close(handle)

    async def _ask(self, message: dict[str, Any], handles: Sequence[int] = ()) -> None:
        async with self._asking:
            try:
                wire.send(self._channel, message, tuple(handles))
                answer = await asyncio.wait_for(self._answers.get(), _PATIENCE_SEC)
            except (OSError, TimeoutError) as error:
                self.gone = True  # it may still allow what it was to forbid
                raise SandboxNetworkError(f"the network relay of the sandbox does not answer: {error}") from error
        if answer is None:
            raise SandboxNetworkError(_ENDED)

    async def close(self) -> None:
        """End the way; the log is complete when this returns."""
        with contextlib.suppress(SandboxNetworkError):
            if not self.gone:
                await self._ask({"close": True})
        self.drop()

    def drop(self) -> None:
        """Let go of the relay without waiting for it."""
        asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()


def _open_log(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def environment(kind: str) -> dict[str, str]:
    """The variables of a command: where the kernel cannot redirect, programs have to know of the proxy."""
    if kind != "proxy":
        return {}
    from terminalbench.sandbox.engine.net import PROXY_PORT

    url = f"http://127.0.0.1:{PROXY_PORT}"
    proxies = {name: url for upper in ("HTTP_PROXY", "HTTPS_PROXY") for name in (upper, upper.lower())}
    past = "localhost,127.0.0.1,::1"
    return {**proxies, "NO_PROXY": past, "no_proxy": past, "NODE_USE_ENV_PROXY": "1"}


async def running() -> Relay:
    """Return the relay of this process, started without blocking the event loop."""
    current = _current
    return current if current is not None and current.alive() else await asyncio.to_thread(relay)


def reached(hosts: Collection[str]) -> Mapping[str, str]:
    """Return the hosts that answer a TLS greeting, each with its address, or `PROXY`.

    All are tried at once, for a few seconds, and once in a process. No certificate is looked at: it is the sandbox's
    programs that trust it or do not.
    """
    proxies = Proxies.of(getproxies_environment())
    ways = {host: proxies.for_host(host, _PORT) for host in hosts}
    threads = []
    for way in {(host, proxy) for host, proxy in ways.items() if (host, proxy) not in _known}:
        # A daemon: a name server that does not answer must not hold up the end of this process.
        threads.append(threading.Thread(target=_try, args=way, daemon=True))
        threads[-1].start()
    end = time.monotonic() + PATIENCE_SEC
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    found = {host: _known.setdefault((host, proxy), None) for host, proxy in ways.items()}
    return {host: address for host, address in found.items() if address is not None}


def _try(host: str, proxy: Proxy | None) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    target = (proxy.host, proxy.port) if proxy is not None else (host, _PORT)
    with closing(HTTPSConnection(*target, timeout=PATIENCE_SEC, context=context)) as connection:
        if proxy is not None:
            login = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
            connection.set_tunnel(host, _PORT, login)
        try:
            connection.connect()
            address = connection.sock.getpeername()[0] if proxy is None else PROXY
        except (OSError, HTTPException, ValueError):
            address = None
    _known.setdefault((host, proxy), address)
