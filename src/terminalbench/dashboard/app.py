"""The server: Starlette around `answers`, server-sent events for what is live, and the guard in front: the Host
header, the token and the methods decide who may ask.
"""

import asyncio
import hmac
import ipaddress
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from terminalbench.dashboard.answers import HttpReply, answer
from terminalbench.dashboard.frame import Links, NotFound, OpenFile, Page, Redirect
from terminalbench.dashboard.render import render
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError
from terminalbench.secrets.values import Secrets

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


POLL_SEC = 0.5
PING_SEC = 15.0
STREAM_SEC = 600.0
"""A stream ends after so long, and a page that still reads asks for another: one that does not is let go."""
MOST_STREAMS = 64
"""Pages that are told of changes at once; each costs a look every half second. The others are not live."""


class _AnyPath(PathConvertor):
    """A whole path, whatever is in it: a file may have a newline in its name, which `path` does not take."""

    regex = r"[\s\S]*"


def make_app(site: Site, access: Access) -> RequestGuard:
    """The dashboard of a results root."""

    async def page(request: Request) -> Response:
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0].removeprefix("/")
        try:
            reply = await run_in_threadpool(answer, site, path, dict(request.query_params))
            return _response(reply, site.secrets)
        except Redirect as to:
            return RedirectResponse(f"/{to.path}" + (f"?{urlencode(to.query)}" if to.query else ""), 308)
        except NotFound as error:
            return _problem(site, str(error), 404)
        except TbenchError as error:
            return _problem(site, str(error), 500)

    streams: set[object] = set()

    async def events(request: Request) -> Response:
        if len(streams) >= MOST_STREAMS:
            return PlainTextResponse(
                "Too many pages are open, so this one is not updated live.\n", 503, {"retry-after": "30"}
            )
        batch, seen = request.query_params.get("batch", ""), request.query_params.get("seen")
        return _EventStream(streams, _events(site, request, batch, seen))

    register_url_convertor("any_path", _AnyPath())
    smaller = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)  # a stream of events stays as it is
    app = Starlette(routes=[Route("/events", events), Route("/{path:any_path}", page)], middleware=[smaller])
    return RequestGuard(app, access)


def _response(reply: HttpReply, secrets: Secrets) -> Response:
    headers = {}
    if reply.name is not None:
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in reply.name)
        headers["content-disposition"] = f'attachment; filename="{plain}"'
    if reply.file is not None:
        return StreamingResponse(_chunks(reply.file, secrets), media_type=reply.media, headers=headers)
    if reply.media.startswith("text/") or reply.media == "application/json":
        headers["content-type"] = f"{reply.media}; charset=utf-8"
    if reply.media in ("text/css", "text/javascript", "image/svg+xml"):
        headers["cache-control"] = "max-age=60"
    return Response(reply.body, media_type=reply.media, headers=headers)


async def _chunks(file: OpenFile, secrets: Secrets) -> AsyncIterator[bytes]:
    """The file as it was when it was opened, concealed, in pieces: what is appended meanwhile is left out."""
    left = file.size

    def read(size: int) -> bytes:
        nonlocal left
        data = os.read(file.handle, min(size, left))
        left -= len(data)
        return data

    pieces = secrets.pieces(read)
    try:
        while (piece := await run_in_threadpool(lambda: next(pieces, None))) is not None:
            yield piece
    finally:
        os.close(file.handle)


def _problem(site: Site, text: str, status: int) -> Response:
    page = Page("Not found" if status == 404 else "Something failed", "problem.html", {"problem": text})
    return HTMLResponse(render(site, page, Links("", absolute=True)), status)


class _EventStream(StreamingResponse):
    """A stream that is one of `streams` from its request on until it ends or its reader has gone."""

    def __init__(self, streams: set[object], content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._streams = streams
        streams.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.discard(self)


async def _events(site: Site, request: Request, batch: str, seen: str | None) -> AsyncIterator[bytes]:
    """Says `change` whenever what a page shows may have changed. One batch, or with "" the list of batches.

    `seen` is the state that the page shows: something may have happened between it and this stream.
    """
    last = seen
    quiet = 0.0
    end = time.monotonic() + STREAM_SEC
    yield b"retry: 2000\n\nevent: hello\ndata: {}\n\n"
    while not site.closing and time.monotonic() < end and not await request.is_disconnected():
        state = await run_in_threadpool(site.state, batch)
        if last is None:
            last = state
        if state != last:
            last, quiet = state, 0.0
            yield b"event: change\ndata: {}\n\n"
        elif quiet >= PING_SEC:
            quiet = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(POLL_SEC)
        quiet += POLL_SEC
