"""Who may ask: the Host header, the token, the methods; and the headers every answer carries."""

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(Request(scope)) or self._app
            await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """What is answered in the place of a page; None: the page is."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not self._access.allows_host(host):
            return PlainTextResponse("This name is not one of this dashboard's. Use the address it printed.\n", 421)
        if origin and origin.partition("://")[2].lower() != host.strip().lower():
            return PlainTextResponse("Another site may not ask.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("The dashboard only reads.\n", 405)
        if self._access.token is None:
            return None
        asked = request.query_params.get("token")
        if asked is not None and self._access.allows_token(asked):
            rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
            place = (
                "/" + request.scope.get("raw_path", b"/").decode("latin-1").lstrip("/") + (f"?{rest}" if rest else "")
            )
            answer = PlainTextResponse("", 303, {"location": place})
            answer.set_cookie(COOKIE, asked, httponly=True, samesite="lax")
            return answer
        if self._access.allows_token(_sent_token(request)):
            return None
        return PlainTextResponse("A token is needed: open the address that tbench view printed.\n", 401)


def _sent_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE)


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender
