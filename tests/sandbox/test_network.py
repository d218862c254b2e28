"""Each sandbox has a network of its own, and the relay as its only way out. As root and as an ordinary user."""

import contextlib
import http.server
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.driving import PATIENCE_SEC, Box, Driver, Raised
from terminalbench.harbor.read.error_classes import error_class
from terminalbench.sandbox.network.policy import canonical

pytestmark = pytest.mark.any_user

CONNECT = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')\""
SITE = "site.test"
SAYS = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 5) as one:
            print(place, one.recv(99).decode() or "nothing")
    except OSError as error:
        print(place, "failed")
"""
BY_PROXY = """
import socket, sys
for place in sys.argv[1:]:
    with socket.create_connection(("198.18.0.1", 3128), 5) as one:
        one.sendall(f"CONNECT {place} HTTP/1.1\\r\\n\\r\\n".encode())
        print(place, one.recv(99).split()[1].decode())
"""


class Site(http.server.BaseHTTPRequestHandler):
    """Says which host it was asked for."""

    def do_GET(self) -> None:
        body = f"{self.headers['Host']} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[int]:
    """A web server of this machine, on its loopback; the port. `way(...)` makes it a public host."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def way(*names: str, **more: Any) -> dict[str, Any]:
    return {"static": dict.fromkeys(names or (SITE,), "127.0.0.1"), **more}


