"""A task that needs UDP gets a network by pasta, where that is; never this machine's own. As root and as an ordinary user."""

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from sandbox.driving import HERE, PATIENCE_SEC, Box, Driver, Raised
from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.network import trial
from terminalbench.sandbox.network.trial import TrialNetwork

NEEDS_UDP = {
    "Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
    "../task.toml": "[metadata]\nneeds_udp = true\n",
}
WORLD, MACHINE, PRIVATE = "203.0.113.9", "203.0.113.1", "10.9.8.7"
ASK = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor

def ask(place):
    kind, host, port, *device = place.split(",")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as one:
        one.settimeout(2)
        try:
            if device:
                one.setsockopt(socket.SOL_SOCKET, 25, device[0].encode())
            one.connect((host, int(port)))
            if kind == "udp":
                one.send(b"x")
            return one.recv(99).decode() or "nothing"
        except OSError:
            return "failed"

with ThreadPoolExecutor(99) as pool:
    for place, said in zip(sys.argv[1:], pool.map(ask, sys.argv[1:])):
        print(place, said)
"""


def ask(box: Box, *places: str) -> dict[str, str]:
    said = box.out(f"python3 - {' '.join(places)} <<'END_OF_PROGRAM'\n{ASK}\nEND_OF_PROGRAM")
    return dict(line.split(" ", 1) for line in said.splitlines())


_far: dict[str, Driver] = {}


@pytest.fixture
def far(driver: Driver) -> Driver:
    """A driver on a machine with a world around it (`world.py`), shared by the tests of a worker."""
    missing = [name for name in ("pasta", "ip") if shutil.which(name) is None]
    missing += [] if Path("/dev/net/tun").exists() else ["/dev/net/tun"]
    missing += [] if os.geteuid() == 0 else ["root"]
    if missing:
        pytest.skip(f"not here: {', '.join(missing)}")
    if driver.user not in _far:
        made = _far[driver.user] = Driver(driver.user, (sys.executable, str(HERE / "world.py")))
        made.share_base(driver)
    return _far[driver.user]


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _far:
        _far.popitem()[1].close()


@pytest.fixture
def box(far: Driver) -> Iterator[Box]:
    made = far.box(network="public", phases=["no-network"], files=NEEDS_UDP)
    yield made
    made.call("stop", True)


def test_udp_and_raw_addresses_get_out_and_the_log_says_that_it_does_not_cover_them(far: Driver, box: Box) -> None:
    assert ask(box, f"udp,{WORLD},7", f"tcp,{WORLD},7", "udp,world.test,7") == {
        f"udp,{WORLD},7": "WORLD", f"tcp,{WORLD},7": "WORLD", "udp,world.test,7": "WORLD",
    }  # fmt: skip
    assert box.do("egress") == [{"upstreams": []}, {"network": "pasta"}]


def test_this_machine_and_private_networks_are_out_of_reach(far: Driver, box: Box) -> None:
    """Also from a socket that is bound to the interface, for which Linux asks no routes."""
    far("serve", 4321)
    hosts = (
        MACHINE,
        PRIVATE,
        "127.0.0.1",
        "127.0.0.2",
        "198.18.0.1",
        "198.18.0.2",
        "0.0.0.0",
        "10.9.8.9",
        "169.254.169.254",
    )
    places = [f"{kind},{host},4321{device}" for kind in ("tcp", "udp") for host in hosts for device in ("", ",tap0")]
    assert "HOST" not in ask(box, *places).values()
    assert far("hear", MACHINE, 4321) == "HOST", "what is out of reach is there"
    assert box.run("ip link add dummy0 type dummy")["return_code"] != 0
    assert box.run("ip route add 10.0.0.0/8 dev tap0")["return_code"] != 0


def test_a_phase_without_network_has_none(far: Driver, box: Box) -> None:
    place = f"udp,{WORLD},7"
    box.do("network", "no-network")
    assert ask(box, place) == {place: "failed"}
    assert box.out("tail -n +2 /proc/net/route | wc -l") == "0"
    box.do("renew", "agent")
    assert ask(box, place) == {place: "failed"}
    box.do("network", "public")
    assert ask(box, place) == {place: "WORLD"}
    box.do("renew", "agent")
    assert ask(box, place) == {place: "WORLD"}


def pastas(far: Driver) -> set[int]:
    """The processes of pasta on that machine."""
    here, found = Path(f"/proc/{far.process.pid}/ns/net").readlink(), set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and b"\0--ns-ifname\0" in (entry / "cmdline").read_bytes():
                found |= {int(entry.name)} if (entry / "ns/net").readlink() == here else set()
    return found


def test_a_pasta_that_dies_ends_the_sandbox_and_it_dies_with_what_holds_it(far: Driver) -> None:
    """An error of the bench: what a trial without its network does says nothing. And none is left behind."""
    box, other = (far.box(network="public", files=NEEDS_UDP) for _ in range(2))
    first, *_ = running = pastas(far)
    assert len(running) == 2
    os.kill(first, signal.SIGKILL)
    until(lambda: [has_ended(one) for one in (box, other)].count(True) == 1)
    left = other if has_ended(box) else box
    assert ask(left, f"udp,{WORLD},7") == {f"udp,{WORLD},7": "WORLD"}
    guardian = parent(parent(parent(*pastas(far))))
    assert Path(f"/proc/{guardian}/comm").read_text().strip() == "tbench-guardian"
    os.kill(guardian, signal.SIGKILL)
    until(lambda: not pastas(far))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(box: Box) -> bool:
    try:
        box.do("counts")
    except Raised as error:
        return error.kind == "SandboxError"
    return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_profiles_own_model_on_this_machine_is_where_it_is(far: Driver) -> None:
    far("serve", 4322)
    network = {"model": ["http://127.0.0.1:4322"]}
    box = far.box(network="public", phases=["no-network"], files=NEEDS_UDP, kwargs={"network": network})
    places = ["tcp,127.0.0.1,4322", "udp,127.0.0.1,4322", f"tcp,{MACHINE},4322", f"udp,{WORLD},7"]
    assert list(ask(box, *places).values()) == ["HOST", "failed", "failed", "WORLD"]
    box.do("network", "no-network")
    assert set(ask(box, *places).values()) <= {"failed", "nothing"}
    _, note, *lines = box.do("egress")
    assert note == {"network": "pasta"}
    assert {line["host"] for line in lines} == {"127.0.0.1"}


# What is refused, before anything starts


def checked(folder: Path, given: Any = None, *asked: NetworkPolicy) -> TrialNetwork:
    """The network of a trial of a task that needs UDP."""
    (folder / "task.toml").write_text("[metadata]\nneeds_udp = true\n")
    network = TrialNetwork(given, folder, asked or [NetworkPolicy(network_mode=NetworkMode.PUBLIC)])
    network.check(folder)
    return network


@pytest.fixture
def pasta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program of that name on the PATH, and a device that is open."""
    program = tmp_path / "bin" / "pasta"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(trial, "_TUN", str(program))
    return str(program)


