"""A thread that appends events to a file in order, so that Harbor's event loop never waits for a disk."""

import queue
import sys
import threading
from collections import deque
from pathlib import Path

import msgspec

from terminalbench.json_files import append_jsonl
from terminalbench.records.event import Event
from terminalbench.secrets.values import Secrets

BACKLOG = 10_000
STOP_TIMEOUT_SEC = 10.0
RETRY_SEC = 1.0
_SAID_LIMIT = 20


class EventWriter:
    """Appends what is `put` to `path`; what cannot be written is kept, counted and tried again.

    Failures go to stderr and to `<path>.errors.log`, and their number is in `detail.failures` of the next line
    that is written. `secrets` are those of this process.
    """

    def __init__(self, path: Path) -> None:
        self.secrets = Secrets.of_environment()
        self.path = path
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._waiting: deque[Event] = deque()
        self._failures = 0
        self._said = 0
        self._lost = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Events put before are written then."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="events", daemon=True)
            self._thread.start()

    def put(self, event: Event) -> None:
        """Hand over one event; never waits, never raises."""
        self._queue.put(event)

    def stop(self) -> None:
        """Write what is left and end the thread. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(STOP_TIMEOUT_SEC)

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure and say so; never raises."""
        text = self.secrets.one_line(f"{what}: {type(error).__name__}: {error}")
        with self._lock:
            self._failures += 1
            self._said += 1
            if self._said > _SAID_LIMIT:
                return
        try:
            print(f"terminalbench events: {text}", file=sys.stderr, flush=True)
            append_jsonl(self.path.with_name(f"{self.path.name}.errors.log"), text)
        except (OSError, ValueError):
            return  # neither stderr nor the disk: the count in the next event is what remains

    def _run(self) -> None:
        while True:
            try:
                event = self._queue.get(timeout=RETRY_SEC if self._waiting else None)
            except queue.Empty:
                self._drain()
                continue
            if event is None:
                self._drain()
                return
            self._waiting.append(event)
            if len(self._waiting) > BACKLOG:
                self._waiting.popleft()
                self._lost += 1
            if self._queue.empty() or len(self._waiting) == 1:
                self._drain()

    def _drain(self) -> None:
        while self._waiting:
            with self._lock:
                failures, lost = self._failures, self._lost
            try:
                append_jsonl(self.path, _counted(self._waiting[0], failures, lost))
            except OSError as error:
                self.failed("write", error)
                return
            except (TypeError, ValueError, NotImplementedError) as error:
                self.failed("encode", error)  # it can never be written; the others can
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            with self._lock:
                self._failures -= failures
                self._lost -= lost


def _counted(event: Event, failures: int, lost: int) -> Event:
    told = {name: count for name, count in (("failures", failures), ("lost", lost)) if count}
    return msgspec.structs.replace(event, detail={**event.detail, **told}) if told else event