@pytest.fixture
def server() -> Iterator[int]:
    """What listens on every address of this machine, and on an abstract socket; the port of both."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        port = listener.getsockname()[1]
        six = stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0tbench-test-{port}")
        abstract.listen()

        def serve(door: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    with door.accept()[0] as client:
                        client.sendall(b"HOST")

        for door in (listener, six, abstract):
            threading.Thread(target=serve, args=(door,), daemon=True).start()
        yield port
        for door in (listener, six, abstract):
            door.shutdown(socket.SHUT_RDWR)


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def run(box: Box, program: str, *arguments: str) -> dict[str, str]:
    """What a program printed: a word for each argument."""
    said = box.out(f"python3 - {' '.join(arguments)} <<'END_OF_PROGRAM'\n{program}\nEND_OF_PROGRAM")
    return dict(line.split(" ", 1) for line in said.splitlines())


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


def test_two_sandboxes_have_every_port_to_themselves(driver: Driver, site: int) -> None:
    """Also those that names and the web are reached at: looking up a name takes no port of the sandbox."""
    first, second = (driver.box(network="public", way=way()) for _ in range(2))
    ports = (22, 53, 80, 443, 3128, 8080)
    serve = "import http.server as h,sys;h.HTTPServer(('0.0.0.0',int(sys.argv[1])),h.SimpleHTTPRequestHandler).serve_forever()"
    for name, box in (("first", first), ("second", second)):
        assert box.out(f"curl -fsS http://{SITE}:{site}/x") == f"{SITE}:{site} /x"
        assert all(box.run(f"curl -sS http://127.0.0.1:{port}/who")["return_code"] == 7 for port in ports)
        box.out(f"echo {name} > who")
        for port in ports:
            box.out(f'setsid python3 -c "{serve}" {port} >/dev/null 2>&1 &')
            box.until(f"curl -sS http://127.0.0.1:{port}/who", name)
    assert first.out("curl -sS http://127.0.0.1:8080/who") == "first"


@pytest.mark.both_users
def test_the_host_is_out_of_reach_in_every_spelling(driver: Driver, server: int) -> None:
    box = driver.box(network="public")
    own = own_address()
    spelled = [own, str(int.from_bytes(socket.inet_aton(own))), "0.0.0.0", "127.0.0.1", "127.1", "2130706433",
               "0x7f000001", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", f"[::ffff:{own}]",
               "[64:ff9b::7f00:1]", "169.254.169.254", "10.0.2.2"]  # fmt: skip
    places = [f"{host}:{server}" for host in spelled]
    assert "HOST" not in " ".join(run(box, SAYS, *places).values())
    refused = run(box, BY_PROXY, *places, f"{socket.gethostname()}:{server}")
    assert set(refused.values()) <= {"403", "502"}, refused
    assert [place for place in places if refused[place] == "502"] == []
    abstract = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0tbench-test-{server}')"
    assert box.run(f'python3 -c "{abstract}"')["return_code"] != 0
    log = box.do("egress")
    assert {line["refused"] for line in log} <= {"this_machine", "private_network"}
    assert all("up" not in line for line in log)


@pytest.mark.both_users
def test_clients_get_out_by_name_and_what_they_did_is_logged(driver: Driver, site: int) -> None:
    """Those that know nothing of a proxy, on any port."""
    box = driver.box(network="public", way=way())
    assert box.out("env | grep -i _proxy || true") == ""
    url = f"http://{SITE}:{site}/x"
    assert box.out(f"curl -fsS {url}") == f"{SITE}:{site} /x"
    fetch = f"import urllib.request as u; print(u.urlopen('{url}').read().decode())"
    assert box.out(f'python3 -c "{fetch}"') == f"{SITE}:{site} /x"
    assert box.out(f"curl -fsS -x http://198.18.0.1:3128 {url}") == f"{SITE}:{site} /x"
    assert box.out(f"curl -fsS -p -x http://198.18.0.1:3128 {url}") == f"{SITE}:{site} /x"
    if box.run("command -v node")["return_code"] == 0:
        assert box.out(f"node -e 'fetch(\"{url}\").then(r => r.text()).then(console.log)'") == f"{SITE}:{site} /x"
    assert box.run("curl -sS http://nosuch.invalid/")["return_code"] == 6
    log = box.do("egress")
    assert len(log) >= 4
    assert {(line["phase"], line["host"], line["port"]) for line in log} == {("setup", SITE, site)}
    assert all(line["up"] > 30 and line["down"] > 60 for line in log)


def test_git_clones_over_http(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("git")
    os.system(
        f"cd {folder} && git init -q a && cd a && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
        " && git clone -q --bare . ../a.git && cd ../a.git && git update-server-info"
    )
    handler = type("Files", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: handler(*args, directory=str(folder))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        box = driver.box(network="public", way=way())
        box.out(f"git clone -q http://{SITE}:{server.server_port}/a.git /tmp/g")
        assert box.out("git -C /tmp/g log --format=%s") == "one"
        server.shutdown()


@pytest.mark.both_users
def test_where_the_kernel_cannot_redirect_programs_are_told_of_a_proxy(driver: Driver, site: int) -> None:
    box = driver.box(network="public", way=way(redirect=False))
    assert box.out("echo $https_proxy") == "http://127.0.0.1:3128"
    assert box.out(f"curl -fsS http://{SITE}:{site}/x") == f"{SITE}:{site} /x"
    assert (
        "is refused: it is an address of the machine"
        in box.run(f"curl -sS -x $https_proxy http://127.0.0.2:{site}/")["stdout"]
    )
    assert box.run(f"curl -sS --noproxy '*' http://{SITE}:{site}/x")["return_code"] != 0


def test_udp_and_other_protocols_are_refused_at_once(driver: Driver) -> None:
    box = driver.box(network="public")
    send = "import socket; s=socket.socket(2,2); s.sendto(b'x', ('192.0.2.7', 123))"
    assert "not permitted" in box.run(f'python3 -c "{send}"')["stderr"]


def test_a_phase_cuts_what_it_does_not_allow(driver: Driver, site: int) -> None:
    box = driver.box(network="public", phases=["no-network"], way=way())
    held = f"import socket; s=socket.create_connection(('{SITE}',{site})); open('/tmp/on','w'); print(s.recv(9))"
    box.out(f'setsid python3 -c "{held}" > /tmp/said 2>&1 &')
    box.until("ls /tmp/on", "/tmp/on")
    box.do("network", "no-network")
    box.until("grep -c . /tmp/said", "1")
    assert box.run(f"curl -sS http://{SITE}:{site}/")["return_code"] != 0
    box.do("network", "public")
    assert box.out(f"curl -fsS http://{SITE}:{site}/") == f"{SITE}:{site} /"


def test_a_sandbox_that_starts_anew_has_a_network_of_its_own_again(driver: Driver, site: int) -> None:
    """What the agent held open is gone; what may be reached is what could be reached before, by the same names."""
    box = driver.box(network="public", phases=[[SITE]], way=way())
    box.do("network", [SITE])
    assert box.out(f"curl -fsS http://{SITE}:{site}/") == f"{SITE}:{site} /"
    box.out("setsid python3 -m http.server 8080 >/dev/null 2>&1 &")
    box.until("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/", "200")
    box.do("renew", "agent")
    assert box.run("curl -sS http://127.0.0.1:8080/")["return_code"] == 7
    assert box.out(f"curl -fsS http://{SITE}:{site}/") == f"{SITE}:{site} /"
    assert box.run("curl -sS http://other.test/")["return_code"] == 6
    assert len([line for line in box.do("egress") if "up" in line]) == 2


def test_the_allow_list_of_a_task_is_kept(driver: Driver, site: int) -> None:
    names = (SITE, "a.example.test", "b.example.test", "example.test")
    box = driver.box(network=[SITE, "*.example.test", "192.0.2.0/24"], way=way(*names))
    for name in names[:3]:
        assert box.out(f"curl -fsS http://{name}:{site}/") == f"{name}:{site} /"
    assert box.run(f"curl -sS http://example.test:{site}/")["return_code"] == 6
    assert box.run("curl -sS http://198.51.100.1/")["return_code"] in (7, 56)
    refused = {(line["host"], line["refused"]) for line in box.do("egress") if "refused" in line}
    assert refused == {("example.test", "not_listed"), ("198.51.100.1", "not_listed")}


def test_phases_of_the_experiment_narrow_what_the_task_allows(driver: Driver, site: int) -> None:
    """The profile's own model endpoint on this machine is where it is, but not in a phase without network."""
    model = f"http://127.0.0.1:{site}"
    driver("tells_phases")
    phases = {"setup": "public", "agent": "model-only", "verifier": [SITE]}
    box = driver.box(
        network="public", way=way(SITE, "other.test"), kwargs={"network": {**phases, "model": [f"{model}/v1"]}}
    )
    reached = {}
    for phase in ("setup", "agent", "verifier"):
        box.do("phase", phase)
        for name in (SITE, "other.test", "127.0.0.1"):
            reached[phase, name] = box.run(f"curl -sS http://{name}:{site}/")["return_code"] == 0
    assert {place for place, yes in reached.items() if yes} == {
        ("setup", SITE), ("setup", "other.test"), ("setup", "127.0.0.1"), ("agent", "127.0.0.1"), ("verifier", SITE),
    }  # fmt: skip
    log = box.do("egress")
    assert {line["phase"] for line in log if "up" in line} == {"setup", "agent", "verifier"}


