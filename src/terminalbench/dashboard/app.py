"""The server: Starlette around `answers`, server-sent events for what is live, and the guard in front."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from terminalbench.dashboard.answers import HttpReply, answer
from terminalbench.dashboard.frame import NotFound, OpenFile, Page, Redirect
from terminalbench.dashboard.links import Links
from terminalbench.dashboard.render import render
from terminalbench.dashboard.security import Access, RequestGuard
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError
from terminalbench.secrets.values import Secrets

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
