#!/bin/bash
set -eu
cat > /app/serve <<'PY'
#!/usr/bin/env python3
"""Item store over HTTP: serve PORT FILE."""

import base64
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Store:
    def __init__(self, path):
        self.path, self.lock, self.items = path, threading.Lock(), {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                self.items = {key: base64.b64decode(value) for key, value in json.load(stream).items()}

    def save(self):
        temporary = self.path + ".tmp"
        with open(temporary, "w", encoding="utf-8") as stream:
            json.dump({key: base64.b64encode(value).decode() for key, value in self.items.items()}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self.path)

    def put(self, key, body):
        with self.lock:
            new = key not in self.items
            self.items[key] = body
            self.save()
        return 201 if new else 204

    def delete(self, key):
        with self.lock:
            if self.items.pop(key, None) is None:
                return 404
            self.save()
        return 204


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", kind="application/octet-stream"):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", kind)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        store = self.server.store
        if path == "/items":
            if self.command != "GET":
                return self.answer(405)
            with store.lock:
                keys = sorted(store.items)
            return self.answer(200, json.dumps(keys).encode(), "application/json")
        key = unquote(path[len("/items/"):]) if path.startswith("/items/") else ""
        if not key:
            return self.answer(404)
        if self.command == "PUT":
            return self.answer(store.put(key, body))
        if self.command == "DELETE":
            return self.answer(store.delete(key))
        if self.command != "GET":
            return self.answer(405)
        with store.lock:
            value = store.items.get(key)
        return self.answer(404) if value is None else self.answer(200, value)

    do_GET = do_PUT = do_DELETE = do_POST = do_PATCH = do_HEAD = do_OPTIONS = handle_request

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
server.store = Store(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(poll_interval=0.1)
PY
chmod 755 /app/serve
