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
from starlette.responses import HTMLResponse, PlainTextResponse, Response
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
    """Where the site listens, and the token it asks for: on a loopback address too, which every user here can reach.

    `once` is for the command line of a browser, which every user can read: the first visit uses it up.
    """

    host: str
    token: str
    once: str | None = None

    @property
    def loopback(self) -> bool:
        """Return whether only this machine can reach it."""
        return is_loopback(self.host)

    def allows_host(self, header: str) -> bool:
        """Return whether a Host header may be ours. A name somebody else controls could point here: it is refused."""
        name = host_name(header)
        if name is None:
            return False
        if is_loopback(name):
            return True
        if self.loopback:
            return False
        return name == self.host.lower() or name in _machine_names() or _address(name) is not None

    def allows_token(self, given: str | None) -> bool:
        """Return whether the token is right, compared in constant time."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def is_once(self, given: str) -> bool:
        """Return whether it is the one for a single visit."""
        return self.once is not None and hmac.compare_digest(given.encode(), self.once.encode())


def make_access(host: str, token: str | None = None) -> Access:
    """Access for a bind address, with a new token unless one is given."""
    return Access(host, token or secrets.token_urlsafe(24), secrets.token_urlsafe(24))


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
    """Return whether a name or address means this machine and no other."""
    address = _address(name)
    return name.lower() == "localhost" or (address is not None and address.is_loopback)


@cache
def _machine_names() -> frozenset[str]:
    """Return what this machine is called; asked once, for the answer may take a name server."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class RequestGuard:
    """Refuses what may not ask, before any page sees it, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._used = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(Request(scope)) or self._app
            await answer(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """Return what is answered in the place of a page; None: the page is."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not self._access.allows_host(host):
            return PlainTextResponse(
                "The dashboard does not answer to this host name. Use the address that it printed.\n", 421
            )
        if origin and origin.partition("://")[2].lower() != host.strip().lower():
            return PlainTextResponse("Requests from other sites are refused.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("The dashboard is read-only.\n", 405)
        asked = request.query_params.get("token")
        if asked is not None and (self._access.allows_token(asked) or self._visits_once(asked)):
            rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
            place = (
                "/" + request.scope.get("raw_path", b"/").decode("latin-1").lstrip("/") + (f"?{rest}" if rest else "")
            )
            answer = PlainTextResponse("", 303, {"location": place})
            answer.set_cookie(cookie_name(request), self._access.token, httponly=True, samesite="lax")
            return answer
        sent = _sent_token(request)
        if self._access.allows_token(sent):
            return None
        wrong = asked is not None or sent is not None
        return HTMLResponse(_REFUSED.format(_WRONG if wrong else _NONE), 401, {"www-authenticate": "Bearer"})

    def _visits_once(self, asked: str) -> bool:
        if self._used or not self._access.is_once(asked):
            return False
        self._used = True
        return True


_REFUSED = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A token is needed</title>
<h1>A token is needed</h1>
<p>{}</p>
<p>Open the address that <code>tbench view</code> printed, which ends with <code>?token=...</code>; or start it with
<code>tbench view --open</code>. Programs send <code>Authorization: Bearer ...</code>.</p>
</html>
"""
_NONE = "This dashboard shows its results only to the person who started it."
_WRONG = "The token is not this dashboard's: each start has a new one, unless TERMINALBENCH_VIEW_TOKEN sets it."


def cookie_name(request: Request) -> str:
    """The cookie of this dashboard: cookies are of a host and not of a port, and another may run beside it."""
    server = request.scope.get("server") or ("", "")
    return f"{COOKIE}_{server[1]}"


def _sent_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.cookies.get(cookie_name(request))


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender
