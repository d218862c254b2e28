"""The process that serves a model file: llama.cpp, and in front of it what speaks OpenAI's and Ollama's protocols.

    python -m terminalbench.llm.local.server FOLDER

It ends when the last process that holds a lease of it has ended (`lease`).

OpenAI's paths are handed on to llama.cpp, Ollama's are answered in its words. Who has not the server's token is told
nothing but that the server is well. A question whose asker has gone away is given up, so that a cancelled trial takes
no one's time.
"""

import fcntl
import hmac
import http.client
import json
import os
import secrets
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, override
from urllib.parse import urlsplit

from terminalbench.json_files import read_json, write_json
from terminalbench.llm.local import ollama_api
from terminalbench.llm.local.lease import ENGINE, ServerAccess, ServerOrder, is_there, remove_unused
from terminalbench.locks import start_ticks

_LOOK_SEC = 0.5
_UNUSED_LOOKS = 5
"""How often in a row nobody used it before it ends: a check and the run after it share it."""
_WARNINGS = 2
"""What llama.cpp writes to its log: no line for each question."""


def main(folder: Path) -> None:
    """Serve until nobody uses it any more."""
    order: ServerOrder = read_json(folder / "order.json", ServerOrder)
    Thread(target=_end_with_users, args=(folder,), daemon=True).start()
    token = secrets.token_urlsafe(32)
    engine = _engine(order, token)
    front = LlamaProxy(order, engine.listening_address, token)
    write_json(folder / "server.json", ServerAccess(front.url, os.getpid(), start_ticks(os.getpid()), order, token))
    front.serve_forever()


def _end_with_users(folder: Path) -> None:
    """End this process when it was not used for a while; a folder that was made anew meanwhile is another server's."""
    unused = 0
    with (folder / "users").open("ab", buffering=0) as users:
        while True:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                unused = 0
            else:
                unused += 1
                if not is_there(users, folder / "users"):
                    os._exit(0)
                if unused >= _UNUSED_LOOKS:
                    (folder / "server.json").unlink(missing_ok=True)
                    remove_unused(folder, users)
                    os._exit(0)  # with it goes the lock, for which the next user may wait
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(_LOOK_SEC)


def _engine(order: ServerOrder, token: str) -> Any:
    xllamacpp: Any = import_module(ENGINE)
    wanted = xllamacpp.CommonParams()
    wanted.model.path = order.path
    wanted.model_alias = [order.name]
    wanted.hostnames, wanted.port, wanted.api_keys = ["127.0.0.1"], 0, [token]
    wanted.n_parallel, wanted.n_ctx = order.slots, order.window * order.slots
    wanted.cpuparams.n_threads = order.threads
    wanted.use_jinja, wanted.ctx_shift = True, False  # a prompt that is too long is refused, and never cut
    wanted.warmup, wanted.endpoint_metrics, wanted.verbosity = False, True, _WARNINGS
    return xllamacpp.Server(wanted)


_HANDED_ON = ("/v1/", "/health", "/metrics", "/props", "/slots", "/tokenize", "/detokenize", "/apply-template")
_OPEN = ("/", "/health")
_CHUNK = 1 << 16
_LONGEST = 64 << 20
"""The longest question that is read."""


class _ClientGone(Exception):
    """The asker has closed its connection."""