def test_without_pasta_the_task_is_refused_with_the_package_named(
    tmp_path: Path, pasta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = 'package passt.*container_env = "docker", or with network = "host"'
    monkeypatch.setattr(trial, "_TUN", str(tmp_path / "none"))
    with pytest.raises(Refused, match=f"needs UDP: {tmp_path}/none, which pasta needs, is not open.*{hint}"):
        checked(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match=f"needs UDP, without pasta.*{hint}"):
        checked(tmp_path)
    assert checked(tmp_path, "host").way() is None
    assert (tmp_path / "egress.jsonl").read_text() == '{"upstreams":[]}\n{"network":"host"}\n'


def test_what_pasta_cannot_keep_is_refused(tmp_path: Path, pasta: str) -> None:
    listed = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    public = NetworkPolicy(network_mode=NetworkMode.PUBLIC)
    for given, asked in ((None, listed), ({"agent": "model-only"}, public), ({"verifier": ["example.org"]}, public)):
        with pytest.raises(Refused, match='with a list of hosts.*"public" or "none" for each phase'):
            checked(tmp_path, given, asked)
    with pytest.raises(Refused, match="10.1.2.3:80 of a private network"):
        checked(tmp_path, {"model": ["http://10.1.2.3"]})


def test_a_task_without_network_needs_no_pasta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checked(tmp_path, None, NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)).way() is None
    assert not (tmp_path / "egress.jsonl").exists()


def test_every_address_that_is_not_public_is_kept_away_from(tmp_path: Path, pasta: str) -> None:
    way = checked(tmp_path).way()
    assert way is not None
    asked = way.request()["pasta"]
    assert asked["program"] == pasta
    places = [(ip_address(first), ip_address(last)) for first, last in asked["away"]]
    for text in (
        "127.0.0.1",
        "10.0.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "198.19.0.1",
        "255.255.255.255",
    ):
        assert any(first <= ip_address(text) <= last for first, last in places), text
    assert not any(first <= ip_address("8.8.8.8") <= last for first, last in places)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        own = ip_address(probe.getsockname()[0])
    assert any(first <= own <= last for first, last in places)
