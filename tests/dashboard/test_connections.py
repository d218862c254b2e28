"""Clients that are slow, silent or many, over real sockets: each is let go, and others are served meanwhile."""

import socket
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

import pytest

from support.dashboard import Root
from terminalbench.dashboard import app, serve
from terminalbench.dashboard.app import make_access
from terminalbench.dashboard.serve import SiteServer, _bind

PATIENCE_SEC = 60
READ_SEC = 4.0


@dataclass
class Running:
    """A server, and how to reach it."""

    port: int
    token: str
    server: SiteServer

    def open(self) -> int:
        """How many connections it holds."""
        return len(self.server.server_state.connections)

    def connect(self, sent: bytes = b"", buffer: int | None = None) -> socket.socket:
        made = socket.socket()
        if buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(PATIENCE_SEC)
        made.connect(("127.0.0.1", self.port))
        made.sendall(sent)
        return made

    def ask(self, path: str = "/", method: str = "GET", more: str = "") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n{more}"
        return f"{head}\r\n".encode()

    def answers(self) -> bool:
        """Whether it answers a client; one that this machine held up before it had asked was let go, and asks again."""
        for _ in range(PATIENCE_SEC):
            try:
                with self.connect(self.ask()) as made:
                    if said := made.recv(100):
                        return said.startswith(b"HTTP/1.1 200")
            except (ConnectionResetError, BrokenPipeError):
                pass
        return False


def is_closed(one: socket.socket) -> bool:
    """Whether the other side has closed it; what it sent before is read."""
    try:
        while one.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.fixture
def running(root: Root, monkeypatch: pytest.MonkeyPatch) -> Generator[Running]:
    monkeypatch.setattr(serve, "ASK_SEC", 0.6)
    monkeypatch.setattr(serve, "READ_SEC", READ_SEC)
    monkeypatch.setattr(serve, "LOOK_SEC", 0.1)
    access, bound = make_access("127.0.0.1"), _bind("127.0.0.1", 0)
    server = SiteServer(root.site, access)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield Running(bound.getsockname()[1], access.token, server)
    root.site.closing = server.should_exit = True
    thread.join(PATIENCE_SEC)
    assert not thread.is_alive()


def test_who_sends_no_whole_request_is_let_go(running: Running) -> None:
    """Nothing at all, half a head that goes on for ever, half a body, and nothing more after an answer."""
    nothing, head = running.connect(), running.connect(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    body = running.connect(running.ask("/", "POST", "Content-Length: 1000\r\n") + b"x")
    idle = running.connect(running.ask())
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.05):
            try:
                head.sendall(b"X-More: 1\r\n")
                body.sendall(b"x")
            except OSError:
                return

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        assert running.answers()
        assert all(is_closed(one) for one in (nothing, head, body, idle))
    finally:
        over.set()
        sender.join()
    assert running.answers()


def test_who_takes_nothing_of_an_answer_is_let_go_and_a_slow_reader_is_not(
    root: Root, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "ASK_SEC", 1000.0)
    folder = next(root.batch.runs.glob("*/a__1"))
    (folder / "big.log").write_bytes(b"a line\n" * 2_000_000)
    path = f"/batches/study/0/trials/{folder.parent.name}/a__1/raw/big.log"
    stuck, slow = (running.connect(running.ask(path, more="Connection: close\r\n"), buffer=1 << 17) for _ in range(2))
    got, longest, at = 0, 0.0, time.monotonic()
    while data := slow.recv(1 << 17 if running.open() > 1 else 1 << 20):
        got += len(data)
        time.sleep(0.1 if running.open() > 1 else 0)
        longest, at = max(longest, time.monotonic() - at), time.monotonic()
    assert got >= 14_000_000 or longest > READ_SEC / 4, f"it read all the time: {got} bytes, {longest:.2f} s"
    assert is_closed(stuck)
    assert running.answers()


def test_a_stream_that_may_have_no_reader_ends_and_can_be_asked_for_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAM_SEC", 0.2)
    for _ in range(2):
        with running.connect(running.ask("/events", more="Connection: close\r\n")) as stream:
            assert is_closed(stream)


def test_many_idle_connections_make_room(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(serve, "ASK_SEC", 1000.0)
    crowd = [running.connect() for _ in range(40)]
    assert running.answers()
    first = crowd[:20]
    assert all(is_closed(one) for one in first)
    crowd[-1].sendall(running.ask())
    assert crowd[-1].recv(100).startswith(b"HTTP/1.1 200")