class LlamaProxy(ThreadingHTTPServer):
    """The server that users see, on a port of this machine's own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, order: ServerOrder, engine: str, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.authorization = f"Bearer {token}"
        self.order = order
        self.engine = urlsplit(engine).netloc

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """An asker that goes away in the middle is no news."""


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LlamaProxy  # ty: ignore[incompatible-mutable-override]  http.server's own is wider
    told: ClassVar[Mapping[str, Any]] = {"/api/version": {"version": "0.0.0-terminalbench"}}

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _LONGEST:
            self.close_connection = True
            self._json({"error": "the question is too long"}, 413)
        else:
            self._answer(self.rfile.read(size))

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing for each question."""

    def _answer(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        with suppress(_ClientGone, BrokenPipeError, ConnectionResetError):
            if path not in _OPEN and not self._known():
                self._json({"error": "this server answers only requests with its token (Authorization: Bearer)"}, 401)
            elif path.startswith("/api/"):
                self._ollama(path, body)
            elif path.startswith(_HANDED_ON):
                self._hand_on(body)
            elif path == "/":
                self._json({"status": "ok"})
            else:
                self._json({"error": f"no such path: {path}"}, 404)

    def _known(self) -> bool:
        given = self.headers.get("Authorization") or ""
        return hmac.compare_digest(given.encode(), self.server.authorization.encode())

    def _hand_on(self, body: bytes) -> None:
        with _LlamaQuestion(self, self.command, self.path, body) as answer:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while data := answer.read1(_CHUNK):
                self._chunk(data)
            self._chunk(b"")

    def _ollama(self, path: str, body: bytes) -> None:
        order = self.server.order
        known = {
            **self.told, "/api/tags": {"models": [ollama_api.listed(order)]},
            "/api/ps": {"models": [ollama_api.listed(order)]},
        }  # fmt: skip
        if path in known:
            return self._json(known[path])
        if path not in ("/api/show", "/api/chat"):
            return self._json({"error": f"{path} is not served; use /api/chat or /v1/chat/completions"}, 404)
        try:
            asked = json.loads(body or b"{}")
            name = asked.get("model") or asked.get("name")
            question = ollama_api.question(asked, order)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            return self._json({"error": str(error) or "not a question"}, 400)
        if name not in (order.name, f"{order.name}:latest"):
            return self._json({"error": f"model '{name}' not found; this server has {order.name}"}, 404)
        if path == "/api/show":
            return self._json(ollama_api.shown(order))
        if not question["messages"]:
            return self._json({**ollama_api.ending({}, "stop", order), "done_reason": "load"})
        return self._chat(question, stream=asked.get("stream", True) is not False)

    def _chat(self, question: dict[str, Any], *, stream: bool) -> None:
        live = stream and "tools" not in question  # an answer in which a call may be is looked at as a whole
        if live:
            question |= {"stream": True, "stream_options": {"include_usage": True}}
        with _LlamaQuestion(self, "POST", "/v1/chat/completions", json.dumps(question).encode()) as answer:
            if answer.status != 200:
                return self._json({"error": _said(answer.read())}, answer.status)
            if live:
                return self._stream(answer)
            whole = ollama_api.answer(json.loads(answer.read()), self.server.order)
            if not stream:
                return self._json(whole)
            self._begin_lines()
            self._line({**whole, "done": False})
            self._line({**whole, "message": {"role": "assistant", "content": ""}})
            return self._chunk(b"")

    def _stream(self, answer: http.client.HTTPResponse) -> None:
        self._begin_lines()
        last: dict[str, Any] = {}
        reason = None
        for event in _events(answer):
            if "error" in event:
                self._line({"error": _said(json.dumps(event).encode())})
                break
            last |= {name: event[name] for name in ("usage", "timings") if event.get(name)}
            for choice in event.get("choices") or ():
                reason = choice.get("finish_reason") or reason
                delta = choice.get("delta") or {}
                if delta.get("content") or delta.get("reasoning_content"):
                    self._line(ollama_api.piece(delta, self.server.order))
        else:
            self._line(ollama_api.ending(last, reason, self.server.order))
        self._chunk(b"")

    def _begin_lines(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _line(self, value: Any) -> None:
        self._chunk(json.dumps(value).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _LlamaQuestion:
    """A question to llama.cpp, whose answer is waited for as long as the asker waits. Raises `_ClientGone`."""

    def __init__(self, asker: _ProxyHandler, method: str, path: str, body: bytes) -> None:
        self._asker = asker
        self._connection = http.client.HTTPConnection(asker.server.engine)
        self._method, self._path, self._body = method, path, body

    def __enter__(self) -> http.client.HTTPResponse:
        try:
            told = {"Content-Type": "application/json", "Authorization": self._asker.server.authorization}
            self._connection.request(self._method, self._path, self._body, told)
            self._wait(self._connection.sock)
            return self._connection.getresponse()
        except BaseException:
            self._connection.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._connection.close()  # llama.cpp gives up what it was about to say

    def _wait(self, engine: socket.socket) -> None:
        asker = self._asker.connection
        waiting = select.poll()
        for end in (asker, engine):
            waiting.register(end, select.POLLIN)
        while engine.fileno() not in (ready := {handle for handle, _ in waiting.poll()}):
            if asker.fileno() in ready:
                if not asker.recv(1, socket.MSG_PEEK):
                    raise _ClientGone
                waiting.unregister(asker)  # its next question is already there


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
            yield json.loads(line[6:])


def _said(body: bytes) -> str:
    with suppress(ValueError, AttributeError, TypeError):
        error = json.loads(body).get("error")
        return str(error.get("message") if isinstance(error, dict) else error)
    return body[:300].decode(errors="replace")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
