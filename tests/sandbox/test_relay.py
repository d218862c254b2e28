"""The relay by itself: who is judged how, what is connected to, the host's own proxy, names, TLS."""

import asyncio
import base64
import contextlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkPolicy

from terminalbench.sandbox.engine import net
from terminalbench.sandbox.network import upstream
from terminalbench.sandbox.network.egress import MOST_LINES, EgressLog
from terminalbench.sandbox.network.egress_proxy import ProxiedSandbox
from terminalbench.sandbox.network.policy import (
    CLOSED,
    OPEN,
    AddressPlace,
    ConnectionRefusal,
    EgressPolicy,
    canonical,
    literal,
    place_of,
)
from terminalbench.sandbox.network.proxy_protocols import Hello, proxy_request, question
from terminalbench.sandbox.network.trial import TrialNetwork
from terminalbench.sandbox.network.upstream import Proxies, RefusedError, Upstream

LISTED = EgressPolicy(lists=(("pypi.org", "*.example.org", "192.0.2.0/24", "intranet.test", "10.1.2.3"),))


@pytest.mark.parametrize(
    ("spelled", "means"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("64:ff9b::7f00:1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("EXAMPLE.org.", "example.org"),
        ("0xdeadbeef.org", "0xdeadbeef.org"),
    ],
)
def test_an_address_is_what_it_means_not_how_it_is_spelled(spelled: str, means: str) -> None:
    assert canonical(spelled) == means


@pytest.mark.parametrize(
    ("address", "place"),
    [
        *(
            (text, AddressPlace.MACHINE)
            for text in ("0.0.0.0", "127.9.9.9", "169.254.169.254", "224.0.0.1", "255.255.255.255")
        ),
        *(
            (text, AddressPlace.MACHINE)
            for text in ("::", "::1", "fe80::1", "ff02::1", "2002:7f00:1::", "64:ff9b:1::1", "::ffff:0:7f00:1")
        ),
        *(
            (text, AddressPlace.PRIVATE)
            for text in ("10.0.0.1", "172.31.0.1", "192.168.1.1", "100.100.100.200", "fd00:ec2::254")
        ),
        *((text, AddressPlace.PUBLIC) for text in ("1.1.1.1", "203.0.113.80", "2606:4700::1111", "64:ff9b::101:101")),
    ],
)
def test_where_an_address_is(address: str, place: AddressPlace) -> None:
    assert place_of(ip_address(address)) is place


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("pypi.org", True),
        ("files.pypi.org", False),
        ("example.org", False),
        ("a.example.org", True),
        ("a.b.example.org", True),
        ("badexample.org", False),
        ("example.org.evil.test", False),
        ("192.0.2.77", True),
        ("192.0.3.1", False),
        ("pypi.org.", True),
    ],
)
def test_a_list_of_hosts(host: str, allowed: bool) -> None:
    assert (LISTED.refuses(canonical(host), 443) is None) is allowed


def test_the_narrower_wins() -> None:
    both = LISTED.narrowed(EgressPolicy(lists=(("pypi.org", "other.test"),)))
    assert [both.refuses(host, 443) for host in ("pypi.org", "a.example.org", "other.test")] == [
        None,
        ConnectionRefusal.NOT_LISTED,
        ConnectionRefusal.NOT_LISTED,
    ]
    assert OPEN.narrowed(CLOSED).refuses("pypi.org", 443) is ConnectionRefusal.NO_NETWORK
    assert EgressPolicy.of(both.plain()) == both
    endpoint = EgressPolicy(lists=((),), endpoints=frozenset({("127.0.0.1", 8123)}))
    assert endpoint.refuses("127.0.0.1", 8123) is None
    assert endpoint.refuses("127.0.0.1", 8124) is ConnectionRefusal.NOT_LISTED
    assert endpoint.refuses_place("127.0.0.1", 8123, AddressPlace.MACHINE) is None


def test_private_networks_have_to_be_named_and_not_by_a_wildcard() -> None:
    """The names below a wildcard are made by others, who may let them point anywhere."""
    for host in ("intranet.test", "10.1.2.3"):
        assert LISTED.refuses_place(host, 443, AddressPlace.PRIVATE) is None
    assert LISTED.refuses_place("a.example.org", 443, AddressPlace.PRIVATE) is ConnectionRefusal.PRIVATE
    assert LISTED.refuses_place("intranet.test", 443, AddressPlace.MACHINE) is ConnectionRefusal.MACHINE
    assert OPEN.refuses_place("intranet.test", 443, AddressPlace.PRIVATE) is ConnectionRefusal.PRIVATE


