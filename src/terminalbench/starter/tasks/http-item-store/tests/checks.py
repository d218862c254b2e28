"""Starts the service on a free loopback port and talks to it as a client would."""

import http.client
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

# What keeps the program from the reward and the tests while it runs, where the bench has it.
CONFINE = runpy.run_path(os.environ["TBENCH_RUN_PROGRAM"])["confine"] if "TBENCH_RUN_PROGRAM" in os.environ else None

RANDOM = random.Random(48611)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Service:
    def __init__(self, file):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["/app/serve", str(self.port), file],
            preexec_fn=CONFINE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        for _ in range(200):
            if self.process.poll() is not None:
                raise AssertionError(f"the service ended with {self.process.returncode} at its start")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.kill()
        raise AssertionError("the service does not listen")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body=body)
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers.get_content_type()
        finally:
            connection.close()

    def put(self, key, body):
        return self.ask("PUT", "/items/" + quote(key, safe=""), body)[0]

    def get(self, key):
        status, body, _ = self.ask("GET", "/items/" + quote(key, safe=""))
        return body if status == 200 else status

    def keys(self):
        status, body, kind = self.ask("GET", "/items")
        assert (status, kind) == (200, "application/json"), (status, kind)
        return json.loads(body)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)  # five seconds are asked for; the rest is for a busy machine
        finally:
            self.kill()

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(5)


class ItemStore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = str(Path(folder.name, "items.store"))
        self.service = self.start()

    def start(self):
        service = Service(self.file)
        self.addCleanup(service.kill)
        return service

    def test_life_of_an_item(self):
        body = RANDOM.randbytes(3000)
        self.assertEqual(self.service.keys(), [])
        self.assertEqual(self.service.get("a"), 404)
        self.assertEqual(self.service.put("a", body), 201)
        self.assertEqual(self.service.get("a"), body)
        self.assertEqual(self.service.put("a", b""), 204)
        self.assertEqual(self.service.get("a"), b"")
        self.assertEqual(self.service.ask("DELETE", "/items/a")[0], 204)
        self.assertEqual(self.service.ask("DELETE", "/items/a")[0], 404)
        self.assertEqual(self.service.get("a"), 404)
        self.assertEqual(self.service.keys(), [])

    def test_keys_are_any_text(self):
        keys = ["two words", "sl/ash", "Zürich", "100%", "q?x=1&y", "../up", "b", "B", "10", "9", "日本"]
        for key in keys:
            self.assertEqual(self.service.put(key, key.encode()), 201, key)
        self.assertEqual(self.service.keys(), sorted(keys))
        self.assertEqual([self.service.get(key) for key in keys], [key.encode() for key in keys])
        self.assertEqual(self.service.ask("GET", "/items/sl/ash")[1], b"sl/ash")

    def test_what_is_not_there(self):
        self.assertEqual(self.service.ask("GET", "/")[0], 404)
        self.assertEqual(self.service.ask("GET", "/itemsx/a")[0], 404)
        self.assertEqual(self.service.ask("PUT", "/other", b"x")[0], 404)
        self.assertEqual(self.service.ask("POST", "/items", b"x")[0], 405)
        self.assertEqual(self.service.ask("PATCH", "/items/a", b"x")[0], 405)
        self.assertEqual(self.service.keys(), [])

    def test_items_survive_a_stop_and_a_kill(self):
        items = {f"key {n}": RANDOM.randbytes(n * 11) for n in range(25)}
        for key, body in items.items():
            self.service.put(key, body)
        self.service.ask("DELETE", "/items/key%200")
        del items["key 0"]
        self.service.stop()
        second = self.start()
        self.assertEqual({key: second.get(key) for key in second.keys()}, items)
        self.assertEqual(second.put("last", b"\x00\xff"), 201)
        time.sleep(0.3)
        second.kill()
        third = self.start()
        self.assertEqual({key: third.get(key) for key in third.keys()}, {**items, "last": b"\x00\xff"})

    def test_parallel_requests_lose_nothing(self):
        items = {f"p{n}": RANDOM.randbytes(500) for n in range(60)}
        with ThreadPoolExecutor(12) as pool:
            statuses = list(pool.map(lambda item: self.service.put(*item), items.items()))
        self.assertEqual(statuses, [201] * len(items))
        self.service.stop()
        again = self.start()
        self.assertEqual({key: again.get(key) for key in again.keys()}, items)

    def test_only_loopback(self):
        wildcard, port = {"00000000", "0" * 32}, f"{self.service.port:04X}"
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if os.path.exists(table):
                for line in Path(table).read_text().splitlines()[1:]:
                    address, _, number = line.split()[1].partition(":")
                    if number == port and line.split()[3] == "0A":
                        self.assertNotIn(address, wildcard, "it listens on every address")


if __name__ == "__main__":
    unittest.main()