def test_a_job_that_tells_no_phases_cannot_have_a_policy_of_the_agents_own(own_driver: Driver) -> None:
    with pytest.raises(Raised, match="in a job that reports no phases.*run it with tbench run"):
        own_driver.box(network="public", kwargs={"network": {"agent": "none"}})
    own_driver.box(network="public", kwargs={"network": {"setup": "none", "agent": "none"}})


def test_the_host_network_has_to_be_asked_for(driver: Driver, server: int) -> None:
    box = driver.box(network="public", phases=["no-network"], kwargs={"network": "host"})
    assert box.out(CONNECT.format(port=server)) == "connected"
    box.out("setsid sh -c 'sleep 500; true' >/dev/null 2>&1 & setsid sleep 501 >/dev/null 2>&1 &")
    box.until("pgrep -c sleep", "2")
    box.do("network", "no-network")
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"
    assert box.run(CONNECT.format(port=server))["return_code"] != 0
    with pytest.raises(Raised, match='allowlist together with network = "host"'):
        driver.box(network=["example.com"], kwargs={"network": "host"})
    with pytest.raises(Raised, match="network.agent = .*use public, none, model-only"):
        driver.box(network="public", kwargs={"network": {"agent": "everything"}})


HELLO = """
import socket, ssl, sys
context = ssl.create_default_context()
for name in sys.argv[2:]:
    with socket.create_connection(("site.test", int(sys.argv[1])), 5) as one:
        try:
            context.wrap_socket(one, server_hostname=name)
        except OSError as error:
            print(name, type(error).__name__)
"""


def test_the_tls_name_is_the_host_that_was_asked_for(driver: Driver) -> None:
    """The server sees nothing of a client that asks for another name; one that asks for this very name, it does."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        seen.append(client.recv(2000))

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        box = driver.box(network="public", way=way())
        assert run(box, HELLO, str(port), "other.test", SITE).keys() == {"other.test", SITE}
        lines = box.do("egress")
        assert [line["refused"] for line in lines if "refused" in line] == ["tls_name"]
        assert [line["tls"] for line in lines if "up" in line] == [SITE]
        assert [SITE.encode() in data for data in seen if data] == [True]
        listener.shutdown(socket.SHUT_RDWR)


MANY = """
import socket, sys
held, lost = [], 0
for _ in range(300):
    try:
        held.append(socket.create_connection(("site.test", int(sys.argv[1])), 5))
    except OSError:
        lost += 1
for one in held:
    one.settimeout(0.02)
    try:
        lost += one.recv(1) == b""
    except TimeoutError:
        pass
    except OSError:
        lost += 1