@pytest.fixture
def echo() -> Iterator[int]:
    """A server on this machine that says hello."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.sendall(b"hello")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_name_that_points_here_is_refused_each_time_it_is_asked(monkeypatch: pytest.MonkeyPatch, echo: int) -> None:
    """Also one that answered with a public address before: what was judged is what is connected to, no second look-up."""
    answers = [["1.1.1.1"], ["127.0.0.1"], ["127.0.0.1", "::1"], ["169.254.169.254"]]
    asked: list[str] = []

    def look_up(host: str) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    monkeypatch.setattr(upstream, "_look_up", look_up)

    async def ask() -> list[str]:
        relay = Upstream(asyncio.get_running_loop())
        found = [str(*await relay.judged(OPEN, "rebind.test", echo, {}))]
        for _ in range(3):
            with pytest.raises(RefusedError) as caught:
                await relay.connect(OPEN, "rebind.test", echo, {}, Proxies())
            found.append(caught.value.why)
        return found

    assert asyncio.run(ask()) == ["1.1.1.1", "this_machine", "this_machine", "this_machine"]
    assert len(asked) == 4


def test_the_hosts_own_proxy_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its login, except where it is passed by; it may know names that this machine does not."""
    heard: list[str] = []

    def look_up(host: str) -> list[str]:
        if host == "127.0.0.1":
            return [host]
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(upstream, "_look_up", look_up)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as client:
                data = b""
                while b"\r\n\r\n" not in data:
                    data += client.recv(4096)
                heard.extend(data.decode().split("\r\n"))
                client.sendall(b"HTTP/1.1 200 Fine\r\n\r\nhello")

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://me:s%40cret@127.0.0.1:{listener.getsockname()[1]}"
        proxies = Proxies.of({"https": url, "no": ".inside.test,direct.test"})
        assert proxies.for_host("a.inside.test", 443) is None
        assert proxies.for_host("direct.test", 443) is None
        assert proxies.for_host("pypi.org", 80) is None, "only for https"

        async def ask() -> bytes:
            loop = asyncio.get_running_loop()
            with await Upstream(loop).connect(OPEN, "pypi.org", 443, {}, proxies) as up:
                return await loop.sock_recv(up, 99)

        assert asyncio.run(ask()) == b"hello"
    assert heard[0] == "CONNECT pypi.org:443 HTTP/1.1"
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:s@cret').decode()}" in heard

    async def refused() -> None:
        await Upstream(asyncio.get_running_loop()).connect(LISTED, "evil.test", 443, {}, proxies)

    with pytest.raises(RefusedError):
        asyncio.run(refused())


def test_plain_requests_go_to_the_hosts_own_proxy_as_it_wants_them(tmp_path: Path) -> None:
    """Whole addresses, its login, no header for another proxy, one request a connection; what is refused never gets there."""
    heard: list[list[str]] = []
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as forwarded:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with proxy.accept()[0] as client:
                        data = b""
                        while not data.endswith(b"body"):
                            data += client.recv(4096)
                        heard.append(data.decode().split("\r\n"))
                        client.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")

        threading.Thread(target=serve, daemon=True).start()

        async def ask(port: int, text: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return answer

        async def play() -> list[bytes]:
            loop, log = asyncio.get_running_loop(), EgressLog(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
            door = socket.create_server(("127.0.0.1", 0))
            about = {
                "policy": LISTED.plain(), "phase": "agent", "static": {}, "beside": {}, "way": "proxy",
                "proxies": {"http": f"http://me:key@127.0.0.1:{proxy.getsockname()[1]}"},
                "forwards": [("pypi.org", 80)],
            }  # fmt: skip
            box = ProxiedSandbox(about, [door, forwarded.dup()], log, Upstream(loop))
            said = [
                await ask(door.getsockname()[1], b"POST http://pypi.org/x?y HTTP/1.1\r\nHost: evil.test\r\n"
                          b"Proxy-Authorization: agents\r\nProxy-Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody"),
                await ask(forwarded.getsockname()[1], b"PUT /z HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 4\r\n\r\nbody"),
                await ask(door.getsockname()[1], b"GET http://evil.test/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"),
            ]  # fmt: skip
            await box.close()
            log.close()
            return said

        first, second, third = asyncio.run(play())
        proxy.shutdown(socket.SHUT_RDWR)
    assert first == second == b"HTTP/1.1 200 OK\r\n\r\nhello"
    assert third.startswith(b"HTTP/1.1 403")
    login = "Proxy-Authorization: Basic " + base64.b64encode(b"me:key").decode()
    assert heard == [
        [
            "POST http://pypi.org/x?y HTTP/1.1",
            "Host: pypi.org",
            "Content-Length: 4",
            "Connection: close",
            login,
            "",
            "body",
        ],
        [
            "PUT http://pypi.org/z HTTP/1.1",
            "Host: pypi.org",
            "Content-Length: 4",
            "Connection: close",
            login,
            "",
            "body",
        ],
    ]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["host"], line["port"], line.get("refused")) for line in lines] == [
        ("pypi.org", 80, None), ("pypi.org", 80, None), ("evil.test", 80, "not_listed"),
    ]  # fmt: skip


