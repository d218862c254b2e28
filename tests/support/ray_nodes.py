"""Nodes of a Ray cluster on this machine: real ones, small, started and killed as a test needs."""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from terminalbench.runner.executors.local import ADDRESS, LoadedHarbor

MARK = "TBENCH_TEST_NODE"
"""The variable of all processes of a node: who started it, and which one it is."""
_OWNER, _BRIDGE, _FOLDER = "of", "tb", "tbray"
STORE_BYTES = 80_000_000
_TRIES = 4
_BEFORE_OTHERS = -10
"""How nice a node is where it may choose: the parts of one wait 15 s for each other, which nothing can change."""
_START_SEC = 300


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _is_of_the_dead(name: str, prefix: str) -> bool:
    """Return whether what is called `prefix` and the number of a process, and perhaps more, belongs to one that has ended."""
    owner = re.fullmatch(rf"{prefix}(\d+)(-.*)?", name)
    return owner is not None and not Path(f"/proc/{owner[1]}").exists()


def remove_what_the_dead_left(temporary: Path = Path("/tmp")) -> None:
    """End the nodes of test runs that were killed; remove their bridges, machines and folders."""
    marks = re.compile(rf"(?:^|\0){MARK}=([^\0]*)".encode())
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            mark = marks.search((entry / "environ").read_bytes()) if entry.name.isdecimal() else None
            if mark and _is_of_the_dead(mark[1].decode(), _OWNER):
                os.kill(int(entry.name), signal.SIGKILL)
    for place, command in ((Path("/run/netns"), ("netns", "del")), (Path("/sys/class/net"), ("link", "del"))):
        for entry in place.iterdir() if place.is_dir() else ():
            if _is_of_the_dead(entry.name, _BRIDGE):
                with contextlib.suppress(subprocess.CalledProcessError):  # another run has done it, or it is not ours
                    _ip(*command, entry.name)
    for entry in temporary.glob(f"{_FOLDER}*"):
        if _is_of_the_dead(entry.name, _FOLDER):
            shutil.rmtree(entry, ignore_errors=True)


class Network:
    """A bridge of this machine, and machines beside it: network namespaces with addresses of their own. Needs root."""

    def __init__(self) -> None:
        number = os.getpid()
        self._name, self._net = f"{_BRIDGE}{number}", f"10.{128 + number // 256 % 64}.{number % 256}"
        self._machines: list[str] = []
        self.address = f"{self._net}.1"
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self.address}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    @classmethod
    def made(cls) -> "Network | None":
        """Make one; None where this process may not."""
        if os.getuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
            return None
        try:
            return cls()
        except subprocess.CalledProcessError:
            return None

    def place(self, machine: str) -> tuple[str, str]:
        """The network namespace of a machine, which is made when it is first named, and its address."""
        if machine not in self._machines:
            self._machines.append(machine)
            name, cable = self._names(machine)
            _ip("netns", "add", name)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", cable, "master", self._name, "up")
            _ip("-n", name, "addr", "add", f"{self._address(machine)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
        return self._names(machine)[0], self._address(machine)

    def cable(self, machine: str, state: str) -> None:
        """Pull its cable: `down`; or put it back: `up`."""
        _ip("link", "set", self._names(machine)[1], state)

    def end(self) -> None:
        for machine in self._machines:
            _ip("netns", "del", self._names(machine)[0])
        _ip("link", "del", self._name)

    def _names(self, machine: str) -> tuple[str, str]:
        number = self._machines.index(machine)
        return f"{self._name}-{number}", f"{self._name}c{number}"

    def _address(self, machine: str) -> str:
        return f"{self._net}.{self._machines.index(machine) + 2}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def _below(found: set[int]) -> set[int]:
    """These processes, and all that descend from them."""
    parents: dict[int, int] = {}
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1])
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def processes_of(mark: str) -> set[int]:
    """The processes that bear the mark of a node in their environment, and all that descend from them."""
    found: set[int] = set()
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.add(int(name))
    return _below(found)


def kill_node(mark: str) -> None:
    """As if its plug were pulled: everything at once."""
    while found := processes_of(mark):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


class Starter:
    """A process that has loaded `ray start`, and forks one for each node: loading it takes longer than a node's start.

    With `loaded` it has loaded Harbor too, from which the Harbor processes of the nodes are forked. With `hides` it has an
    empty folder in the place of one, as another machine would, and so have its nodes; with `network` it is in that.
    """

    def __init__(
        self, env: dict[str, str], *, loaded: bool, hides: Path | None = None, network: str | None = None
    ) -> None:
        mount = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hides)]
        before = ["nsenter", f"--net=/run/netns/{network}"] if network is not None else []
        before += ["unshare", "-m", *mount] if hides is not None else []
        command = [*before, sys.executable, "-P", __file__, *(["loaded"] if loaded else [])]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, arguments: list[str], mark: str, own: bool) -> tuple[int, str]:
        """Start a node; the exit code of `ray start` and what it said. With `own` no Harbor process is forked there."""
        given, told = self.process.stdin, self.process.stdout
        assert given is not None
        assert told is not None
        print(json.dumps([arguments, mark, own]), file=given, flush=True)
        code, said = json.loads(told.readline())
        return code, said

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


