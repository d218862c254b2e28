"""Who may ask: the Host header, the token, the methods; and the headers every answer carries."""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

COOKIE = "tbench_token"
TOKEN_VARIABLE = "TERMINALBENCH_VIEW_TOKEN"  # noqa: S105  the name of a variable
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": f"{POLICY}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Any]]
type Send = Callable[[Any], Awaitable[None]]
type App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Access:
    """Where the site listens, and the token it asks for; None only on a loopback address."""

    host: str
    token: str | None = None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def allows_host(self, header: str) -> bool:
        """Whether a Host header may be ours. A name somebody else controls could point here: it is refused."""
        name = host_name(header)
        if name is None:
            return False
        if is_loopback(name):
            return True
        if self.loopback:
            return False
        return name == self.host.lower() or name in _machine_names() or _address(name) is not None

    def allows_token(self, given: str | None) -> bool:
        """Whether the token is right, compared in constant time."""
        return self.token is None or (given is not None and hmac.compare_digest(given.encode(), self.token.encode()))


def make_access(host: str, token: str | None) -> Access:
    """Access for a bind address: any but a loopback one gets a token."""
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    return Access(host, token)


def host_name(header: str) -> str | None:
    """The name in a Host header, lower case, without the port; None for what is no host."""
    text = header.strip().lower()
    if text.startswith("["):
        name, closed, port = text[1:].partition("]")
        valid = closed == "]" and _address(name) is not None
    else:
        name, _, port = text.partition(":")
        valid = bool(name) and all(c.isalnum() or c in "-._" for c in name)
        port = f":{port}" if port else ""
    return name if valid and (not port or (port[0] == ":" and port[1:].isdecimal())) else None


def is_loopback(name: str) -> bool:
    """Whether a name or address means this machine and no other."""
    address = _address(name)
    return name.lower() == "localhost" or (address is not None and address.is_loopback)


@cache
def _machine_names() -> frozenset[str]:
    """What this machine is called; asked once, for the answer may take a name server."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Guard:
    """Refuses what may not ask, before any page sees it, and adds the headers to every answer."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._access.allows_host(headers.get("host", "")):
            await _refuse(send, 421, "This name is not one of this dashboard's. Use the address it printed.")
        elif headers.get("origin") and headers["origin"].partition("://")[2].lower() != headers["host"].strip().lower():
            await _refuse(send, 403, "Another site may not ask.")
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "The dashboard only reads.")
        elif self._access.token is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            await self._with_token(scope, receive, send, headers)

    async def _with_token(self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]) -> None:
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        asked = next((value for name, value in query if name == "token"), None)
        if asked is not None and self._access.allows_token(asked):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            place = "/" + scope.get("raw_path", b"/").decode("latin-1").lstrip("/") + (f"?{rest}" if rest else "")
            cookie = f"{COOKIE}={asked}; Path=/; HttpOnly; SameSite=Lax"
            await _refuse(send, 303, "", [("location", place), ("set-cookie", cookie)])
        elif self._access.allows_token(_sent_token(headers)):
            await self._app(scope, receive, _with_headers(send))
        else:
            await _refuse(send, 401, "A token is needed: open the address that tbench view printed.")


def _sent_token(headers: dict[str, str]) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def _with_headers(send: Send) -> Send:
    async def sender(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            extra = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present]
            message = {**message, "headers": [*message["headers"], *extra]}
        await send(message)

    return sender


async def _refuse(send: Send, status: int, text: str, headers: list[tuple[str, str]] | None = None) -> None:
    fields = [("content-type", "text/plain; charset=utf-8"), *(headers or [])]
    start = {"type": "http.response.start", "status": status, "headers": [(n.encode(), v.encode()) for n, v in fields]}
    sender = _with_headers(send)
    await sender(start)
    await sender({"type": "http.response.body", "body": f"{text}\n".encode() if text else b""})