def hello(name: str) -> bytes:
    """The first bytes that a real TLS client sends."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_name_in_a_tls_hello_however_it_is_cut(size: int) -> None:
    data, seen = hello("a.example.org"), Hello()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert [seen.add(chunk) for chunk in chunks][-1]
    assert seen.server_name() == "a.example.org"
    message = data[5:]
    split = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (message[:20], message[20:]))
    seen = Hello()
    assert seen.add(split)
    assert seen.server_name() == "a.example.org", "in two records"


def test_what_is_no_tls_hello_has_no_name() -> None:
    for data in (b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00\x05\x02abcd" + b"x" * 70_000):
        seen = Hello()
        assert seen.add(data)
        assert seen.server_name() is None
    cut = Hello()
    cut.add(hello("x.org")[:60])
    assert cut.server_name() in (None, "")


def test_a_plain_request_to_the_proxy_is_for_the_host_of_its_address_only() -> None:
    head = b"GET http://a.test:8080/x?y HTTP/1.1\r\nHost: fronted.test\r\nProxy-Authorization: x\r\nAccept: */*"
    wanted = proxy_request(head)
    assert (wanted.host, wanted.port) == ("a.test", 8080)
    assert wanted.head == b"GET /x?y HTTP/1.1\r\nHost: a.test:8080\r\nAccept: */*\r\nConnection: close"
    assert proxy_request(b"CONNECT [2001:db8::1]:443 HTTP/1.1").host == "2001:db8::1"
    for bad in (b"", b"GET / HTTP/1.1", b"CONNECT a.test HTTP/1.1", b"CONNECT a.test:99999 HTTP/1.1", b"\xff" * 50):
        with pytest.raises(ValueError):
            proxy_request(bad)


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_question_for_a_name_that_is_none_is_no_crash(cut: int) -> None:
    packet = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04pypi\x03ORG\x00\x00\x01\x00\x01"
    whole = question(packet)
    assert whole is not None
    assert (whole.name, whole.wants_address) == ("pypi.org", True)
    assert whole.answer(b"\xc6\x12\x00\x02").endswith(b"\x00\x04\xc6\x12\x00\x02")
    if cut < len(packet):
        assert question(packet[:cut]) is None
    assert question(packet[:12] + b"\xc0\x0c" + packet[14:]) is None, "a pointer"
    assert question(packet[:13] + b"p;pi" + packet[17:]) is None


def test_the_log_has_an_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = EgressLog(os.open(path, os.O_WRONLY | os.O_CREAT))
    for number in range(MOST_LINES + 500):
        log.connection("agent", "pypi.org" if number else "x" * 9999, 443, up=1, down=2)
    for _ in range(1000):
        log.refused("agent", "evil.test", None, ConnectionRefusal.NOT_LISTED)
    log.close()
    log.close()
    lines = path.read_text().splitlines()
    assert len(lines) == MOST_LINES + 1
    assert '"left_out":502' in lines[-1]
    assert max(map(len, lines)) < 600


def test_literal_of_a_name_is_none() -> None:
    assert [literal(text) for text in ("pypi.org", "1.2.3.4.5", "0x", "")] == [None] * 4


def test_only_an_address_of_the_loopback_is_shown_inside_at_the_same_place(tmp_path: Path) -> None:
    """A name may look like one; inside, files of the sandbox would say where it leads."""
    urls = [
        "http://127.0.0.1.nip.io:8080",
        "http://127.1:81/v1",
        "http://localhost:82",
        "http://[::1]:83",
        "http://10.0.0.1",
    ]
    forwards = TrialNetwork({"model": urls}, tmp_path, [NetworkPolicy()])._forwards()
    assert sorted(forwards) == [("127.0.0.1", "127.0.0.1", 81), ("127.0.0.1", "localhost", 82), ("::1", "::1", 83)]
    with pytest.raises(OSError, match="illegal IP address"):
        net._bound(socket.SOCK_STREAM, "localhost", 0)
