"""Running the dashboard until it is interrupted, with connections that are bounded in number and patience.

A slow or silent connection holds up no other. A thread keeps the index up to date: it looks for changes and scans only
what changed.
"""

import asyncio
import fcntl
import logging
import os
import socket
import sqlite3
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import override

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from terminalbench.dashboard.app import Access, make_app
from terminalbench.dashboard.frame import NotFound
from terminalbench.dashboard.pages.batch import prepare_batch
from terminalbench.dashboard.render import environment
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index import pages
from terminalbench.index.places import ForeignJobs, find_batches
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.live.processes import live_processes


class SiteServer(uvicorn.Server):
    """The server of a site."""

    def __init__(self, site: Site, access: Access) -> None:
        self._site = site
        config = uvicorn.Config(
            make_app(site, access),
            http=Connection,
            ws="none",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; open streams end by themselves."""
        self._site.closing = True
        super().handle_exit(sig, frame)


def serve(site: Site, access: Access, port: int, ready: Callable[[str, str], None]) -> None:
    """Serve until interrupted. `ready` gets the address for people, and one that can be opened once, when it is up."""
    bound = _bind(access.host, port)
    refresher = Refresher(site)
    try:
        refresher.start()
        number = bound.getsockname()[1]
        ready(address(access.host, number, access.token), address(access.host, number, access.once or access.token))
        SiteServer(site, access).run(sockets=[bound])
    except KeyboardInterrupt:
        return
    finally:
        refresher.stop()
        bound.close()


def address(host: str, port: int, token: str) -> str:
    """The address a person opens, with a token."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104  recognised, not bound
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/?token={token}"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # whoever comes before the server is up waits for it
    except OSError as error:
        bound.close()
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hint="another --port may be free"
        ) from None
    return bound


MOST_CONNECTIONS = 256
"""Of one more, the one that has asked for nothing for the longest time makes room."""
ASK_SEC = 15.0
"""What a client has to send a whole request: the first, or the next after an answer."""
READ_SEC = 60.0
"""How long a client may take nothing of an answer."""
LOOK_SEC = 1.0


class Connection(H11Protocol):
    """A connection that is closed when its client neither asks nor reads."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is here; one that holds a connection for nothing may have to leave for it."""
        super().connection_made(transport)
        self._since = self._read_at = self.loop.time()
        self._unread = 0
        self._look_later(self._since)
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        here = [one for one in others if not one.transport.is_closing()]
        if len(here) >= MOST_CONNECTIONS:
            idle = [one for one in here if one.waits]
            (min(idle, key=lambda one: one._since) if idle else self).transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._look.cancel()
        super().connection_lost(exc)

    @override
    def on_response_complete(self) -> None:
        """Let the client ask again."""
        self._since = self.loop.time()
        super().on_response_complete()

    @override
    def resume_writing(self) -> None:
        """The client has read on."""
        self._read_at = self.loop.time()
        super().resume_writing()

    @property
    def waits(self) -> bool:
        """Return whether no request is being answered: none was sent whole, or the last answer is complete."""
        return self.cycle is None or self.cycle.response_complete

    def _in_kernel(self) -> int:
        """Return what the kernel still holds of the answer: it asks for more only when a good part of it was taken."""
        held = array("i", [0])
        try:
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, held)
        except OSError:  # it is being closed
            return 0
        return held[0]

    def _look_later(self, now: float) -> None:
        self._due = now + LOOK_SEC
        self._look = self.loop.call_at(self._due, self._judge)

    def _judge(self) -> None:
        now, unread = self.loop.time(), self.transport.get_write_buffer_size() + self._in_kernel()
        self._read_at = min(
            now, self._read_at + now - self._due
        )  # the server was held up: that is not the client's time
        if not unread or unread < self._unread:
            self._read_at = now
        self._unread = unread
        if (self.waits and not unread and now - self._since > ASK_SEC) or now - self._read_at > READ_SEC:
            self.transport.abort()
        else:
            self._look_later(now)


EVERY_SEC = 1.0
WHOLE_EVERY_SEC = 60.0
_PREPARED = 3
"""Batches, those that run and the newest, of which the first look does not wait for what takes long."""
_SHARE = 5.0
"""A look costs at most one part in so many of the time: a large results root is looked at less often."""


class Refresher:
    """Looks for changes every second, more rarely where a look takes long, and at everything once a minute."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._seen: dict[str, tuple[object, ...]] = {}
        self._nights: dict[Path, Refresher] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Bring the index up to date once, then go on in the background."""
        # Noted before the scan: what changes while it goes on is found by the look that follows.
        self._seen = {self._key(batch): _mark(batch) for batch in self._batches()}
        scan_all(self._site.root)
        self.look()
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        import terminalbench.analytics.compare  # noqa: F401  takes seconds: nobody should wait for it at a page

        for template in environment().list_templates():
            environment().get_template(template)
        self.prepare()
        whole_at = time.monotonic() + WHOLE_EVERY_SEC
        pause = EVERY_SEC
        while not self._stop.wait(pause):
            started = time.monotonic()
            try:
                if started >= whole_at:
                    scan_all(self._site.root)
                    whole_at = time.monotonic() + max(WHOLE_EVERY_SEC, _SHARE * (time.monotonic() - started))
                self.look()
            except (
                TbenchError,
                OSError,
                sqlite3.Error,
            ) as error:  # the next look may succeed
                logging.getLogger(__name__).warning("the index could not be refreshed: %s", error)
            pause = max(EVERY_SEC, _SHARE * (time.monotonic() - started))

    def prepare(self) -> None:
        """Have what takes long at the first look at the newest batches made before it."""
        first = pages.Window(1, _PREPARED)
        try:
            for summary in pages.find_batches(self._site.index, pages.BatchFilter(), first, self._site.live).items:
                if not self._stop.is_set():
                    prepare_batch(self._site, summary)
        except (NotFound, TbenchError, OSError, sqlite3.Error) as error:  # the page of the batch says it
            logging.getLogger(__name__).warning("a batch could not be prepared: %s", error)

    def look(self) -> None:
        """Scan the batches whose files changed since the last look, and note which ones run."""
        live = []
        for batch in self._batches():
            key = self._key(batch)
            if live_processes(batch):
                live.append(key)
            mark = _mark(batch)
            if self._seen.get(key) != mark:
                scan_batch(batch, self._site.root)
                self._seen[key] = mark
        self._site.live = tuple(live)
        self._site.forget_feeds(self._site.live)
        self._site.forget_trajectories()
        for folder, site in list(self._site.nights.items()):
            self._nights.setdefault(folder, Refresher(site)).look()

    def _batches(self) -> Iterator[Batch]:
        """Those with events; no events tell of a change in a folder of jobs, and the whole scan finds it."""
        return (batch for batch in find_batches(self._site.root) if not isinstance(batch, ForeignJobs))

    def _key(self, batch: Batch) -> str:
        return batch.folder.relative_to(self._site.root).as_posix()


def _mark(batch: Batch) -> tuple[object, ...]:
    return (_status(batch.events_jsonl), _status(batch.plan_json), _status(batch.index_json))


def _status(path: "os.PathLike[str]") -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116  for every batch, every second
    except OSError:
        return (0, 0)
    return (found.st_size, found.st_mtime_ns)
