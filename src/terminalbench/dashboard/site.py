"""What the pages are made from: the index, read on one connection a thread, and a few things kept in memory."""

import os
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from terminalbench.analytics.atif import Trajectory, UnreadableTrajectory
from terminalbench.analytics.long_trajectory import LIVE_FILES, PRINTED, log_trajectory, open_long, spent_so_far
from terminalbench.archivist.store import memory_of, memory_stamp
from terminalbench.dashboard.frame import LESSONS, NIGHTS, TRAININGS, TRIAL, NotFound, night_results_path
from terminalbench.dashboard.live import LiveFeed, ShownState
from terminalbench.dashboard.safe_files import open_below
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import env_stamps, secrets_of
from terminalbench.experiments.plan import Plan
from terminalbench.index.pages import BatchSummary, find_batch, find_trial
from terminalbench.index.places import ForeignJobs, plan_or_none
from terminalbench.index.queries import BatchView, TrialRow, view_batch
from terminalbench.index.scan import scan_all
from terminalbench.index.store import index_mark, open_for_reading
from terminalbench.json_files import read_jsonl
from terminalbench.overnight.nights import night_results, night_stamps
from terminalbench.records.trial import Finding
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import cost
from terminalbench.trainer.training import training_stamps

TRAJECTORY_LIMIT = 256 << 20
_KEPT_VIEWS = 48
_LATER_SEC = 0.3
_KEPT_TRAJECTORIES_BYTES = 128 << 20
_READ_AGAIN_SEC = 120.0
"""How long a trajectory is kept after somebody has looked at it."""


