"""Network on or off per command, switched by Harbor's phases."""

import socket
import threading
from collections.abc import Iterator

import pytest

from sandbox.driving import Driver, Raised

CONNECT = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')\""


@pytest.fixture
def server() -> Iterator[int]:
    """A TCP server on the host's loopback, and an abstract UNIX socket beside it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        port = listener.getsockname()[1]
        abstract.bind(f"\0tbench-test-{port}")
        abstract.listen()

        def serve() -> None:
            try:
                while True:
                    listener.accept()[0].close()
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield port
        listener.shutdown(socket.SHUT_RDWR)


def test_without_network_nothing_of_the_host_answers(driver: Driver, server: int) -> None:
    box = driver.box(network="no-network")
    assert box.run(CONNECT.format(port=server))["return_code"] != 0
    abstract = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0tbench-test-{server}')"
    assert box.run(f'python3 -c "{abstract}"')["return_code"] != 0
    assert box.out("tail -n +2 /proc/net/route | wc -l; ls /proc/sys/net/ipv4/conf | tr '\\n' ' '").split() == [
        "0",
        "all",
        "default",
        "lo",
    ]
    assert box.out("cat /etc/resolv.conf") == ""
    assert box.run("ip link add dummy0 type dummy")["return_code"] != 0
    loopback = "python3 -m http.server 80 >/dev/null 2>&1 & for i in $(seq 50); do sleep 0.1; "
    assert box.out(loopback + CONNECT.format(port=80) + " 2>/dev/null && break; done") == "connected"
    box.call("stop", True)


def test_with_network_the_host_answers(driver: Driver, server: int) -> None:
    box = driver.box(network="public")
    assert box.out(CONNECT.format(port=server)) == "connected"
    box.call("stop", True)


def test_phases_switch_the_network_for_each_command(driver: Driver, server: int) -> None:
    box = driver.box(network="public", phases=["no-network"])
    assert box.out(CONNECT.format(port=server)) == "connected"
    box.do("network", "no-network")
    assert box.run(CONNECT.format(port=server))["return_code"] != 0
    box.do("network", "public")
    assert box.out(CONNECT.format(port=server)) == "connected"
    box.call("stop", True)


def test_a_process_cannot_keep_the_network_across_the_switch(driver: Driver, server: int) -> None:
    """Else it could serve as a proxy, or be traced and made to connect."""
    box = driver.box(network="public", phases=["no-network"])
    box.out("setsid sh -c 'sleep 500; true' >/dev/null 2>&1 & setsid sleep 501 >/dev/null 2>&1 &")
    box.until("pgrep -c sleep", "2")
    box.do("network", "no-network")
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"
    box.out("setsid sleep 502 >/dev/null 2>&1 &")
    box.until("pgrep -c sleep", "1")
    box.do("network", "public")
    assert box.out("pgrep -c sleep") == "1"  # it has no network, and none to lose
    box.call("stop", True)


def test_an_allowlist_is_refused_with_the_way_out(driver: Driver) -> None:
    with pytest.raises(Raised, match='allowlist.*container_env = "docker"') as caught:
        driver.box(config={"network_mode": "allowlist", "allowed_hosts": ["example.com"]}, network="allowlist")
    assert caught.value.kind == "Refused"
