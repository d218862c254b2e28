"""Keeping the index up to date while pages are served: a thread that looks for changes and scans only what changed."""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from terminalbench.dashboard.frame import NotFound
from terminalbench.dashboard.pages.batch import prepare_batch
from terminalbench.dashboard.render import environment
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.index import pages
from terminalbench.index.places import ForeignJobs, find_batches
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.live.processes import live_processes

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
