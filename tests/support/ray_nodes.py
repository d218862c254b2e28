"""Nodes of a Ray cluster on this machine: real ones, small, started and killed as a test needs."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from terminalbench.runner.executors.forked import ADDRESS

MARK = "TBENCH_TEST_NODE"
STORE_BYTES = 80_000_000
_TRIES = 4
_START_SEC = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes_of(mark: str) -> set[int]:
    """The processes that bear the mark of a node in their environment, and all that descend from them."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        try:
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if f"{MARK}={mark}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.add(int(name))
        except OSError:
            continue
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def kill_node(mark: str) -> None:
    """As if its plug were pulled: everything at once."""
    while found := processes_of(mark):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@dataclass
class Cluster:
    """A head and further nodes. `with Cluster(): ...` leaves nothing."""

    port: int = field(default_factory=free_port)
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="tbray", dir="/tmp"))
    marks: list[str] = field(default_factory=list)
    token: str = field(default_factory=lambda: secrets.token_hex(32))

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
        return f"127.0.0.1:{self.port}"

    def head(self, cpus: float = 1) -> str:
        """Start the head, or start it anew after it was killed: Ray takes nodes that are left for a head that runs."""
        Path(self.folder, "ray_current_cluster").unlink(missing_ok=True)
        ports = ["--dashboard-port", str(free_port())]
        place = ["--head", "--port", str(self.port), "--temp-dir", self.folder, "--include-dashboard=false"]
        return self._start(cpus, [*place, *ports])

    def node(self, cpus: float = 1, hides: Path | None = None) -> str:
        """Start a further node; one that `hides` a folder has an empty one in its place, as another machine would."""
        user = [] if os.getuid() == 0 else ["-U", "-r"]
        mount = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hides)]
        before = ["unshare", *user, "-m", *mount] if hides is not None else []
        return self._start(cpus, ["--address", self.address], before)

    def end(self) -> None:
        for mark in self.marks:
            kill_node(mark)
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def _start(self, cpus: float, arguments: list[str], before: list[str] | None = None) -> str:
        """On a busy machine the parts of a node may miss each other, by limits of Ray's own: then once more."""
        ray = str(Path(sys.executable).with_name("ray"))
        common = ["--node-ip-address", "127.0.0.1", "--num-cpus", str(cpus), "--object-store-memory", str(STORE_BYTES)]
        for number in range(_TRIES):
            mark = f"{self.port}-{len(self.marks)}-{number}"
            self.marks.append(mark)
            env = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE")}
            env |= {MARK: mark, "RAY_USAGE_STATS_ENABLED": "0"} | self.env
            if before:
                env |= {"TMPDIR": str(self.temporary)}
                env.pop(ADDRESS, None)  # a Harbor that is forked elsewhere would see what is hidden
            command = [*(before or []), ray, "start", *common, "--disable-usage-stats", *arguments]
            said = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_START_SEC)
            if said.returncode == 0:
                return mark
            kill_node(mark)
        raise AssertionError(said.stdout + said.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