class Site:
    """A results root as the pages see it. Threads may share it.

    `closing` ends what streams; `live` are the batches that run now; `analyses` counts, by batch, how often its
    failures were classified here.
    `secrets` are those of every batch that was looked at: a page may show several. The results of a night are a site
    of their own `within` this one, whose addresses begin with `prefix`; `nights` are those that were looked at.
    """

    def __init__(
        self,
        results_root: Path,
        now: Callable[[], datetime] | None = None,
        around: "Site | None" = None,
        night: str = "",
    ) -> None:
        self.root = results_root.resolve()
        self.night = night
        self.prefix = night_results_path(night) if night else ""
        self.nights: dict[Path, Site] = {}
        self._around = around
        self.now = now or (lambda: datetime.now(UTC))
        self.secrets = Secrets.of_environment()
        self.closing = False
        self.live: tuple[str, ...] = ()
        self.analyses: dict[str, int] = {}
        self._views = ResultCache(_KEPT_VIEWS)
        self._trajectories = ResultCache(_KEPT_TRAJECTORIES_BYTES)
        self._feeds: dict[str, LiveFeed] = {}
        self._asked: set[Hashable] = set()
        self._lock = threading.Lock()
        self._local = threading.local()

    @property
    def index(self) -> sqlite3.Connection:
        """This thread's connection; opened anew when the index was deleted or replaced meanwhile."""
        found = getattr(self._local, "index", None)
        if found is None or found[0] != index_mark(self.root):
            if found is not None:
                found[1].close()
            connection = open_for_reading(self.root)
            found = (index_mark(self.root), connection)
            self._local.index = found
        return found[1]

    def close(self) -> None:
        """Close this thread's connection."""
        found = getattr(self._local, "index", None)
        if found is not None:
            found[1].close()
            del self._local.index

    @property
    def project(self) -> Path:
        """The folder of the project that the results belong to."""
        return memory_of(self.root).parent

    def state(self, batch: str) -> str:
        """A word that changes when there is something new to see: of what `Ask.feed` names, with "" in the list."""
        place, batch = self.within(batch)
        if place is not self:
            return place.state(batch)
        batch, _, trial = batch.partition(TRIAL)
        if batch == NIGHTS:
            found = tuple(night_stamps(self.root))
        elif batch == LESSONS:
            found = (memory_stamp(memory_of(self.root)), self._latest())
        elif batch == TRAININGS:
            found = (tuple(training_stamps(self.project)), self._latest())
        elif batch:
            row = self.index.execute("SELECT version FROM summaries WHERE batch = ?", (batch,)).fetchone()
            running = batch in self.live
            seen = self.feed(batch).version() if running else None
            found = (row[0] if row else None, running, seen, self.analyses.get(batch))
            shown = [trial] if trial else self.feed(batch).shown() if running else []
            found += tuple(self._written(batch, one) for one in shown) if running else ()
        else:
            found = (*self._latest(), self.live, *night_stamps(self.root), *training_stamps(self.project))
        return f"{crc32(repr(found).encode()):08x}"

    def within(self, path: str) -> "tuple[Site, str]":
        """The site that a path is of, and the path there: the results of a night begin with `night_results_path`.

        Raises NotFound for a night that is not there.
        """
        head, *rest = path.split("/", 3)
        if head != NIGHTS.rstrip("/") or len(rest) < 3 or rest[1] != "results":
            return self, path
        night = unquote(rest[0], errors="surrogateescape")
        folder = night_results(self.root).get(night) if self._around is None else None
        if folder is None:
            raise NotFound(f"there is no night {night} with results of its own")
        with self._lock:
            found = self.nights.get(folder)
        if found is None:
            scan_all(folder)
            found = Site(folder, self.now, self, night)
            with self._lock:
                found = self.nights.setdefault(folder, found)
        return found, rest[2]

    def _written(self, batch: str, trial: str) -> tuple[object, ...]:
        """Return how much a running trial, `<job>/<name>`, has written of its trajectory, or of its client's log."""
        job, _, name = trial.partition("/")
        if ".." in trial.split("/"):
            return ()
        found: list[object] = []
        for file in LIVE_FILES:
            with suppress(OSError, ValueError):
                status = self.batch(batch).runs.joinpath(job, name, *file.split("/")).lstat()
                found += [file, status.st_size, status.st_mtime_ns]
        return tuple(found)

    def _latest(self) -> tuple[object, ...]:
        return tuple(self.index.execute("SELECT count(*), max(version) FROM summaries").fetchone())

    def batch(self, key: str) -> Batch:
        """Return where a batch lies."""
        return ForeignJobs(self.root) if key == "." else Batch(self.root / key)

    def summary(self, key: str) -> BatchSummary:
        """Return what the index says of a batch. Raises NotFound."""
        found = find_batch(self.index, key)
        if found is None:
            raise NotFound(f"there is no batch {key}")
        self._learn(key)
        return found

    def _learn(self, key: str) -> None:
        """Know the secrets of a batch before anything of it is shown."""
        stamp, found = self._plan(key)
        if stamp is None:
            return
        known = self._views.get(("secrets", key, stamp, env_stamps(found)), lambda: secrets_of(found))
        for site in filter(None, (self, self._around)):
            with site._lock:
                site.secrets |= known

    def _plan(self, key: str) -> tuple[int | None, Plan | None]:
        """The plan of a batch and when it was written; None without such a file."""
        batch = self.batch(key)
        try:
            stamp = batch.plan_json.stat().st_mtime_ns
        except OSError:
            return None, None
        return stamp, self._views.get(("plan", key, stamp), lambda: plan_or_none(batch))

    def is_oracle(self, key: str, profile: str | None) -> bool:
        """Return whether a profile of a batch sees the hidden verdict."""
        plan = self._plan(key)[1]
        return plan is not None and profile in plan.oracles()

    def trial_cost(self, key: str, row: TrialRow) -> str:
        """Return what a trial cost, in words; of a profile that calls no model there is nothing to know."""
        plan = self._plan(key)[1]
        return cost(row.usage.cost_usd, no_model=plan is not None and row.profile in plan.without_model())

    def view(self, summary: BatchSummary) -> BatchView | None:
        """The state of every planned cell; None for a batch without a plan. Kept until the index knows more."""
        key = ("view", summary.batch, summary.version)

        def make() -> BatchView | None:
            batch = self.batch(summary.batch)
            return view_batch(batch, self.root) if plan_or_none(batch) is not None else None

        return self._views.get(key, make)

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, kept in memory under a key that names everything it depends on."""
        return self._views.get(key, make)

    def holds(self, key: Hashable) -> bool:
        """Return whether it is kept."""
        return self._views.holds(key)

    def made(self, batch: str, key: Hashable, make: Callable[[], Any], instead: Any = None, *, wait: bool) -> Any:
        """`make()`, kept; else, unless it is to `wait`, `instead`: it is made in the background, and pages are told."""
        if wait or self._views.holds(key):
            return self._views.get(key, make)

        def work() -> None:
            self._views.get(key, make)
            with self._lock:
                self._asked.discard(("later", key))  # it may be made once more when it is kept no longer
            self.analyses[batch] = self.analyses.get(batch, 0) + 1

        if self.first_time(("later", key)):
            waiting = threading.Timer(_LATER_SEC, work)  # the page that asks is made first
            waiting.daemon = True
            waiting.start()
        return instead

    def first_time(self, key: Hashable) -> bool:
        """Return whether nobody has asked this for `key` before."""
        with self._lock:
            known = key in self._asked
            self._asked.add(key)
            return not known

    def trial(self, batch: str, job: str, name: str) -> TrialRow:
        """A trial the index knows. Raises NotFound."""
        found = find_trial(self.index, batch, job, name)
        if found is None:
            raise NotFound(f"there is no trial {name} in {batch}")
        self._learn(batch)
        return found

    def trial_names(self, batch: str, row: TrialRow) -> tuple[str, ...]:
        """The names that lead from the results root to a trial's folder."""
        place = self.batch(batch)
        parent = place.superseded if row.superseded else place.runs
        return (*parent.relative_to(self.root).parts, row.job, row.name)

    def trial_folder(self, batch: str, row: TrialRow) -> Path:
        """A trial's folder."""
        return self.root.joinpath(*self.trial_names(batch, row))

    def trajectory(self, names: tuple[str, ...], *, live: bool = False) -> Trajectory:
        """A trajectory below the results root, or the log of an agent that runs. Raises UnreadableTrajectory.

        A `live` one is read as a whole: it may be written anew while its steps are asked for.
        """
        try:
            opened = open_below(self.root, names)
        except NotFound as error:
            raise UnreadableTrajectory(str(error)) from None
        with os.fdopen(opened.handle, "rb") as stream:
            status = os.fstat(stream.fileno())
            if opened.size > TRAJECTORY_LIMIT:
                raise UnreadableTrajectory(f"it is larger than {TRAJECTORY_LIMIT >> 20} MB")

            def read() -> Trajectory:
                found = None if live or names[-1] in PRINTED else open_long(stream, self.secrets.conceal_bytes)
                stream.seek(0)
                return found or log_trajectory(names[-1], self.secrets.conceal_bytes(stream.read()))

            key = ("trajectory", names, status.st_size, status.st_mtime_ns)
            return self._trajectories.get(key, read, max(1, opened.size))

    def spent_so_far(self, key: str, job: str, name: str, profile: str | None) -> str | None:
        """The steps, tokens and cost of a trial that runs, in words; None while nothing tells."""
        folder, plan = self.batch(key).runs / job / name, self._plan(key)[1]
        no_model = plan is not None and profile in plan.without_model()
        for file in LIVE_FILES:
            with suppress(UnreadableTrajectory):
                found = self.trajectory((*folder.relative_to(self.root).parts, *file.split("/")), live=True)
                return spent_so_far(found, folder).words(no_model=no_model)
        return None

    def findings(self, key: str) -> dict[str, list[Finding]]:
        """Return what analyzers said of a batch's trials, by `<job>/<name>`; empty before an analysis."""
        file = self.batch(key).analytics / "findings.jsonl"
        try:
            status = file.stat()
        except OSError:
            return {}

        def read() -> dict[str, list[Finding]]:
            by_trial: dict[str, list[Finding]] = {}
            for finding in read_jsonl(file, Finding).records:
                by_trial.setdefault(finding.trial, []).append(finding)
            return by_trial

        return self._views.get(("findings", key, status.st_size, status.st_mtime_ns), read)

    def feed(self, key: str) -> LiveFeed:
        """The live state of a batch, shared by everybody who looks at it."""
        with self._lock:
            if key not in self._feeds:
                self._feeds[key] = LiveFeed(self.batch(key))
            return self._feeds[key]

    def live_state(self, key: str) -> ShownState | None:
        """Return how far a batch is, while it runs."""
        return self.feed(key).state(self.now().timestamp()) if key in self.live else None

    def runs(self, batch: str, row: TrialRow) -> bool:
        """Return whether a trial runs now: it has no result, and its batch says that it is at it."""
        if row.trial is not None or batch not in self.live:
            return False
        return self.feed(batch).runs(row.job, row.name)

    def forget_trajectories(self) -> None:
        """Let go of those that nobody reads any more: one may take twice the memory of its file."""
        self._trajectories.forget(time.monotonic() - _READ_AGAIN_SEC)

    def forget_feeds(self, keep: tuple[str, ...]) -> None:
        """Let go of the live state of batches that have ended."""
        with self._lock:
            for key in set(self._feeds) - set(keep):
                del self._feeds[key]


class ResultCache:
    """The latest results, as many as fit into `room`; each takes its `size`."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: OrderedDict[Hashable, tuple[Any, int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def holds(self, key: Hashable) -> bool:
        """Return whether it is kept."""
        with self._lock:
            return key in self._items

    def get(self, key: Hashable, make: Callable[[], Any], size: int = 1) -> Any:
        """The result kept under `key`, or made now. Two threads may make the same one; the result is the same."""
        with self._lock:
            if key in self._items:
                value, size, _ = self._items.pop(key)
                self._items[key] = (value, size, time.monotonic())
                return value
        value = make()
        with self._lock:
            self._items[key] = (value, size, time.monotonic())
            while sum(taken for _, taken, _ in self._items.values()) > self._room and len(self._items) > 1:
                self._items.popitem(last=False)
        return value

    def forget(self, before: float) -> None:
        """Let go of what nobody has asked for since that moment of the monotonic clock."""
        with self._lock:
            for key in [key for key, (_, _, used_at) in self._items.items() if used_at < before]:
                del self._items[key]