print("lost", lost)
"""


def test_connections_are_counted_out(driver: Driver, site: int) -> None:
    box = driver.box(network="public", way=way())
    assert 300 - 256 <= int(run(box, MANY, str(site))["lost"]) < 100
    box.until(f"curl -sS http://{SITE}:{site}/", f"{SITE}:{site} /")
    assert "too_many" in {line.get("refused") for line in box.do("egress")}


def test_a_relay_that_dies_is_an_error_of_the_bench(own_driver: Driver, site: int) -> None:
    box = own_driver.box(network="public", way=way())
    os.kill(own_driver("relay_pid"), 9)
    with pytest.raises(Raised) as caught:
        box.run("sleep 60")
    assert caught.value.kind == "SandboxNetworkError"
    assert not error_class(caught.value.kind, caught.value.message, "agent").of_profile
    another = own_driver.box(network="public", way=way())
    assert another.out(f"curl -fsS http://{SITE}:{site}/") == f"{SITE}:{site} /"


@pytest.mark.parametrize("ends", ["before it is told of the sandbox", "when it is told"])
def test_a_relay_that_is_gone_when_a_sandbox_needs_it_is_replaced(own_driver: Driver, site: int, ends: str) -> None:
    """Whether or not its process looks alive: a process that is killed ends a while after it cannot be reached any more."""
    own_driver.box(network="public", way=way())
    first = own_driver("relay_pid")
    own_driver("relay_ends", ends == "when it is told")
    box = own_driver.box(network="public", way=way())
    assert box.out(f"curl -fsS http://{SITE}:{site}/") == f"{SITE}:{site} /"
    assert own_driver("relay_pid") != first


def test_the_relay_ends_with_the_process_that_holds_the_sandboxes(own_driver: Driver) -> None:
    own_driver.box(network="public")
    relay = Path(f"/proc/{own_driver('relay_pid')}")
    assert (relay / "comm").read_text().strip() in ("tbench-relay", "python3", "python")
    own_driver.process.kill()
    own_driver.process.wait(30)
    deadline = time.monotonic() + PATIENCE_SEC
    while relay.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.both_users
def test_the_agent_cannot_change_the_rules_or_reach_the_relay(driver: Driver) -> None:
    box = driver.box(network="public")
    assert box.run("ip route add 192.0.2.0/24 dev lo")["return_code"] != 0
    assert box.run("nft flush ruleset || iptables -t nat -F")["return_code"] != 0
    assert "relay" not in box.out("ps -e -o comm=")
    assert box.out("ls /proc/1/fd | wc -l") != ""
    direct = "import socket; s=socket.create_connection(('127.0.0.1',61353),5); print(s.recv(9))"
    assert box.run(f'python3 -c "{direct}"')["return_code"] != 0


@pytest.mark.both_users
def test_addresses_of_ipv6_get_out_or_are_refused_as_others_are(driver: Driver, server: int) -> None:
    """By connections and by the proxy, in every spelling; the log has each with its reason."""
    box = driver.box(network=["2001:db8::/32", "::/0", "0.0.0.0/0"])
    ours = own_address_of_six()
    spelled = [
        "::2",
        "64:ff9b::7f00:1",
        "64:ff9b::169.254.169.254",
        "::ffff:0:127.0.0.1",
        "2002:7f00:1::",
        *([ours] if ours else []),
    ]
    places = [f"[{host}]:{server}" for host in spelled]
    assert "HOST" not in " ".join(run(box, SAYS, *places, f"[::1]:{server}").values())
    assert set(run(box, BY_PROXY, *places, f"[::1]:{server}").values()) == {"403"}
    assert run(box, SAYS, "[2001:db8::7]:9") == {"[2001:db8::7]:9": "failed"}
    log = box.do("egress")
    refused = {line["host"]: line["refused"] for line in log if "refused" in line}
    assert refused.keys() == {canonical(host) for host in [*spelled, "::1"]}
    assert set(refused.values()) <= {"this_machine", "private_network"}
    assert [(line["host"], line["port"]) for line in log if "refused" not in line] == [("2001:db8::7", 9)]


def own_address_of_six() -> str | None:
    """An IPv6 address of this machine that is not loopback."""
    for line in Path("/proc/net/if_inet6").read_text().splitlines():
        address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
        if not address.is_loopback and not address.is_link_local:
            return str(address)
    return None


def test_ipv6_reaches_what_is_allowed(driver: Driver) -> None:
    """By a client that knows nothing of a proxy, and by the proxy."""
    six = type("Six", (http.server.ThreadingHTTPServer,), {"address_family": socket.AF_INET6})
    with six(("::1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        box = driver.box(network="public", way=way(static={"2001:db8::7": "::1"}))
        place = f"[2001:db8::7]:{server.server_port}"
        assert box.out(f"curl -fsS http://{place}/x") == f"{place} /x"
        assert box.out(f"curl -fsS -p -x http://198.18.0.1:3128 http://{place}/x") == f"{place} /x"
        assert [line["host"] for line in box.do("egress")] == ["2001:db8::7"] * 2
        server.shutdown()