@dataclass
class Cluster:
    """A head and further nodes. `with Cluster(): ...` leaves nothing. Harbor is `loaded` once for all nodes, or by each job.

    With a `network` nodes that hide something are on machines of it.
    """

    loaded: bool = False
    network: Network | None = None
    port: int = field(default_factory=free_port)
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir="/tmp"))
    marks: list[str] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    _starters: dict[str | None, Starter] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """What lets a process into it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of nodes that hide something."""
        made = Path(self.folder, "t")
        made.mkdir(exist_ok=True)
        return made

    @property
    def address(self) -> str:
        return f"{self._here}:{self.port}"

    @property
    def _here(self) -> str:
        return self.network.address if self.network is not None else "127.0.0.1"

    def head(self, cpus: float = 1) -> str:
        """Start the head, or start it anew after it was killed: Ray takes nodes that are left for a head that runs."""
        Path(self.folder, "ray_current_cluster").unlink(missing_ok=True)
        ports = ["--dashboard-port", str(free_port())]
        place = ["--head", "--port", str(self.port), "--temp-dir", self.folder, "--include-dashboard=false"]
        return self._start(cpus, [*place, *ports, "--no-monitor"])

    def node(self, cpus: float = 1, hides: Path | None = None, own: bool = False, machine: str = "another") -> str:
        """Start a further node, see `Starter`; one with its `own` Harbor starts that for each job."""
        return self._start(cpus, ["--address", self.address], hides, own, machine if hides is not None else None)

    def harbors(self) -> set[int]:
        """The Harbor processes of its nodes: those that a node has started, and those that were forked for one."""
        found = {starter.process.pid for starter in self._starters.values()}
        found = _below(found).union(*(processes_of(mark) for mark in self.marks))
        return {pid for pid in found if _name(pid) == "harbor"}

    def end(self) -> None:
        for mark in self.marks:
            kill_node(mark)
        for starter in self._starters.values():
            starter.end()
        self._starters.clear()
        if self.network is not None:
            self.network.end()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def _start(
        self,
        cpus: float,
        arguments: list[str],
        hides: Path | None = None,
        own: bool = False,
        machine: str | None = None,
    ) -> str:
        """On a busy machine the parts of a node may miss each other, by limits of Ray's own: then once more."""
        network, here = self.network.place(machine) if self.network and machine else (None, self._here)
        if machine not in self._starters:
            env = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE", ADDRESS)}
            # A node would start a Python worker for each of its CPUs whenever a run joins, of which none is used.
            env |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_prestart_worker_first_driver": "0"} | self.env
            env |= {"RAY_memory_monitor_refresh_ms": "0", "RAY_raylet_start_wait_time_s": str(_START_SEC)}
            env |= {"TMPDIR": str(self.temporary)} if hides is not None else {}
            self._starters[machine] = Starter(env, loaded=self.loaded and not own, hides=hides, network=network)
        common = ["--node-ip-address", here, "--num-cpus", str(cpus), "--object-store-memory", str(STORE_BYTES)]
        # Nodes of one machine would draw the ports of their workers from the same list, each without asking the others.
        ports = ["--min-worker-port", "0", "--max-worker-port", "0"]
        command = ["start", *common, *ports, "--disable-usage-stats", "--include-log-monitor=false", *arguments]
        said = ""
        for number in range(_TRIES):
            mark = f"{_OWNER}{os.getpid()}-{self.port}-{len(self.marks)}-{number}"
            self.marks.append(mark)
            code, said = self._starters[machine].start(command, mark, own)
            if code == 0:
                return mark
            kill_node(mark)
        raise AssertionError(said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _name(pid: int) -> str:
    """What the kernel calls a process; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _serve(ray: Any, loaded: bool) -> None:
    """Start what is asked for in a line of the input, and answer with a line, until the input ends."""
    with LoadedHarbor() if loaded else contextlib.nullcontext():
        for line in sys.stdin:
            with tempfile.TemporaryFile("w+") as said:
                pid = os.fork()
                if pid == 0:
                    _start_node(ray, *json.loads(line), said.fileno())
                _, status = os.waitpid(pid, 0)
                said.seek(0)
                print(json.dumps([os.waitstatus_to_exitcode(status), said.read()]), flush=True)


def _start_node(ray: Any, arguments: list[str], mark: str, own: bool, said: int) -> NoReturn:
    signal.alarm(2 * _START_SEC)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _BEFORE_OTHERS)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), said, said)):
        os.dup2(file, number)
    os.environ[MARK] = mark
    if own:
        os.environ.pop(ADDRESS, None)
    sys.argv = ["ray", *arguments]
    try:
        ray()
        code: Any = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001  a copy of the process that serves must not go on
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    from ray.scripts.scripts import main

    _serve(main, sys.argv[1:] == ["loaded"])
