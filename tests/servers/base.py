"""What the scripted servers share: a script of turns, an HTTP server in a thread, the requests it saw."""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self, override


@dataclass(frozen=True)
class Tokens:
    """What one answer is billed as."""

    input: int = 1000
    cache_write: int = 0
    cache_read: int = 0
    output: int = 50


@dataclass(frozen=True)
class Turn:
    """One answer of the model: text, then the tools it calls as `(name, arguments)`."""

    text: str = ""
    tools: Sequence[tuple[str, Any]] = ()
    tokens: Tokens = Tokens()


@dataclass(frozen=True)
class Refusal:
    """An error answer: every request gets this status, type and message; with `times`, only so many."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int | None = None


@dataclass(frozen=True)
class Request:
    """One request as the server saw it; `body` is the decoded JSON, or {} when there was none."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class Handler(BaseHTTPRequestHandler):
    """Decodes JSON requests, records them, and hands them to `reply`."""

    protocol_version = "HTTP/1.1"
    scripted: ClassVar["ScriptedServer"]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the tests read `requests`."""

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.scripted.record(request)
        self.scripted.reply(self, request)

    do_GET = do_POST = do_HEAD = _serve

    def send_json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with one JSON document."""
        self.send_bytes(json.dumps(value).encode(), "application/json", status, headers)

    def send_bytes(
        self, data: bytes, kind: str = "text/plain", status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer with a whole body; a HEAD request gets the headers only."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def start_chunks(self, kind: str) -> None:
        """Begin a streamed answer; follow with `chunk` and `end_chunks`."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """Send one piece of a streamed answer now."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end_chunks(self) -> None:
        """Finish a streamed answer."""
        self.wfile.write(b"0\r\n\r\n")


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked may be gone: that is no error of the server."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class ScriptedServer:
    """A model server on a free port of 127.0.0.1 while its `with` block runs.

    The turn to play is the number of assistant messages already in the conversation, so that any number
    of conversations can go on at once and a retried request gets the same answer. Past the end of the
    script the last turn repeats. `pace_sec` is how long the model thinks before each of its turns: a
    conversation that no model could have had in the time is marked as suspect. `billed` is what each answer was
    billed as.
    """

    def __init__(self, script: Sequence[Turn] = (), refusal: Refusal | None = None, *, pace_sec: float = 0.0) -> None:
        self.script = tuple(script)
        self.refusal = refusal
        self.pace_sec = pace_sec
        self.requests: list[Request] = []
        self.billed: list[Tokens] = []
        self._lock = threading.Lock()
        self._refusals = 0
        handler = type("BoundHandler", (Handler,), {"scripted": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, no slash at the end."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def record(self, request: Request) -> None:
        """Keep `request` for the test."""
        with self._lock:
            self.requests.append(request)

    def refused(self) -> Refusal | None:
        """The error answer due now, if any."""
        with self._lock:
            self._refusals += 1
            over = self.refusal is None or (self.refusal.times is not None and self._refusals > self.refusal.times)
            return None if over else self.refusal

    def turn(self, messages: Sequence[Mapping[str, Any]]) -> Turn:
        """The answer due after `messages`, when the model has thought."""
        time.sleep(self.pace_sec)
        said = sum(message.get("role") == "assistant" for message in messages)
        return self._answered(self.script[min(said, len(self.script) - 1)])

    def aside(self) -> Turn:
        """The answer to a side question of the client: a title, a summary."""
        return self._answered(Turn("aside", (), Tokens(7, 0, 0, 3)))

    def _answered(self, turn: Turn) -> Turn:
        with self._lock:
            self.billed.append(turn.tokens)
        return turn

    def reply(self, to: Handler, request: Request) -> None:
        """Answer one request; each server speaks its own protocol here."""
        raise NotImplementedError
